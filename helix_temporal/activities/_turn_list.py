"""Where the finished turns of a thread begin and end, read page by page."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.handles import FindTurnResult, ListTurnsResult, TurnInfo
from helix_temporal.models.messages import Message
from helix_temporal.models.records import EMPTY, Head, Kind, Record
from helix_temporal.models.rows import answer_in, starts_in, user_in
from helix_temporal.stores.protocols.threads import Page, ReadPage, ThreadStore

SHOWN_CHARACTERS: Final = 200
"""So much of a message is shown in a list of turns."""
_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn with its messages."""

    start: Head
    records: tuple[Record, ...]

    @property
    def users(self) -> tuple[Message, ...]:
        """The users' messages in it, also those that came while tools of version 1 ran."""
        return tuple(said for record in self.records if (said := user_in(record)) is not None)

    @property
    def end(self) -> Head:
        """Where the thread stands after it."""
        return Head(position=self.start.position + len(self.records), last_id=self.records[-1].id)

    def told(self, number: int) -> TurnInfo:
        """What a list says of it."""
        users, answer = self.users, answer_in(self.records[-1])
        return TurnInfo(
            number=number,
            start=self.start,
            end=self.end,
            message_ids=tuple(each.id for each in users),
            text=_shown(users[0]) if users else "",
            answer=None if answer is None else _shown(answer),
        )


def _shown(message: Message) -> str:
    return message.text[:SHOWN_CHARACTERS]


def split_turns(start: Head, records: Sequence[Record]) -> list[FoundTurn]:
    """The turns that these messages, which begin with a turn, are: each begins where users speak again."""
    turns: list[FoundTurn] = []
    for begin, end in itertools.pairwise([0, *starts_in(records), len(records)]):
        turns.append(FoundTurn(turns[-1].end if turns else start, tuple(records[begin:end])))
    return turns


async def first_turns(
    threads: ThreadStore, thread_id: str, start: int, count: int
) -> tuple[list[FoundTurn], int | None]:
    """Up to ``count`` finished turns from ``start`` on, and where the next one begins, None at the end.

    Raises:
        InvalidRequestError: No turn begins at ``start``.
    """
    page = await _page(threads, thread_id, max(start - 1, 0), None)
    records, begun = list(page.records), len(starts_in(page.records))
    while page.after is not None and begun <= count:
        page = await _page(threads, thread_id, page.after, None)
        begun += len(starts_in([*records[-1:], *page.records]))
        records += page.records
    before = EMPTY
    if start:
        if page.committed < start or (page.committed > start and starts_in(records[:2]) != [1]):
            raise InvalidRequestError(f"thread {thread_id!r}: no turn begins at {start}")
        before = Head(position=start, last_id=records.pop(0).id)
    turns = split_turns(before, records) if records else []
    return turns[:count], turns[count - 1].end.position if len(turns) > count else None


async def head_after(threads: ThreadStore, thread_id: str, count: int) -> Head:
    """Where the thread stood after its first ``count`` turns.

    Raises:
        InvalidRequestError: It has fewer.
    """
    if count == 0:
        return EMPTY
    begun, at, last = 0, 0, tuple[Record, ...]()
    while True:
        page = await _page(threads, thread_id, at, None)
        begun += bool(page.records) and not last
        known = (*last, *page.records)
        starts = starts_in(known)
        if begun + len(starts) > count:
            end = starts[count - begun]
            return Head(position=at - len(last) + end, last_id=known[end - 1].id)
        begun, at, last = begun + len(starts), at + len(page.records), known[-1:]
        if page.after is None:
            break
    if begun < count:
        raise InvalidRequestError(f"thread {thread_id!r}: {begun} finished turns, {count} cannot stay")
    return Head(position=at, last_id=last[0].id)


async def newest_turns(threads: ThreadStore, thread_id: str, count: int) -> list[FoundTurn]:
    """The newest finished turns, oldest first; fewer where the thread has not so many."""
    records: list[Record] = []
    begun = 0
    stop: int | None = None
    while True:
        page = await _page(threads, thread_id, 0, stop, backward=True)
        begun += len(starts_in([*page.records, *records[:1]]))
        records = [*page.records, *records]
        stop = page.before
        if stop is None or begun >= count:
            break
    if not records:
        return []
    turns = split_turns(EMPTY, records) if stop is None else _after_first(page.first, records)
    return turns[-count:]


async def newest_users(threads: ThreadStore, thread_id: str, start: int, count: int) -> list[str]:
    """Ids of the newest ``count`` users' messages of finished turns from ``start`` on, oldest first."""
    found: list[str] = []
    stop: int | None = None
    while True:
        page = await _page(threads, thread_id, start, stop, backward=True)
        found = [*(each.id for each in page.records if each.kind == Kind.USER), *found]
        stop = page.before
        if stop is None or stop <= start or len(found) >= count:
            return found[-count:]


def _after_first(first: int, records: Sequence[Record]) -> list[FoundTurn]:
    starts = starts_in(records)
    if not starts:
        return []
    begin = starts[0]
    return split_turns(Head(position=first + begin, last_id=records[begin - 1].id), records[begin:])


async def turn_of(threads: ThreadStore, thread_id: str, message_id: str) -> FindTurnResult:
    """The finished turn that a user's message is in; the newest turns are looked at first.

    Raises:
        InvalidRequestError: No finished turn has a message of the user's with that id.
    """
    count = 64
    while True:
        turns = await newest_turns(threads, thread_id, count)
        for turn in reversed(turns):
            if any(record.id == message_id and user_in(record) is not None for record in turn.records):
                return FindTurnResult(start=turn.start, end=turn.end)
        if not turns or turns[0].start.position == 0:
            raise InvalidRequestError(
                f"thread {thread_id!r}: no finished turn has a message {message_id!r} of the user's"
            )
        count *= 4


async def listed(
    threads: ThreadStore, thread_id: str, start: int, number: int, limit: int, newest: int | None
) -> ListTurnsResult:
    """A page of turns; see `ListTurnsInput`."""
    if newest is not None:
        last = await newest_turns(threads, thread_id, newest)
        return ListTurnsResult(turns=tuple(turn.told(at - len(last)) for at, turn in enumerate(last)))
    turns, after = await first_turns(threads, thread_id, start, limit)
    return ListTurnsResult(turns=tuple(turn.told(number + at) for at, turn in enumerate(turns)), after=after)


async def _page(
    threads: ThreadStore, thread_id: str, start: int, stop: int | None, *, backward: bool = False
) -> Page:
    return await threads.read(
        ReadPage(thread_id, start, stop, limit=_PAGE, max_bytes=_PAGE_BYTES, backward=backward, whole=False)
    )
