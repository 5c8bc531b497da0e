"""Activities over the session store and its locks, for workflows that keep their own sessions."""

from temporalio import activity

from helix_temporal.activities._runtime import default_owner, operation_of, raise_application_errors
from helix_temporal.errors import InvalidRequestError, TooLargeError
from helix_temporal.models.base import WireModel
from helix_temporal.models.checkpoints import CheckpointMeta, CommitResult, PromoteResult, Run, StopOutcome
from helix_temporal.models.states import (
    CountResult,
    MergeResult,
    SaveResult,
    SessionState,
    Submission,
    SubSessionRef,
)
from helix_temporal.models.store_calls import (
    AcquireLockInput,
    AcquireLockResult,
    AppendResult,
    CheckpointKey,
    CheckpointResult,
    CommitStepInput,
    CompareAndSetStatusInput,
    CompareAndSetStatusResult,
    CountedResult,
    CreateSessionInput,
    CurrentRunResult,
    DeleteSessionInput,
    DeleteSessionResult,
    ExpiredSession,
    ForkSessionInput,
    GetStopInput,
    GetStopResult,
    LatestCheckpointInput,
    ListCheckpointsInput,
    ListExpiredInput,
    ListStagedResult,
    LoadSessionResult,
    MergeCustomStateInput,
    Page,
    PageInput,
    PageMessagesInput,
    PageMessagesResult,
    PromoteStagingInput,
    PruneCheckpointsInput,
    RefreshLockInput,
    RefreshLockResult,
    ReleaseLockInput,
    ReleaseLockResult,
    RequestStopInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    SessionMessagesInput,
    SessionPage,
    SessionQuery,
    SnapshotResult,
    StageChangesInput,
    StartRunInput,
    StartRunResult,
    StepKey,
    SubmitToolResultInput,
    SubSessionRefsInput,
    SubSessionRefsResult,
    SubSessionStatusInput,
    TruncateMessagesInput,
    UpdateRunInput,
    UpdateStatusInput,
)
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.sessions import CheckpointStore, SessionStore


def checked_size(result: WireModel, limit: int, what: str) -> None:
    """Refuse a result that a history should not hold.

    Raises:
        TooLargeError: As JSON it exceeds ``limit`` bytes.
    """
    size = len(result.model_dump_json().encode())
    if size > limit:
        raise TooLargeError(
            f"{what}: {size} bytes, at most {limit} pass through a workflow; read it where the store is"
        )


class SessionStoreActivities:
    """The session store for workflows.

    Args:
        max_payload: Bytes that a result may have.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        max_payload: int = 256 * 1024,
    ) -> None:
        self._store, self._max_payload = store, max_payload

    @activity.defn(name="helix.sessions.create")
    @raise_application_errors
    async def create(self, request: CreateSessionInput) -> SessionState:
        """As `SessionStore.create_session`."""
        state = await self._store.create_session(
            request.session_id,
            request.options,
            if_not_exists=request.if_not_exists,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )
        checked_size(state, self._max_payload, "state")
        return state

    @activity.defn(name="helix.sessions.load")
    @raise_application_errors
    async def load(self, request: SessionKey) -> LoadSessionResult:
        """As `SessionStore.load_state`."""
        result = LoadSessionResult(state=await self._store.load_state(request.session_id))
        checked_size(result, self._max_payload, "state")
        return result

    @activity.defn(name="helix.sessions.save_state")
    @raise_application_errors
    async def save_state(self, request: SaveSessionInput) -> SaveResult:
        """As `SessionStore.save_state`."""
        return await self._store.save_state(
            request.session_id,
            request.state,
            expected_version=request.expected_version,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.sessions.update_status")
    @raise_application_errors
    async def update_status(self, request: UpdateStatusInput) -> SaveResult:
        """As `SessionStore.update_status`."""
        return await self._store.update_status(
            request.session_id,
            request.status,
            failure_reason=request.failure_reason,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.sessions.compare_and_set_status")
    @raise_application_errors
    async def compare_and_set_status(self, request: CompareAndSetStatusInput) -> CompareAndSetStatusResult:
        """As `SessionStore.compare_and_set_status`."""
        outcome = await self._store.compare_and_set_status(
            request.session_id,
            request.expected,
            request.new,
            expected_version=request.expected_version,
            failure_reason=request.failure_reason,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )
        return CompareAndSetStatusResult(outcome=outcome)

    @activity.defn(name="helix.sessions.merge_custom_state")
    @raise_application_errors
    async def merge_custom_state(self, request: MergeCustomStateInput) -> MergeResult:
        """As `SessionStore.merge_custom_state`."""
        return await self._store.merge_custom_state(
            request.session_id, request.changes, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.delete")
    @raise_application_errors
    async def delete(self, request: DeleteSessionInput) -> DeleteSessionResult:
        """As `SessionStore.delete_session`."""
        deleted = await self._store.delete_session(
            request.session_id, expected_version=request.expected_version, epoch=request.epoch
        )
        return DeleteSessionResult(deleted=deleted)

    @activity.defn(name="helix.sessions.fork")
    @raise_application_errors
    async def fork(self, request: ForkSessionInput) -> SessionState:
        """As `SessionStore.fork_session`."""
        state = await self._store.fork_session(
            request.session_id,
            request.new_session_id,
            at_checkpoint=request.at_checkpoint,
            at_message=request.at_message,
            operation_id=operation_of(request),
        )
        checked_size(state, self._max_payload, "state")
        return state

    @activity.defn(name="helix.sessions.append_messages")
    @raise_application_errors
    async def append_messages(self, request: SessionMessagesInput) -> AppendResult:
        """As `SessionStore.append_messages`."""
        return await self._store.append_messages(
            request.session_id,
            request.messages,
            touch=request.touch,
            change=request.change,
            on_duplicate=request.on_duplicate,
            expected_version=request.expected_version,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.sessions.get_messages")
    @raise_application_errors
    async def get_messages(self, request: PageMessagesInput) -> PageMessagesResult:
        """As `SessionStore.get_messages`."""
        page = await self._store.get_messages(
            request.session_id, offset=request.offset, limit=request.limit, order=request.order
        )
        checked_size(page, self._max_payload, "page of messages")
        return page

    @activity.defn(name="helix.sessions.truncate_messages")
    @raise_application_errors
    async def truncate_messages(self, request: TruncateMessagesInput) -> SaveResult:
        """As `SessionStore.truncate_messages`."""
        return await self._store.truncate_messages(
            request.session_id,
            request.count,
            expected_version=request.expected_version,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.sessions.start_run")
    @raise_application_errors
    async def start_run(self, request: StartRunInput) -> StartRunResult:
        """As `SessionStore.start_run`."""
        outcome = await self._store.start_run(
            request.session_id,
            request.run,
            expect_current_run=request.expect_current_run,
            expect_status=request.expect_status,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )
        return StartRunResult(outcome=outcome)

    @activity.defn(name="helix.sessions.update_run")
    @raise_application_errors
    async def update_run(self, request: UpdateRunInput) -> Run:
        """As `SessionStore.update_run`."""
        return await self._store.update_run(
            request.session_id,
            request.run_id,
            request.change,
            epoch=request.epoch,
            operation_id=operation_of(request),
        )

    @activity.defn(name="helix.sessions.current_run")
    @raise_application_errors
    async def current_run(self, request: SessionKey) -> CurrentRunResult:
        """As `SessionStore.get_current_run`."""
        return CurrentRunResult(run=await self._store.get_current_run(request.session_id))

    @activity.defn(name="helix.sessions.list_runs")
    @raise_application_errors
    async def list_runs(self, request: PageInput) -> Page[Run]:
        """As `SessionStore.list_runs`."""
        return await self._store.list_runs(request.session_id, limit=request.limit, cursor=request.cursor)

    @activity.defn(name="helix.sessions.request_stop")
    @raise_application_errors
    async def request_stop(self, request: RequestStopInput) -> StopOutcome:
        """As `SessionStore.request_stop`."""
        return await self._store.request_stop(
            request.session_id, kind=request.kind, run_id=request.run_id, reason=request.reason
        )

    @activity.defn(name="helix.sessions.get_stop_request")
    @raise_application_errors
    async def get_stop_request(self, request: GetStopInput) -> GetStopResult:
        """As `SessionStore.get_stop_request`."""
        found = await self._store.get_stop_request(request.session_id, request.run_id)
        return GetStopResult(request=found)

    @activity.defn(name="helix.sessions.add_sub_session_refs")
    @raise_application_errors
    async def add_sub_session_refs(self, request: SubSessionRefsInput) -> None:
        """As `SessionStore.add_sub_session_refs`."""
        await self._store.add_sub_session_refs(request.session_id, request.refs, epoch=request.epoch)

    @activity.defn(name="helix.sessions.update_sub_session_ref")
    @raise_application_errors
    async def update_sub_session_ref(self, request: SubSessionStatusInput) -> SubSessionRef:
        """As `SessionStore.update_sub_session_ref`."""
        return await self._store.update_sub_session_ref(
            request.session_id, request.sub_session_id, request.status, epoch=request.epoch
        )

    @activity.defn(name="helix.sessions.list_sub_session_refs")
    @raise_application_errors
    async def list_sub_session_refs(self, request: SessionKey) -> SubSessionRefsResult:
        """As `SessionStore.list_sub_session_refs`."""
        refs = await self._store.list_sub_session_refs(request.session_id)
        return SubSessionRefsResult(refs=tuple(refs))

    @activity.defn(name="helix.sessions.submit_tool_result")
    @raise_application_errors
    async def submit_tool_result(self, request: SubmitToolResultInput) -> Submission:
        """As `SessionStore.submit_tool_result`."""
        return await self._store.submit_tool_result(
            request.session_id, request.submission, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.increment_step_count")
    @raise_application_errors
    async def increment_step_count(self, request: SessionCall) -> CountResult:
        """As `SessionStore.increment_step_count`."""
        return await self._store.increment_step_count(
            request.session_id, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.increment_resume_count")
    @raise_application_errors
    async def increment_resume_count(self, request: SessionCall) -> CountResult:
        """As `SessionStore.increment_resume_count`."""
        return await self._store.increment_resume_count(
            request.session_id, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.list")
    @raise_application_errors
    async def list(self, request: SessionQuery) -> SessionPage:
        """As `SessionStore.list_sessions`."""
        page = await self._store.list_sessions(request)
        checked_size(page, self._max_payload, "page of sessions")
        return page

    @activity.defn(name="helix.sessions.list_expired")
    @raise_application_errors
    async def list_expired(self, request: ListExpiredInput) -> Page[ExpiredSession]:
        """As `SessionStore.list_expired`."""
        return await self._store.list_expired(limit=request.limit, cursor=request.cursor)


class CheckpointActivities:
    """Staging and checkpoints for workflows.

    Args:
        max_payload: Bytes that a result may have.
    """

    def __init__(self, store: CheckpointStore, *, max_payload: int = 256 * 1024) -> None:
        self._store, self._max_payload = store, max_payload

    @activity.defn(name="helix.checkpoints.stage")
    @raise_application_errors
    async def stage(self, request: StageChangesInput) -> None:
        """As `CheckpointStore.stage_changes`."""
        await self._store.stage_changes(
            request.session_id, request.step_id, request.change, epoch=request.epoch
        )

    @activity.defn(name="helix.checkpoints.list_staged")
    @raise_application_errors
    async def list_staged(self, request: StepKey) -> ListStagedResult:
        """As `CheckpointStore.list_staged`, of one step."""
        rows = await self._store.list_staged(request.session_id, request.step_id)
        result = ListStagedResult(rows=tuple(rows))
        checked_size(result, self._max_payload, "staged changes")
        return result

    @activity.defn(name="helix.checkpoints.discard")
    @raise_application_errors
    async def discard(self, request: StepKey) -> CountedResult:
        """As `CheckpointStore.discard_staging`."""
        count = await self._store.discard_staging(request.session_id, request.step_id, epoch=request.epoch)
        return CountedResult(count=count)

    @activity.defn(name="helix.checkpoints.promote")
    @raise_application_errors
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
    @raise_application_errors
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
    @raise_application_errors
    async def get(self, request: CheckpointKey) -> CheckpointResult:
        """As `CheckpointStore.get_checkpoint`."""
        found = await self._store.get_checkpoint(request.session_id, request.checkpoint_id)
        return self._check_result_size(CheckpointResult(checkpoint=found))

    @activity.defn(name="helix.checkpoints.latest")
    @raise_application_errors
    async def latest(self, request: LatestCheckpointInput) -> CheckpointResult:
        """As `CheckpointStore.get_latest_checkpoint`."""
        found = await self._store.get_latest_checkpoint(request.session_id, run_id=request.run_id)
        return self._check_result_size(CheckpointResult(checkpoint=found))

    @activity.defn(name="helix.checkpoints.list")
    @raise_application_errors
    async def list(self, request: ListCheckpointsInput) -> Page[CheckpointMeta]:
        """As `CheckpointStore.list_checkpoints`."""
        return await self._store.list_checkpoints(
            request.session_id, limit=request.limit, cursor=request.cursor, order=request.order
        )

    @activity.defn(name="helix.checkpoints.restore")
    @raise_application_errors
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
    @raise_application_errors
    async def prune(self, request: PruneCheckpointsInput) -> CountedResult:
        """As `CheckpointStore.prune_checkpoints`."""
        count = await self._store.prune_checkpoints(
            request.session_id, keep_last=request.keep_last, epoch=request.epoch
        )
        return CountedResult(count=count)

    @activity.defn(name="helix.checkpoints.snapshot")
    @raise_application_errors
    async def snapshot(self, request: SessionKey) -> SnapshotResult:
        """As `CheckpointStore.build_snapshot`."""
        result = SnapshotResult(snapshot=await self._store.build_snapshot(request.session_id))
        checked_size(result, self._max_payload, "snapshot")
        return result

    def _check_result_size(self, result: CheckpointResult) -> CheckpointResult:
        checked_size(result, self._max_payload, "checkpoint")
        return result


class LockActivities:
    """Locks over the protocol alone.  A session workflow needs none: its epoch is its fence."""

    def __init__(self, locks: LockManager) -> None:
        self._locks = locks

    @activity.defn(name="helix.locks.acquire")
    @raise_application_errors
    async def acquire(self, request: AcquireLockInput) -> AcquireLockResult:
        """Take a lease; a second attempt finds the token of the first.

        No lock means that another holds it: a workflow waits by a timer and asks again.
        """
        lock = await self._locks.acquire(
            request.key,
            ttl_ms=request.ttl_ms,
            owner=request.owner or default_owner(),
            claim=request.operation_id,
        )
        return AcquireLockResult(lock=None if lock is None else lock.info)

    @activity.defn(name="helix.locks.refresh")
    @raise_application_errors
    async def refresh(self, request: RefreshLockInput) -> RefreshLockResult:
        """Let a lease go on; a second attempt does so from then on."""
        held = await self._locks.refresh(request.key, request.fencing_token, ttl_ms=request.ttl_ms)
        return RefreshLockResult(held=held)

    @activity.defn(name="helix.locks.release")
    @raise_application_errors
    async def release(self, request: ReleaseLockInput) -> ReleaseLockResult:
        """Give a lease back; a second attempt finds nothing to do, and says so."""
        return ReleaseLockResult(released=await self._locks.release(request.key, request.fencing_token))
