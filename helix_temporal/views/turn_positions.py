"""Where in a thread a turn stands, or the answer of one of its steps, found by their numbers."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from helix_temporal.errors import InvalidRequestError, NotFoundError, ThreadNotFoundError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.turns import starts_in
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage, ThreadStore, find_facts
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.problems import PARTIAL_READ_ERRORS
from helix_temporal.views.turn_steps import find_begin, number_steps

_COUNTED: Final = 2_000
"""Messages that are read at a time where turns or steps have to be counted."""
_BYTES: Final = 8 * 1024 * 1024


async def find_turn(viewed: ViewedSessions, state: SessionState, number: int) -> int:
    """The position at which a turn begins: by its run, or counted where the session store has no runs.

    The number of an attempt that was made again leads to the turn that stands in its place.

    Raises:
        NotFoundError: There is no such turn, or it is in the thread no more, or not yet.
        InvalidRequestError: No turn has such a number.
        StoreUnavailableError, ArchiveError: The turns have to be counted, and the thread cannot be read.
    """
    if number < 1:
        raise InvalidRequestError(f"turn {number}: turns are numbered from 1")
    newest = None if viewed.sessions is None else await _read_run(viewed, state.session_id, None)
    if newest is None:
        return await _count_turns(viewed, state, number)
    run = await _read_run(viewed, state.session_id, number)
    if run is None or run.turn != number:
        raise NotFoundError(f"session {state.session_id!r} has no turn {number}: its newest is {newest.turn}")
    if not await _stands_there(viewed, state, run):
        if run.status.live:
            raise NotFoundError(
                f"turn {number} of session {state.session_id!r} is under way, and none of its messages is in "
                "the thread yet: follow it, or read it when its first step has ended"
            )
        raise NotFoundError(
            f"turn {number} of session {state.session_id!r} is in the thread no more: it began at "
            f"{run.start_head.position}, and its status is {run.status.value!r}"
        )
    return run.start_head.position


async def find_lost_run(viewed: ViewedSessions, state: SessionState, number: int) -> Run | None:
    """The run of a turn that is not in the thread, nor another in its place; None for any other number."""
    run = await _read_run(viewed, state.session_id, number)
    if run is None or run.turn != number or await _stands_there(viewed, state, run):
        return None
    return run


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
        state.messages_thread_id,
        first,
        head.position + 1,
        limit=2,
        max_bytes=_BYTES,
        committed_only=False,
        whole=False,
    )
    try:
        page = await viewed.threads.read(request)
    except ThreadNotFoundError:
        return False
    except PARTIAL_READ_ERRORS:
        return True
    if page.first + len(page.messages) <= head.position:
        return False
    return head.position == 0 or page.messages[0].id == head.last_id


async def _count_turns(viewed: ViewedSessions, state: SessionState, number: int) -> int:
    counted = stop = 0
    async for page, starts in _iterate_pages(viewed.threads, state.messages_thread_id, 0):
        begun = starts if page.first > 0 else [0, *starts]
        if counted + len(begun) >= number:
            return page.first + begun[number - counted - 1]
        counted, stop = counted + len(begun), page.first + len(page.messages)
    raise NotFoundError(
        f"session {state.session_id!r} has no turn {number}: there are {counted} in {stop} messages"
    )


# ---- answers ----------------------------------------------------------------------------------------


async def find_answer(viewed: ViewedSessions, state: SessionState, turn: int | None, step: int | None) -> int:
    """The position of the answer that a step gave: of this turn or the newest, of its last step for None.

    Raises:
        NotFoundError, InvalidRequestError: The turn has no such step; or see `find_turn`.
        StoreUnavailableError, ArchiveError: The turn cannot be read.
    """
    thread_id = state.messages_thread_id
    if turn is None:
        start = await _find_newest(viewed.threads, thread_id)
    else:
        start = await find_turn(viewed, state, turn)
    count, last = 0, None
    async for first, messages in _iterate_turn(viewed.threads, thread_id, start):
        numbers = number_steps(messages, first, count)
        found = next((at for at, number in numbers.items() if number == step), None)
        if found is not None:
            return found
        count, last = count + len(numbers), max(numbers, default=last)
    if step is None and last is not None:
        return last
    named = "the newest turn" if turn is None else f"turn {turn}"
    have = f"it has steps 1 to {count}" if count else "no model has answered in it"
    missing = "no step yet" if step is None else f"no step {step}"
    raise NotFoundError(f"session {state.session_id!r}: {named} has {missing}; {have}")


async def _find_newest(threads: ThreadStore, thread_id: str) -> int:
    """Where the newest turn begins; 0 in an empty thread."""

    async def read(stop: int) -> ThreadPage | None:
        return await _read_page(threads, thread_id, 0, stop, backward=True)

    facts = await find_facts(threads, thread_id)
    found = None if facts is None else await find_begin(read, facts.head.position, most=None)
    return 0 if found is None else found.position


async def _iterate_turn(
    threads: ThreadStore, thread_id: str, start: int
) -> AsyncIterator[tuple[int, Sequence[StoredMessage]]]:
    """The messages of the turn that begins at a position, some at a time, with the position of the first."""
    async for page, starts in _iterate_pages(threads, thread_id, start):
        yield page.first, page.messages[: starts[0]] if starts else page.messages
        if starts:
            return


async def _iterate_pages(
    threads: ThreadStore, thread_id: str, start: int
) -> AsyncIterator[tuple[ThreadPage, list[int]]]:
    """Pages from a position on, each with the places in it at which turns begin behind that position."""
    position: int | None = start
    before: tuple[StoredMessage, ...] = ()
    while position is not None:
        page = await _read_page(threads, thread_id, position, None)
        if page is None or not page.messages:
            return
        starts = starts_in([*before, *page.messages], from_begin=position == 0)
        yield page, [at - len(before) for at in starts]
        before, position = page.messages[-1:], page.after


async def _read_page(
    threads: ThreadStore, thread_id: str, start: int, stop: int | None, *, backward: bool = False
) -> ThreadPage | None:
    """Some messages of a range; None where there is no thread."""
    request = ReadPage(
        thread_id,
        start,
        stop,
        limit=_COUNTED,
        max_bytes=_BYTES,
        backward=backward,
        committed_only=False,
        whole=False,
    )
    try:
        return await threads.read(request)
    except ThreadNotFoundError:
        return None
