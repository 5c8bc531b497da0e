"""Which part of a thread a page reads: some turns, and never more than a page can show.

A page has up to 20 turns, 240 messages and 1 MiB; to have one turn whole it has up to 8 MiB, and one step up
to 64 MiB.  A turn that is longer is shown in parts, which are cut between steps where that is possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.errors import InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.stored_messages import Kind, StoredMessage, size_of
from helix_temporal.models.turns import is_step_border, starts_in
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage, ThreadStore
from helix_temporal.views.conversation import MAX_ROWS, MessagesPart
from helix_temporal.views.problems import PARTIAL_READ_ERRORS, describe_unread

MAX_TURNS: Final = 20
MAX_MESSAGES: Final = MAX_ROWS
MAX_BYTES: Final = 1024 * 1024
_TURN_BYTES: Final = 8 * MAX_BYTES
"""Read for a turn that is not whole in fewer."""
_STEP_BYTES: Final = 64 * MAX_BYTES
"""Read for a step whose results are not all in fewer: else they stood apart from their calls."""
_ONE_STEP: Final = 64
"""Messages behind a part that are looked at for the results of its last calls."""


@dataclass(frozen=True, slots=True)
class FoundPart:
    """A part of a thread, and what could not be read of it.

    Attributes:
        before: Position up to which an earlier part is read; None at the begin.
        after: Position from which a later part is read; None at the end.
        error: Why not all could be read; None where it could.
        end_known: ``part.head`` is the thread's; else nothing is known of it, and 0 stands for it.
    """

    part: MessagesPart
    before: int | None = None
    after: int | None = None
    error: Exception | None = None
    end_known: bool = True

    @property
    def problem(self) -> str | None:
        """The error as it is told."""
        return None if self.error is None else describe_unread(self.error)


async def read_part(
    threads: ThreadStore, thread_id: str, *, before: int | None, after: int | None, turns: int
) -> FoundPart:
    """The newest turns, or those up to ``before``, or those from ``after`` on.

    A thread that is not there is an empty one: a session has none before its first message.

    Raises:
        InvalidRequestError: Both places are given, or one is negative, or ``turns`` is not 1 to 20.
    """
    if before is not None and after is not None:
        raise InvalidRequestError("before and after exclude each other: give one of them")
    if min(before or 0, after or 0) < 0 or not 1 <= turns <= MAX_TURNS:
        raise InvalidRequestError(f"a position of at least 0, and from 1 to {MAX_TURNS} turns expected")
    reader = PartReader(threads, thread_id)
    if after is None:
        return await _read_backward(reader, before, turns)
    return await _read_forward(reader, after, turns)


async def _read_backward(reader: "PartReader", before: int | None, turns: int) -> FoundPart:
    page = await reader.read(0, before, backward=True)
    if page is None or not page.messages:
        return _empty_part(reader, page)
    window = await _with_context(reader, await _complete_begin(reader, page))
    starts = window.list_starts()
    if len(starts) > turns:
        begin = starts[-turns]
    elif window.first == 0 or starts[:1] == [0]:
        begin = 0
    else:
        begin = starts[0] if starts else _first_border(window.messages)
    return await _finish_part(reader, window.cut(begin))


async def _read_forward(reader: "PartReader", after: int, turns: int) -> FoundPart:
    page = await reader.read(max(after - 1, 0), None, backward=False)
    page = None if page is None else await _complete_end(reader, page, after)
    if page is None or page.first + len(page.messages) <= after:
        return _empty_part(reader, page, at_end=True)
    window = _Window.of(page, after)
    starts, stop = window.list_starts(), None
    # The rest of a turn that began before is one of them.
    begun = starts if starts[:1] == [0] else [0, *starts]
    if len(begun) > turns:
        stop = begun[turns]
    elif page.after is not None:
        later = [each for each in starts if each > 0]
        stop = later[-1] if later else _last_border(window.messages)
    return await _finish_part(reader, window.cut(0, stop))


@dataclass(frozen=True, slots=True)
class _Window:
    """Messages of a page, and the one before them, which tells whether a turn begins with the first.

    Attributes:
        first: Position of the first message.
        context: The message before it; none at the begin of the thread, or where it is not known.
    """

    page: ThreadPage
    first: int
    context: tuple[StoredMessage, ...]
    messages: tuple[StoredMessage, ...]

    @classmethod
    def of(cls, page: ThreadPage, position: int) -> "_Window":
        """The messages from a position on; where the archive is away, what is hot may begin later."""
        at = max(position - page.first, 0)
        return cls(page, page.first + at, page.messages[:at], page.messages[at:])

    def list_starts(self) -> list[int]:
        """Places among the messages at which turns begin."""
        if self.first == 0:
            return [0, *starts_in(self.messages, from_begin=True)] if self.messages else []
        if not self.context:
            return starts_in(self.messages)
        return [at - 1 for at in starts_in([*self.context, *self.messages])]

    def cut(self, begin: int, stop: int | None = None) -> MessagesPart:
        """The part with the messages between two places."""
        before = (*self.context, *self.messages[:begin])
        return MessagesPart(
            self.first + begin,
            self.messages[begin:stop],
            id_before=before[-1].id if before else "" if self.first == 0 else None,
            begins_turn=begin in self.list_starts(),
            committed=self.page.committed,
            head=self.page.head.position,
        )


async def _complete_begin(reader: "PartReader", page: ThreadPage) -> ThreadPage:
    """A page with what stands before it, where it has only the end of a turn, or of a step."""
    while page.first > 0 and not starts_in(page.messages):
        wanted = _bytes_wanted(page.messages, has_border=_begins_at_border(page.messages))
        if wanted == 0:
            break
        limit = MAX_MESSAGES + 1 - len(page.messages)
        more = await reader.read(0, page.first, backward=True, limit=limit, max_bytes=wanted)
        if more is None or not more.messages or more.first + len(more.messages) != page.first:
            break
        page = replace(page, first=more.first, messages=(*more.messages, *page.messages))
    return page


def _begins_at_border(messages: Sequence[StoredMessage]) -> bool:
    """Whether a part of these messages, of which the first is left out, can begin with a step."""
    return len(messages) > 1 and (messages[1].kind != Kind.RESULT or _first_border(messages[1:]) > 0)


async def _complete_end(reader: "PartReader", page: ThreadPage, after: int) -> ThreadPage:
    """A page with what follows it, where it has only the begin of a turn, or of a step, from a place on.

    A large message before the place may have filled the page alone.
    """
    while page.after is not None:
        window = _Window.of(page, after)
        if any(each > 0 for each in window.list_starts()):
            break
        messages = window.messages
        has_border = any(_is_border(messages, each) for each in range(1, len(messages)))
        wanted = _bytes_wanted(messages, has_border=has_border)
        if wanted == 0:
            break
        limit = MAX_MESSAGES + 1 - len(messages)
        more = await reader.read(page.after, None, backward=False, limit=limit, max_bytes=wanted)
        if more is None or not more.messages or more.first != page.after:
            break
        page = replace(more, first=page.first, messages=(*page.messages, *more.messages))
    return page


def _bytes_wanted(messages: Sequence[StoredMessage], *, has_border: bool) -> int:
    """How many bytes are read beside these messages of one turn, so that they can be shown together.

    Args:
        messages: Those that have been read.
        has_border: They can be cut between steps.
    """
    if len(messages) >= MAX_MESSAGES:
        return 0
    return max((_TURN_BYTES if has_border else _STEP_BYTES) - size_of(messages), 0)


async def _with_context(reader: "PartReader", page: ThreadPage) -> _Window:
    """The messages of a page; the first of several is only looked at for whether a turn begins behind it."""
    if page.first > 0 and len(page.messages) == 1:
        earlier = await reader.read(page.first - 1, page.first, backward=True)
        return _Window(page, page.first, () if earlier is None else earlier.messages, page.messages)
    return _Window.of(page, page.first + 1 if page.first > 0 else 0)


def _first_border(messages: Sequence[StoredMessage]) -> int:
    """Where the first step begins in the middle of a turn; 0 where none does."""
    borders = (at for at in range(1, len(messages)) if _is_border(messages, at))
    return 0 if messages[0].kind != Kind.RESULT else next(borders, 0)


def _last_border(messages: Sequence[StoredMessage]) -> int:
    borders = (at for at in range(len(messages) - 1, 0, -1) if _is_border(messages, at))
    return next(borders, len(messages))


def _is_border(messages: Sequence[StoredMessage], at: int) -> bool:
    return is_step_border(messages[at - 1].kind, messages[at].kind)


async def _finish_part(reader: "PartReader", part: MessagesPart) -> FoundPart:
    """The part with what follows it, as far as that may answer its calls or belongs to its last turn."""
    behind: tuple[StoredMessage, ...] = ()
    if part.stop < part.head:
        may_answer = part.messages[-1].kind in {Kind.CALLS, Kind.RESULT}
        page = await reader.read(part.stop, part.stop + (_ONE_STEP if may_answer else 1), backward=False)
        behind = () if page is None else page.messages
    return FoundPart(
        replace(
            part,
            behind=behind,
            ends_turn=not behind or bool(starts_in([part.messages[-1], behind[0]])),
            unread=reader.error is not None,
        ),
        before=part.first if part.first > reader.lowest else None,
        after=part.stop if part.stop < part.head else None,
        error=reader.error,
    )


async def read_one(threads: ThreadStore, thread_id: str, position: int) -> MessagesPart | None:
    """The part that one message is; None where none can be read at this position."""
    reader = PartReader(threads, thread_id)
    page = await reader.read(max(position - 1, 0), position + 1, backward=True, max_bytes=_TURN_BYTES)
    if page is None or page.first + len(page.messages) <= position:
        return None
    return _Window.of(page, position).cut(0)


def _empty_part(reader: "PartReader", page: ThreadPage | None, *, at_end: bool = False) -> FoundPart:
    ends = reader.hot if page is None else page
    committed, head = (0, 0) if ends is None else (ends.committed, ends.head.position)
    first = head if at_end else 0
    part = MessagesPart(first, (), committed=committed, head=head, unread=reader.error is not None)
    return FoundPart(
        part,
        before=first if first > reader.lowest else None,
        error=reader.error,
        end_known=ends is not None or reader.error is None,
    )


class PartReader:
    """Reads messages wherever they can be read: of a thread whose archive is away those that are hot.

    Attributes:
        error: Why not all could be read; None where it could.
        lowest: The lowest position that can be read.
        hot: The header of the hot part, if that alone is read.
    """

    def __init__(self, threads: ThreadStore, thread_id: str) -> None:
        self._threads, self._thread_id = threads, thread_id
        self.error: Exception | None = None
        self.lowest = 0
        self.hot: HotHeader | None = None

    @property
    def problem(self) -> str | None:
        """The error as it is told."""
        return None if self.error is None else describe_unread(self.error)

    async def read(
        self,
        start: int,
        stop: int | None,
        *,
        backward: bool,
        limit: int = MAX_MESSAGES + 1,
        max_bytes: int = MAX_BYTES,
    ) -> ThreadPage | None:
        """Some messages of a range, finished turns and the one under way; None where nothing can be read."""
        wanted = ReadPage(
            self._thread_id,
            start,
            stop,
            limit=limit,
            max_bytes=max_bytes,
            backward=backward,
            committed_only=False,
            whole=False,
        )
        if self.error is not None:
            return await self._read_hot(wanted)
        try:
            return await self._threads.read(wanted)
        except ThreadNotFoundError:
            return None
        except PARTIAL_READ_ERRORS as error:
            self.error = error
            return await self._read_hot(wanted)

    async def _read_hot(self, wanted: ReadPage) -> ThreadPage | None:
        """What the hot thread has of a range."""
        try:
            header = self.hot or await find_hot_header(self._threads, self._thread_id)
        except PARTIAL_READ_ERRORS:
            return None  # the problem is told already
        if header is None:
            return None
        self.hot, self.lowest = header, header.base.position
        start, head = max(wanted.start, header.base.position), header.head.position
        stop = head if wanted.stop is None else min(wanted.stop, head)
        if stop <= start:
            return None
        try:
            return await self._threads.read(replace(wanted, start=start, stop=stop))
        except PARTIAL_READ_ERRORS:
            return None  # the problem is told already


async def find_hot_header(threads: ThreadStore, thread_id: str) -> HotHeader | None:
    """The header of a thread's hot part, without a question to the archive; None where it is not hot."""
    header = await threads.read_hot_header(thread_id)
    return None if header is None or header.deleted else header
