"""A user's own workflow that keeps a session, a lease and usage by `call`; no session workflow runs."""

from temporalio import workflow

from helix_temporal.activities import (
    CheckpointActivities,
    LockActivities,
    SessionStoreActivities,
    UsageActivities,
)
from helix_temporal.errors import FencedError, StaleStateError
from helix_temporal.models.base import WireModel
from helix_temporal.models.checkpoints import (
    NewRun,
    RunChange,
    RunRecorded,
    RunStatus,
    StagedChange,
    StepCommit,
)
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    CreateSession,
    SessionState,
    SessionStatus,
    StateChange,
)
from helix_temporal.models.store_calls import (
    AcquireLockInput,
    CommitStepInput,
    CompareAndSetStatusInput,
    CreateSessionInput,
    ListCheckpointsInput,
    LockInfo,
    ReleaseLockInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    StageChangesInput,
    StartRunInput,
    UpdateStatusInput,
)
from helix_temporal.models.usage import RecordUsageInput, TokenCounts, TokenUsageEntry, UsageRollupInput
from helix_temporal.workflows import call


class Filed(WireModel):
    """What the clerk saw on the way."""

    first: SessionState
    wrong_status: CasConflict
    paused: CasOk
    stale: str
    fenced: str
    run: RunRecorded
    checkpoints: tuple[str, ...]
    committed: str
    resumed: int
    snapshot: str | None
    last: SessionState | None
    taken: LockInfo
    second_lease: LockInfo | None
    released: bool
    recorded: tuple[bool, bool]
    tokens: int


@workflow.defn(name="tests.clerk")
class Clerk:
    """Files one order."""

    @workflow.run
    async def run(self, session_id: str) -> Filed:
        lock = await self._acquire(session_id)
        assert lock is not None
        second = await self._acquire(session_id, owner="another clerk")
        epoch = lock.fencing_token
        first = await call(
            SessionStoreActivities.create,
            CreateSessionInput(session_id=session_id, options=CreateSession(agent_type="clerk"), epoch=epoch),
        )
        elsewhere = (SessionStatus.COMPLETED, SessionStatus.PAUSED)
        wrong = await self._set_status(session_id, elsewhere, SessionStatus.ACTIVE, epoch)
        paused = await self._set_status(session_id, (SessionStatus.ACTIVE,), SessionStatus.PAUSED, epoch)
        assert isinstance(wrong, CasConflict)
        assert isinstance(paused, CasOk)
        try:
            save = SaveSessionInput(session_id=session_id, state=first, epoch=epoch)
            await call(SessionStoreActivities.save_state, save)
            stale = "taken"
        except StaleStateError as error:
            stale = type(error).__name__
        try:
            update = UpdateStatusInput(session_id=session_id, status=SessionStatus.FAILED, epoch=epoch - 1)
            await call(SessionStoreActivities.update_status, update)
            fenced = "taken"
        except FencedError as error:
            fenced = type(error).__name__
        start = StartRunInput(session_id=session_id, run=NewRun(run_id=str(workflow.uuid4())), epoch=epoch)
        run = (await call(SessionStoreActivities.start_run, start)).outcome
        assert isinstance(run, RunRecorded)
        committed, listed = await self._step(session_id, epoch, run.run.run_id)
        resumed = SessionCall(session_id=session_id, epoch=epoch)
        counted = await call(SessionStoreActivities.increment_resume_count, resumed)
        key = SessionKey(session_id=session_id)
        snapshot = (await call(CheckpointActivities.snapshot, key)).snapshot
        assert snapshot is not None
        recorded = [await self._record(session_id), await self._record(session_id)]
        rollup = (await call(UsageActivities.rollup, UsageRollupInput(session_id=session_id))).rollup
        release = ReleaseLockInput(key=lock.key, fencing_token=epoch)
        return Filed(
            first=first,
            wrong_status=wrong,
            paused=paused,
            stale=stale,
            fenced=fenced,
            run=run,
            checkpoints=listed,
            committed=committed,
            resumed=counted.value,
            snapshot=snapshot.checkpoint_id,
            last=(await call(SessionStoreActivities.load, key)).state,
            taken=lock,
            second_lease=second,
            released=(await call(LockActivities.release, release)).released,
            recorded=(recorded[0], recorded[1]),
            tokens=rollup.tokens.total if rollup else 0,
        )

    async def _acquire(self, key: str, *, owner: str | None = None) -> LockInfo | None:
        request = AcquireLockInput(key=key, operation_id=workflow.uuid4().hex, ttl_ms=60_000, owner=owner)
        return (await call(LockActivities.acquire, request)).lock

    async def _set_status(
        self, session_id: str, expected: tuple[SessionStatus, ...], new: SessionStatus, epoch: int
    ) -> CasOk | CasConflict:
        request = CompareAndSetStatusInput(session_id=session_id, expected=expected, new=new, epoch=epoch)
        return (await call(SessionStoreActivities.compare_and_set_status, request)).outcome

    async def _step(self, session_id: str, epoch: int, run_id: str) -> tuple[str, tuple[str, ...]]:
        stage = StageChangesInput(
            session_id=session_id,
            step_id="step-1",
            change=StagedChange(tool_call_id="call_1", merge_changes={"total": 12}),
            epoch=epoch,
        )
        await call(CheckpointActivities.stage, stage)
        commit = CommitStepInput(
            session_id=session_id,
            step=StepCommit(step_id="step-1", run_id=run_id, step_count=1),
            change=StateChange(steps=1),
            run=RunChange(status=RunStatus.COMPLETED, step_count=1),
            epoch=epoch,
        )
        result = await call(CheckpointActivities.commit, commit)
        page = await call(CheckpointActivities.list, ListCheckpointsInput(session_id=session_id))
        return result.checkpoint_id, tuple(each.id for each in page.items)

    async def _record(self, session_id: str) -> bool:
        at = int(workflow.now().timestamp() * 1000)
        tokens = TokenCounts(prompt=2, completion=3)
        entry = TokenUsageEntry(id="1", session_id=session_id, timestamp=at, model="small", tokens=tokens)
        return (await call(UsageActivities.record, RecordUsageInput(entry=entry))).recorded
