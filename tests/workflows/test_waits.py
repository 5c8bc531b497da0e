"""Calls that clients execute, people answer, or somebody approves: the session waits for them."""

import asyncio
from typing import Any

import pytest

from helix_temporal.agents import ModelRequest, ModelResponse, ToolContext
from helix_temporal.errors import SessionInterruptedError
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AskResult, AskStatus, ExitReason, Status
from helix_temporal.models.waiting import DENIED, INTERRUPTED, WENT_ON, ToolApproval
from tests.workflows._desk import Answer, Desk, Gate
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


def asks(*calls: tuple[str, dict[str, Any]]) -> ModelResponse:
    """An answer that asks for these tools, with ids as a careless provider gives them."""
    return ModelResponse(
        tool_calls=tuple(
            ToolCall(id=f"call_{at}", name=name, arguments=arguments)
            for at, (name, arguments) in enumerate(calls)
        )
    )


def asks_once(*calls: tuple[str, dict[str, Any]]) -> Any:
    """Ask for tools when a user has spoken; tell what they gave when they have answered."""

    def script(request: ModelRequest) -> Answer:
        if request.messages[-1].role == "user":
            return asks(*calls)
        results = []
        for message in reversed(request.messages):
            if message.role != "tool":
                break
            results.append(message.text)
        return " | ".join(reversed(results))

    return script


LOCATE = ("locate", {"what": "me"})
WIPE = ("wipe", {"what": "disk"})
ACT = ("act", {"what": "here"})


async def suspended(stand: Stand, sid: str, text: str = "go", **options: Any) -> AskResult:
    """Ask, and be told what the turn waits for."""
    result = await stand.client(**options).ask(sid, text, agent="people", message_id=f"m-{text}")
    assert result.status is AskStatus.SUSPENDED
    return result


async def test_an_ask_is_told_what_its_turn_waits_for(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever shows the conversation must show the question, not hang until it is answered."""
    desk.scripts[sid] = asks_once(LOCATE)
    result = await suspended(stand, sid)
    assert result.in_thread
    (call,) = result.pending
    assert (call.name, call.call_id, call.kind, call.arguments) == (
        "locate",
        "call_0",
        "client",
        {"what": "me"},
    )
    info = await stand.sessions.session(sid).get_status()
    assert (info.status, info.pending) == (Status.SUSPENDED, result.pending)


async def test_a_submitted_result_goes_to_the_model(stand: Stand, desk: Desk, sid: str) -> None:
    """The turn goes on as if a worker had run the tool."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    reply = await stand.sessions.session(sid).submit_tool_result(call, "in Bonn", wait=True)
    assert reply.status == "submitted"
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (AskStatus.ANSWERED, "in Bonn")
    assert await stand.texts(sid) == ["go", "", "in Bonn", "in Bonn"]


async def test_asking_again_gives_the_final_answer(stand: Stand, desk: Desk, sid: str) -> None:
    """The same message id: a page that was reloaded waits for the same turn."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    again = asyncio.create_task(stand.sessions.ask(sid, "go", agent="people", message_id="m-go"))
    await stand.sessions.session(sid).submit_tool_result(call, "in Bonn")
    assert (await again).text == "in Bonn"


async def test_two_submissions_at_once_count_once(stand: Stand, desk: Desk, sid: str) -> None:
    """Two tabs, one question: one answer counts, the other is told when it was given."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    replies = await asyncio.gather(
        stand.sessions.session(sid).submit_tool_result(call, "one"),
        stand.sessions.session(sid).submit_tool_result(call, "two"),
    )
    assert sorted(reply.status for reply in replies) == ["already_completed", "submitted"]
    first, second = (reply.submission for reply in replies)
    assert first is not None
    assert second is not None
    assert first.completed_at == second.completed_at


async def test_the_same_submission_again_is_the_first_one(stand: Stand, desk: Desk, sid: str) -> None:
    """A client that lost the reply must not be told that somebody else was first."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    for _ in range(2):
        reply = await stand.sessions.session(sid).submit_tool_result(
            call, "here", submission_id="s-1", wait=True
        )
        assert reply.status == "submitted"


async def test_a_late_answer_is_told_so_in_another_execution(stand: Stand, desk: Desk, sid: str) -> None:
    """A tab that was open since yesterday: its answer counts no more, and it learns why."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    await stand.sessions.session(sid).submit_tool_result(call, "in Bonn", wait=True)
    await stand.finish(sid)
    reply = await stand.sessions.session(sid, agent="people").submit_tool_result(call, "in Rome")
    assert reply.status == "already_completed"
    assert (await stand.sessions.session(sid).submit_tool_result("nonsense", "x")).status == "not_pending"


async def test_an_id_that_a_provider_uses_again_is_another_call(stand: Stand, desk: Desk, sid: str) -> None:
    """``call_0`` in every turn is common: the answer to an old question is none to a new one."""
    desk.scripts[sid] = asks_once(LOCATE)
    (first,) = (await suspended(stand, sid, "one")).pending
    await stand.sessions.session(sid).submit_tool_result(first, "1", wait=True)
    (second,) = (await suspended(stand, sid, "two")).pending
    assert first.call_id == second.call_id
    assert (await stand.sessions.session(sid).submit_tool_result(first, "late")).status == "already_completed"
    reply = await stand.sessions.session(sid).submit_tool_result(second, "2", wait=True)
    assert reply.result is not None
    assert reply.result.text == "2"


async def test_server_tools_run_beside_calls_that_wait(stand: Stand, desk: Desk, sid: str) -> None:
    """They need nobody; each runs once, and the results stand in call order all the same."""
    desk.scripts[sid] = asks_once(LOCATE, ACT, WIPE)
    result = await suspended(stand, sid)
    assert [call.name for call in result.pending] == ["locate", "wipe"]
    locate, wipe = result.pending
    approval = ToolApproval(approval_id=wipe.id, approved=True)
    reply = await stand.sessions.session(sid).submit_approval(approval, wait=True)
    assert reply.result is not None
    assert [call.name for call in reply.result.pending] == ["locate"]
    reply = await stand.sessions.session(sid).submit_tool_result(locate, "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn | here | wiped disk"
    assert len(desk.contexts[sid]) == 2


async def test_an_approved_tool_runs_after_it_was_approved(stand: Stand, desk: Desk, sid: str) -> None:
    """And not a moment sooner."""
    desk.scripts[sid] = asks_once(WIPE)
    (call,) = (await suspended(stand, sid)).pending
    assert call.kind == "approval"
    assert desk.contexts[sid] == []
    approval = ToolApproval(approval_id=call.id, approved=True)
    reply = await stand.sessions.session(sid).submit_approval(approval, wait=True)
    assert reply.result is not None
    assert reply.result.text == "wiped disk"


async def test_a_denied_tool_does_not_run_and_the_model_is_told_why(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The model can then propose something else."""
    desk.scripts[sid] = asks_once(WIPE)
    (call,) = (await suspended(stand, sid)).pending
    approval = ToolApproval(approval_id=call.id, approved=False, reason="too bold")
    reply = await stand.sessions.session(sid).submit_approval(approval, wait=True)
    assert reply.result is not None
    assert reply.result.text == f"{DENIED} too bold"
    assert desk.contexts[sid] == []


async def test_a_large_result_goes_by_reference(stand: Stand, desk: Desk, sid: str) -> None:
    """A client's file must not be in the workflow's history."""
    text = "x" * 100_000
    desk.scripts[sid] = lambda request: (
        asks(LOCATE) if request.messages[-1].role == "user" else str(len(request.messages[-1].text))
    )
    (call,) = (await suspended(stand, sid)).pending
    reply = await stand.sessions.session(sid).submit_tool_result(call, text, wait=True)
    assert reply.result is not None
    assert reply.result.text == "100000"
    assert sum(event.ByteSize() for event in await stand.events(sid)) < 20_000


async def test_large_arguments_are_read_from_the_thread(stand: Stand, desk: Desk, sid: str) -> None:
    """A document to sign: the history has its place alone, whoever shows it gets it whole."""
    desk.scripts[sid] = asks_once(("locate", {"what": "y" * 10_000}))
    assert (await suspended(stand, sid)).pending[0].arguments is None
    (call,) = await stand.sessions.session(sid).get_pending_calls()
    assert call.arguments == {"what": "y" * 10_000}


async def test_a_message_that_comes_meanwhile_has_the_next_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing enters the thread between a call and its result."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    second = asyncio.create_task(stand.sessions.ask(sid, "and then?", agent="people"))
    await asyncio.sleep(0.3)
    await stand.sessions.session(sid).submit_tool_result(call, "in Bonn")
    assert (await second).text == "AND THEN?"
    assert await stand.texts(sid) == ["go", "", "in Bonn", "IN BONN", "and then?", "AND THEN?"]


async def test_a_message_may_supersede_the_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """The user goes on: the open question is closed with words that the model understands."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid, while_suspended="supersede")).pending
    again = asyncio.create_task(stand.sessions.ask(sid, "go", agent="people", message_id="m-go"))
    await stand.accepted(sid, 2)
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    assert (await stand.sessions.ask(sid, "never mind", agent="people")).text == "NEVER MIND"
    told = await again
    assert (told.status, told.exit_reason, told.in_thread) == (
        AskStatus.INTERRUPTED,
        ExitReason.SUPERSEDED,
        True,
    )
    assert await stand.texts(sid) == ["go", "", WENT_ON, "never mind", "NEVER MIND"]
    assert (await stand.sessions.session(sid).submit_tool_result(call, "late")).status == "already_completed"


async def test_an_interrupt_ends_the_turn_whole(stand: Stand, desk: Desk, sid: str) -> None:
    """Every call is answered: the next model call finds a thread that its provider accepts."""
    desk.scripts[sid] = asks_once(LOCATE)
    await suspended(stand, sid)
    assert await stand.sessions.session(sid).stop()
    desk.scripts[sid] = lambda request: str([message.role for message in request.messages])
    result = await stand.sessions.ask(sid, "next", agent="people")
    assert result.text == "['user', 'assistant', 'tool', 'user']"
    assert (await stand.texts(sid))[2] == INTERRUPTED


async def test_an_abort_leaves_no_trace_of_the_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """As with a turn that runs."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    assert await stand.sessions.session(sid).stop(abort=True)
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    await stand.sessions.ask(sid, "next", agent="people")
    assert await stand.texts(sid) == ["next", "NEXT"]
    assert (await stand.sessions.session(sid).submit_tool_result(call, "late")).status == "not_pending"


async def test_a_cancel_ends_the_turn_whole(stand: Stand, desk: Desk, sid: str) -> None:
    """What somebody was told is in the thread stays there, and nothing is left waiting."""
    desk.scripts[sid] = asks_once(LOCATE)
    await suspended(stand, sid)
    await stand.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await stand.sessions.session(sid).result()
    assert await stand.texts(sid) == ["go", "", INTERRUPTED]
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    assert (await stand.sessions.ask(sid, "next", agent="people")).text == "NEXT"


async def test_a_terminated_execution_is_gone_on_with(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing could clean up: the next one finds the turn where it was, and takes the answer."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    await stand.handle(sid).terminate()
    reply = await stand.sessions.session(sid, agent="people").submit_tool_result(call, "in Bonn", wait=True)
    assert reply.status == "submitted"
    assert reply.result is not None
    assert reply.result.text == "in Bonn"
    assert await stand.texts(sid) == ["go", "", "in Bonn", "in Bonn"]


async def test_a_suspended_session_is_not_idle(stand: Stand, desk: Desk, sid: str) -> None:
    """People take longer than an idle time-out; no timer may fill the history meanwhile."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid, idle_timeout=0.3)).pending
    await asyncio.sleep(1.5)
    timers = [each for each in await stand.events(sid) if each.HasField("timer_started_event_attributes")]
    assert len(timers) <= 2
    reply = await stand.sessions.session(sid).submit_tool_result(call, "in Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "in Bonn"


async def test_waiting_takes_no_activity(stand: Stand, desk: Desk, sid: str) -> None:
    """One activity a step stays the rule: two steps, two activities, however long a person took."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    await stand.sessions.session(sid).submit_tool_result(call, "in Bonn", wait=True)
    started = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in await stand.events(sid)
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert started == ["helix.sessions.open", "helix.sessions.run_step", "helix.sessions.run_step"]


async def test_a_suspended_turn_moves_with_its_session(stand: Stand, desk: Desk, sid: str) -> None:
    """A history that grew too long while people thought is no reason to ask them again."""
    client, gate = stand.client(max_turns_per_run=1), Gate()
    desk.scripts[sid] = gate.then(
        lambda request: asks(LOCATE) if request.messages[-1].text == "go" else request.messages[-1].text
    )
    first = asyncio.create_task(client.ask(sid, "first", agent="people"))
    await gate.reached.wait()
    second = asyncio.create_task(client.ask(sid, "go", agent="people"))
    await asyncio.sleep(0.3)
    gate.opened.set()
    assert (await first).text == "first"
    (call,) = (await second).pending
    reply = await stand.sessions.session(sid).submit_tool_result(call, "in Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "in Bonn"


async def test_tools_that_still_run_do_not_delay_the_question(stand: Stand, desk: Desk, sid: str) -> None:
    """A slow server tool beside it: people can already think."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    (call,) = (await suspended(stand, sid)).pending
    await gate.reached.wait()
    await stand.sessions.session(sid).submit_tool_result(call, "Bonn")
    gate.opened.set()
    again = await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
    assert again.text == "Bonn | here"


async def test_ask_user_is_a_tool_ready_to_use(stand: Stand, desk: Desk, sid: str) -> None:
    """A question with options, answered by a person."""
    desk.scripts[sid] = asks_once(("ask_user", {"question": "Which?", "options": ["a", "b"]}))
    (call,) = (await suspended(stand, sid)).pending
    assert call.arguments == {"question": "Which?", "options": ["a", "b"]}
    reply = await stand.sessions.session(sid).submit_tool_result(call, "b", wait=True)
    assert reply.result is not None
    assert reply.result.text == "b"


@pytest.mark.usefixtures("patient_causes")
async def test_a_message_behind_an_open_call_is_told_what_it_waits_for(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """By name and id, as `submit_tool_result` takes them; arguments are content, and stay out of errors."""
    desk.scripts[sid] = asks_once(("locate", {"what": "a secret place"}))
    (call,) = (await suspended(stand, sid)).pending
    with pytest.raises(TimeoutError) as caught:
        await stand.sessions.ask(sid, "and then?", timeout=1)
    assert f"its turn is suspended: it waits for answers to locate (client, id {call.id!r})" in str(
        caught.value
    )
    assert "secret" not in str(caught.value)
