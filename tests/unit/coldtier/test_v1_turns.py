"""Rows of version 1 as turns: each begins where a user speaks, whoever wrote the rows down."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.activities import Payloads, rewinds, state_commits
from helix_temporal.activities.rewinds import (
    TakeBacks,
    first_turns,
    head_after_turns,
    list_turns,
    newest_turns,
    turn_of,
)
from helix_temporal.agents import ContextPolicy
from helix_temporal.agents.context import choose_context
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models import messages as parts
from helix_temporal.models.foreign_rows.zeitlich import V1_FORMAT
from helix_temporal.models.handles import PlanTakeBackInput, TakeBackRequest
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.turns import encode_messages, starts_in
from helix_temporal.session.projection import TurnToCommit
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import user_message
from helix_temporal.testing.contracts._threads_base import Author
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier.test_v1_steps import (
    ADAPTERS,
    ANSWER,
    NOTE,
    USER,
    Row,
    calls,
    imported,
    messages,
    results,
)

PROMPTS: dict[str, Any] = {
    "anthropic": {"id": "s", "message": {"role": "user", "content": "Be kind."}, "isSystem": True},
    "googleGenAI": {"id": "s", "content": {"role": "system", "parts": [{"text": "Be kind."}]}},
    "langChain": {"type": "system", "data": {"id": "s", "content": "Be kind."}},
}

steps = st.tuples(st.integers(1, 2), st.booleans())
turns = st.lists(
    st.tuples(st.integers(1, 2), st.lists(steps, max_size=2), st.booleans()), min_size=1, max_size=6
)


def turn(users: int, steps: list[tuple[int, bool]], answered: bool) -> list[Row]:
    """Users, who speak; steps, in which one may speak while a tool runs; an answer, or the last result."""
    said = [USER] * users
    for count, interrupted in steps:
        names = [f"tool{at}" for at in range(count)]
        given = [results(each) for each in names]
        said += [calls(*names), *([NOTE] if interrupted else []), *given]
    return [*said, ANSWER] if answered or not steps else said


def prompt(adapter: str) -> Message:
    """The row of the system's prompt."""
    form = f"{V1_FORMAT}/{adapter}"
    return Message(id="s", role="foreign", format=form, content=json.dumps(PROMPTS[adapter]))


def starts(adapter: str, *said: Row) -> list[int]:
    """Where turns begin in these rows, after the first."""
    return starts_in(encode_messages(messages(adapter, *said)))


# ---- where a turn begins --------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS)
@settings(max_examples=25, deadline=None)
@given(drawn=turns, count=st.integers(1, 6))
async def test_turns_of_any_thread_are_found(adapter: str, drawn: list[Any], count: int) -> None:
    """From either end, before the import and after it, hot and cold, wherever a page ends."""
    said = [turn(*each) for each in drawn]
    tiers = await imported(adapter, [row for each in said for row in each])
    ends = [0, *itertools.accumulate(len(each) for each in said)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewinds, "_PAGE", 3)
        await check_turns(tiers.threads, ends, count)
        author = Author(tiers.worker(), "t")
        await author.open()
        await check_turns(tiers.worker(), ends, count)
        await author.go_cold()
        await check_turns(tiers.worker(), ends, count)


async def check_turns(threads: TieredThreads, ends: Sequence[int], count: int) -> None:
    """All three ways to find turns agree, with each other and with who wrote them."""
    wanted = list(itertools.pairwise(ends))
    found, after = await first_turns(threads, "t", 0, count)
    assert [(each.start.position, each.end.position) for each in found] == wanted[:count]
    assert after == (ends[count] if count < len(wanted) else None)
    newest = await newest_turns(threads, "t", count)
    assert [(each.start.position, each.end.position) for each in newest] == wanted[-count:]
    assert [(await head_after_turns(threads, "t", kept)).position for kept in range(len(ends))] == ends


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("said", "found"),
    [
        ((USER, ANSWER, USER, ANSWER), [2]),
        ((USER, USER, ANSWER, USER), [3]),
        ((USER, calls("a"), results("a"), ANSWER), []),
        ((USER, calls("a"), NOTE, results("a"), ANSWER), []),
        ((USER, ANSWER, results("a"), ANSWER), []),
        ((USER, calls("a"), USER), [2]),
        ((ANSWER, USER, ANSWER), [1]),
    ],
    ids=["plain", "two at once", "a tool", "a note", "a result of nothing", "never answered", "greeted"],
)
def test_a_turn_begins_where_a_user_speaks(adapter: str, said: tuple[Row, ...], found: list[int]) -> None:
    """Results have the role of a user with two of these providers: nobody speaks in them."""
    assert starts(adapter, *said) == found


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_prompt_belongs_to_the_turn_that_it_stands_before(adapter: str) -> None:
    """Else a thread of one question would be two turns, and the first one empty."""
    row = prompt(adapter)
    assert starts_in(encode_messages([row, *messages(adapter, USER, ANSWER, USER)])) == [3]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_user_of_ours_begins_a_turn_after_rows(adapter: str) -> None:
    """The thread goes on here; two that wait together are one turn, wherever they were written down."""
    before, own = messages(adapter, USER, ANSWER, USER), user_message("u", "and now?")
    assert starts_in(encode_messages([*before[:2], own])) == [2]
    assert starts_in(encode_messages([*before, own])) == [2]


@pytest.mark.parametrize("odd", ["", "{", "[]", "{}", '{"message":{"role":"user"}}', "[" * 100_000])
def test_rows_that_nobody_can_read_begin_nothing(odd: str) -> None:
    """They belong to the turn in which they stand."""
    row = Message(id="odd", role="foreign", format=f"{V1_FORMAT}/anthropic", content=odd)
    user, answer = messages("anthropic", USER, ANSWER)
    assert starts_in(encode_messages([user, answer, row, answer])) == []


def test_rows_of_another_system_are_not_read() -> None:
    """Whatever they look like; a message that speaks of the format is not in it."""
    (user,) = messages("anthropic", USER)
    other = user.model_copy(update={"format": "x", "metadata": {"format": V1_FORMAT}})
    (answer,) = encode_messages([Message(id="a", role="assistant", content="hi")])
    assert starts_in([answer, *encode_messages([other])]) == []


# ---- what is shown, and what is asked anew --------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_list_shows_what_was_said(adapter: str) -> None:
    """In words rather than as the row that holds them."""
    said = [USER, calls("a"), NOTE, results("a"), ANSWER, USER, calls("b")]
    tiers = await imported(adapter, said)
    first, second = (await list_turns(tiers.threads, "t", 0, 1, 10, None)).turns
    assert (first.number, first.text, first.answer) == (1, "said 0", "said 4")
    assert first.message_ids == ("m0", "m2")
    assert (second.text, second.answer, second.message_ids) == ("said 5", None, ("m5",))


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_the_turn_of_a_row_is_found_by_its_message(adapter: str) -> None:
    """To edit it in a fork: also what was said while tools ran, but no answer and no result."""
    tiers = await imported(adapter, [USER, ANSWER, USER, calls("a"), NOTE, results("a"), ANSWER])
    for name in ("m2", "m4"):
        turn = await turn_of(tiers.threads, "t", name)
        assert (turn.start.position, turn.end.position) == (2, 7)
    with pytest.raises(InvalidRequestError, match="no finished turn has a message 'm6'"):
        await turn_of(tiers.threads, "t", "m6")


IMAGES: dict[str, Any] = {
    "anthropic": {
        "message": {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
            ],
        },
    },
    "googleGenAI": {
        "content": {
            "role": "user",
            "parts": [{"text": "See"}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
        },
    },
    "langChain": {
        "type": "human",
        "data": {
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
            ],
        },
    },
}


async def planned(tiers: Tiers, payloads: Payloads) -> Any:
    """What a regeneration asks anew."""
    request = TakeBackRequest(id="op", turns=-1, again=True)
    plan = PlanTakeBackInput(session_id="t", thread_id="t", request=request)
    return await TakeBacks(tiers.threads, payloads)._plan_cut(plan, request)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_rows_are_asked_anew_as_messages(adapter: str) -> None:
    """With their images, in the form that all providers' adapters read."""
    tiers, payloads = await imported(adapter, [USER, ANSWER]), Payloads(MemoryPayloads())
    author = Author(tiers.threads, "t")
    await author.open()
    row = Message(
        id="i", role="foreign", format=f"{V1_FORMAT}/{adapter}", content=json.dumps(IMAGES[adapter])
    )
    asked, *_ = messages(adapter, USER)
    given = [encode_message(each) for each in (row, asked.model_copy(update={"id": "x"}))]
    await author.append(author.step(*given, answer=None))
    found = await planned(tiers, payloads)
    image, text = found.taken_back.messages
    assert found.to.position == 2
    assert text.text == "said 0"
    pictured = await payloads.get("t", image.ref)
    assert pictured == [parts.text_part("See"), parts.image_part(media_type="image/png", data="iVBO")]
    assert {image.id, text.id}.isdisjoint({"i", "x"})


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_turn_in_which_no_user_spoke_is_not_asked_anew(adapter: str) -> None:
    """It is told rather than cut: there would be nothing to bring back."""
    tiers = await imported(adapter, [ANSWER, calls("a"), results("a")])
    with pytest.raises(InvalidRequestError, match="no user said anything"):
        await planned(tiers, Payloads(MemoryPayloads()))


# ---- what a model gets ----------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_window_over_a_long_imported_thread_holds_its_newest_turns(adapter: str) -> None:
    """As many as fit before the first message that came here, not that message alone."""
    imported_rows = messages(adapter, *[USER, calls("a"), results("a"), ANSWER] * 20)
    stored = (*encode_messages(imported_rows), encode_message(user_message("u", "and now?")))
    window = choose_context(stored, ContextPolicy(max_messages=10), complete_before=True)
    assert len(window) == 9
    assert starts_in([StoredMessage("a", "before", b"{}"), *window]) == [1, 5, 9]


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_turns_that_the_state_missed_are_counted_as_they_are_listed(adapter: str) -> None:
    """The receipt of a state that was behind an import said one turn, however many there were."""
    threads = HotThreads(MemoryThreads())
    rows = encode_messages(messages(adapter, USER, ANSWER, USER, ANSWER))
    await threads.open(OpenThread("t", 5, "owner", messages=rows))
    behind = TurnToCommit("t", "t", 5, None, SessionRecord(agent="a"))
    starts, _ = await state_commits._scan_turns(threads, behind, 0, len(rows))
    assert starts == [0, *starts_in(rows)]
    assert len(starts) == 2
