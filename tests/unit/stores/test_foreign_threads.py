"""Threads of frameworks' rows: pages, forks, windows and turns never part a call from its results."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.activities import Payloads, rewinds
from helix_temporal.activities.rewinds import (
    TakeBacks,
    first_turns,
    head_after_turns,
    list_turns,
    newest_turns,
    turn_of,
)
from helix_temporal.agents import ContextPolicy, choose_context
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.handles import PlanTakeBackInput, TakeBackRequest
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.stored_messages import EMPTY, StoredMessage, head_after
from helix_temporal.models.turns import encode_messages, starts_in
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.threads import ForkThread, ReadPage, ThreadStore
from helix_temporal.stores.sessions.messages import encode_new_messages, plan_append
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.stores.threads.log_check import check_log
from helix_temporal.testing.contracts._threads_base import LATER, Author, pages
from tests.unit.coldtier._tiers import Tiers
from tests.unit.models._foreign_rows import CONVERSATIONS, PICTURE
from tests.unit.models.test_foreign_rows import message_of, messages_of

FRAMEWORKS = list(CONVERSATIONS)


class Rows(NamedTuple):
    """A conversation of so many rounds.

    Attributes:
        inside: Positions at which a call, or reasoning, has something behind that belongs to it.
        ends: Positions at which turns end, with 0.
    """

    messages: list[Message]
    inside: set[int]
    ends: list[int]


def conversation(name: str, rounds: int) -> Rows:
    """Several times the framework's two turns, each time under the same ids of calls."""
    form, rows = CONVERSATIONS[name]
    rows = rows * rounds
    asked = [at for at, each in enumerate(rows) if each.calls or (each.kind == "c" and not each.calls)]
    answered = {at: at for at, each in enumerate(rows) if each.results}
    inside: set[int] = set()
    for at in asked:
        given_ids = set(rows[at].calls)
        last = at + 1
        for later in itertools.takewhile(lambda place: rows[place].said != "Done.", range(at, len(rows))):
            if later in answered and given_ids & set(rows[later].results):
                last = later
        inside.update(range(at + 1, last + 1))
    # Rows that join the one before them.
    inside.update(at for at, each in enumerate(rows) if at and each.kind == "t")
    messages = messages_of(form, [each.row for each in rows])
    users = [at for at, each in enumerate(rows) if each.role == "user" and each.said is not None]
    begins = [at - 1 if at and rows[at - 1].role == "system" else at for at in users]
    return Rows(messages, inside, [0, *begins[1:], len(rows)])


async def appended(threads: ThreadStore, messages: Sequence[Message], sizes: Sequence[int]) -> Author:
    """The thread, written in appends of these sizes over and over."""
    author, at = Author(threads, "t"), 0
    await author.open()
    for size in itertools.cycle(sizes):
        if at >= len(messages):
            return author
        await author.append(author.step(*encode_messages(messages[at : at + size]), answer=None))
        at += size
    return author


async def everything(threads: ThreadStore, thread_id: str = "t") -> tuple[StoredMessage, ...]:
    """All rows."""
    return (await threads.read(ReadPage(thread_id, limit=10_000))).messages


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


# ---- pages ----------------------------------------------------------------------------------------


async def check_pages(threads: ThreadStore, rows: Rows, wanted: ReadPage) -> None:
    """All pages are the thread, and none ends inside a step."""
    found = await pages(threads, wanted)
    if wanted.backward:
        found.reverse()
    assert tuple(stored for page in found for stored in page) == await everything(threads)
    borders = set(itertools.accumulate(len(page) for page in found)) - {len(rows.messages)}
    assert borders.isdisjoint(rows.inside)


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=30, deadline=None)
@given(sizes=sizes, limit=st.integers(1, 8), max_bytes=st.integers(1, 2000), backward=st.booleans())
async def test_pages_hold_whole_steps(
    name: str, sizes: list[int], limit: int, max_bytes: int, backward: bool
) -> None:
    """However the rows came, one by one or many at once, hot and cold."""
    rows = conversation(name, 3)
    tiers = Tiers()
    author = await appended(tiers.worker(), rows.messages, sizes)
    wanted = ReadPage("t", limit=limit, max_bytes=max_bytes, backward=backward)
    await check_pages(tiers.worker(), rows, wanted)
    await author.go_cold()
    await check_pages(tiers.worker(), rows, wanted)


async def test_a_page_holds_calls_that_stand_in_rows_of_their_own() -> None:
    """Two calls, then two results, each appended alone: more of them than are looked at at once."""
    names = [f"call{at}" for at in range(50)]
    rows = [
        {"role": "user", "content": "Look"},
        {"type": "reasoning", "id": "rs", "summary": []},
        *({"type": "function_call", "call_id": each, "name": "look", "arguments": "{}"} for each in names),
        *({"type": "function_call_output", "call_id": each, "output": "1"} for each in names),
        {"role": "assistant", "content": "Done."},
    ]
    threads = HotThreads(MemoryThreads())
    await appended(threads, messages_of("openai-agents/1", rows), [1])
    for start in (1, 2, 40, 52, 90):
        page = await threads.read(ReadPage("t", start=start, limit=1))
        assert (page.first, page.after) == (start, 102)
        back = await threads.read(ReadPage("t", stop=start + 1, limit=1, backward=True))
        assert (back.first, back.before, len(back.messages)) == (1, 1, start)


# ---- forks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=10, deadline=None)
@given(sizes=sizes)
async def test_a_fork_is_refused_inside_a_step_and_nowhere_else(name: str, sizes: list[int]) -> None:
    """So each border of turns is a place to fork at."""
    rows = conversation(name, 1)
    threads = HotThreads(MemoryThreads())
    await appended(threads, rows.messages, sizes)
    whole = await everything(threads)
    assert rows.inside.isdisjoint(rows.ends)
    for at in range(len(whole) + 1):
        request = ForkThread("t", f"copy-{at}", LATER, "forker", at)
        if at in rows.inside:
            with pytest.raises(InvalidRequestError, match="between a tool call and its result"):
                await threads.fork(request)
        else:
            await threads.fork(request)
            assert await everything(threads, request.target_id) == whole[:at]


# ---- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=10, deadline=None)
@given(sizes=sizes, count=st.integers(1, 5))
async def test_turns_are_found_from_both_ends(name: str, sizes: list[int], count: int) -> None:
    """Wherever a page ends, and by number as well."""
    rows = conversation(name, 2)
    threads = HotThreads(MemoryThreads())
    await appended(threads, rows.messages, sizes)
    wanted = list(itertools.pairwise(rows.ends))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewinds, "_PAGE", 3)
        found, _ = await first_turns(threads, "t", 0, count)
        assert [(each.start.position, each.end.position) for each in found] == wanted[:count]
        newest = await newest_turns(threads, "t", count)
        assert [(each.start.position, each.end.position) for each in newest] == wanted[-count:]
        heads = [await head_after_turns(threads, "t", kept) for kept in range(len(rows.ends))]
        assert [each.position for each in heads] == rows.ends


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_a_list_of_turns_shows_what_was_said(name: str) -> None:
    """In words, and under the ids of the rows."""
    rows = conversation(name, 1)
    threads = HotThreads(MemoryThreads())
    await appended(threads, rows.messages, [len(rows.messages)])
    first, second = (await list_turns(threads, "t", 0, 1, 10, None)).turns
    assert (first.text, first.answer) == ("Look", "Done.")
    assert (second.text, second.answer) == ("And now?", "Bye.")
    assert [len(each.message_ids) for each in (first, second)] == [1, 1]
    for turn in (first, second):
        found = await turn_of(threads, "t", turn.message_ids[0])
        assert (found.start, found.end) == (turn.start, turn.end)


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_what_a_user_said_is_asked_anew_as_a_message(name: str) -> None:
    """With its picture, in the form that all providers' adapters read."""
    rows = conversation(name, 1)
    threads, payloads = HotThreads(MemoryThreads()), Payloads(MemoryPayloads())
    await appended(threads, rows.messages, [len(rows.messages)])
    request = TakeBackRequest(id="op", turns=-2, again=True)
    plan = PlanTakeBackInput(session_id="t", thread_id="t", request=request)
    found = await TakeBacks(threads, payloads)._plan_cut(plan, request)
    (asked,) = found.taken_back.messages
    assert found.to.position == 0
    assert await payloads.get("t", asked.ref or "") == PICTURE


@pytest.mark.parametrize("name", FRAMEWORKS)
@given(data=st.data())
def test_a_repeat_of_some_rows_of_an_append_adds_those_that_are_new(name: str, data: st.DataObject) -> None:
    """A framework that lost an acknowledgement sends batches that overlap with what stands."""
    messages = conversation(name, 1).messages
    begin, stop = (data.draw(st.integers(0, len(messages))) for _ in range(2))
    there = encode_new_messages(messages[:stop])
    again = encode_new_messages(messages[begin:])
    places = {message.id: at for at, message in enumerate(there)}
    head = head_after(EMPTY, there)
    plan = plan_append("s", again, head, dict(enumerate(there)), places)
    assert [each.id for each in plan.new] == [each.id for each in messages[max(begin, stop) :]]


async def test_a_user_who_speaks_while_a_call_waits_begins_no_turn() -> None:
    """A cut there would leave the call without its result."""
    form = "openai-agents/1"
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    rows = [{"role": "user", "content": "Look"}, call, {"role": "user", "content": "Hurry!"}]
    result = {"type": "function_call_output", "call_id": "a", "output": "1"}
    assert starts_in(encode_messages(messages_of(form, [*rows, result]))) == []
    own = encode_message(Message(id="u", role="user", content="Never mind."))
    assert starts_in([encode_messages([message_of(form, call)])[0], own]) == [1]


async def test_a_call_that_a_thread_ends_with_is_of_a_turn_that_is_not_finished() -> None:
    """As for messages of ours: it is committed with its result, and an open cuts it before that."""
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    rows = messages_of("openai-agents/1", [{"role": "user", "content": "Look"}, call])
    author = await appended(HotThreads(MemoryThreads()), rows, [1])
    assert (await author.facts()).committed == 1
    assert (await author.later().open()).at.position == 1


# ---- windows, and what an audit says --------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 40), complete=st.booleans())
def test_a_window_begins_at_a_turn_or_at_a_step(name: str, count: int, complete: bool) -> None:
    """At a turn wherever one fits."""
    rows = conversation(name, 2)
    stored = encode_messages(rows.messages)
    window = choose_context(stored, ContextPolicy(max_messages=count), complete_before=complete)
    begin = len(stored) - len(window)
    assert stored[begin:] == tuple(window)
    assert begin not in rows.inside
    fits = [at for at in rows.ends[1:-1] if at >= len(stored) - count]
    assert begin == min(fits, default=begin) or begin < min(fits)


def test_a_window_begins_before_all_calls_of_its_step() -> None:
    """Though each of them stands in a row of its own."""
    names = ["a", "b"]
    rows = [
        {"role": "user", "content": "Look"},
        *({"type": "function_call", "call_id": each, "name": "look", "arguments": "{}"} for each in names),
        *({"type": "function_call_output", "call_id": each, "output": "1"} for each in names),
    ]
    stored = encode_messages(messages_of("openai-agents/1", rows))
    for count in (1, 2, 3, 4):
        window = choose_context(stored, ContextPolicy(max_messages=count), complete_before=True)
        assert [each.id for each in window] == ["r1", "r2", "r3", "r4"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_audit_finds_nothing_wrong_with_them(name: str) -> None:
    """A result may come long after its call, and a row that joins another may stand anywhere."""
    stored = encode_messages(conversation(name, 2).messages)
    assert check_log(list(stored), len(stored)) == []
