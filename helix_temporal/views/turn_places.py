"""Where in a thread a turn stands, found by its number without reading what is before it."""

from collections.abc import Sequence
from typing import Final

from helix_temporal.errors import InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.turns import starts_in
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage
from helix_temporal.views.access import PASSING, ViewedSessions
from helix_temporal.views.thread_parts import wait_for_archive

_COUNTED: Final = 2_000
"""Messages that are read at a time where turns have to be counted."""
_BYTES: Final = 8 * 1024 * 1024


async def find_turn(viewed: ViewedSessions, state: SessionState, number: int) -> int:
    """The position at which a turn begins: by its run, or counted where the session store has no runs.

    The number of an attempt that was made again leads to the turn that stands in its place.

    Raises:
        InvalidRequestError: There is no such turn, or it is in the thread no more.
        StoreUnavailableError, ArchiveError: The turns have to be counted, and the thread cannot be read.
    """
    if number < 1:
        raise InvalidRequestError(f"turn {number}: turns are numbered from 1")
    newest = None if viewed.sessions is None else await _read_run(viewed, state.session_id, None)
    if newest is None:
        return await _count_turns(viewed, state, number)
    run = await _read_run(viewed, state.session_id, number)
    if run is None or run.turn != number:
        raise InvalidRequestError(
            f"session {state.session_id!r} has no turn {number}: its newest is {newest.turn}"
        )
    if not await _stands_there(viewed, state, run):
        raise InvalidRequestError(
            f"turn {number} of session {state.session_id!r} is in the thread no more: it began at "
            f"{run.start_head.position}, and its status is {run.status.value!r}"
        )
    return run.start_head.position


async def _read_run(viewed: ViewedSessions, session_id: str, number: int | None) -> Run | None:
    """The run with this number, or the last one before it; the newest where no number is given."""
    if viewed.sessions is None:
        return None
    page = await viewed.sessions.list_runs(session_id, limit=1, through_turn=number, count=False)
    return page.items[0] if page.items else None


async def _stands_there(viewed: ViewedSessions, state: SessionState, run: Run) -> bool:
    """Whether messages follow where the run began: its own, or those of a later attempt.

    Where the thread cannot be read, who reads the page is told so.
    """
    head = run.start_head
    first = max(head.position - 1, 0)
    request = ReadPage(
        state.thread_id or state.session_id,
        first,
        head.position + 1,
        limit=2,
        committed_only=False,
        whole=False,
    )
    try:
        page = await wait_for_archive(lambda: viewed.threads.read(request))
    except ThreadNotFoundError:
        return False
    except (*PASSING, TimeoutError):
        return True
    if page.first + len(page.messages) <= head.position:
        return False
    return head.position == 0 or page.messages[0].id == head.last_id


async def _count_turns(viewed: ViewedSessions, state: SessionState, number: int) -> int:
    thread_id = state.thread_id or state.session_id
    counted, position = 0, 0
    earlier: tuple[StoredMessage, ...] = ()
    while True:
        request = ReadPage(
            thread_id, position, limit=_COUNTED, max_bytes=_BYTES, committed_only=False, whole=False
        )
        try:
            page = await viewed.threads.read(request)
        except ThreadNotFoundError:
            break
        if not page.messages:
            break
        starts = _list_starts(page, earlier)
        if counted + len(starts) >= number:
            return page.first + starts[number - counted - 1]
        counted, position = counted + len(starts), page.first + len(page.messages)
        earlier = page.messages[-1:]
        if page.after is None:
            break
    raise InvalidRequestError(
        f"session {state.session_id!r} has no turn {number}: there are {counted} in {position} messages"
    )


def _list_starts(page: ThreadPage, earlier: Sequence[StoredMessage]) -> list[int]:
    """Places in a page at which turns begin; ``earlier`` is the message before it, none at the begin."""
    if not earlier:
        return [0, *starts_in(page.messages, from_begin=True)]
    return [at - 1 for at in starts_in([*earlier, *page.messages])]
