"""The header that says whose a session is, beside interceptors and codecs of the user's."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import temporalio.client
import temporalio.worker
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import HeaderCodecBehavior
from temporalio.converter import DataConverter

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.plugin import HelixPlugin
from tests.workflows import _users_own as own
from tests.workflows._guests import OPTIONS, served_with

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Zip(own.Zip):
    """It passes on what is not encoded, as a client's headers are that its workers decode."""

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each as it was."""
        return [(await super(Zip, self).decode([each]))[0] if encoded(each) else each for each in payloads]


def encoded(payload: Payload) -> bool:
    """By the codec."""
    return payload.metadata.get("encoding") == b"binary/zip"


KEYED = DataConverter(payload_codec=own.KeyedByWorkflow())
ZIP = DataConverter(payload_codec=Zip())
WAYS = {
    "not": (HeaderCodecBehavior.NO_CODEC, KEYED),
    # The SDK's client encodes headers without a context.
    "everywhere": (HeaderCodecBehavior.CODEC, ZIP),
    "in workflows": (HeaderCodecBehavior.WORKFLOW_ONLY_CODEC, ZIP),
    "in workflows, each with its key": (HeaderCodecBehavior.WORKFLOW_ONLY_CODEC, KEYED),
}


@pytest.fixture
def sid() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


class ReadsAll(temporalio.worker.Interceptor):
    """Reads every header by the payload converter, as one that passes a tenant on may do."""

    def intercept_activity(
        self,
        next: temporalio.worker.ActivityInboundInterceptor,  # noqa: A002
    ) -> temporalio.worker.ActivityInboundInterceptor:
        """Of activities."""

        class Activities(temporalio.worker.ActivityInboundInterceptor):
            async def execute_activity(self, input: temporalio.worker.ExecuteActivityInput) -> Any:  # noqa: A002
                read(input.headers, activity.payload_converter())
                return await super().execute_activity(input)

        return Activities(next)

    def workflow_interceptor_class(
        self,
        input: temporalio.worker.WorkflowInterceptorClassInput,  # noqa: A002
    ) -> type[temporalio.worker.WorkflowInboundInterceptor]:
        """Of runs, updates and queries."""

        class Workflows(temporalio.worker.WorkflowInboundInterceptor):
            async def execute_workflow(self, input: temporalio.worker.ExecuteWorkflowInput) -> Any:  # noqa: A002
                read(input.headers, workflow.payload_converter())
                return await super().execute_workflow(input)

            def handle_update_validator(self, input: temporalio.worker.HandleUpdateInput) -> None:  # noqa: A002
                read(input.headers, workflow.payload_converter())
                super().handle_update_validator(input)

            async def handle_query(self, input: temporalio.worker.HandleQueryInput) -> Any:  # noqa: A002
                read(input.headers, workflow.payload_converter())
                return await super().handle_query(input)

        return Workflows


class ReadsAllOfClients(temporalio.client.Interceptor, ReadsAll):
    """A client's, which its workers take over."""


def read(headers: Mapping[str, Payload], converter: Any) -> None:
    """All of them."""
    for each in headers.values():
        converter.from_payload(each)


async def test_an_interceptor_may_read_every_header(temporal_address: str, sid: str, tmp_path: Path) -> None:
    """It failed each session: a payload without metadata is one that no converter knows."""
    connect = {"interceptors": [ReadsAllOfClients()]}
    async with served_with(
        temporal_address, DataConverter.default, connect, cold_directory=tmp_path
    ) as served:
        sessions = SessionClient(served.client, options=OPTIONS.model_copy(update={"max_turns_per_run": 1}))
        await sessions.ask(sid, "one", agent="main", timeout=20)
        assert (await sessions.ask(sid, "two", agent="main", timeout=20)).text == "3"
        assert (await sessions.session(sid).get_status()).session_id == sid
        await served.client.get_workflow_handle(workflow_id(sid)).terminate()


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_is_its_deployments_however_headers_are_encoded(
    temporal_address: str, sid: str, tmp_path: Path, way: str
) -> None:
    """A worker with another archive serves none, also where the SDK encodes headers and decodes none."""
    behaviour, converter = WAYS[way]
    connect: dict[str, Any] = {"header_codec_behavior": behaviour}
    places = [tmp_path / "a", tmp_path / "b"]
    for each in places:
        each.mkdir()
    queue = f"q-{uuid.uuid4().hex[:8]}"
    client = await Client.connect(
        temporal_address, data_converter=converter, plugins=[HelixPlugin()], header_codec_behavior=behaviour
    )
    storeless = SessionClient(client, task_queue=queue, options=OPTIONS)
    async with served_with(temporal_address, converter, connect, task_queue=queue, cold_directory=places[0]):
        assert (await storeless.ask(sid, "one", agent="main", timeout=20)).text == "1"
    async with served_with(temporal_address, converter, connect, task_queue=queue, cold_directory=places[1]):
        result = await storeless.ask(sid, "two", agent="main", timeout=20)
        assert result.text is None
        assert "ForeignDeploymentError" in (result.error or "")


async def test_a_header_that_nobody_can_read_says_nothing(
    temporal_address: str, sid: str, tmp_path: Path
) -> None:
    """A client encodes headers, its workers take them as they come: that is no error in each request."""
    async with served_with(temporal_address, ZIP, cold_directory=tmp_path) as served:
        encoding = await Client.connect(
            temporal_address,
            data_converter=ZIP,
            plugins=[HelixPlugin(served.settings)],
            header_codec_behavior=HeaderCodecBehavior.CODEC,
        )
        asked = await SessionClient(encoding, options=OPTIONS).ask(sid, "one", agent="main", timeout=20)
        assert asked.text == "1"
        await served.client.get_workflow_handle(workflow_id(sid)).terminate()
