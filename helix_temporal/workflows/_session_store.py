"""The session store for workflows of one's own; see `_stores` for what a call is."""

from collections.abc import Collection, Sequence
from typing import Literal

from helix_temporal.activities.states import SessionStoreActivities as Activities
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import (
    DEFAULT_LIMIT,
    AppendResult,
    ExpiredSession,
    MessagePage,
    Page,
    SessionPage,
    SessionQuery,
)
from helix_temporal.models.runs import (
    NewRun,
    Run,
    RunChange,
    RunStarted,
    RunStartRefused,
    StopKind,
    StopOutcome,
    StopRecord,
)
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
    Submission,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import (
    CompareAndSetStatusInput,
    CreateSessionInput,
    DeleteSessionInput,
    ForkSessionInput,
    GetStopInput,
    ListExpiredInput,
    MergeCustomStateInput,
    PageInput,
    PageMessagesInput,
    RequestStopInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    SessionMessagesInput,
    StartRunInput,
    SubmitToolResultInput,
    SubSessionRefsInput,
    SubSessionStatusInput,
    TruncateMessagesInput,
    UpdateRunInput,
    UpdateStatusInput,
)
from helix_temporal.workflows._stores import FencedCalls


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
    ) -> RunStarted | RunStartRefused:
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
