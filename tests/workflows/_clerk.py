"""A user's own workflow that keeps a session, a lease and usage by typed calls; no session workflow runs."""

from temporalio import workflow

from helix_temporal.errors import FencedError, StaleStateError
from helix_temporal.models.base import Model
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
from helix_temporal.models.store_calls import LockInfo
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry
from helix_temporal.workflows import CheckpointCalls, LockCalls, SessionStoreCalls, UsageCalls


class Filed(Model):
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

    def __init__(self) -> None:
        self._locks, self._usage = LockCalls(), UsageCalls()

    @workflow.run
    async def run(self, session_id: str) -> Filed:
        lock = await self._locks.acquire(session_id, ttl_ms=60_000)
        assert lock is not None
        second = await self._locks.acquire(session_id, owner="another clerk")
        sessions = SessionStoreCalls(epoch=lock.fencing_token)
        first = await sessions.create(session_id, CreateSession(agent_type="clerk"))
        wrong = await sessions.compare_and_set_status(
            session_id, {SessionStatus.PAUSED, SessionStatus.COMPLETED}, SessionStatus.ACTIVE
        )
        paused = await sessions.compare_and_set_status(
            session_id, {SessionStatus.ACTIVE}, SessionStatus.PAUSED
        )
        assert isinstance(wrong, CasConflict)
        assert isinstance(paused, CasOk)
        try:
            await sessions.save(session_id, first)
            stale = "taken"
        except StaleStateError as error:
            stale = type(error).__name__
        try:
            await SessionStoreCalls(epoch=lock.fencing_token - 1).update_status(
                session_id, SessionStatus.FAILED
            )
            fenced = "taken"
        except FencedError as error:
            fenced = type(error).__name__
        run = await sessions.start_run(session_id, NewRun(run_id=str(workflow.uuid4())))
        assert isinstance(run, RunRecorded)
        committed, listed = await self._step(session_id, lock.fencing_token, run.run.run_id)
        counted = await sessions.increment_resume_count(session_id)
        snapshot = await CheckpointCalls().build_snapshot(session_id)
        assert snapshot is not None
        recorded = [await self._record(session_id), await self._record(session_id)]
        rollup = await self._usage.rollup(session_id)
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
            last=await sessions.load(session_id),
            taken=lock,
            second_lease=second,
            released=await self._locks.release(lock),
            recorded=(recorded[0], recorded[1]),
            tokens=rollup.tokens.total if rollup else 0,
        )

    async def _step(self, session_id: str, token: int, run_id: str) -> tuple[str, tuple[str, ...]]:
        checkpoints = CheckpointCalls(epoch=token)
        change = StagedChange(tool_call_id="call_1", merge_changes={"total": 12})
        await checkpoints.stage(session_id, "step-1", change)
        step = StepCommit(step_id="step-1", run_id=run_id, step_count=1)
        ended = RunChange(status=RunStatus.COMPLETED, step_count=1)
        result = await checkpoints.commit(session_id, step, StateChange(steps=1), run=ended)
        page = await checkpoints.list(session_id)
        return result.checkpoint_id, tuple(each.id for each in page.items)

    async def _record(self, session_id: str) -> bool:
        at = int(workflow.now().timestamp() * 1000)
        tokens = TokenCounts(prompt=2, completion=3)
        entry = TokenUsageEntry(id="1", session_id=session_id, timestamp=at, model="small", tokens=tokens)
        return await self._usage.record(entry)
