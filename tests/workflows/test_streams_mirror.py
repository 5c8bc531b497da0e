"""A session's stream, mirrored into a workflow that hosts one of Temporal's."""

from collections.abc import Sequence
from typing import Any, Self

import pytest
from temporalio.client import WorkflowHandle
from temporalio.contrib.workflow_streams import WorkflowStreamClient
from temporalio.worker import Worker

from helix_temporal import mirror as mirroring
from helix_temporal.mirror import MirrorInput, StreamMirror
from tests.chaos._boundaries import At, Boundaries, Place
from tests.workflows._mirrored import Mirrored
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Breaking:
    """A client of Temporal's stream whose flushes are boundaries."""

    def __init__(self, client: Any, boundaries: Boundaries) -> None:
        self._client, self._boundaries = client, boundaries

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._boundaries.around("client.close", lambda: self._client.__aexit__(*error))

    def topic(self, name: str) -> Any:
        """As the client's."""
        return self._client.topic(name)

    async def flush(self) -> None:
        """As the client's, with what happens there."""
        await self._boundaries.around("client.flush", self._client.flush)


async def mirrored(
    stand: Stand, sid: str, boundaries: Boundaries
) -> tuple[Sequence[dict[str, Any]], WorkflowHandle[Any, int]]:
    """What a consumer gets of the turn that answers `m1`, and the workflow that it is mirrored into."""
    client, queue = stand.served.client, f"{sid}-mirror"
    streams = boundaries.around_store(stand.sessions.streams, "streams")
    mirror = StreamMirror(streams, beat_every=0.05)
    async with Worker(client, task_queue=queue, workflows=[Mirrored], activities=mirror.activities()):
        request = MirrorInput(session_id=sid, message_id="m1", every=0.01)
        handle = await client.start_workflow(Mirrored.run, request, id=f"{sid}-mirrored", task_queue=queue)
        seen = []
        async for item in WorkflowStreamClient.create(client, handle.id).subscribe("session"):
            seen.append(item.data)
            if item.data["type"] == "run_ended":
                break
        await handle.signal(Mirrored.read)
        await handle.result()
    return seen, handle


async def test_a_turn_is_mirrored_with_its_sequences(stand: Stand, sid: str) -> None:
    """Consumers that follow a workflow anyway need no second place to look."""
    await stand.sessions.ask(sid, "hello", agent="main", message_id="m1")
    whole = [stored async for stored in stand.sessions.stream(sid, message_id="m1")]
    seen, handle = await mirrored(stand, sid, Boundaries())
    assert await handle.result() == whole[-1].sequence
    assert [each["sequence"] for each in seen] == [stored.sequence for stored in whole]
    assert [each["type"] for each in seen] == [stored.chunk.type for stored in whole]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("streams.create_resumable_reader", At.ERROR_BEFORE),
        ("client.flush", At.ERROR_BEFORE),
        ("client.flush", At.ANSWER_LOST),
        ("client.close", At.ANSWER_LOST),
    ],
)
async def test_whoever_passes_over_what_it_has_seen_gets_each_chunk_once_whatever_breaks(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch, call: str, what: At
) -> None:
    """A further attempt begins where the last one is known to have been, which may be too early."""
    boundaries, client = Boundaries(Place(call), what), mirroring._client
    monkeypatch.setattr(mirroring, "_client", lambda every: Breaking(client(every), boundaries))
    await stand.sessions.ask(sid, "hello", agent="main", message_id="m1")
    whole = [stored.sequence async for stored in stand.sessions.stream(sid, message_id="m1")]
    seen, _ = await mirrored(stand, sid, boundaries)
    assert boundaries.reached.is_set()
    sequences = [each["sequence"] for each in seen]
    assert list(dict.fromkeys(sequences)) == whole
