"""A session's stream, mirrored into a workflow that hosts one of Temporal's."""

import pytest
from temporalio.contrib.workflow_streams import WorkflowStreamClient
from temporalio.worker import Worker

from helix_temporal.mirror import MirrorInput, StreamMirror
from tests.workflows._mirrored import Mirrored
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_turn_is_mirrored_with_its_sequences(stand: Stand, sid: str) -> None:
    """Consumers that follow a workflow anyway need no second place to look."""
    await stand.sessions.ask(sid, "hello", agent="main", message_id="m1")
    whole = [stored async for stored in stand.sessions.stream(sid, message_id="m1")]
    client, queue = stand.served.client, f"{sid}-mirror"
    mirror = StreamMirror(stand.sessions.streams, beat_every=0.2)
    async with Worker(client, task_queue=queue, workflows=[Mirrored], activities=mirror.activities()):
        request = MirrorInput(session_id=sid, message_id="m1")
        handle = await client.start_workflow(Mirrored.run, request, id=f"{sid}-mirrored", task_queue=queue)
        seen = []
        async for item in WorkflowStreamClient.create(client, handle.id).subscribe("session"):
            seen.append(item.data)
            if item.data["type"] == "run_ended":
                break
        await handle.signal(Mirrored.read)
        assert await handle.result() == whole[-1].sequence
    assert [each["sequence"] for each in seen] == [stored.sequence for stored in whole]
    assert [each["type"] for each in seen] == [stored.chunk.type for stored in whole]
