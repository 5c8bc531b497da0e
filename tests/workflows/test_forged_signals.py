"""Signals and updates of somebody who may send them, and knows no more of a session than its name."""

import pytest
from temporalio.client import WorkflowUpdateFailedError

from helix_temporal.models.sessions import AskStatus
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", ["take_answer", "interrupt", "unknown"])
@pytest.mark.parametrize(
    "arguments", [[], ["text"], [{"odd": 1}, 2], [None]], ids=["none", "text", "two", "null"]
)
async def test_a_signal_with_other_arguments_ends_no_session(
    stand: Stand, sid: str, name: str, arguments: list[object]
) -> None:
    """One ``take_answer`` without an argument had made every later workflow task fail, for good."""
    assert (await stand.sessions.ask(sid, "one", agent="main")).status is AskStatus.ANSWERED
    await stand.handle(sid).signal(name, args=arguments)
    assert (await stand.sessions.ask(sid, "two", agent="main", timeout=20)).status is AskStatus.ANSWERED


@pytest.mark.parametrize("name", ["ask", "send_message", "set_properties", "take_back", "stop"])
async def test_an_update_without_its_argument_is_refused(stand: Stand, sid: str, name: str) -> None:
    """It had failed the workflow's task, again and again, and held up the asks of others meanwhile."""
    assert (await stand.sessions.ask(sid, "one", agent="main")).status is AskStatus.ANSWERED
    with pytest.raises(WorkflowUpdateFailedError):
        await stand.handle(sid).execute_update(name, args=[])
    events = await stand.events(sid)
    assert not [each for each in events if each.HasField("workflow_task_failed_event_attributes")]
    assert (await stand.sessions.ask(sid, "two", agent="main", timeout=20)).status is AskStatus.ANSWERED
