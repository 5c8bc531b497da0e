"""The session store, locks and usage for workflows of one's own: activities as typed calls."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, TypeVar

from temporalio import workflow

from helix_temporal.activities import LockActivities, UsageActivities
from helix_temporal.activities.stores import CheckpointActivities
from helix_temporal.activities.stores import SessionStoreActivities as Activities
from helix_temporal.models.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    NewRun,
    PromoteResult,
    Run,
    RunChange,
    RunRecorded,
    RunStartRefused,
    StagedChange,
    StagedRow,
    StepCommit,
    StopKind,
    StopOutcome,
    StopRecord,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    CountResult,
    CreateSession,
    MergeChanges,
    MergeResult,
    SaveResult,
    SessionState,
    SessionStatus,
    StateChange,
    Submission,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import (
    DEFAULT_LIMIT,
    AcquireLockInput,
    AppendResult,
    CheckpointKey,
    CommitStepInput,
    CompareAndSetStatusInput,
    CreateSessionInput,
    DeleteSessionInput,
    ExpiredSession,
    ForkSessionInput,
    GetStopInput,
    LatestCheckpointInput,
    ListCheckpointsInput,
    ListExpiredInput,
    LockInfo,
    MergeCustomStateInput,
    MessagePage,
    Page,
    PageInput,
    PageMessagesInput,
    PromoteStagingInput,
    PruneCheckpointsInput,
    RefreshLockInput,
    ReleaseLockInput,
    RequestStopInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    SessionMessagesInput,
    SessionPage,
    SessionQuery,
    SessionSnapshot,
    StageChangesInput,
    StartRunInput,
    StepKey,
    SubmitToolResultInput,
    SubSessionRefsInput,
    SubSessionStatusInput,
    TruncateMessagesInput,
    UpdateRunInput,
    UpdateStatusInput,
)
from helix_temporal.models.usage import (
    RecordUsageInput,
    UsageEntriesInput,
    UsageEntry,
    UsageKind,
    UsageQuery,
    UsageRollup,
    UsageRollupInput,
)
from helix_temporal.workflows.calls import OPEN_POLICY, call

P = TypeVar("P")
R = TypeVar("R")


class StoreCalls:
    """What the calls of all stores have in common.

    Args:
        policy: Time-outs and retries; by default those that a worker has without settings.
        task_queue: Of the workers that have the stores; by default the workflow's own.
    """

    def __init__(self, *, policy: CallPolicy = OPEN_POLICY, task_queue: str | None = None) -> None:
        self._policy, self._options = policy, workflow.ActivityConfig()
        if task_queue is not None:
            self._options["task_queue"] = task_queue

    async def _call(self, method: Callable[[Any, P], Awaitable[R]], request: P) -> R:
        return await call(method, request, policy=self._policy, **self._options)


class FencedCalls(StoreCalls):
    """Calls whose changes are made under a fence.

    Args:
        epoch: E.g. the token of a lease: a lower one than the session has seen is refused with
            `FencedError`.  None writes unfenced.
    """

    def __init__(
        self, *, epoch: int | None = None, policy: CallPolicy = OPEN_POLICY, task_queue: str | None = None
    ) -> None:
        super().__init__(policy=policy, task_queue=task_queue)
        self._epoch = epoch


class CheckpointCalls(FencedCalls):
    """Staging, the commit of a step, and checkpoints: `CheckpointStore` for workflows."""

    async def stage(self, session_id: str, step_id: str, change: StagedChange) -> None:
        """As `CheckpointStore.stage_changes`."""
        request = StageChangesInput(session_id=session_id, step_id=step_id, change=change, epoch=self._epoch)
        await self._call(CheckpointActivities.stage, request)

    async def list_staged(self, session_id: str, step_id: str) -> tuple[StagedRow, ...]:
        """As `CheckpointStore.list_staged`, of one step."""
        request = StepKey(session_id=session_id, step_id=step_id)
        return (await self._call(CheckpointActivities.list_staged, request)).rows

    async def discard(self, session_id: str, step_id: str) -> int:
        """As `CheckpointStore.discard_staging`."""
        request = StepKey(session_id=session_id, step_id=step_id, epoch=self._epoch)
        return (await self._call(CheckpointActivities.discard, request)).count

    async def promote(
        self,
        session_id: str,
        step_id: str,
        *,
        results: Sequence[str] | None = None,
        expected_version: int | None = None,
        on_conflict: Literal["error", "warn"] = "error",
    ) -> PromoteResult:
        """As `CheckpointStore.promote_staging`."""
        request = PromoteStagingInput(
            session_id=session_id,
            step_id=step_id,
            results=None if results is None else tuple(results),
            expected_version=expected_version,
            on_conflict=on_conflict,
            epoch=self._epoch,
        )
        return await self._call(CheckpointActivities.promote, request)

    async def commit(
        self,
        session_id: str,
        step: StepCommit,
        next_state: SessionState | StateChange,
        *,
        messages: Sequence[Message] = (),
        run: RunChange | None = None,
        expected_version: int | None = None,
    ) -> CommitResult:
        """As `CheckpointStore.save_state_and_promote_staging`."""
        whole = isinstance(next_state, SessionState)
        given: dict[str, Any] = {"messages": tuple(messages)} if messages else {}
        request = CommitStepInput(
            session_id=session_id,
            step=step,
            state=next_state if whole else None,
            change=None if whole else next_state,
            run=run,
            expected_version=expected_version,
            epoch=self._epoch,
            **given,
        )
        return await self._call(CheckpointActivities.commit, request)

    async def get(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        """As `CheckpointStore.get_checkpoint`."""
        request = CheckpointKey(session_id=session_id, checkpoint_id=checkpoint_id)
        return (await self._call(CheckpointActivities.get, request)).checkpoint

    async def latest(self, session_id: str, *, run_id: str | None = None) -> Checkpoint | None:
        """As `CheckpointStore.get_latest_checkpoint`."""
        request = LatestCheckpointInput(session_id=session_id, run_id=run_id)
        return (await self._call(CheckpointActivities.latest, request)).checkpoint

    async def list(
        self,
        session_id: str,
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> Page[CheckpointMeta]:
        """As `CheckpointStore.list_checkpoints`."""
        request = ListCheckpointsInput(session_id=session_id, limit=limit, cursor=cursor, order=order)
        return await self._call(CheckpointActivities.list, request)

    async def restore(
        self, session_id: str, checkpoint_id: str, *, expected_version: int | None = None
    ) -> SessionState:
        """As `CheckpointStore.restore_checkpoint`."""
        request = CheckpointKey(
            session_id=session_id,
            checkpoint_id=checkpoint_id,
            expected_version=expected_version,
            epoch=self._epoch,
        )
        return await self._call(CheckpointActivities.restore, request)

    async def prune(self, session_id: str, *, keep_last: int) -> int:
        """As `CheckpointStore.prune_checkpoints`."""
        request = PruneCheckpointsInput(session_id=session_id, keep_last=keep_last, epoch=self._epoch)
        return (await self._call(CheckpointActivities.prune, request)).count

    async def build_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """As `CheckpointStore.build_snapshot`; all messages are in it, so that of a long session is refused.

        Raises:
            TooLargeError: It exceeds what may pass through a workflow.
        """
        request = SessionKey(session_id=session_id)
        return (await self._call(CheckpointActivities.snapshot, request)).snapshot


class LockCalls(StoreCalls):
    """Leases: `LockManager` for workflows.

    A lease can run out while its holder is away; the token can not: write under it (``epoch``).
    """

    async def acquire(
        self, key: str, *, ttl_ms: int | None = None, owner: str | None = None
    ) -> LockInfo | None:
        """Take a lease; None if another has it.

        ``owner`` defaults to this run of the workflow: it may take a lease that it holds once more, under
        a higher token, and the older lease is lost then.
        """
        request = AcquireLockInput(key=key, operation_id=workflow.uuid4().hex, ttl_ms=ttl_ms, owner=owner)
        return (await self._call(LockActivities.acquire, request)).lock

    async def refresh(self, lock: LockInfo, *, ttl_ms: int | None = None) -> bool:
        """Let a lease go on from now; False: it was lost, for good."""
        request = RefreshLockInput(key=lock.key, fencing_token=lock.fencing_token, ttl_ms=ttl_ms)
        return (await self._call(LockActivities.refresh, request)).held

    async def release(self, lock: LockInfo) -> bool:
        """Give a lease back; False: there was nothing to give back."""
        request = ReleaseLockInput(key=lock.key, fencing_token=lock.fencing_token)
        return (await self._call(LockActivities.release, request)).released


class UsageCalls(StoreCalls):
    """What sessions used: `UsageStore` for workflows.

    Ids and times of entries are the caller's: `workflow.uuid4` and `workflow.now`, never those of the
    machine.
    """

    async def record(self, entry: UsageEntry) -> bool:
        """Add an entry.

        False: one of that id was there, and stands; also where an attempt recorded it whose answer was lost.
        """
        return (await self._call(UsageActivities.record, RecordUsageInput(entry=entry))).recorded

    async def entries(
        self,
        session_id: str,
        *,
        kinds: tuple[UsageKind, ...] | None = None,
        run_id: str | None = None,
        limit: int = 200,
        offset: int = 0,
    ) -> tuple[UsageEntry, ...]:
        """Entries of one session by time, then id."""
        request = UsageEntriesInput(
            session_id=session_id, kinds=kinds, run_id=run_id, limit=limit, offset=offset
        )
        return (await self._call(UsageActivities.entries, request)).entries

    async def rollup(self, session_id: str, *, include_sub_agents: bool = False) -> UsageRollup | None:
        """Sums over a session, with its descendants if asked; None if nothing was recorded."""
        request = UsageRollupInput(session_id=session_id, include_sub_agents=include_sub_agents)
        return (await self._call(UsageActivities.rollup, request)).rollup

    async def query(self, query: UsageQuery) -> Page[UsageEntry]:
        """Entries of all sessions, by pages."""
        return await self._call(UsageActivities.query, query)


class SessionStoreCalls(FencedCalls):
    """State, messages, runs and references: `SessionStore` for workflows.

    What it returns is in the workflow's history: bounded (`TooLargeError`), and messages by pages.
    """

    # -- life

    async def create(
        self, session_id: str, options: CreateSession | None = None, *, if_not_exists: bool = False
    ) -> SessionState:
        """As `SessionStore.create_session`."""
        request = CreateSessionInput(
            session_id=session_id,
            options=options or CreateSession(),
            if_not_exists=if_not_exists,
            epoch=self._epoch,
        )
        return await self._call(Activities.create, request)

    async def load(self, session_id: str) -> SessionState | None:
        """As `SessionStore.load_state`."""
        return (await self._call(Activities.load, SessionKey(session_id=session_id))).state

    async def save(
        self, session_id: str, state: SessionState, *, expected_version: int | None = None
    ) -> SaveResult:
        """As `SessionStore.save_state`: without ``expected_version`` the state's own counts."""
        request = SaveSessionInput(
            session_id=session_id, state=state, expected_version=expected_version, epoch=self._epoch
        )
        return await self._call(Activities.save_state, request)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, failure_reason: str | None = None
    ) -> SaveResult:
        """As `SessionStore.update_status`."""
        request = UpdateStatusInput(
            session_id=session_id, status=status, failure_reason=failure_reason, epoch=self._epoch
        )
        return await self._call(Activities.update_status, request)

    async def compare_and_set_status(
        self,
        session_id: str,
        expected: Collection[SessionStatus],
        new: SessionStatus,
        *,
        expected_version: int | None = None,
        failure_reason: str | None = None,
    ) -> CasOk | CasConflict:
        """As `SessionStore.compare_and_set_status`."""
        request = CompareAndSetStatusInput(
            session_id=session_id,
            # Sets have an order of their own in each process: what is sent must be the same on replay.
            expected=tuple(sorted(expected)),
            new=new,
            expected_version=expected_version,
            failure_reason=failure_reason,
            epoch=self._epoch,
        )
        return (await self._call(Activities.compare_and_set_status, request)).outcome

    async def merge_custom_state(self, session_id: str, changes: MergeChanges) -> MergeResult:
        """As `SessionStore.merge_custom_state`."""
        request = MergeCustomStateInput(session_id=session_id, changes=changes, epoch=self._epoch)
        return await self._call(Activities.merge_custom_state, request)

    async def delete(self, session_id: str, *, expected_version: int | None = None) -> bool:
        """As `SessionStore.delete_session`."""
        request = DeleteSessionInput(
            session_id=session_id, expected_version=expected_version, epoch=self._epoch
        )
        return (await self._call(Activities.delete, request)).deleted

    async def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at_checkpoint: str | None = None,
        at_message: int | None = None,
    ) -> SessionState:
        """As `SessionStore.fork_session`."""
        request = ForkSessionInput(
            session_id=session_id,
            new_session_id=new_session_id,
            at_checkpoint=at_checkpoint,
            at_message=at_message,
        )
        return await self._call(Activities.fork, request)

    # -- messages, of sessions that no session workflow runs

    async def append_messages(self, session_id: str, messages: Sequence[Message]) -> AppendResult:
        """As `SessionStore.append_messages`."""
        request = SessionMessagesInput(session_id=session_id, messages=tuple(messages), epoch=self._epoch)
        return await self._call(Activities.append_messages, request)

    async def get_messages(
        self,
        session_id: str,
        *,
        offset: int = 0,
        limit: int = DEFAULT_LIMIT,
        order: Literal["asc", "desc"] = "asc",
    ) -> MessagePage:
        """As `SessionStore.get_messages`."""
        request = PageMessagesInput(session_id=session_id, offset=offset, limit=limit, order=order)
        return await self._call(Activities.get_messages, request)

    async def truncate_messages(
        self, session_id: str, count: int, *, expected_version: int | None = None
    ) -> SaveResult:
        """As `SessionStore.truncate_messages`."""
        request = TruncateMessagesInput(
            session_id=session_id, count=count, expected_version=expected_version, epoch=self._epoch
        )
        return await self._call(Activities.truncate_messages, request)

    # -- runs and stop requests

    async def start_run(
        self,
        session_id: str,
        run: NewRun,
        *,
        expect_current_run: str | None = None,
        expect_status: Collection[SessionStatus] = tuple(SessionStatus),
    ) -> RunRecorded | RunStartRefused:
        """As `SessionStore.start_run`."""
        request = StartRunInput(
            session_id=session_id,
            run=run,
            expect_current_run=expect_current_run,
            expect_status=tuple(sorted(expect_status)),
            epoch=self._epoch,
        )
        return (await self._call(Activities.start_run, request)).outcome

    async def update_run(self, session_id: str, run_id: str, change: RunChange) -> Run:
        """As `SessionStore.update_run`."""
        request = UpdateRunInput(session_id=session_id, run_id=run_id, change=change, epoch=self._epoch)
        return await self._call(Activities.update_run, request)

    async def current_run(self, session_id: str) -> Run | None:
        """As `SessionStore.get_current_run`."""
        return (await self._call(Activities.current_run, SessionKey(session_id=session_id))).run

    async def list_runs(
        self, session_id: str, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[Run]:
        """As `SessionStore.list_runs`."""
        return await self._call(
            Activities.list_runs, PageInput(session_id=session_id, limit=limit, cursor=cursor)
        )

    async def request_stop(
        self,
        session_id: str,
        *,
        kind: StopKind = "interrupt",
        run_id: str | None = None,
        reason: str | None = None,
    ) -> StopOutcome:
        """As `SessionStore.request_stop`."""
        request = RequestStopInput(session_id=session_id, kind=kind, run_id=run_id, reason=reason)
        return await self._call(Activities.request_stop, request)

    async def get_stop_request(self, session_id: str, run_id: str) -> StopRecord | None:
        """As `SessionStore.get_stop_request`."""
        request = GetStopInput(session_id=session_id, run_id=run_id)
        return (await self._call(Activities.get_stop_request, request)).request

    # -- children and clients

    async def add_sub_session_refs(self, session_id: str, refs: Sequence[SubSessionRef]) -> None:
        """As `SessionStore.add_sub_session_refs`."""
        request = SubSessionRefsInput(session_id=session_id, refs=tuple(refs), epoch=self._epoch)
        await self._call(Activities.add_sub_session_refs, request)

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, status: SessionStatus
    ) -> SubSessionRef:
        """As `SessionStore.update_sub_session_ref`."""
        request = SubSessionStatusInput(
            session_id=session_id, sub_session_id=sub_session_id, status=status, epoch=self._epoch
        )
        return await self._call(Activities.update_sub_session_ref, request)

    async def list_sub_session_refs(self, session_id: str) -> tuple[SubSessionRef, ...]:
        """As `SessionStore.list_sub_session_refs`."""
        return (await self._call(Activities.list_sub_session_refs, SessionKey(session_id=session_id))).refs

    async def submit_tool_result(self, session_id: str, submission: ToolResultSubmission) -> Submission:
        """As `SessionStore.submit_tool_result`."""
        request = SubmitToolResultInput(session_id=session_id, submission=submission)
        return await self._call(Activities.submit_tool_result, request)

    # -- counters

    async def increment_step_count(self, session_id: str) -> CountResult:
        """As `SessionStore.increment_step_count`."""
        request = SessionCall(session_id=session_id, epoch=self._epoch)
        return await self._call(Activities.increment_step_count, request)

    async def increment_resume_count(self, session_id: str) -> CountResult:
        """As `SessionStore.increment_resume_count`."""
        request = SessionCall(session_id=session_id, epoch=self._epoch)
        return await self._call(Activities.increment_resume_count, request)

    # -- lists

    async def list(self, query: SessionQuery | None = None) -> SessionPage:
        """As `SessionStore.list_sessions`."""
        return await self._call(Activities.list, query or SessionQuery())

    async def list_expired(
        self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[ExpiredSession]:
        """As `SessionStore.list_expired`."""
        return await self._call(Activities.list_expired, ListExpiredInput(limit=limit, cursor=cursor))
