"""The session store, locks and usage for workflows of one's own: activities as typed calls.

A call is one activity with the time-outs and retries of store operations.  It stands for its operation:
however often it is tried, it takes effect once.  Errors come as what they are, e.g. `StaleStateError`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeVar

from temporalio import workflow

from helix_temporal.activities import LockActivities, UsageActivities
from helix_temporal.activities.checkpoints import CheckpointActivities
from helix_temporal.models.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    PromoteResult,
    StagedChange,
    StagedRow,
    StepCommit,
)
from helix_temporal.models.locks import AcquireLockInput, LockInfo, RefreshLockInput, ReleaseLockInput
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import DEFAULT_LIMIT, Page, SessionSnapshot
from helix_temporal.models.runs import RunChange
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.states import SessionState, StateChange
from helix_temporal.models.store_calls import (
    CheckpointKey,
    CommitStepInput,
    LatestCheckpointInput,
    ListCheckpointsInput,
    PromoteStagingInput,
    PruneCheckpointsInput,
    SessionKey,
    StageChangesInput,
    StepKey,
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
from helix_temporal.workflows._calls import OPEN_POLICY
from helix_temporal.workflows.calls import call

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
