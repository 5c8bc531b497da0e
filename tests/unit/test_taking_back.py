"""Where turns begin and end, and what an open remembers of those that it takes back."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.activities import Payloads, rewinds
from helix_temporal.activities.record_store import save_opened_record
from helix_temporal.activities.rewinds import (
    INLINE_AGAIN,
    TakeBacks,
    first_turns,
    head_after_turns,
    newest_turns,
    turn_of,
)
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models import messages as parts
from helix_temporal.models.base import canonical_json
from helix_temporal.models.handles import PlanTakeBackInput, TakeBackRequest
from helix_temporal.models.ids import shorten_id
from helix_temporal.models.messages import Message, Role, encode_message
from helix_temporal.models.sessions import TakenBack, UserMessage
from helix_temporal.models.steps import OpenSessionInput, ReopenHeads
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.session.record import (
    REMEMBERED_CUT_MESSAGES,
    REMEMBERED_REQUESTS,
    SessionRecord,
    Summary,
    apply_open,
)
from helix_temporal.session.rewinds import split_turns
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.threads.hot_only import HotThreads

TURN = st.builds(
    lambda users, tools, end: "u" * users + "".join("c" + "t" * each for each in tools) + end,
    st.integers(1, 2),
    st.lists(st.integers(1, 2), max_size=2),
    st.sampled_from(["a", "ct"]),
)
TURNS = st.lists(TURN, max_size=12)


async def thread_of(shape: str) -> HotThreads:
    """A thread of finished turns of this shape."""
    threads = HotThreads(MemoryThreads())
    await threads.open(OpenThread("t", 5, "o"))
    roles: dict[str, Role] = {"u": "user", "a": "assistant", "c": "assistant", "t": "tool"}
    messages = tuple(
        StoredMessage(
            kind, f"m{at}", encode_message(Message(id=f"m{at}", role=roles[kind], content=f"{at}")).body
        )
        for at, kind in enumerate(shape)
    )
    if messages:
        await threads.append(StepAppend("t", 5, EMPTY, messages, commits=True))
    return threads


def head_at(position: int) -> Head:
    return Head(position=position, last_id=f"m{position - 1}") if position else EMPTY


def places(turns: list[str]) -> list[int]:
    return [0, *itertools.accumulate(len(turn) for turn in turns)]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a few messages are read in several pages."""
    monkeypatch.setattr(rewinds, "_PAGE", 3)


@given(TURNS, st.integers(0, 12), st.integers(1, 12))
async def test_turns_are_found_wherever_pages_end(turns: list[str], start: int, count: int) -> None:
    """Whatever is read at a time, and from whichever end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewinds, "_PAGE", 3)
        threads, ends = await thread_of("".join(turns)), places(turns)
        start = min(start, len(turns))
        found, after = await first_turns(threads, "t", ends[start], count)
        wanted = list(itertools.pairwise(ends))[start : start + count]
        assert [(each.start.position, each.end.position) for each in found] == wanted
        assert after == (ends[start + count] if start + count < len(turns) else None)
        newest = await newest_turns(threads, "t", count)
        assert [(each.start.position, each.end.position) for each in newest] == list(
            itertools.pairwise(ends)
        )[-count:]
        assert all(each.start == head_at(each.start.position) for each in newest)
        assert [
            (await head_after_turns(threads, "t", kept)).position for kept in range(len(turns) + 1)
        ] == ends


async def test_a_count_that_is_not_there_is_told(small_pages: None) -> None:
    """Rather than a cut at the end, or at the beginning."""
    threads = await thread_of("uaua")
    with pytest.raises(InvalidRequestError, match="2 finished turns, 3 cannot stay"):
        await head_after_turns(threads, "t", 3)
    with pytest.raises(InvalidRequestError, match="no turn begins at 1"):
        await first_turns(threads, "t", 1, 5)
    with pytest.raises(InvalidRequestError, match="no turn begins at 9"):
        await first_turns(threads, "t", 9, 5)


async def test_the_turn_of_a_message_is_found_far_back_too(small_pages: None) -> None:
    """Only messages of users count: an answer is no question to edit."""
    threads = await thread_of("uua" + "ua" * 100)
    found = await turn_of(threads, "t", "m1")
    assert (found.start, found.end.position) == (EMPTY, 3)
    with pytest.raises(InvalidRequestError, match="no finished turn has a message 'm2'"):
        await turn_of(threads, "t", "m2")


def test_messages_of_foreign_rows_are_turns_as_well() -> None:
    """A thread that came from elsewhere may begin with anything."""
    rows = [StoredMessage(kind, str(at), b"") for at, kind in enumerate("ooua")]
    assert [len(each.messages) for each in split_turns(EMPTY, rows)] == [2, 2]


# ---- what is asked anew -----------------------------------------------------------------------------


def reads_of(threads: HotThreads) -> tuple[TakeBacks, Payloads]:
    payloads = Payloads(MemoryPayloads())
    return TakeBacks(threads, payloads), payloads


async def plan(reads: TakeBacks, **fields: Any) -> Any:
    request = TakeBackRequest.model_validate({"id": "op"} | fields)
    return await reads._plan_cut(PlanTakeBackInput(session_id="t", thread_id="t", request=request), request)


async def test_what_is_cut_is_remembered_however_long_its_turns_were() -> None:
    """Else a reset to before they were asked asks them again, and they are paid again."""
    turn = "u" + "ctttttttttt" * 2 + "a"
    reads, _ = reads_of(await thread_of(turn * 140))
    cut = (await plan(reads, turns=100)).taken_back.cut
    assert cut == tuple(shorten_id(f"m{at * len(turn)}") for at in range(100, 140))
    assert len((await plan(reads, turns=0)).taken_back.cut) == REMEMBERED_CUT_MESSAGES
    assert (await plan(reads, turns=0)).taken_back.cut[-40:] == cut


async def test_messages_of_any_content_are_asked_anew() -> None:
    """Long ones and images travel by reference; metadata goes along."""
    threads = HotThreads(MemoryThreads())
    await threads.open(OpenThread("t", 5, "o"))
    picture = [parts.text_part("what is this?"), parts.image_part(url="https://example.com/a.png")]
    said = (
        Message(id="a", role="user", content="short", metadata={"tag": "x"}),
        Message(id="b", role="user", content="x" * (INLINE_AGAIN + 1)),
        Message(id="c", role="user", content=picture),
        Message(id="d", role="assistant", content="ok"),
    )
    await threads.append(
        StepAppend("t", 5, EMPTY, tuple(encode_message(each) for each in said), commits=True)
    )
    reads, payloads = reads_of(threads)
    first, second = [await plan(reads, turns=-1, again=True) for _ in range(2)]
    assert first == second
    short, long, image = first.taken_back.messages
    assert (short.text, short.metadata) == ("short", {"tag": "x"})
    assert len({each.id for each in (short, long, image)} - {"a", "b", "c"}) == 3
    assert await payloads.get("t", long.ref) == "x" * (INLINE_AGAIN + 1)
    assert await payloads.get("t", image.ref) == picture


@pytest.mark.parametrize("fields", [{}, {"turns": 1, "to": EMPTY}, {"checkpoint": "c", "turns": 0}])
async def test_a_request_says_in_one_way_how_far_it_goes(fields: dict[str, Any]) -> None:
    """Two ways may contradict each other."""
    reads, _ = reads_of(await thread_of("ua"))
    with pytest.raises(InvalidRequestError, match="one of to, turns and checkpoint expected"):
        await plan(reads, **fields)


# ---- what is remembered -----------------------------------------------------------------------------


def header_at(position: int, epoch: int = 10) -> HotHeader:
    return HotHeader("t", epoch, "o", head=Head(position=position, last_id="m"))


def opening(**fields: Any) -> OpenSessionInput:
    return OpenSessionInput(session_id="t", thread_id="t", agent="a", owner="o", **fields)


def taken(name: str, *, epoch: int = 0, to: Head = EMPTY) -> TakenBack:
    return TakenBack(id=name, to=to, epoch=epoch)


def test_a_thread_remembers_the_newest_requests_and_the_messages_of_the_last() -> None:
    """It is written with each step, and must stay small."""
    state = SessionRecord()
    for number in range(REMEMBERED_REQUESTS + 3):
        message = UserMessage(id="m", text="x")
        request = opening(take_back=TakenBack(id=str(number), to=EMPTY, messages=(message,)))
        state = apply_open(state, header_at(0, epoch=number + 1), request)
    assert [each.id for each in state.taken_back] == [
        str(number) for number in range(3, REMEMBERED_REQUESTS + 3)
    ]
    assert [len(each.messages) for each in state.taken_back] == [0] * (REMEMBERED_REQUESTS - 1) + [1]


def test_another_attempt_of_an_open_finds_what_the_first_one_recorded() -> None:
    """Its epoch is the open's own: it is neither forgotten nor recorded twice."""
    request = opening(take_back=taken("op"), known_epoch=7)
    first = apply_open(SessionRecord(), header_at(0, epoch=10), request)
    assert [each.epoch for each in first.taken_back] == [10]
    assert apply_open(first, header_at(0, epoch=10), request) == first


def test_what_was_taken_back_is_remembered_although_its_workflow_was_reset() -> None:
    """It will be asked to do it again, and nothing more goes."""
    state = SessionRecord(taken_back=(taken("before", epoch=5), taken("after", epoch=8)))
    known = ReopenHeads(head=Head(position=4, last_id="x"), turn_start=Head(position=4, last_id="x"))
    after = apply_open(state, header_at(2, epoch=10), opening(reopen=known, known_epoch=5))
    assert [each.id for each in after.taken_back] == ["before", "after"]
    assert apply_open(state, header_at(2, epoch=10), opening()) == state


def test_a_summary_of_what_is_cut_goes() -> None:
    """One that ends where the thread does stays."""
    summary = Summary(text="s", upto=Head(position=4, last_id="m3"))
    state = SessionRecord(summary=summary)
    assert apply_open(state, header_at(4), opening()).summary == summary
    assert apply_open(state, header_at(3), opening()).summary is None


def test_a_summary_whose_text_was_kept_by_an_answer_that_is_cut_is_kept_anew() -> None:
    """The next answer that is given with it has the text; else nobody could see it later."""
    summary = Summary(text="s", upto=Head(position=4, last_id="m3"), kept=9)
    state = SessionRecord(summary=summary)
    assert apply_open(state, header_at(10), opening()).summary == summary
    assert apply_open(state, header_at(9), opening()).summary == Summary(text="s", upto=summary.upto)


async def test_a_slice_that_was_saved_meanwhile_is_put_right_as_it_is_then() -> None:
    """A hook may save values between the look and the write."""
    threads = await thread_of("ua")
    facts = await threads.read_facts("t")
    header = header_at(2, epoch=5)
    await threads.save_slice("t", 5, canonical_json({"turns": 7}), facts.slice_version)
    done = await save_opened_record(threads, opening(take_back=taken("op")), header, SessionRecord())
    assert (done.record.turns, [each.id for each in done.record.taken_back]) == (7, ["op"])
    assert done.build_handle().slice_version == (await threads.read_facts("t")).slice_version
    assert not done.build_handle().archived
