"""Resets by an operator: the record follows the workflow's new branch, nothing is lost or doubled."""

import asyncio
import uuid

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from helix_temporal.client import workflow_id
from helix_temporal.models.sessions import AskStatus
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def task_ends(stand: Stand, session_id: str, run_id: str | None = None) -> list[int]:
    """Event ids at which a reset may happen: completed workflow tasks."""
    events = await stand.events(session_id, run_id)
    return [each.event_id for each in events if each.HasField("workflow_task_completed_event_attributes")]


async def reset(stand: Stand, session_id: str, event_id: int, run_id: str | None = None) -> str:
    """Start a new branch of the execution after this event."""
    client = stand.served.client
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id(session_id), run_id=run_id or ""),
            reason="a test",
            workflow_task_finish_event_id=event_id,
            request_id=uuid.uuid4().hex,
        )
    )
    return response.run_id


async def check(stand: Stand, session_id: str, texts: list[str]) -> None:
    """Every message once and in order, each followed by its answer."""
    messages = await stand.messages(session_id)
    assert [each.text for each in messages if each.role == "user"] == texts
    assert len({each.id for each in messages}) == len(messages)
    audit = await stand.served.plugin.backends.tiered.upkeep.audit(session_id)
    assert audit.problems == ()


async def talk(stand: Stand, session_id: str, *texts: str) -> None:
    for text in texts:
        result = await stand.sessions.ask(session_id, text, agent="main", message_id=f"m-{text}", timeout=30)
        assert result.status is AskStatus.ANSWERED


async def test_a_reset_to_a_middle_point_loses_and_doubles_nothing(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Updates after the point are applied again by the server, all at once: each finds its own answer."""
    await talk(stand, sid, "one", "two", "three")
    before = await stand.messages(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[2])
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])
    assert (await stand.messages(sid))[:6] == before
    assert len(desk.requests[sid]) == 4


async def test_a_step_that_is_done_again_finds_itself_and_pays_nothing(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The model was asked and its answer stands: asking again would give another one."""
    await talk(stand, sid, "one", "two", "three")
    before = await stand.messages(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[-1])
    await talk(stand, sid, "four")
    assert (await stand.messages(sid))[:6] == before
    assert len(desk.requests[sid]) == 4


async def test_a_reset_with_tools_finds_its_own_steps(stand: Stand, desk: Desk, sid: str) -> None:
    """A step that asked for tools is found too, whichever part of its turn is done again."""
    desk.scripts[sid] = first_tools_then("done", "a", "b")
    await talk(stand, sid, "one", "two")
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[len(ends) // 2])
    await talk(stand, sid, "three")
    await check(stand, sid, ["one", "two", "three"])


async def test_every_point_of_a_session_can_be_reset_to(stand: Stand, sid: str) -> None:
    """Not only the comfortable ones."""
    await talk(stand, sid, "one", "two")
    count = len(await task_ends(stand, sid))
    sent = ["one", "two"]
    for number in range(count - 1):
        run_id = (await stand.handle(sid).describe()).run_id
        ends = await task_ends(stand, sid, run_id)
        await reset(stand, sid, ends[min(number, len(ends) - 1)], run_id)
        sent.append(f"after-{number}")
        await talk(stand, sid, sent[-1])
        await check(stand, sid, sent)


async def test_a_reset_of_a_reset(stand: Stand, sid: str) -> None:
    """Operators try twice."""
    await talk(stand, sid, "one", "two")
    first = (await stand.handle(sid).describe()).run_id
    ends = await task_ends(stand, sid)
    second = await reset(stand, sid, ends[2], first)
    await talk(stand, sid, "three")
    await reset(stand, sid, (await task_ends(stand, sid, second))[2], second)
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])


async def test_a_reset_of_a_session_that_went_cold(stand: Stand, sid: str) -> None:
    """The new branch opens what its own execution closed."""
    await talk(stand, sid, "one", "two")
    await stand.finish(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[3])
    await talk(stand, sid, "three")
    await check(stand, sid, ["one", "two", "three"])


async def test_a_reset_of_an_execution_that_another_followed_is_fenced(stand: Stand, sid: str) -> None:
    """Two branches of one session's past must not both write: the older one is refused."""
    await talk(stand, sid, "one", "two")
    old = (await stand.handle(sid).describe()).run_id
    ends = await task_ends(stand, sid)
    await stand.finish(sid)
    await talk(stand, sid, "three")
    await stand.finish(sid)
    before = await stand.sessions.describe(sid)
    branch = await reset(stand, sid, ends[2], old)
    handle = stand.served.client.get_workflow_handle(workflow_id(sid), run_id=branch)
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 30)
    assert getattr(caught.value.cause, "type", None) == "FencedError"
    after = await stand.sessions.describe(sid)
    assert (after.head, after.epoch, after.owner) == (before.head, before.epoch, before.owner)
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])


async def test_terminate_and_restart_keeps_every_finished_turn(stand: Stand, sid: str) -> None:
    """What was answered is in the thread, whoever serves it next."""
    for number in range(4):
        await talk(stand, sid, f"q{number}")
        await stand.handle(sid).terminate()
    assert (await stand.handle(sid).describe()).status is WorkflowExecutionStatus.TERMINATED
    await talk(stand, sid, "last")
    await check(stand, sid, ["q0", "q1", "q2", "q3", "last"])
