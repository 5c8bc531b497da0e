"""Changes of a session's state: one loop that loads, changes and saves it, and a lost state made again."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models.states import CreateSession, SessionState
from helix_temporal.models.stored_messages import Head
from helix_temporal.session.projection import fields_of_record
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.sessions import SessionStore

TRIES: Final = 5
"""How often a change is tried while somebody else changes the state."""


async def save_change(
    store: SessionStore,
    session_id: str,
    epoch: int | None,
    change: Callable[[SessionState], Mapping[str, Any]],
    during: str,
) -> SessionState | None:
    """Save what ``change`` makes of the state; the state then, or None where there is none.

    Raises:
        FencedError: A newer open has the session.
        StoreUnavailableError: Somebody was faster each time.
    """
    for _ in range(TRIES):
        state = await store.load_state(session_id)
        if state is None:
            return None
        changed = state.model_copy(update=change(state))
        if changed == state:
            return state
        try:
            await store.save_state(session_id, changed, epoch=epoch)
        except StaleStateError:
            continue
        return changed
    raise StoreUnavailableError(f"session {session_id!r}: its state changed {TRIES} times while {during}")


async def recreate_state(
    store: SessionStore, session_id: str, epoch: int | None, record: SessionRecord, head: Head
) -> None:
    """Make the state again that a store without persistence has lost; its checkpoints are gone."""
    options = CreateSession(head=head, **fields_of_record(record))
    await store.create_session(session_id, options, if_not_exists=True, epoch=epoch)
