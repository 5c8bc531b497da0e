"""Rows of version 1 in pages, forks and windows: a tool call is never without its results."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.adapters.zeitlich import convert_zeitlich_rows
from helix_temporal.agents import ContextPolicy
from helix_temporal.agents.context import choose_context
from helix_temporal.coldtier import TieredThreads, V1Snapshots
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.turns import encode_messages, kinds_of
from helix_temporal.stores.protocols.threads import ForkThread, ReadPage
from helix_temporal.testing.contracts._threads_base import LATER, Author, pages
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier._v1_files import KEY, snapshot, text

ADAPTERS = ("anthropic", "googleGenAI", "langChain")


class Row(NamedTuple):
    """What a row of any adapter says: something, calls, or results of calls."""

    role: str
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


USER, ANSWER, NOTE = Row("user"), Row("assistant"), Row("user")


def written(adapter: str, at: int, row: Row) -> Iterator[dict[str, Any]]:
    """The row as its adapter writes it; LangChain has a row for each result."""
    if adapter == "anthropic":
        blocks = [
            *({"type": "tool_use", "id": each, "name": "look", "input": {}} for each in row.calls),
            *({"type": "tool_result", "tool_use_id": each, "content": each} for each in row.results),
        ]
        said = blocks or [{"type": "text", "text": f"said {at}"}]
        yield {"id": f"m{at}", "message": {"role": row.role, "content": said}}
    elif adapter == "googleGenAI":
        parts = [
            *({"functionCall": {"name": each, "args": {}}} for each in row.calls),
            *({"functionResponse": {"name": each, "response": {"result": each}}} for each in row.results),
        ]
        role = "model" if row.role == "assistant" else "user"
        yield {"id": f"m{at}", "content": {"role": role, "parts": parts or [{"text": f"said {at}"}]}}
    elif row.results:
        for each in row.results:
            data = {"id": f"m{at}-{each}", "content": each, "tool_call_id": each}
            yield {"type": "tool", "data": data}
    else:
        calls = [{"id": each, "name": "look", "args": {}} for each in row.calls]
        kind = "ai" if row.role == "assistant" else "human"
        yield {"type": kind, "data": {"id": f"m{at}", "content": f"said {at}", "tool_calls": calls}}


def rows(adapter: str, said: Sequence[Row]) -> list[str]:
    """The rows of a snapshot."""
    return [text(each) for at, row in enumerate(said) for each in written(adapter, at, row)]


def messages(adapter: str, *said: Row) -> list[Message]:
    """The rows as an import makes messages of them."""
    form = f"zeitlich-v1/{adapter}"
    found = rows(adapter, said)
    return [Message(id=f"r{at}", role="foreign", format=form, content=row) for at, row in enumerate(found)]


def kinds(adapter: str, *said: Row) -> str:
    """What a store knows of these rows."""
    return "".join(kinds_of(messages(adapter, *said)))


# ---- what is a call and what a result ------------------------------------------------------------


def calls(*names: str) -> Row:
    """A row that asks for tools."""
    return Row("assistant", calls=names)


def results(*names: str) -> Row:
    """What they gave."""
    return Row("user", results=names)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("said", "found"),
    [
        ((USER, ANSWER, USER), "ooo"),
        ((USER, calls("a"), results("a"), ANSWER), "octo"),
        ((calls("a", "b"), results("b"), results("a"), ANSWER), "ctto"),
        ((calls("a"), results("a"), calls("b"), results("b"), ANSWER), "ctcto"),
        ((calls("a", "b"), results("a"), NOTE, results("b"), NOTE), "cttto"),
        ((calls("a", "b"), results("b"), USER), "cto"),
        ((USER, calls("a")), "oo"),
        ((calls("a"), ANSWER, USER), "ooo"),
        ((USER, results("a"), ANSWER), "ooo"),
        ((calls("a"), results("b"), ANSWER), "ooo"),
        ((calls("a"), results("a"), results("a"), ANSWER), "ctoo"),
    ],
    ids=[
        "no tools", "one call", "results in another order", "two steps", "a note in between",
        "a result is missing", "ends with a call", "never answered", "no call", "of another call", "twice",
    ],
)  # fmt: skip
def test_rows_of_one_step_are_known(adapter: str, said: tuple[Row, ...], found: str) -> None:
    """A call that nobody answered, and a result that answers nothing, bind no rows to each other."""
    assert kinds(adapter, *said) == found


@pytest.mark.parametrize("adapter", ["anthropic", "googleGenAI"])
def test_one_row_may_hold_all_results(adapter: str) -> None:
    """These providers put them into one message."""
    assert kinds(adapter, calls("a", "b"), results("a", "b"), ANSWER) == "cto"


@pytest.mark.parametrize("adapter", ["anthropic", "googleGenAI"])
def test_a_row_that_answers_and_asks_again_joins_two_steps(adapter: str) -> None:
    """Else one of the two would lose its half."""
    both = Row("user", calls=("b",), results=("a",))
    assert kinds(adapter, calls("a"), both, results("b"), ANSWER) == "ctto"


def test_rows_that_we_exported_are_known_again() -> None:
    """The generic envelope has the fields of our messages."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "look", "arguments": {}}]}
    answered = {"role": "tool", "content": "x", "tool_call_id": "a"}
    found = [text({"id": str(at), "message": each}) for at, each in enumerate([call, answered])]
    made = [
        Message(id=str(at), role="foreign", format="zeitlich-v1", content=row) for at, row in enumerate(found)
    ]
    assert [message.kind for message in encode_messages(made)] == [Kind.CALLS, Kind.RESULT]


@pytest.mark.parametrize("odd", ["", "{", "[]", '{"message":{"role":"tool"}}', '{"data":{}}', "[" * 100_000])
def test_rows_that_nobody_can_read_are_let_alone(odd: str) -> None:
    """They are kept, and stand between the others as any message does."""
    form = "zeitlich-v1/anthropic"
    row = Message(id="odd", role="foreign", format=form, content=odd)
    asked, answered = messages("anthropic", calls("a"), results("a"))
    assert kinds_of([row, asked, row, answered, row]) == ["o", "c", "t", "t", "o"]


def test_messages_of_ours_keep_the_kinds_that_they_have() -> None:
    """And end what rows before them may have begun."""
    asked, answered = messages("anthropic", calls("a"), results("a"))
    own = Message(id="u", role="user", content="hi")
    assert kinds_of([asked, own, answered]) == ["o", "u", "o"]


# ---- pages, forks, windows -----------------------------------------------------------------------


async def imported(adapter: str, said: Sequence[Row]) -> Tiers:
    """A thread that nobody has opened since it was written by version 1."""
    tiers = Tiers()
    tiers.legacy = V1Snapshots(tiers.blobs)
    tiers.threads = tiers.worker()
    await tiers.bucket.put(KEY, snapshot(rows(adapter, said)))
    return tiers


def read(messages: Sequence[StoredMessage]) -> list[Message]:
    """What a model is given of them; a call without its result gets one that says so."""
    return list(convert_zeitlich_rows([decode_message(message) for message in messages]))


async def everything(threads: TieredThreads, thread_id: str = "t") -> tuple[StoredMessage, ...]:
    """All rows."""
    return (await threads.read(ReadPage(thread_id, limit=10_000))).messages


async def check_pages(threads: TieredThreads, wanted: ReadPage) -> None:
    """Each page can be given to a model as it is, and all of them are the thread."""
    found = await pages(threads, wanted)
    if wanted.backward:
        found.reverse()
    assert tuple(stored for page in found for stored in page) == await everything(threads)
    assert [message for page in found for message in read(page)] == read(await everything(threads))


steps = st.integers(1, 3).flatmap(
    lambda count: st.tuples(
        st.permutations([f"tool{at}" for at in range(count)]), st.booleans(), st.sampled_from([0, count, 1])
    )
)
turns = st.lists(st.lists(steps, max_size=2), min_size=1, max_size=3)


def conversation(adapter: str, drawn: list[Any]) -> list[Row]:
    """Turns of steps; results in any order, in one row or several, perhaps with a note among them."""
    said: list[Row] = []
    for turn in drawn:
        said.append(USER)
        for order, together, note_at in turn:
            said.append(calls(*sorted(order)))
            given = [results(*order)] if together else [results(each) for each in order]
            given.insert(min(note_at, len(given)), NOTE)
            said += given
        said.append(ANSWER)
    return said


@pytest.mark.parametrize("adapter", ADAPTERS)
@settings(max_examples=20, deadline=None)
@given(drawn=turns, limit=st.integers(1, 6), max_bytes=st.integers(1, 900), backward=st.booleans())
async def test_pages_and_forks_of_any_thread_hold_whole_steps(
    adapter: str, drawn: list[Any], limit: int, max_bytes: int, backward: bool
) -> None:
    """By count and by bytes, forward and backward, before the import, when it is hot, and when it is cold."""
    tiers = await imported(adapter, conversation(adapter, drawn))
    wanted = ReadPage("t", limit=limit, max_bytes=max_bytes, backward=backward)
    await check_pages(tiers.threads, wanted)
    author = Author(tiers.worker(), "t")
    await author.open()
    await check_pages(tiers.worker(), wanted)
    await author.go_cold()
    await check_pages(tiers.worker(), wanted)
    await check_forks(tiers)


async def check_forks(tiers: Tiers) -> None:
    """A fork is refused exactly where it would part a call from a result."""
    whole = await everything(tiers.threads)
    for at in range(len(whole) + 1):
        apart = read(whole[:at]) + read(whole[at:]) != read(whole)
        request = ForkThread("t", f"copy-{at}", LATER, "forker", at)
        if apart:
            with pytest.raises(InvalidRequestError, match="between a tool call and its result"):
                await tiers.threads.fork(request)
        else:
            await tiers.threads.fork(request)
            assert await everything(tiers.worker(), request.target_id) == whole[:at]


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_thread_that_ends_with_a_call_is_forked_as_a_whole(adapter: str) -> None:
    """Version 1 may have stopped there: nothing that was said is out of reach for that."""
    tiers = await imported(adapter, [USER, calls("a")])
    forked = await tiers.threads.fork(ForkThread("t", "copy", LATER, "forker"))
    assert forked.head.position == 2
    assert (await tiers.threads.upkeep.audit("copy")).problems == ()


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_page_of_one_message_holds_its_step(adapter: str) -> None:
    """As for threads of our own: the call and both results, and no more."""
    tiers = await imported(adapter, [USER, calls("a", "b"), results("a"), results("b"), ANSWER])
    page = await tiers.threads.read(ReadPage("t", start=1, limit=1))
    assert (page.first, len(page.messages), page.after) == (1, 3, 4)
    back = await tiers.threads.read(ReadPage("t", stop=4, limit=1, backward=True))
    assert (back.first, len(back.messages), back.before) == (1, 3, 1)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_window_of_rows_stays_within_its_bounds(adapter: str) -> None:
    """It begins at the first row that fits and is no result, however far back the last call is."""
    said = [USER, calls("a"), results("a"), *[USER, ANSWER] * 20]
    stored = encode_messages(messages(adapter, *said))
    window = choose_context(stored, ContextPolicy(max_messages=10), complete_before=True)
    assert len(window) == 10
    within = choose_context(stored[:4], ContextPolicy(max_messages=2), complete_before=True)
    assert [message.kind for message in within] == [Kind.OTHER]


async def test_rows_written_back_are_the_same_after_another_import() -> None:
    """Kinds are worked out anew from what is written, and nothing else is."""
    tiers = await imported("anthropic", [USER, calls("a"), results("a"), ANSWER])
    await Author(tiers.worker(), "t").open()
    before = await everything(tiers.worker())
    messages_before = [decode_message(message) for message in before]
    assert encode_messages(messages_before) == before
    assert [message.kind for message in before] == ["o", "c", "t", "o"]
