"""The numbers of steps: the same in whatever part of a turn they are looked up."""

from collections.abc import Sequence

import pytest

from helix_temporal.models.messages import Message
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.models.turns import encode_messages
from helix_temporal.models.usage import TokenUsageEntry, UsageEntry
from helix_temporal.stores.protocols.threads import ThreadPage
from helix_temporal.views.turn_steps import TurnBegin, find_begin, find_steps_before, number_steps
from tests.unit.views._scene import answer, call, result, user


def stored(*messages: Message) -> tuple[StoredMessage, ...]:
    """As in a thread."""
    return encode_messages(messages)


def recorded(answer_id: str, step: int) -> TokenUsageEntry:
    """What usage tells of a step."""
    return TokenUsageEntry(
        id=f"step/{answer_id}", session_id="s", timestamp=1, step_count=step, model="m", duration_ms=1
    )


class PagedThread:
    """A thread that is read back a few messages at a time."""

    def __init__(self, messages: Sequence[StoredMessage], *, lowest: int = 0, at_once: int = 3) -> None:
        self._messages, self._lowest, self._at_once = messages, lowest, at_once
        self.reads = 0

    async def read(self, stop: int) -> ThreadPage | None:
        """Those before a position."""
        self.reads += 1
        first = max(stop - self._at_once, self._lowest)
        page = tuple(self._messages[first:stop])
        head = Head(position=len(self._messages), last_id=self._messages[-1].id)
        return ThreadPage(first, page, first or None, None, head, len(self._messages)) if page else None


TURN = stored(
    user("u1"),
    answer("a1", "", call()),
    result("a1"),
    answer("a2", "", call()),
    result("a2"),
    answer("a3"),
)
THREAD = (*stored(user("u0"), answer("a0")), *TURN)


def test_steps_are_answers() -> None:
    """Questions and results are none; a later part goes on counting."""
    assert number_steps(TURN, 2) == {3: 1, 5: 2, 7: 3}
    assert number_steps(TURN[3:], 5, before=1) == {5: 2, 7: 3}


@pytest.mark.parametrize(
    ("position", "begin"),
    [
        (8, TurnBegin(2, 3)),
        (7, TurnBegin(2, 2)),
        (5, TurnBegin(2, 1)),
        (3, TurnBegin(2, 0)),
        (2, TurnBegin(0, 1)),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 100])
async def test_the_begin_of_a_turn_is_found_wherever_pages_end(
    position: int, begin: TurnBegin, at_once: int
) -> None:
    """A page that ends between a question and the answer before it hides none of them."""
    assert await find_begin(PagedThread(THREAD, at_once=at_once).read, position) == begin


async def test_a_begin_that_cannot_be_read_is_not_guessed() -> None:
    """Steps that are counted from the first message that can be read have wrong numbers."""
    assert await find_begin(PagedThread(THREAD, lowest=4).read, 8) is None


async def test_a_begin_that_is_far_is_given_up() -> None:
    """A page must not read ten thousand messages to show a number."""
    thread = PagedThread(stored(user("u"), *(answer(f"a{at}") for at in range(100))))
    assert await find_begin(thread.read, 100, most=30) is None
    assert thread.reads == 10


@pytest.mark.parametrize(
    ("entries", "before"),
    [
        ([recorded("a2", 41)], 40),
        ([recorded("a3", 42)], 40),
        ([recorded("a9", 7)], None),
        ([], None),
        ([recorded("a3", 1)], None),
    ],
)
def test_usage_tells_how_many_steps_stand_before_a_part(
    entries: list[UsageEntry], before: int | None
) -> None:
    """Of any of its steps, without a look at what is before; a number that cannot be is no answer."""
    assert find_steps_before(TURN[3:], entries) == before
