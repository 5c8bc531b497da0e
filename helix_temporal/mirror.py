"""A session's stream inside Temporal: mirrored into a workflow that hosts a `WorkflowStream`.

For small deployments that want no second store at their readers, and for workflows whose consumers follow
them already.  Every batch is a signal in that workflow's history: mirror single turns, not whole days, and
not into the session's own workflow, whose history stays small on purpose.

`temporalio.contrib.workflow_streams` is a preview of Temporal's; it is imported when the activity runs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import orjson
from pydantic import Field
from temporalio import activity

from helix_temporal.activities._runtime import typed
from helix_temporal.client._streams import Follow, Until
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.base import Model
from helix_temporal.models.ids import Id
from helix_temporal.stores.protocols.streams import StreamStore

MIRROR: Final = "helix.streams.mirror"


class MirrorInput(Model):
    """What to mirror, and where to.

    Attributes:
        topic: Of the workflow's stream.
        after, run_id, message_id, until: As for `SessionClient.stream`.
        every: Seconds between two batches.
    """

    session_id: Id
    topic: str = "session"
    after: int | None = None
    run_id: str | None = None
    message_id: str | None = None
    until: Until = "turn"
    every: float = Field(default=0.1, gt=0, le=60)


class MirrorResult(Model):
    """The sequence of the last chunk that was mirrored; 0 for none."""

    last_sequence: int = 0


class StreamMirror:
    """The activity ``helix.streams.mirror``: give its `activities` to a worker of the hosting workflow.

    Args:
        streams: Where the sessions are shown.
        beat_every: Seconds between heartbeats, which carry the place: a further attempt goes on from there.
    """

    def __init__(self, streams: StreamStore, *, beat_every: float = 1.0) -> None:
        self._streams, self._beat_every = streams, beat_every

    def activities(self) -> list[Callable[..., Any]]:
        """To be registered."""
        return [self.mirror]

    @activity.defn(name=MIRROR)
    @typed
    async def mirror(self, request: MirrorInput) -> MirrorResult:
        """Publish chunks, as JSON objects with their ``sequence``, until the end that was asked for.

        A lost worker may publish some of them twice: whoever subscribes passes over sequences it has seen.

        Raises:
            InvalidConfigError: This version of Temporal's SDK has no workflow streams.
            StreamTruncatedError, StreamFailedError, StreamAbandonedError: As for `SessionClient.stream`.
        """
        details = activity.info().heartbeat_details
        place = _Place(int(details[0]) if details else request.after or 0)
        beats = asyncio.create_task(self._beat(place))
        try:
            await self._publish(request, place)
        finally:
            beats.cancel()
        return MirrorResult(last_sequence=place.flushed)

    async def _publish(self, request: MirrorInput, place: "_Place") -> None:
        client = _client(request.every)
        follow = Follow(
            self._streams,
            request.session_id,
            after=place.flushed or request.after,
            run_id=request.run_id,
            message_id=request.message_id,
            until=request.until,
        )
        loop = asyncio.get_running_loop()
        async with client, contextlib.aclosing(follow.chunks()) as chunks:
            topic, due = client.topic(request.topic), loop.time()
            async for stored in chunks:
                topic.publish({"sequence": stored.sequence, **orjson.loads(stored.body)})
                place.published = stored.sequence
                if loop.time() >= due:
                    await client.flush()
                    place.flushed, due = place.published, loop.time() + request.every
        place.flushed = place.published

    async def _beat(self, place: "_Place") -> None:
        while True:
            activity.heartbeat(place.flushed)
            await asyncio.sleep(self._beat_every)


class _Place:
    def __init__(self, sequence: int) -> None:
        self.published = self.flushed = sequence


def _client(every: float) -> Any:
    try:
        from temporalio.contrib.workflow_streams import WorkflowStreamClient  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfigError(
            "this version of temporalio has no contrib.workflow_streams; install a newer one"
        ) from error
    return WorkflowStreamClient.from_within_activity(batch_interval=timedelta(seconds=every))
