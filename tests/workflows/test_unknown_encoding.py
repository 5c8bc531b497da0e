"""A client that lacks the payload codec of the workers says so, wherever it reads an answer."""

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from helix_temporal.client import SessionClient, SessionHandle, workflow_id
from helix_temporal.errors import UnknownEncodingError
from helix_temporal.models.waiting import ToolApproval
from tests.workflows import _users_own as own
from tests.workflows._guests import served_with

pytestmark = pytest.mark.asyncio(loop_scope="session")

ZIPPED = dataclasses.replace(DataConverter.default, payload_codec=own.Zip())
APPROVAL = ToolApproval(approval_id="call_0_a", approved=True)
REQUESTS: dict[str, Callable[[SessionHandle], Awaitable[object]]] = {
    "get_status": lambda session: session.get_status(),
    "get_pending_calls": lambda session: session.get_pending_calls(),
    "submit_approval": lambda session: session.submit_approval(APPROVAL),
}


@asynccontextmanager
async def asking_blindly(temporal_address: str) -> AsyncIterator[SessionHandle]:
    """A session of workers with a codec, for a client without one."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    async with served_with(temporal_address, ZIPPED) as served:
        async with asyncio.timeout(20):
            await served.sessions.ask(session_id, "hello", agent="main")
        client: SessionClient = await served.another(DataConverter.default)
        yield client.session(session_id)
    plain = await Client.connect(temporal_address)
    await plain.get_workflow_handle(workflow_id(session_id)).terminate()


@pytest.mark.parametrize("request_name", REQUESTS)
async def test_a_client_without_the_codec_says_so(temporal_address: str, request_name: str) -> None:
    """It raised the SDK's KeyError, from which nobody learns what to do."""
    async with asking_blindly(temporal_address) as blind:
        with pytest.raises(UnknownEncodingError, match=r"binary/zip.*data converter of the workers"):
            await REQUESTS[request_name](blind)


async def test_a_worker_without_the_codec_ends_no_session(temporal_address: str) -> None:
    """In a roll-out one lacks it: the task is tried again until a worker has it that can read it."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    async with served_with(temporal_address, DataConverter.default) as blind:
        sessions = await blind.another(ZIPPED)
        asked = asyncio.create_task(sessions.ask(session_id, "hello", agent="main"))
        session = blind.client.get_workflow_handle(workflow_id(session_id))
        try:
            async with asyncio.timeout(20):
                await _wait_for_refused_task(session)
            assert (await session.describe()).status is WorkflowExecutionStatus.RUNNING
        finally:
            asked.cancel()
            await session.terminate()


async def _wait_for_refused_task(session: WorkflowHandle[Any, Any]) -> None:
    """Until a worker could do nothing with a task, or the workflow is over."""
    wanted = {EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED}
    while True:
        with contextlib.suppress(RPCError):  # not begun yet
            if any(each.event_type in wanted for each in (await session.fetch_history()).events):
                return
        await asyncio.sleep(0.1)
