"""What a session's stream shows of its turns, whatever becomes of attempts, and what it costs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import groupby
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import ModelRequest, ModelResponse, ToolContext, ToolOutcome
from helix_temporal.client import _streams
from helix_temporal.models import streams
from helix_temporal.models.agents import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import StoredChunk
from tests.workflows._desk import Desk, Gate, calls, first_tools_then
from tests.workflows.conftest import Stand
from tests.workflows.test_reset import reset, task_ends

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def turn_of(stand: Stand, session_id: str, text: str = "go") -> list[StoredChunk]:
    """Ask and watch."""
    live = stand.sessions.session(session_id, agent="main").stream_ask(text, timeout=60)
    return [stored async for stored in live]


def types(turn: list[StoredChunk]) -> list[str]:
    return [stored.chunk.type for stored in turn]


def shown(turn: list[StoredChunk]) -> str:
    """The text that a page would show."""
    view = StreamView()
    for each in turn:
        view.feed(each)
    return view.text


async def test_a_turn_is_shown_from_its_start_to_its_end(stand: Stand, desk: Desk, sid: str) -> None:
    """Who wrote it, what it says, where it stands: all that a page needs."""
    desk.scripts[sid] = lambda _: ModelResponse("the answer", usage=Usage(input_tokens=3))
    live = stand.sessions.session(sid, agent="main").stream_ask("hello")
    turn = [stored async for stored in live]
    result = await live.result()
    assert types(turn) == [
        "run_started",
        "step_started",
        "text_delta",
        "step_committed",
        "usage",
        "run_ended",
    ]
    assert turn[0].chunk.model_dump()["message_ids"] == (live.message_id,)
    assert result.answer is not None
    assert {stored.chunk.message_id for stored in turn[1:]} == {result.answer.id}
    committed = turn[3].chunk
    assert isinstance(committed, streams.StepCommitted)
    assert (committed.position, committed.characters) == (result.answer.position, len("the answer"))
    assert shown(turn) == result.text == "the answer"


async def test_a_stream_of_a_session_that_never_was_is_told_of_once(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt id is waited for, as one that nobody has talked to yet."""
    monkeypatch.setattr(_streams, "_MISSING", 0.3)
    reading = asyncio.ensure_future(anext(stand.sessions.stream(sid)))
    while "waiting for its stream" not in caplog.text:  # noqa: ASYNC110 (a log tells nobody)
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    reading.cancel()
    await asyncio.wait([reading])
    assert caplog.text.count("waiting for its stream: it has no run") == 1


async def test_pieces_come_while_the_model_still_speaks(stand: Stand, desk: Desk, sid: str) -> None:
    """That is what streaming is for: the first words are on the page before the last are known."""
    gate = Gate()

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        yield ReasoningDelta("think")
        yield TextDelta("first ")
        await gate.passing()
        yield TextDelta("last")
        yield ModelResponse("first last")

    desk.streams[sid] = speak
    seen = []
    async for stored in stand.sessions.session(sid, agent="streaming").stream_ask("go"):
        seen.append(stored)
        if isinstance(stored.chunk, streams.TextChunk):
            gate.opened.set()
    assert [each.chunk.type for each in seen][2:6] == ["thinking", "thinking", "text_delta", "text_delta"]
    assert shown(seen) == "first last"


async def test_a_tool_is_shown_from_its_arguments_to_its_result(stand: Stand, desk: Desk, sid: str) -> None:
    """What the agent does is as interesting as what it says."""

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        if request.messages[-1].role == "tool":
            yield ModelResponse("done")
            return
        yield ToolCallStarted("c1", "act")
        yield ToolArgumentsDelta("c1", '{"what":')
        yield ToolArgumentsDelta("c1", ' "look"}')
        yield ModelResponse(tool_calls=(ToolCall(id="c1", name="act", arguments={"what": "look"}),))

    def act(what: str, context: ToolContext) -> ToolOutcome:
        context.emit("progress", {"percent": 50})
        return ToolOutcome("seen", state={"a/b": 1})

    desk.streams[sid], desk.acts[sid] = speak, act
    turn = [stored async for stored in stand.sessions.session(sid, agent="streaming").stream_ask("go")]
    about = [stored.chunk for stored in turn if "tool_call_id" in stored.chunk.model_fields_set]
    # Pieces are joined that come before the next write: how many are left depends on the machine.
    assert [kind for kind, _ in groupby(each.type for each in about)] == [
        "tool_arg_stream_start",
        "tool_arg_stream_delta",
        "tool_start",
        "custom",
        "tool_end",
    ]
    pieces = [each.model_dump()["delta"] for each in about if each.type == "tool_arg_stream_delta"]
    assert "".join(pieces) == '{"what": "look"}'
    assert about[-1].model_dump()["result"] == "seen"
    [patch] = [each.chunk for each in turn if isinstance(each.chunk, streams.StatePatch)]
    assert patch.patches == ({"op": "add", "path": "/a~1b", "value": 1},)


async def test_a_failed_tool_ends_in_the_stream_too(stand: Stand, desk: Desk, sid: str) -> None:
    """No attempt of it is left to tell; the step that takes the failure does."""

    def act(what: str, context: ToolContext) -> str:
        raise ValueError

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("I could not", "x")
    turn = await turn_of(stand, sid)
    [end] = [each.chunk for each in turn if isinstance(each.chunk, streams.ToolEnd)]
    assert not end.success
    assert "ValueError" in str(end.error)


async def test_a_large_result_is_told_by_its_size(stand: Stand, desk: Desk, sid: str) -> None:
    """A stream shows; a megabyte is read from the thread."""
    desk.acts[sid] = lambda what, context: "x" * 100_000
    desk.scripts[sid] = first_tools_then("done", "x")
    turn = await turn_of(stand, sid)
    [end] = [each.chunk for each in turn if isinstance(each.chunk, streams.ToolEnd)]
    assert (end.result, end.result_bytes) == (None, 100_002)


async def test_what_a_failed_attempt_said_disappears(stand: Stand, desk: Desk, sid: str) -> None:
    """Else a page shows half a sentence twice."""
    attempts = 0

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        nonlocal attempts
        attempts += 1
        yield TextDelta(f"attempt {attempts} ")
        if attempts == 1:
            raise ApplicationError("the connection broke")
        yield TextDelta("whole")
        yield ModelResponse(f"attempt {attempts} whole")

    desk.streams[sid] = speak
    turn = [stored async for stored in stand.sessions.session(sid, agent="streaming").stream_ask("go")]
    texts = [each.chunk.delta for each in turn if isinstance(each.chunk, streams.TextChunk)]
    assert "".join(texts) == "attempt 1 attempt 2 whole"
    assert Counter(types(turn))["step_discarded"] >= 1
    assert shown(turn) == "attempt 2 whole"
    assert len([each for each in types(turn) if each == "step_committed"]) == 1


async def test_an_aborted_turn_ends_in_the_stream(stand: Stand, desk: Desk, sid: str) -> None:
    """It leaves no trace in the thread, and none on the page."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    live = stand.sessions.session(sid, agent="main").stream_ask("go")
    seen = []
    async for stored in live:
        seen.append(stored)
        if isinstance(stored.chunk, streams.StepStarted):
            await gate.reached.wait()
            await stand.sessions.session(sid).stop(abort=True)
    gate.opened.set()
    assert (await live.result()).status is AskStatus.INTERRUPTED
    ended = seen[-1].chunk
    assert isinstance(ended, streams.RunEnded)
    assert (ended.status, ended.in_thread) == ("aborted", False)


async def test_a_cancelled_session_ends_its_run_in_the_stream(stand: Stand, desk: Desk, sid: str) -> None:
    """Only the workflow knows of it; the activity that saves its end tells."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    live = stand.sessions.session(sid, agent="main").stream_ask("go")
    seen = []
    async for stored in live:
        seen.append(stored)
        if isinstance(stored.chunk, streams.StepStarted):
            await gate.reached.wait()
            await stand.handle(sid).cancel()
    gate.opened.set()
    ended = seen[-1].chunk
    assert isinstance(ended, streams.RunEnded)
    assert (ended.status, ended.exit_reason, ended.in_thread) == ("interrupted", "cancelled", False)


async def test_turns_follow_each_other_in_one_stream(stand: Stand, desk: Desk, sid: str) -> None:
    """One place to go on from, whatever is asked meanwhile; a turn ends no stream."""
    turns = [await turn_of(stand, sid, text) for text in ("one", "two")]
    sequences = [stored.sequence for turn in turns for stored in turn]
    assert sequences == list(range(1, len(sequences) + 1))
    newest = [stored.sequence async for stored in stand.sessions.stream(sid, after="turn")]
    assert newest == [stored.sequence for stored in turns[1]]


async def test_a_turn_is_found_by_its_message(stand: Stand, sid: str) -> None:
    """Who sent it knows its id and nothing else; also in the middle of its turn."""
    for text in ("one", "two", "three"):
        await stand.sessions.ask(sid, text, agent="main", message_id=f"m-{text}")
    whole = [stored async for stored in stand.sessions.stream(sid, message_id="m-two")]
    assert types(whole)[0] == "run_started"
    assert types(whole)[-1] == "run_ended"
    after = whole[2].sequence
    rest = [stored async for stored in stand.sessions.stream(sid, message_id="m-two", after=after)]
    assert rest == whole[3:]


async def test_a_streamed_turn_adds_to_history_what_any_turn_adds(stand: Stand, desk: Desk, sid: str) -> None:
    """Tokens never enter the workflow's history."""
    answer = "word " * 200

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        for word in answer.split():
            yield TextDelta(word + " ")
            await asyncio.sleep(0)
        yield ModelResponse(answer)

    sizes: list[tuple[int, int]] = []
    for agent in ("main", "streaming"):
        name = f"{sid}-{len(sizes)}"
        desk.scripts[name], desk.streams[name] = (lambda _: answer), speak
        await stand.sessions.ask(name, "hello", agent=agent)
        await stand.at_rest(name)
        before = await stand.events(name)
        await stand.sessions.ask(name, "again")
        added = (await stand.events(name))[len(before) :]
        sizes.append((len(added), sum(event.ByteSize() for event in added)))
        await stand.finish(name)
    assert sizes[0][0] == sizes[1][0]
    assert abs(sizes[0][1] - sizes[1][1]) <= 64


async def test_an_attempt_that_was_paid_for_is_counted_once(stand: Stand, desk: Desk, sid: str) -> None:
    """The provider's bill has it, whether its answer stands or not; a repeat adds nothing."""
    desk.scripts[sid] = lambda _: ModelResponse("2", usage=Usage(input_tokens=10, output_tokens=5))
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.ask(sid, "two")
    usage = stand.served.plugin.backends.usage
    rollup = await usage.get_rollup(sid)
    assert (rollup.tokens.prompt, rollup.entry_count) == (20, 2)


async def test_a_tool_call_and_its_answer_are_two_steps(stand: Stand, desk: Desk, sid: str) -> None:
    """Each with an id of its own, the tool's events with that of the answer that asks for it."""
    desk.scripts[sid] = lambda request: calls("x") if request.messages[-1].role == "user" else "done"
    turn = await turn_of(stand, sid)
    starts = [each.chunk for each in turn if isinstance(each.chunk, streams.StepStarted)]
    assert [each.step for each in starts] == [1, 2]
    [start] = [each.chunk for each in turn if isinstance(each.chunk, streams.ToolStart)]
    [end] = [each.chunk for each in turn if isinstance(each.chunk, streams.ToolEnd)]
    assert start.message_id == end.message_id == starts[0].message_id


async def test_a_deleted_session_takes_its_stream_along(stand: Stand, sid: str) -> None:
    """Whoever has a conversation deleted has all of it deleted."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    await stand.sessions.session(sid).delete()
    assert await stand.sessions.streams.get_info(sid) is None


async def test_a_reset_tells_nothing_twice(stand: Stand, desk: Desk, sid: str) -> None:
    """Turns that are done again find themselves in the thread, and what was told of them stands."""
    for text in ("one", "two"):
        await stand.sessions.ask(sid, text, agent="main", message_id=f"m-{text}")
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "three", message_id="m-three")
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    await stand.sessions.ask(sid, "four", agent="main", message_id="m-four")
    turns = [
        [stored async for stored in stand.sessions.stream(sid, message_id=f"m-{text}")]
        for text in ("one", "two", "three", "four")
    ]
    info = await stand.sessions.streams.get_info(sid)
    assert info is not None
    assert info.last_sequence == sum(len(turn) for turn in turns)
    assert {types(turn).count("run_started") for turn in turns} == {1}
    assert len(desk.requests[sid]) == 6
