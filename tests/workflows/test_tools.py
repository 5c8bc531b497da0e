"""Tools: run as activities, their results in the thread in call order, whatever becomes of each."""

import asyncio

import pytest

from helix_temporal.agents import ModelRequest, ModelResponse, ToolContext, ToolOutcome
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.sessions import AskStatus
from tests.workflows._desk import Answer, Desk, Gate, calls, first_tools_then
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


def results(messages: list[Message]) -> list[str]:
    return [message.text for message in messages if message.role == "tool"]


async def test_results_stand_in_call_order_whoever_ends_first(stand: Stand, desk: Desk, sid: str) -> None:
    """Providers insist on it, and a replay must find the same thread."""
    last = asyncio.Event()

    async def act(what: str, context: ToolContext) -> str:
        if what == "c":
            last.set()
        await last.wait()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "a", "b", "c")
    assert (await stand.sessions.ask(sid, "go", agent="main")).text == "done"
    assert results(await stand.messages(sid)) == ["a", "b", "c"]


async def test_tools_of_one_step_run_side_by_side(stand: Stand, desk: Desk, sid: str) -> None:
    """Three slow tools take as long as one: each of them waits here until all have begun."""
    begun = asyncio.Barrier(3)

    async def act(what: str, context: ToolContext) -> str:
        await begun.wait()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "a", "b", "c")
    assert (await stand.sessions.ask(sid, "go", agent="main", timeout=20)).text == "done"


async def test_tools_of_a_serial_agent_run_one_after_the_other(stand: Stand, desk: Desk, sid: str) -> None:
    """For tools that would tread on each other's toes."""
    at_work: list[str] = []
    most = 0

    async def act(what: str, context: ToolContext) -> str:
        nonlocal most
        at_work.append(what)
        most = max(most, len(at_work))
        await asyncio.sleep(0.02)
        at_work.remove(what)
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "a", "b", "c")
    await stand.sessions.ask(sid, "go", agent="serial")
    assert most == 1
    assert results(await stand.messages(sid)) == ["a", "b", "c"]


async def test_an_unknown_tool_is_told_to_the_model(stand: Stand, desk: Desk, sid: str) -> None:
    """Models do ask for tools that are not there; they can mend that themselves."""
    desk.scripts[sid] = lambda request: (
        calls("x", name="nonsense") if request.messages[-1].role == "user" else request.messages[-1].text
    )
    result = await stand.sessions.ask(sid, "go", agent="main")
    assert result.text == "There is no tool 'nonsense'. Tools: act, add."
    assert (await stand.messages(sid))[2].is_error


async def test_bad_arguments_are_told_to_the_model_and_not_retried(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The same arguments would be wrong again: only the model can mend them."""
    wrong = ModelResponse(tool_calls=(ToolCall(id="1", name="add", arguments={"a": "two"}),))
    desk.scripts[sid] = lambda request: (
        wrong if request.messages[-1].role == "user" else request.messages[-1].text
    )
    result = await stand.sessions.ask(sid, "go", agent="main")
    assert result.text is not None
    assert "a" in result.text
    assert "b" in result.text
    attempts = [
        event.activity_task_started_event_attributes.attempt
        for event in await stand.events(sid)
        if event.HasField("activity_task_started_event_attributes")
    ]
    assert set(attempts) == {1}


async def test_a_failing_tool_is_told_to_the_model_after_its_attempts(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """A tool that fails must not fail the turn; the model can mend its call by what it said."""

    def act(what: str, context: ToolContext) -> str:
        raise ValueError("no order 4711")

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("I could not", "x")
    assert (await stand.sessions.ask(sid, "go", agent="main")).text == "I could not"
    assert [context.attempt for context in desk.contexts[sid]] == [1, 2]
    told = (await stand.messages(sid))[2]
    assert told.is_error
    assert told.text == "The tool failed: tool 'act': ValueError: no order 4711"


async def test_the_cause_of_a_tools_exception_is_not_in_the_history(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Only its own text is, cut: what is below it, and tracebacks, hold more than anybody looked at."""

    def act(what: str, context: ToolContext) -> str:
        raise ValueError("no order") from RuntimeError("secret-4711")

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("I could not", "x")
    await stand.sessions.ask(sid, "go", agent="main")
    assert not [event for event in await stand.events(sid) if b"secret-4711" in event.SerializeToString()]


async def test_a_failing_sibling_does_not_stop_the_others(stand: Stand, desk: Desk, sid: str) -> None:
    """Each call has its result: the thread is well formed whatever fails."""

    def act(what: str, context: ToolContext) -> str:
        if what == "bad":
            raise RuntimeError
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "a", "bad", "c")
    await stand.sessions.ask(sid, "go", agent="main")
    tools = [message for message in await stand.messages(sid) if message.role == "tool"]
    assert [(each.tool_call_id, each.is_error) for each in tools] == [
        ("call_0", False),
        ("call_1", True),
        ("call_2", False),
    ]


async def test_a_tool_that_works_the_second_time_is_tried_again(stand: Stand, desk: Desk, sid: str) -> None:
    """A passing fault is Temporal's business, not the model's."""

    def act(what: str, context: ToolContext) -> str:
        if context.attempt == 1:
            raise ConnectionError
        return "there"

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "go", agent="main")
    assert results(await stand.messages(sid)) == ["there"]


async def test_keys_are_the_same_for_each_attempt_and_different_for_each_call(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """What a tool changes elsewhere is made idempotent by its key, also when providers reuse call ids."""

    def act(what: str, context: ToolContext) -> str:
        if context.attempt == 1 and what == "a":
            raise ConnectionError
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "a", "b")
    for text in ("one", "two"):
        await stand.sessions.ask(sid, text, agent="main")
    by_attempt = {(each.turn, each.call_id, each.attempt): each.key for each in desk.contexts[sid]}
    assert by_attempt[1, "call_0", 1] == by_attempt[1, "call_0", 2]
    assert len(set(by_attempt.values())) == 4


async def test_call_ids_that_a_provider_uses_again_keep_both_results(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """``call_0`` in every turn is common; each turn's result follows its own call."""
    desk.scripts[sid] = lambda request: (
        calls(request.messages[-1].text) if request.messages[-1].role == "user" else "done"
    )
    for text in ("one", "two"):
        await stand.sessions.ask(sid, text, agent="main")
    assert results(await stand.messages(sid)) == ["one", "two"]
    seen = desk.requests[sid][-1].messages
    roles = ["user", "assistant", "tool"]
    assert [message.role for message in seen] == [*roles, "assistant", *roles]


async def test_a_tool_that_waits_ends_the_turn_with_every_call_answered(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Somebody else has to answer: the turn ends, and the next message goes on."""
    desk.acts[sid] = lambda what, context: ToolOutcome("asked a human", wait=True)
    desk.scripts[sid] = first_tools_then("done", "x")
    result = await stand.sessions.ask(sid, "go", agent="main")
    assert (result.status, result.exit_reason) == (AskStatus.INTERRUPTED, "waiting")
    assert result.in_thread
    assert [message.role for message in await stand.messages(sid)] == ["user", "assistant", "tool"]
    await stand.finish(sid)
    assert (await stand.sessions.session(sid).get_status()).status == "waiting"


async def test_a_waiting_session_goes_on_with_the_next_message(stand: Stand, desk: Desk, sid: str) -> None:
    """What the human said comes as a message."""
    desk.acts[sid] = lambda what, context: ToolOutcome("asked a human", wait=True)
    desk.scripts[sid] = lambda request: calls("x") if len(request.messages) == 1 else "thanks"
    await stand.sessions.ask(sid, "go", agent="main")
    result = await stand.sessions.ask(sid, "the human says yes")
    assert result.text == "thanks"
    assert len(await stand.messages(sid)) == 5


async def test_a_tool_that_rewinds_takes_its_step_back(stand: Stand, desk: Desk, sid: str) -> None:
    """A model that went astray is asked again as if it had not answered."""
    answers: list[Answer] = [calls("astray"), "better"]

    def script(request: ModelRequest) -> Answer:
        return answers.pop(0)

    desk.scripts[sid] = script
    desk.acts[sid] = lambda what, context: ToolOutcome("go back", rewind=True)
    result = await stand.sessions.ask(sid, "go", agent="main")
    assert result.text == "better"
    assert await stand.texts(sid) == ["go", "better"]


async def test_a_rewind_after_a_large_result_still_has_that_result(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The step that is asked again gets the same inputs, also those that travel by reference."""
    answers: list[Answer] = [calls("large"), calls("astray"), "better"]
    desk.scripts[sid] = lambda request: answers.pop(0)
    desk.acts[sid] = lambda what, context: (
        "x" * 100_000 if what == "large" else ToolOutcome("go back", rewind=True)
    )
    result = await stand.sessions.ask(sid, "go", agent="main", timeout=20)
    assert result.text == "better"
    assert [len(text) for text in await stand.texts(sid)] == [2, 0, 100_000, 6]


async def test_a_rewind_after_a_long_question_still_has_that_question(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """As for results: what the user wrote is not gone because the model went astray."""
    answers: list[Answer] = [calls("astray"), "better"]
    desk.scripts[sid] = lambda request: answers.pop(0)
    desk.acts[sid] = lambda what, context: ToolOutcome("go back", rewind=True)
    result = await stand.sessions.ask(sid, "q" * 20_000, agent="main", timeout=20)
    assert result.text == "better"
    assert [len(text) for text in await stand.texts(sid)] == [20_000, 6]


async def test_an_endless_rewind_ends_at_max_steps(stand: Stand, desk: Desk, sid: str) -> None:
    """Every step that is asked again is paid for, so it counts."""
    desk.scripts[sid] = lambda request: calls("astray")
    desk.acts[sid] = lambda what, context: ToolOutcome("go back", rewind=True)
    result = await stand.sessions.ask(sid, "go", agent="two-steps")
    assert result.exit_reason == "max_steps"
    assert len(desk.requests[sid]) == 2


async def test_a_turn_ends_at_max_steps_with_every_call_answered(stand: Stand, desk: Desk, sid: str) -> None:
    """A model that never stops asking for tools costs so much and no more."""
    desk.scripts[sid] = lambda request: calls("again")
    result = await stand.sessions.ask(sid, "go", agent="two-steps")
    assert (result.status, result.exit_reason) == (AskStatus.INTERRUPTED, "max_steps")
    roles = [message.role for message in await stand.messages(sid)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


async def test_the_session_serves_on_after_max_steps(stand: Stand, desk: Desk, sid: str) -> None:
    """It is the end of a turn, not of the session."""
    desk.scripts[sid] = lambda request: calls("again")
    await stand.sessions.ask(sid, "go", agent="two-steps")
    desk.scripts.pop(sid)
    assert (await stand.sessions.ask(sid, "and now?")).text == "6: and now?"


async def test_usage_sums_models_and_tools(stand: Stand, desk: Desk, sid: str) -> None:
    """What a session has cost is one number per kind, tools that use models included."""
    desk.scripts[sid] = lambda request: (
        calls("x")
        if request.messages[-1].role == "user"
        else ModelResponse("done", usage=Usage(input_tokens=20, output_tokens=2))
    )
    desk.acts[sid] = lambda what, context: ToolOutcome("sub", usage=Usage(input_tokens=300, output_tokens=30))
    for text in ("one", "two"):
        await stand.sessions.ask(sid, text, agent="main")
    usage = (await stand.sessions.session(sid).get_status()).usage
    assert (usage.input_tokens, usage.output_tokens) == (660, 66)


async def test_usage_goes_on_from_the_archive(stand: Stand, desk: Desk, sid: str) -> None:
    """Totals belong to the session, not to one execution of it."""
    desk.scripts[sid] = lambda _: ModelResponse("done", usage=Usage(input_tokens=20, output_tokens=2))
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.finish(sid)
    await stand.sessions.ask(sid, "two", agent="main")
    status = await stand.sessions.session(sid).get_status()
    assert (status.turns, status.usage.input_tokens) == (2, 40)


async def test_a_message_during_tools_waits_for_the_next_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing comes between a call and its result."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x") if len(request.messages) == 1 else "done"
    first = asyncio.create_task(stand.sessions.ask(sid, "go", agent="main"))
    await gate.reached.wait()
    second = asyncio.create_task(stand.sessions.ask(sid, "meanwhile"))
    while (await stand.sessions.session(sid).get_status()).waiting == 0:  # noqa: ASYNC110 (another process tells)
        await asyncio.sleep(0.02)
    gate.opened.set()
    assert [(await first).text, (await second).text] == ["done", "done"]
    roles = [message.role for message in await stand.messages(sid)]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
