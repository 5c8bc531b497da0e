"""What arrives at an activity and is none of its inputs: row 47, and ids that are refused."""

import uuid
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from tests.workflows._caller import CallActivity
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refused(stand: Stand, name: str, argument: Any) -> ApplicationError:
    """The error that an activity ends with; a retryable one would time this out."""
    served = stand.served
    with pytest.raises(WorkflowFailureError) as caught:
        await served.client.execute_workflow(
            CallActivity.run,
            args=[name, argument],
            id=f"call-{uuid.uuid4().hex}",
            task_queue=served.plugin.settings.task_queue,
        )
    assert isinstance(caught.value.cause, ActivityError)
    assert isinstance(caught.value.cause.cause, ApplicationError)
    return caught.value.cause.cause


async def test_a_missing_field_is_refused_at_once(stand: Stand) -> None:
    """The SDK itself would try it for ever."""
    error = await refused(stand, "helix.threads.read", {"limit": 3})
    assert (error.type, error.non_retryable) == ("InvalidRequestError", True)
    assert "thread_id" in error.message


async def test_a_bad_id_is_refused_at_once(stand: Stand) -> None:
    """A control character never becomes acceptable."""
    error = await refused(stand, "helix.threads.describe", {"thread_id": "a\x01b"})
    assert (error.type, error.non_retryable) == ("InvalidIdError", True)


async def test_a_session_activity_refuses_as_well(stand: Stand) -> None:
    """Every activity decodes its input the same way."""
    error = await refused(stand, "helix.sessions.run_step", {"session_id": "s", "agent": "main"})
    assert (error.type, error.non_retryable) == ("InvalidRequestError", True)


async def test_fields_of_a_newer_version_are_ignored(stand: Stand, sid: str) -> None:
    """Workers of two versions serve one queue during a deployment."""
    await stand.sessions.ask(sid, "hello", agent="main")
    served = stand.served
    page = await served.client.execute_workflow(
        CallActivity.run,
        args=["helix.threads.read", {"thread_id": sid, "from_the_future": {"a": 1}}],
        id=f"call-{uuid.uuid4().hex}",
        task_queue=served.plugin.settings.task_queue,
    )
    assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
