"""A client that lacks the payload codec of the workers says so, wherever it reads an answer."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client
from temporalio.converter import DataConverter

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
