"""A state is read, changed and saved, again and again until nobody was faster."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore

_TRIES: Final = 5


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
    for _ in range(_TRIES):
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
    raise StoreUnavailableError(f"session {session_id!r}: its state changed {_TRIES} times while {during}")
