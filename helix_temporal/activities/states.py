"""Activities ``helix.sessions.*`` over the session store, for workflows that keep their own sessions.

Results travel through histories: they are bounded, and messages come in pages.
"""

from temporalio import activity

from helix_temporal.activities._context import operation_of
from helix_temporal.activities._errors import typed
from helix_temporal.errors import TooLargeError
from helix_temporal.models._base import Model
from helix_temporal.models.queries import (
    AppendResult,
    ExpiredSession,
    MessagePage,
    Page,
    SessionPage,
    SessionQuery,
)
from helix_temporal.models.runs import Run, StopOutcome
from helix_temporal.models.states import (
    CountResult,
    MergeResult,
    SaveResult,
    SessionState,
    Submission,
    SubSessionRef,
)
from helix_temporal.models.store_calls import (
    CompareAndSetStatusInput,
    CompareAndSetStatusResult,
    CreateSessionInput,
    CurrentRunResult,
    DeleteSessionInput,
    DeleteSessionResult,
    ForkSessionInput,
    GetStopInput,
    GetStopResult,
    ListExpiredInput,
    LoadSessionResult,
    MergeCustomStateInput,
    PageInput,
    PageMessagesInput,
    RequestStopInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    SessionMessagesInput,
    StartRunInput,
    StartRunResult,
    SubmitToolResultInput,
    SubSessionRefsInput,
    SubSessionRefsResult,
    SubSessionStatusInput,
    TruncateMessagesInput,
    UpdateRunInput,
    UpdateStatusInput,
)
from helix_temporal.stores.protocols.sessions import SessionStore


def checked_size(result: Model, limit: int, what: str) -> None:
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
    @typed
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
    @typed
    async def load(self, request: SessionKey) -> LoadSessionResult:
        """As `SessionStore.load_state`."""
        result = LoadSessionResult(state=await self._store.load_state(request.session_id))
        checked_size(result, self._max_payload, "state")
        return result

    @activity.defn(name="helix.sessions.save_state")
    @typed
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
    @typed
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
    @typed
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
    @typed
    async def merge_custom_state(self, request: MergeCustomStateInput) -> MergeResult:
        """As `SessionStore.merge_custom_state`."""
        return await self._store.merge_custom_state(
            request.session_id, request.changes, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.delete")
    @typed
    async def delete(self, request: DeleteSessionInput) -> DeleteSessionResult:
        """As `SessionStore.delete_session`."""
        deleted = await self._store.delete_session(
            request.session_id, expected_version=request.expected_version, epoch=request.epoch
        )
        return DeleteSessionResult(deleted=deleted)

    @activity.defn(name="helix.sessions.fork")
    @typed
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
    @typed
    async def append_messages(self, request: SessionMessagesInput) -> AppendResult:
        """As `SessionStore.append_messages`."""
        return await self._store.append_messages(
            request.session_id, request.messages, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.get_messages")
    @typed
    async def get_messages(self, request: PageMessagesInput) -> MessagePage:
        """As `SessionStore.get_messages`."""
        page = await self._store.get_messages(
            request.session_id, offset=request.offset, limit=request.limit, order=request.order
        )
        checked_size(page, self._max_payload, "page of messages")
        return page

    @activity.defn(name="helix.sessions.truncate_messages")
    @typed
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
    @typed
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
    @typed
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
    @typed
    async def current_run(self, request: SessionKey) -> CurrentRunResult:
        """As `SessionStore.get_current_run`."""
        return CurrentRunResult(run=await self._store.get_current_run(request.session_id))

    @activity.defn(name="helix.sessions.list_runs")
    @typed
    async def list_runs(self, request: PageInput) -> Page[Run]:
        """As `SessionStore.list_runs`."""
        return await self._store.list_runs(request.session_id, limit=request.limit, cursor=request.cursor)

    @activity.defn(name="helix.sessions.request_stop")
    @typed
    async def request_stop(self, request: RequestStopInput) -> StopOutcome:
        """As `SessionStore.request_stop`."""
        return await self._store.request_stop(
            request.session_id, kind=request.kind, run_id=request.run_id, reason=request.reason
        )

    @activity.defn(name="helix.sessions.get_stop_request")
    @typed
    async def get_stop_request(self, request: GetStopInput) -> GetStopResult:
        """As `SessionStore.get_stop_request`."""
        found = await self._store.get_stop_request(request.session_id, request.run_id)
        return GetStopResult(request=found)

    @activity.defn(name="helix.sessions.add_sub_session_refs")
    @typed
    async def add_sub_session_refs(self, request: SubSessionRefsInput) -> None:
        """As `SessionStore.add_sub_session_refs`."""
        await self._store.add_sub_session_refs(request.session_id, request.refs, epoch=request.epoch)

    @activity.defn(name="helix.sessions.update_sub_session_ref")
    @typed
    async def update_sub_session_ref(self, request: SubSessionStatusInput) -> SubSessionRef:
        """As `SessionStore.update_sub_session_ref`."""
        return await self._store.update_sub_session_ref(
            request.session_id, request.sub_session_id, request.status, epoch=request.epoch
        )

    @activity.defn(name="helix.sessions.list_sub_session_refs")
    @typed
    async def list_sub_session_refs(self, request: SessionKey) -> SubSessionRefsResult:
        """As `SessionStore.list_sub_session_refs`."""
        refs = await self._store.list_sub_session_refs(request.session_id)
        return SubSessionRefsResult(refs=tuple(refs))

    @activity.defn(name="helix.sessions.submit_tool_result")
    @typed
    async def submit_tool_result(self, request: SubmitToolResultInput) -> Submission:
        """As `SessionStore.submit_tool_result`."""
        return await self._store.submit_tool_result(
            request.session_id, request.submission, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.increment_step_count")
    @typed
    async def increment_step_count(self, request: SessionCall) -> CountResult:
        """As `SessionStore.increment_step_count`."""
        return await self._store.increment_step_count(
            request.session_id, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.increment_resume_count")
    @typed
    async def increment_resume_count(self, request: SessionCall) -> CountResult:
        """As `SessionStore.increment_resume_count`."""
        return await self._store.increment_resume_count(
            request.session_id, epoch=request.epoch, operation_id=operation_of(request)
        )

    @activity.defn(name="helix.sessions.list")
    @typed
    async def list(self, request: SessionQuery) -> SessionPage:
        """As `SessionStore.list_sessions`."""
        return await self._store.list_sessions(request)

    @activity.defn(name="helix.sessions.list_expired")
    @typed
    async def list_expired(self, request: ListExpiredInput) -> Page[ExpiredSession]:
        """As `SessionStore.list_expired`."""
        return await self._store.list_expired(limit=request.limit, cursor=request.cursor)
