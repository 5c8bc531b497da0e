"""The session store's staging, and the commit of a step."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.checkpoints import (
    CommitResult,
    PromoteResult,
    StagedChange,
    StagedRow,
    StepCommit,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head, Record, head_after
from helix_temporal.models.runs import RunChange
from helix_temporal.models.states import SessionState, StateChange
from helix_temporal.stores import _decide
from helix_temporal.stores.protocols.checkpoints import AnyVersion
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import RecordKind, Wanted
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import _checkpoints, _commit, _staging
from helix_temporal.stores.sessions._base import Base
from helix_temporal.stores.sessions._checks import checked, checked_version
from helix_temporal.stores.sessions._commit import StepRequest
from helix_temporal.stores.sessions._decisions import Call, Decision, Done, Seen
from helix_temporal.stores.sessions._loop import check_fence
from helix_temporal.stores.sessions._messages import DEDUP, known, to_records

_MANY = 1_000
_TRIES = 100


class CommitPart(Base):
    """See `CheckpointStore`."""

    async def stage_changes(
        self, session_id: str, step_id: str, change: StagedChange, *, epoch: int | None = None
    ) -> None:
        """See `CheckpointStore.stage_changes`."""
        step_id, change = validate_id(step_id, "step id"), checked(change, StagedChange)
        call = Call("stage_changes", session_id, epoch=epoch)
        wanted = _staging.wanted(step_id)
        await self._made(call, wanted, lambda seen: _staging.stage(seen, step_id, change), type(None))

    async def list_staged(self, session_id: str, step_id: str | None = None) -> list[StagedRow]:
        """See `CheckpointStore.list_staged`."""
        if step_id is not None:
            seen = await self._see(session_id, _staging.wanted(validate_id(step_id, "step id")))
            return [_staging.row_of(each) for each in seen.view.all(RecordKind.STAGED, step_id)]
        session_id = validate_id(session_id, "session id")
        rows: dict[tuple[str, str], StagedRow] = {}
        limit, after = _MANY, None
        while True:
            page = await self._loop.records.page(session_id, RecordKind.STAGED, limit=limit, after=after)
            rows |= {(each.group, each.key): _staging.row_of(each) for each in page.records}
            if len(page.records) < limit:
                return sorted(rows.values(), key=_order)
            # Calls of two steps may have one name and one time: a page begins with all of a time.
            last = page.records[-1].order
            if page.records[0].order < last:
                after = (last, "")
            else:
                limit *= 2

    async def discard_staging(self, session_id: str, step_id: str, *, epoch: int | None = None) -> int:
        """See `CheckpointStore.discard_staging`."""
        step_id = validate_id(step_id, "step id")
        call = Call("discard_staging", session_id, epoch=epoch)
        return await self._made(
            call, _staging.wanted(step_id), lambda seen: _staging.discard(seen, step_id), int
        )

    async def promote_staging(
        self,
        session_id: str,
        step_id: str,
        *,
        results: Sequence[str] | None = None,
        expected_version: int | None = None,
        on_conflict: Literal["error", "warn"] = "error",
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> PromoteResult:
        """See `CheckpointStore.promote_staging`."""
        step_id, expected = validate_id(step_id, "step id"), checked_version(expected_version)
        if on_conflict not in {"error", "warn"}:
            raise InvalidRequestError("on_conflict: error or warn expected")
        content = (step_id, expected, on_conflict, results)
        call = Call("promote_staging", session_id, content, epoch, operation_id)
        return await self._made(
            call,
            _staging.wanted(step_id),
            lambda seen: _staging.promote(seen, step_id, expected, on_conflict, results),
            PromoteResult,
        )

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        next_state: SessionState | StateChange,
        step: StepCommit,
        *,
        append: StepAppend | None = None,
        messages: Sequence[Message] = (),
        run: RunChange | None = None,
        expected_version: int | AnyVersion | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> tuple[CommitResult, Appended | None]:
        """See `CheckpointStore.save_state_and_promote_staging`: one view and one commit.

        Where threads lie in another store the step is appended and flushed first, so that the state is
        never ahead of its messages; a crash between the two leaves the step in the thread without its
        state, and a repeat of this call commits it.
        """
        kind = SessionState if isinstance(next_state, SessionState) else StateChange
        request = StepRequest(
            checked(next_state, kind),
            checked(step, StepCommit),
            append,
            None if run is None else checked(run, RunChange),
            checked_version(expected_version),
        )
        if append is not None and messages:
            raise InvalidRequestError("append and messages are both given; a step's messages come once")
        if not messages:
            return await self._commit_step(session_id, request, epoch, operation_id)
        return await self._commit_at_end(session_id, request, to_records(messages), epoch, operation_id)

    # -- inside

    async def _commit_step(
        self, session_id: str, request: StepRequest, epoch: int | None, operation_id: str | None
    ) -> tuple[CommitResult, Appended | None]:
        request = request.digested()
        _commit.check_request(session_id, request)
        call = Call("commit", session_id, (request.digest(),), epoch, operation_id)
        if request.append is None:
            return (await self._committed(call, request)).answer, None
        if self._threads.together:
            return await self._committed_together(call, request, request.append)
        return await self._committed_apart(call, request, request.append)

    async def _commit_at_end(
        self,
        session_id: str,
        request: StepRequest,
        records: tuple[Record, ...],
        epoch: int | None,
        operation_id: str | None,
    ) -> tuple[CommitResult, Appended | None]:
        """Commit a step whose messages follow the newest ones, whoever else appends meanwhile."""
        for number in range(_TRIES):
            try:
                append = await self._append_at_end(session_id, records)
                return await self._commit_step(
                    session_id, replace(request, append=append, at_end=True), epoch, operation_id
                )
            except (HeadMovedError, FencedError) as error:
                if "session_id" in error.facts:
                    raise
                # Somebody else appended to the thread, or opened it, between look and commit.
                await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2 ** min(number, 6))))  # noqa: S311
        raise StoreUnavailableError(f"session {session_id!r}: a commit was overtaken {_TRIES} times")

    async def _append_at_end(self, session_id: str, records: tuple[Record, ...]) -> StepAppend:
        """The messages as a step at the end of the thread, or where they stand already."""
        await self._threads.settle(session_id)
        seen = await self._see(session_id, Wanted(thread=self._threads.together))
        _ = seen.present
        there = await self._threads.joined(seen)
        newest = await self._threads.newest_ids(session_id, there, DEDUP + len(records))
        place = known(newest, there.head, records[:1]).get(records[0].id, there.head.position)
        head = there.head
        if place < head.position:
            before = await self._threads.read(session_id, place - 1, place) if place else []
            head = Head(position=place, last_id=before[0].id if before else "")
        return StepAppend(session_id, there.epoch, head, records, commits=True)

    async def _committed(self, call: Call, request: StepRequest) -> Done[CommitResult]:
        async def decide(seen: Seen) -> Decision[CommitResult]:
            _ = seen.present
            first = _commit.first_result(seen, request)
            if first is not None:
                return Decision(first)
            return _commit.commit(seen, request, await self._head(seen, request))

        given = isinstance(request.next_state, SessionState)
        thread = self._threads.together and (given or request.append is not None)
        wanted = _commit.wanted(request, thread=thread)
        return await self._loop.change(call, wanted, decide, CommitResult, keeps=True)

    async def _head(self, seen: Seen, request: StepRequest) -> Head | None:
        """Where the thread will stand with this commit; None if the state's own head counts."""
        if request.append is not None and request.appends:
            return await self._end_of(seen, request.append)
        if request.head is None and isinstance(request.next_state, SessionState) and self._threads.here:
            there = await self._threads.standing(seen)
            return _commit.further(seen, request.next_state.head, there)
        return None

    async def _end_of(self, seen: Seen, append: StepAppend) -> Head:
        there = seen.view.thread
        if there is None or there.head == append.head or not self._threads.here:
            return head_after(append.head, append.records)
        return (await self._standing_step(append)).head

    async def _standing_step(self, append: StepAppend) -> Appended:
        """The step as it stands in the thread; nothing is written.

        Raises:
            HeadMovedError, IdempotencyConflictError: Something else stands there, or nothing.
            FencedError: A newer epoch has the thread.
        """
        view = await self._threads.store.step_view(
            append.thread_id,
            append.epoch,
            append.head,
            after=len(append.records),
            limit=1,
            max_bytes=1,
            ids=1,
        )
        placed = append.head.position == 0 or view.last_id_at_head == append.head.last_id
        if not placed or not _decide.same_step(append, view.after):
            raise _decide.conflict(append, view.header, view.after)
        if append.commits and not _decide.ends_turn(append, view.after):
            raise HeadMovedError(
                f"session {append.thread_id!r}: an earlier answer to this step stands, and asks for tools; "
                "the turn goes on from there",
                thread_id=append.thread_id,
            )
        return Appended(view.after, head_after(append.head, view.after), True, view.header)

    async def _committed_together(
        self, call: Call, request: StepRequest, append: StepAppend
    ) -> tuple[CommitResult, Appended | None]:
        try:
            done = await self._committed(call, request)
        except ThreadNotFoundError:
            # The thread may be cold.
            if (
                not self._threads.here
                or await self._threads.store.hydrate(append.thread_id, append.epoch) is None
            ):
                raise
            done = await self._committed(call, request)
        if done.appended is not None and done.appended.head != done.answer.head:
            return await self._moved(call, done.answer, done.appended), done.appended
        if done.appended is not None or not self._threads.here:
            return done.answer, done.appended
        appended = await self._repeated_step(append)
        return _commit.with_own_head(done.answer, appended), appended

    async def _moved(self, call: Call, result: CommitResult, appended: Appended) -> CommitResult:
        """Another attempt's answer came between look and commit, and stands: its head is what counts."""

        def decide(seen: Seen) -> Decision[int]:
            state = seen.present
            checkpoint = _checkpoints.find(seen, result.checkpoint_id)
            puts = () if checkpoint is None else _checkpoints.moved(checkpoint, appended.head)
            if state.head != result.head:
                return Decision(state.version, puts=puts)
            after = seen.bumped(head=appended.head)
            return Decision(after.version, after, puts=puts)

        wanted = Wanted(keys=_checkpoints.keys(result.checkpoint_id))
        version = await self._made(replace(call, operation_id=None), wanted, decide, int)
        return result.model_copy(update={"head": appended.head, "new_version": version})

    async def _repeated_step(self, append: StepAppend) -> Appended | None:
        """The step of a commit that was made before; None if the thread has been cut since."""
        try:
            return await self._standing_step(append)
        except (HeadMovedError, ThreadNotFoundError):
            return None

    async def _committed_apart(
        self, call: Call, request: StepRequest, append: StepAppend
    ) -> tuple[CommitResult, Appended | None]:
        seen = await self._see(call.session_id, _commit.wanted(request, thread=False))
        if call.operation_id is None or seen.state is None:
            # As in one unit: who was replaced learns that, whatever else is wrong.
            check_fence(seen, call)
        _ = seen.present
        first = _commit.first_result(seen, request)
        if first is not None:
            return first, await self._repeated_step(append)
        # What would be refused is refused before the messages are there.
        check_fence(seen, call)
        _commit.commit(seen, request, append.head)
        appended = await self._threads.store.append(append)
        await self._threads.store.flush(
            FlushThread(append.thread_id, append.epoch, mine=appended.head, commits=append.commits)
        )
        done = await self._committed(call, _commit.with_head(request, appended.head))
        return done.answer, appended


def _order(row: StagedRow) -> tuple[int, str, str]:
    """As changes are applied; those of two steps that nothing else tells apart by their steps."""
    return row.change.timestamp, row.change.tool_call_id, row.step_id
