"""Activities ``helix.checkpoints.*``: staging, the commit of a step, and checkpoints."""

from temporalio import activity

from helix_temporal.activities._context import operation_of
from helix_temporal.activities._errors import typed
from helix_temporal.activities.states import checked_size
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.checkpoints import CheckpointMeta, CommitResult, PromoteResult
from helix_temporal.models.queries import Page
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import (
    CheckpointKey,
    CheckpointResult,
    CommitStepInput,
    CountedResult,
    LatestCheckpointInput,
    ListCheckpointsInput,
    ListStagedResult,
    PromoteStagingInput,
    PruneCheckpointsInput,
    SessionKey,
    SnapshotResult,
    StageChangesInput,
    StepKey,
)
from helix_temporal.stores.protocols.checkpoints import CheckpointStore


class CheckpointActivities:
    """Staging and checkpoints for workflows.

    Args:
        max_payload: Bytes that a result may have.
    """

    def __init__(self, store: CheckpointStore, *, max_payload: int = 256 * 1024) -> None:
        self._store, self._max_payload = store, max_payload

    @activity.defn(name="helix.checkpoints.stage")
    @typed
    async def stage(self, request: StageChangesInput) -> None:
        """As `CheckpointStore.stage_changes`."""
        await self._store.stage_changes(
            request.session_id, request.step_id, request.change, epoch=request.epoch
        )

    @activity.defn(name="helix.checkpoints.list_staged")
    @typed
    async def list_staged(self, request: StepKey) -> ListStagedResult:
        """As `CheckpointStore.list_staged`, of one step."""
        rows = await self._store.list_staged(request.session_id, request.step_id)
        result = ListStagedResult(rows=tuple(rows))
        checked_size(result, self._max_payload, "staged changes")
        return result

    @activity.defn(name="helix.checkpoints.discard")
    @typed
    async def discard(self, request: StepKey) -> CountedResult:
        """As `CheckpointStore.discard_staging`."""
        count = await self._store.discard_staging(request.session_id, request.step_id, epoch=request.epoch)
        return CountedResult(count=count)

    @activity.defn(name="helix.checkpoints.promote")
    @typed
    async def promote(self, request: PromoteStagingInput) -> PromoteResult:
        """As `CheckpointStore.promote_staging`."""
        return await self._store.promote_staging(
            request.session_id,
            request.step_id,
            results=request.results,
            expected_version=request.expected_version,
            on_conflict=request.on_conflict,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.checkpoints.commit")
    @typed
    async def commit(self, request: CommitStepInput) -> CommitResult:
        """As `CheckpointStore.save_state_and_promote_staging`."""
        given = [each for each in (request.state, request.change) if each is not None]
        if len(given) != 1:
            raise InvalidRequestError(
                f"commit of a step: one of state and change expected, {len(given)} given"
            )
        result, _ = await self._store.save_state_and_promote_staging(
            request.session_id,
            given[0],
            request.step,
            messages=request.messages,
            run=request.run,
            expected_version=request.expected_version,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )
        return result

    @activity.defn(name="helix.checkpoints.get")
    @typed
    async def get(self, request: CheckpointKey) -> CheckpointResult:
        """As `CheckpointStore.get_checkpoint`."""
        found = await self._store.get_checkpoint(request.session_id, request.checkpoint_id)
        return self._bounded(CheckpointResult(checkpoint=found))

    @activity.defn(name="helix.checkpoints.latest")
    @typed
    async def latest(self, request: LatestCheckpointInput) -> CheckpointResult:
        """As `CheckpointStore.get_latest_checkpoint`."""
        found = await self._store.get_latest_checkpoint(request.session_id, run_id=request.run_id)
        return self._bounded(CheckpointResult(checkpoint=found))

    @activity.defn(name="helix.checkpoints.list")
    @typed
    async def list(self, request: ListCheckpointsInput) -> Page[CheckpointMeta]:
        """As `CheckpointStore.list_checkpoints`."""
        return await self._store.list_checkpoints(
            request.session_id, limit=request.limit, cursor=request.cursor, order=request.order
        )

    @activity.defn(name="helix.checkpoints.restore")
    @typed
    async def restore(self, request: CheckpointKey) -> SessionState:
        """As `CheckpointStore.restore_checkpoint`."""
        state = await self._store.restore_checkpoint(
            request.session_id,
            request.checkpoint_id,
            expected_version=request.expected_version,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )
        checked_size(state, self._max_payload, "state")
        return state

    @activity.defn(name="helix.checkpoints.prune")
    @typed
    async def prune(self, request: PruneCheckpointsInput) -> CountedResult:
        """As `CheckpointStore.prune_checkpoints`."""
        count = await self._store.prune_checkpoints(
            request.session_id, keep_last=request.keep_last, epoch=request.epoch
        )
        return CountedResult(count=count)

    @activity.defn(name="helix.checkpoints.snapshot")
    @typed
    async def snapshot(self, request: SessionKey) -> SnapshotResult:
        """As `CheckpointStore.build_snapshot`."""
        result = SnapshotResult(snapshot=await self._store.build_snapshot(request.session_id))
        checked_size(result, self._max_payload, "snapshot")
        return result

    def _bounded(self, result: CheckpointResult) -> CheckpointResult:
        checked_size(result, self._max_payload, "checkpoint")
        return result
