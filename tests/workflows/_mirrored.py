"""A workflow that hosts a stream of Temporal's, into which a session's is mirrored."""

from datetime import timedelta

from temporalio import workflow
from temporalio.contrib.workflow_streams import WorkflowStream

with workflow.unsafe.imports_passed_through():
    from helix_temporal.mirror import MIRROR, MirrorInput, MirrorResult


@workflow.defn
class Mirrored:
    """Mirrors one turn, and goes on until it is told that everything was read."""

    @workflow.init
    def __init__(self, request: MirrorInput) -> None:
        self._stream = WorkflowStream()
        self._read = False

    @workflow.run
    async def run(self, request: MirrorInput) -> int:
        """How far the session's stream was mirrored."""
        done: MirrorResult = await workflow.execute_activity(
            MIRROR,
            request,
            result_type=MirrorResult,
            start_to_close_timeout=timedelta(minutes=1),
            heartbeat_timeout=timedelta(seconds=5),
        )
        await workflow.wait_condition(lambda: self._read)
        return done.last_sequence

    @workflow.signal
    def read(self) -> None:
        """Everything was read."""
        self._read = True
