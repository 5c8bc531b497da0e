"""The steps of a turn: which number an answer has.

A step of a turn is a model's answer in it, counted from 1 at the turn's first message, whatever part of the
turn is looked at.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from helix_temporal.errors import ArchiveCorruptError
from helix_temporal.models.foreign_rows import find_foreign_row
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.turns import starts_in
from helix_temporal.models.usage import TokenUsageEntry, UsageEntry
from helix_temporal.stores.protocols.threads import ThreadPage

LOOK_BACK: Final = 10_000
"""So many messages before a place are looked at for the begin of its turn."""

ReadBack = Callable[[int], Awaitable[ThreadPage | None]]
"""Reads some messages up to a position; None where they cannot be read."""


class TurnBegin(NamedTuple):
    """Where a turn begins, and how many of its steps stand before the place that was asked about."""

    position: int
    steps: int


def number_steps(messages: Sequence[StoredMessage], first: int, before: int = 0) -> dict[int, int]:
    """The numbers of steps by the positions of their answers.

    Args:
        messages: Of one turn, that follow each other.
        first: Position of the first of them.
        before: Steps of the turn that stand before them.
    """
    answers = (at for at, each in enumerate(messages, first) if _is_answer(each))
    return {position: number for number, position in enumerate(answers, before + 1)}


def count_steps(messages: Iterable[StoredMessage]) -> int:
    """How many steps ended with these messages."""
    return sum(1 for each in messages if _is_answer(each))


def _is_answer(message: StoredMessage) -> bool:
    """Whether a model of ours has said it: rows of other systems may be kept together as an answer is."""
    if message.kind not in Kind.ANSWERS:
        return False
    try:
        return find_foreign_row(message) is None
    except ArchiveCorruptError:
        return True


def find_steps_before(messages: Sequence[StoredMessage], entries: Iterable[UsageEntry]) -> int | None:
    """How many steps of a turn stand before these messages of it, as usage tells; None where it doesn't."""
    recorded = {each.id: each.step_count for each in entries if isinstance(each, TokenUsageEntry)}
    numbered = (
        (recorded[f"step/{message.id}"], at)
        for at, message in enumerate(messages)
        if recorded.get(f"step/{message.id}")
    )
    step, at = next(numbered, (0, 0))
    before = step - count_steps(messages[: at + 1])
    return before if step and before >= 0 else None


async def find_begin(read: ReadBack, position: int, *, most: int | None = LOOK_BACK) -> TurnBegin | None:
    """Where the turn of the message before a position begins; None where that cannot be told.

    Args:
        read: Reads messages up to a position.
        position: What stands there is not looked at.
        most: Messages that are read at most, about; None for all.
    """
    steps, stop = 0, position
    later: tuple[StoredMessage, ...] = ()
    while stop > 0:
        if most is not None and position - stop >= most:
            return None
        page = await read(stop)
        if page is None or not page.messages or page.first + len(page.messages) != stop:
            return None
        starts = starts_in([*page.messages, *later], from_begin=page.first == 0)
        if starts:
            return TurnBegin(page.first + starts[-1], steps + count_steps(page.messages[starts[-1] :]))
        steps, stop, later = steps + count_steps(page.messages), page.first, page.messages[:1]
    return TurnBegin(0, steps)
