"""`AgentSession` inside a user's own workflow: function hooks, and the application's own state."""

import asyncio
from typing import Any

import pytest
from temporalio.client import (
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError, CancelledError

from helix_temporal.models.agents import BeforeUserMessage, UserMessageDecision
from helix_temporal.models.ids import ASK_AGAIN
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    SessionInput,
    SessionOptions,
    SessionResult,
    UserMessage,
)
from tests.workflows._desk import Desk, Gate
from tests.workflows._embedded import EmbeddedSession
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Handle = WorkflowHandle[EmbeddedSession, SessionResult]


async def start(stand: Stand, session_id: str, agent: str = "main", **changes: Any) -> Handle:
    """The workflow with a session inside."""
    options = SessionOptions(**({"idle_timeout": 60} | changes.pop("options", {})))
    return await stand.served.client.start_workflow(
        EmbeddedSession.run,
        SessionInput(session_id=session_id, agent=agent, options=options, **changes),
        id=f"embedded-{session_id}",
        task_queue=stand.served.plugin.settings.task_queue,
    )


async def ask(handle: Handle, text: str, message_id: str = "") -> AskResult:
    message = UserMessage(id=message_id or f"m-{text[:20]}", text=text)
    found: AskResult = await handle.execute_update("ask", message, result_type=AskResult)
    return found


async def ask_next_run(handle: Handle, text: str) -> AskResult:
    """Ask again while the run that is asked ends."""
    while True:
        try:
            return await ask(handle, text)
        except WorkflowUpdateFailedError as refused:
            if not isinstance(refused.cause, ApplicationError) or refused.cause.type != ASK_AGAIN:
                raise
        await asyncio.sleep(0.02)


async def test_function_hooks_hear_a_sessions_life(stand: Stand, sid: str) -> None:
    """In the order of an agent's hooks, without any activity."""
    handle = await start(stand, sid)
    assert (await ask(handle, "hello")).text == "1: hello"
    await handle.execute_update("close")
    await handle.result()
    assert await handle.query(EmbeddedSession.heard) == [
        "session_started",
        "before_user_message",
        "after_user_message",
        "turn_completed",
        "session_ended",
    ]


async def test_a_function_hook_changes_and_refuses(stand: Stand, sid: str) -> None:
    """As the activity does."""
    handle = await start(stand, sid)
    assert (await ask(handle, "change me")).text == "1: CHANGE ME"
    assert (await ask(handle, "refuse me")).status is AskStatus.REFUSED
    await handle.execute_update("close")
    await handle.result()


@pytest.mark.parametrize("odd", ["a set", "nan", "a huge number"])
async def test_a_value_that_is_no_json_is_told_and_stops_nothing(stand: Stand, sid: str, odd: str) -> None:
    """It wedged the workflow task for ever, or ended the session without save and flush."""
    handle = await start(stand, sid)
    assert (await ask(handle, "a tuple")).status is AskStatus.ANSWERED
    assert (await ask(handle, odd)).status is AskStatus.ANSWERED
    assert (await ask(handle, "further")).status is AskStatus.ANSWERED
    await handle.execute_update("close")
    ended = await handle.result()
    told = [each for each in ended.receipts if each.name == "values"]
    assert [(each.ok, "not saved: 'odd'" in (each.detail or "")) for each in told] == [(False, True)]
    assert {each.name for each in ended.receipts if each.ok} >= {"save", "flush", "evict"}
    found = await stand.sessions.session(sid).get_state()
    assert found is not None
    assert found.custom_state == {"odd": [1, 2], "even": odd, "turns": 3}


async def test_what_a_hook_sets_is_saved_with_the_turn_of_its_message(stand: Stand, sid: str) -> None:
    """Hooks are a part of the turn; the session lives on, and may lose its worker before the next one."""
    handle = await start(stand, sid)
    assert (await ask(handle, "a tuple")).status is AskStatus.ANSWERED
    found = await stand.sessions.session(sid).get_state()
    assert found is not None
    assert found.custom_state == {"odd": [1, 2], "even": "a tuple"}
    await handle.execute_update("close")
    await handle.result()


@pytest.mark.parametrize("odd", ["surrogate", "dict"])
async def test_a_function_hook_that_returns_what_is_no_decision_refuses(
    stand: Stand, sid: str, odd: str
) -> None:
    """A text that no store holds failed the session, and anything else let the message pass."""
    handle = await start(stand, sid)
    refused = await ask(handle, odd)
    assert (refused.status, refused.in_thread) == (AskStatus.REFUSED, False)
    assert (refused.error or "").startswith("hook before_user_message failed: InvalidMessageError: ")
    assert (await ask(handle, "hello")).text == "1: hello"
    await handle.execute_update("close")
    await handle.result()


async def test_the_agent_s_hook_judges_what_a_function_hook_made_of_a_message(stand: Stand, sid: str) -> None:
    """A function that changed a text switched the agent's moderation off."""

    def moderate(event: BeforeUserMessage) -> UserMessageDecision | str | None:
        if "PIN" in event.text:
            return UserMessageDecision(refuse="moderated")
        return event.text.replace("JANE", "***") if "JANE" in event.text else None

    stand.desk.hooks[sid, "before_user_message"] = moderate
    handle = await start(stand, sid, agent="hooked")
    refused = await ask(handle, "change my pin")
    assert (refused.status, refused.error) == (AskStatus.REFUSED, "moderated")
    assert (await ask(handle, "change me")).text == "1: CHANGE ME"
    assert (await ask(handle, "change jane")).text == "3: CHANGE ***"
    assert (await ask(handle, "refuse me")).error == "not this one"
    await handle.execute_update("close")
    await handle.result()
    seen = [event.text for name, event in stand.desk.heard[sid] if name == "before_user_message"]
    assert seen == ["CHANGE MY PIN", "CHANGE ME", "CHANGE JANE"]


@pytest.mark.parametrize(
    "name",
    ["session_started", "after_user_message", "turn_completed", "session_ended", "before_user_message"],
)
async def test_a_failing_function_hook_never_wedges_the_workflow_task(
    stand: Stand, sid: str, name: str
) -> None:
    """A plain exception in workflow code would be retried for ever."""
    handle = await start(stand, sid, metadata={"fails": name})
    status = (await ask(handle, "hello")).status
    assert status is (AskStatus.REFUSED if name == "before_user_message" else AskStatus.ANSWERED)
    await handle.execute_update("close")
    assert (await asyncio.wait_for(handle.result(), 20)).status == "completed"


async def test_a_function_end_hook_hears_of_a_cancel(stand: Stand, sid: str) -> None:
    """Function hooks are told on every way out, as activities are."""
    handle = await start(stand, sid)
    await ask(handle, "hello")
    await handle.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 20)
    assert isinstance(caught.value.cause, CancelledError)
    assert (await handle.query(EmbeddedSession.heard))[-1] == "session_ended"


async def test_values_survive_close_and_reopen(stand: Stand, sid: str) -> None:
    """An application's state belongs to the session, wherever its thread has been."""
    handle = await start(stand, sid, options={"persistent": False}, messages=(UserMessage(id="1", text="a"),))
    await handle.result()
    handle = await start(stand, sid, options={"persistent": False}, messages=(UserMessage(id="2", text="b"),))
    await handle.result()
    assert await handle.query(EmbeddedSession.values) == {"turns": 2}


async def test_values_survive_continue_as_new(stand: Stand, sid: str) -> None:
    """They travel with what a run takes along, saved or not."""
    handle = await start(stand, sid, options={"max_turns_per_run": 2})
    for number in range(5):
        await ask_next_run(handle, f"{number}")
    assert await handle.query(EmbeddedSession.values) == {"turns": 5}
    await handle.execute_update("close")
    await handle.result()


async def test_values_changed_between_turns_are_saved_at_the_end(stand: Stand, sid: str) -> None:
    """Nobody has to send a message for a change to count."""
    handle = await start(stand, sid)
    await ask(handle, "hello")
    await handle.signal(EmbeddedSession.set_value, "vip")
    await handle.execute_update("close")
    await handle.result()
    handle = await start(stand, sid)
    await ask(handle, "again")
    assert (await handle.query(EmbeddedSession.values))["vip"] is True
    await handle.execute_update("close")
    await handle.result()


async def test_values_changed_before_a_repeated_message_are_saved(stand: Stand, sid: str) -> None:
    """A turn that adds nothing to the thread saves nothing, so the change is still to be saved."""
    handle = await start(stand, sid)
    await ask(handle, "hello", "m-1")
    await handle.execute_update("close")
    await handle.result()
    handle = await start(stand, sid)
    await handle.signal(EmbeddedSession.set_value, "vip")
    await ask(handle, "hello", "m-1")
    await handle.execute_update("close")
    await handle.result()
    handle = await start(stand, sid)
    await ask(handle, "again", "m-2")
    assert (await handle.query(EmbeddedSession.values)).get("vip") is True
    await handle.execute_update("close")
    await handle.result()


async def test_a_lasting_handler_of_the_application_does_not_fill_the_history(stand: Stand, sid: str) -> None:
    """The session waits for it to end rather than resting over and over."""
    handle = await start(stand, sid)
    await ask(handle, "hello")
    held = await handle.start_update(EmbeddedSession.hold, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
    await handle.execute_update("close")
    async with asyncio.timeout(20):
        await wait_until_rest(handle)
    await handle.signal(EmbeddedSession.let_go)
    await held.result()
    assert (await asyncio.wait_for(handle.result(), 30)).status == "completed"


async def wait_until_rest(handle: WorkflowHandle[Any, Any]) -> None:
    """Until nothing is added to the history for a while."""
    before, count = -1, 0
    while count != before:
        await asyncio.sleep(0.5)
        before, count = count, len([event async for event in handle.fetch_history_events()])


async def test_an_embedded_session_serves_messages_while_a_handler_lasts(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The application's business and the conversation go on side by side."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    handle = await start(stand, sid)
    held = asyncio.create_task(handle.execute_update(EmbeddedSession.hold))
    asked = asyncio.create_task(ask(handle, "hello"))
    await gate.reached.wait()
    gate.opened.set()
    assert (await asked).text == "1: hello"
    await handle.signal(EmbeddedSession.let_go)
    await held
    await handle.execute_update("close")
    await handle.result()
