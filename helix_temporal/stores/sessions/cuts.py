"""Taking back the newest messages of a session that no session workflow runs."""

from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from helix_temporal.errors import HeadMovedError, InvalidRequestError, StoreUnavailableError, TooLargeError
from helix_temporal.models.limits import MAX_CUT, MAX_CUT_TEXT
from helix_temporal.models.messages import decode_message
from helix_temporal.models.store_calls import CutMessages
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.stores.protocols.session_rows import RowKey, RowKind, WantedRows
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_count
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession
from helix_temporal.stores.sessions.loop import pause_before_retry
from helix_temporal.stores.sessions.threads import Standing, order_to_take_back, row_of

_TRIES: Final = 100


async def cut_messages(
    store: SessionStoreBase,
    session_id: str,
    count: int,
    *,
    head: Head | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> CutMessages:
    """See `SessionStore.cut_messages`.

    The order for the thread and the operation's answer are committed together.  Whoever carries the order out
    finds that the thread has gone on, and takes both away; or it is cut, and the answer stays.
    """
    operation_id = operation_id or uuid4().hex
    call = Call("cut_messages", session_id, (_check_count(session_id, count), head), epoch, operation_id)

    async def decide(seen: SeenSession) -> Decision[CutMessages] | None:
        return await _decide_cut(store, seen, count, head, operation_id)

    for number in range(_TRIES):
        answer = await store.make_change(call, store.with_thread, decide, CutMessages)
        await store.threads.carry_out_pending(session_id)
        if await _is_remembered(store, session_id, operation_id):
            return answer
        await pause_before_retry(number)
    raise StoreUnavailableError(f"session {session_id!r}: the cut was overtaken {_TRIES} times")


async def _decide_cut(
    store: SessionStoreBase, seen: SeenSession, count: int, expected: Head | None, operation_id: str
) -> Decision[CutMessages] | None:
    state = seen.present
    if await store.threads.carry_out_seen(seen):
        return None
    there = await store.threads.find_standing(seen)
    head = _check_end(seen.session_id, there, expected)
    kept = head.position - count
    _check_kept(seen.session_id, head.position, kept, state.head.position)
    if there is None or not count:
        return Decision(CutMessages(messages=(), head=head))
    start = max(kept - 1, 0)
    found = await store.threads.read(seen.session_id, start, head.position, epoch=there.epoch)
    if len(found) != head.position - start or found[-1].id != head.last_id:
        return None  # it was cut meanwhile
    to = Head(position=kept, last_id=found[0].id if kept else "")
    taken = found[1:] if kept else found
    _check_size(seen.session_id, taken)
    order = order_to_take_back(there, to, seen.now, operation_id)
    messages = tuple(decode_message(each) for each in taken)
    return Decision(CutMessages(messages=messages, head=to), puts=(row_of(order),))


def _check_count(session_id: str, count: int) -> int:
    if checked_count(count, "count") > MAX_CUT:
        raise InvalidRequestError(
            f"session {session_id!r}: {count} messages were to be taken back, and {MAX_CUT} can be at once; "
            "truncate_messages takes any number, and gives none back"
        )
    return count


def _check_size(session_id: str, taken: Sequence[StoredMessage]) -> None:
    size = sum(len(each.body) for each in taken)
    if len(taken) > 1 and size > MAX_CUT_TEXT:
        raise TooLargeError(
            f"session {session_id!r}: the {len(taken)} messages to be taken back have {size} bytes, and "
            f"{MAX_CUT_TEXT} can be at once; take fewer, or use truncate_messages, which gives none back"
        )


def _check_end(session_id: str, there: Standing | None, expected: Head | None) -> Head:
    head = EMPTY if there is None else there.head
    if expected is not None and expected != head:
        raise HeadMovedError(
            f"session {session_id!r} ends at {head.position} (message {head.last_id!r}), not at "
            f"{expected.position} ({expected.last_id!r}); read it again",
            session_id=session_id,
        )
    if there is not None and there.visible_end(session_id) < head.position:
        raise InvalidRequestError(
            f"session {session_id!r}: its workflow has a turn under way; stop it, or rewind by its handle",
            session_id=session_id,
        )
    return head


def _check_kept(session_id: str, end: int, kept: int, committed: int) -> None:
    if kept < 0:
        raise InvalidRequestError(
            f"session {session_id!r}: there are {end} messages, and {end - kept} were to be taken back",
            session_id=session_id,
        )
    if kept < committed:
        raise InvalidRequestError(
            f"session {session_id!r}: its state was committed with {committed} messages, and {kept} were to "
            "be left; restore a checkpoint, or use truncate_messages",
            session_id=session_id,
        )


async def _is_remembered(store: SessionStoreBase, session_id: str, operation_id: str) -> bool:
    name = RowKey(RowKind.OPERATION, operation_id)
    seen = await store.view_session(session_id, WantedRows(keys=(name,)))
    return seen.view.find_row(*name) is not None
