"""Taking back the newest messages of a session that no session workflow runs."""

from typing import Final
from uuid import uuid4

from helix_temporal.errors import FencedError, HeadMovedError, InvalidRequestError, StoreUnavailableError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.decisions import SeenSession
from helix_temporal.stores.sessions.loop import pause_before_retry
from helix_temporal.stores.sessions.threads import Standing, cut_owner, next_epoch

_TRIES: Final = 100


async def cut_messages(
    store: SessionStoreBase, session_id: str, head: Head, to: Head, *, operation_id: str | None = None
) -> None:
    """See `SessionStore.cut_messages`.

    The thread alone is changed, in one step, by an open that has the operation for an owner: so a repeat
    knows its own cut, although others have appended since.
    """
    name = uuid4().hex if operation_id is None else validate_id(operation_id, "operation id")
    if to.position >= head.position:
        raise InvalidRequestError(
            f"session {session_id!r}: a cut from {head.position} to {to.position} is none"
        )
    owner = cut_owner(session_id, name)
    for number in range(_TRIES):
        seen = await store.view_session(session_id, store.with_thread)
        _check_state(seen, to)
        if await store.threads.carry_out_seen(seen):
            continue
        there = await store.threads.find_standing(seen)
        if there is not None and there.owner == owner:
            return
        _check_head(session_id, there, head)
        epoch = next_epoch(seen.now, there.epoch if there else 0)
        cut = OpenThread(session_id, epoch, owner, Create.NEVER, rewind_to=to, expected_head=head)
        try:
            await store.threads.store.open(cut)
        except FencedError:
            # Somebody opened the thread with this very epoch, or a higher one, since the look.
            await pause_before_retry(number)
        else:
            return
    raise StoreUnavailableError(f"session {session_id!r}: the cut was overtaken {_TRIES} times")


def _check_state(seen: SeenSession, to: Head) -> None:
    committed = seen.present.head.position
    if committed > to.position:
        raise InvalidRequestError(
            f"session {seen.session_id!r}: its state was committed with {committed} messages, and "
            f"{to.position} were to be left; restore a checkpoint, or use truncate_messages",
            session_id=seen.session_id,
        )


def _check_head(session_id: str, there: Standing | None, head: Head) -> None:
    found = EMPTY if there is None else there.head
    if found != head:
        raise HeadMovedError(
            f"session {session_id!r} ends at {found.position} (message {found.last_id!r}), not at "
            f"{head.position} ({head.last_id!r}); read it again",
            session_id=session_id,
        )
