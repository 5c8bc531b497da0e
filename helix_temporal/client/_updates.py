"""Updates that always come to an end: repeated under one id until they have a final result."""

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.api.errordetails.v1 import QueryFailedFailure
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    QueryRejectCondition,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.converter import WorkflowSerializationContext
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    TerminatedError,
)
from temporalio.exceptions import TimeoutError as RunTimeoutError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal import errors
from helix_temporal._converter import UnreadableFailureError, read_failure
from helix_temporal._failures import describe_failure
from helix_temporal._futures import discard_error
from helix_temporal._retries import retry_pause
from helix_temporal.activities.executions import refuse_foreign_execution
from helix_temporal.client._diagnosis import Diagnosis, describe_calls
from helix_temporal.client._looks import look_up_or
from helix_temporal.client._server_check import refuse_unknown_namespace
from helix_temporal.client._task_queues import PinnedRun, says_no_worker
from helix_temporal.errors import (
    HelixError,
    InvalidRequestError,
    NoWorkerError,
    SessionTerminatedError,
    StoreUnavailableError,
)
from helix_temporal.models.deployments import Deployment, memo_of
from helix_temporal.models.ids import ASK_AGAIN, child_workflow_prefix, workflow_id
from helix_temporal.models.sessions import (
    SessionInfo,
    SessionInput,
    SessionResult,
    UserMessage,
)
from helix_temporal.models.waiting import RESUME, PendingCall, SubmitInput
from helix_temporal.workflows import SessionWorkflow
from helix_temporal.workflows.runners import TASK_NOT_DONE, TaskNotDoneError

T = TypeVar("T")

MAX_IN_FLIGHT: Final = 8
"""Asks held at once for one session: the server allows ten updates in flight a run."""
PASSING: Final = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.ABORTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
    }
)
_HELD: Final = 13.0
"""A request that failed after so many seconds was held: the SDK gives up after ten what fails at once."""
_OUTAGE: Final = 60.0
"""Seconds without a request that was held, after which a wait for a result is given up."""
_LONGEST_CALL: Final = timedelta(hours=1)
"""So long one call to the server may wait, which takes no number without end; it is made again."""
CONTROL_SECONDS: Final = 60.0
"""How long methods without a ``timeout`` wait for a worker: ``stop``, ``close``, ``set_properties``."""
_QUERIES: Final = 3
_QUERY_SECONDS: Final = 10.0
_QUERY_AGAIN: Final = 0.2
"""Seconds between two tries of a query that the server, or a worker, could not answer just then."""
_MAX_SAID: Final = 500
"""Characters of a failed query's text that an error repeats."""
_NAMED: Final = 5
"""At most so many calls that a session waits for are named in an error."""
_RUN_ENDED: Final = "AcceptedUpdateCompletedWorkflow"
_NOT_TAKEN_UP: Final = "UnprocessedUpdate"
"""The server's word for an update that came with a workflow task which a worker did without it."""
_CLOSED_BY_SERVER: Final[Mapping[WorkflowExecutionStatus | None, str]] = {
    WorkflowExecutionStatus.TERMINATED: "was terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed out",
}
"""How a run ends whose workflow does not hear of it."""

_LEAD, _GRACE = 1.0, 0.5
"""Seconds: so long before a deadline we begin to ask what holds the session up, so long after it we stop."""

_METHOD: Final[ContextVar[str | None]] = ContextVar("_METHOD", default=None)
"""The handle's method that runs inside `Updates.with_deadline`."""

_log: Final = logging.getLogger(__name__)


class _RetryUpdate(Exception):  # noqa: N818 (control flow, not an error)
    """Ask again, with the same message id.

    Attributes:
        ended: The run may have ended under us.
        gone: None runs.
        refused: The run has an outcome for the update's id, this one: it needs another.
    """

    def __init__(self, why: str, *, ended: bool = False, gone: bool = False, refused: bool = False) -> None:
        super().__init__(why)
        self.ended, self.gone, self.refused = ended, gone, refused


class Updates:
    """Sends updates to sessions, starting them where that is wanted.

    Args:
        task_queue: Where sessions that have to be started run.
        deployment: Whose the sessions are.
        also_known_as: Identities that are the same deployment.
        search_attributes: By the key of the metadata that they are taken from.
        diagnosis: Says why there is no answer.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        search_attributes: Mapping[str, SearchAttributeKey[str]],
        deployment: Deployment,
        also_known_as: Sequence[str],
        diagnosis: Diagnosis,
    ) -> None:
        self._client, self._task_queue = client, task_queue
        self._deployment, self._also_known_as = deployment, also_known_as
        self._search_attributes = search_attributes
        self._slots: dict[str, _Slots] = {}
        self._diagnosis = diagnosis

    def get_workflow_handle(self, session_id: str) -> WorkflowHandle[Any, SessionResult]:
        """The session's workflow."""
        return self._client.get_workflow_handle(
            workflow_id(session_id, self._deployment.name), result_type=SessionResult
        )

    async def describe_execution(self, session_id: str) -> WorkflowExecutionDescription:
        """What Temporal knows of the session's newest execution.

        Raises:
            RPCError: There is none.
            ForeignDeploymentError: It is another deployment's.
        """
        found = await self.get_workflow_handle(session_id).describe()
        await refuse_foreign_execution(found, self._deployment, self._also_known_as)
        return found

    async def has_ended_pinned(self, session_id: str) -> bool:
        """Whether the newest execution has ended pinned to a worker version, whose workers may be gone.

        Nobody else would answer a query of it: `read_start` and the stores tell what is known.

        Raises:
            RPCError: The server does not say.
            ForeignDeploymentError: It is another deployment's.
        """
        try:
            found = await self.describe_execution(session_id)
        except RPCError as error:
            if error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.PERMISSION_DENIED}:
                return False
            raise
        return has_ended_pinned(found)

    async def read_start(self, session_id: str) -> SessionInput:
        """What the newest execution was started with, from its history: no worker is needed.

        Raises:
            RPCError: There is none, or the server does not tell.
        """
        handle = self.get_workflow_handle(session_id)
        async for event in handle.fetch_history_events(page_size=1):
            given = event.workflow_execution_started_event_attributes.input.payloads
            context = WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=handle.id)
            converter = self._client.data_converter.with_context(context)
            start: SessionInput = (await converter.decode(given, [SessionInput]))[0]
            return start
        raise AssertionError(f"{handle.id}: an execution without a first event")

    async def get_result(self, session_id: str) -> SessionResult:
        """How the session's present run ends.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            ForeignDeploymentError: It is another deployment's.
            SessionFailedError: It failed.
            SessionTerminatedError: It was terminated, or timed out.
            SessionInterruptedError: It was cancelled.
        """
        try:
            await self.describe_execution(session_id)
        except RPCError as error:
            refuse_unknown_namespace(self._client, error)
            if error.status is RPCStatusCode.NOT_FOUND:
                raise no_run_error(session_id) from error
            raise
        try:
            handle = self.get_workflow_handle(session_id)
            return await wait_through_cuts(handle.result, f"session {session_id!r}")
        except WorkflowFailureError as error:
            raise _error_of_run(session_id, error.cause) from error

    async def get_status(self, session_id: str) -> SessionInfo:
        """What a session tells of itself; a query that is lost where a run ends is made again.

        Inside `with_deadline` it is made again until time is up.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            NoWorkerError: No worker answers.
            SessionTerminatedError: It was terminated with events that no worker has run.
            TimeoutError: The server lost each query.
            InvalidConfigError: The server does not have the client's namespace.
        """
        for left in itertools.count(_QUERIES - 1, -1):
            began = time.monotonic()
            try:
                return await self.query_status(session_id)
            except NoWorkerError:
                if not has_deadline():
                    raise
            except RPCError as error:
                refuse_unknown_namespace(self._client, error)
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise no_run_error(session_id) from error
                if error.status not in PASSING:
                    raise
                if has_deadline():
                    await asyncio.sleep(_QUERY_AGAIN)
                    continue
                waited = time.monotonic() - began
                why = await self._diagnosis.describe_missing_worker(
                    self.get_workflow_handle(session_id).id, waited
                )
                if why or says_no_worker(error):
                    raise NoWorkerError(f"session {session_id!r}: {why or error}") from error
                if not left:
                    said = f"{error.status.name}: {error.message}"
                    raise TimeoutError(
                        f"session {session_id!r}: the Temporal server answered no query, {_QUERIES} times "
                        f"(the newest: {said}); is it away? try again"
                    ) from error
        raise AssertionError("unreachable")  # pragma: no cover

    async def query_status(self, session_id: str, seconds: float | None = None) -> SessionInfo:
        """One query, of 10 s or less; where a worker fails it, another one, or the same, is asked.

        A worker that serves no sessions fails it, or one whose code does not replay the history.  So does one
        without the workflow in its cache that is asked beside an update or a lost task (decision 19).

        Raises:
            RPCError: There is no run, or it does not answer.
            ForeignDeploymentError: It is another deployment's.
            NoWorkerError: Each worker that was asked failed it.
            SessionTerminatedError: It was terminated with events that no worker has run.
        """
        deadline, said = time.monotonic() + min(seconds or _QUERY_SECONDS, _QUERY_SECONDS), ""
        while (left := deadline - time.monotonic()) > 0 or not said:
            timeout = timedelta(seconds=max(left, 0.001))
            try:
                found: SessionInfo = await self.get_workflow_handle(session_id).query(
                    "status",
                    result_type=SessionInfo,
                    # Also of a session that has ended, whatever the client's default is.
                    reject_condition=QueryRejectCondition.NONE,
                    rpc_timeout=timeout,
                )
            except WorkflowQueryFailedError as error:
                failure = await self._query_failure(session_id, error)
                await self._check_refused(session_id, failure)
                said = failure.message[:_MAX_SAID] or "nothing"
            except RPCError as error:
                if not said or error.status not in PASSING:
                    raise
            else:
                return found
            await asyncio.sleep(_QUERY_AGAIN)
        raise NoWorkerError(
            f"session {session_id!r}: no worker answered a query; the last error: {said}; see the log of "
            "the workers"
        )

    async def _query_failure(self, session_id: str, error: WorkflowQueryFailedError) -> ApplicationError:
        """What a failed query says.

        The SDK passes on the text, which may be encoded.  The whole failure is there where a workflow task
        failed for a query, and is not where the query's handler, or an interceptor, raised.
        """
        context = WorkflowSerializationContext(
            namespace=self._client.namespace, workflow_id=self.get_workflow_handle(session_id).id
        )
        cause, detail = error.__context__, QueryFailedFailure()
        for each in cause.grpc_status.details if isinstance(cause, RPCError) else ():
            if each.Unpack(detail) and detail.HasField("failure"):
                said = await read_failure(self._client.data_converter, detail.failure, context)
                if isinstance(said, UnreadableFailureError):
                    return ApplicationError(error.message, type=said.type)
                if isinstance(said, ApplicationError):
                    return said
        return ApplicationError(error.message)

    async def _check_refused(self, session_id: str, said: ApplicationError) -> None:
        """A query failed: was it refused, by this text or one that cannot be read, or will none be answered?

        Raises:
            ForeignDeploymentError: The session is another deployment's.
            SessionTerminatedError: It came with events of a run that was terminated, and always will.
        """
        kind, message = errors.split_text(said.message)
        if errors.error_class(kind) is errors.ForeignDeploymentError:
            raise errors.ForeignDeploymentError(message)
        with contextlib.suppress(RPCError):
            found = await self.describe_execution(session_id)
            if _is_task_not_done(said) and (ended := _CLOSED_BY_SERVER.get(found.status)):
                raise SessionTerminatedError(
                    f"session {session_id!r}: its run {ended} with events that no "
                    "worker has processed, so it answers no query; read what it stored, or start it again "
                    "with ask"
                )

    @contextlib.asynccontextmanager
    async def with_deadline(
        self, session_id: str, method: str, timeout: float | None = None
    ) -> AsyncIterator[None]:
        """One deadline for all that a method does: for its updates, and for what comes before and after them.

        Inside, nothing is given up earlier because no worker is there: one may come.

        Args:
            session_id: Whose.
            method: As its caller calls it, for the error.
            timeout: Seconds; None for a minute.

        Raises:
            TimeoutError: Time is up; told with what holds the session up.
            SessionNotFoundError: It has no thread.
        """
        seconds = CONTROL_SECONDS if timeout is None else timeout
        limit, outside = asyncio.timeout(seconds), _METHOD.set(method)
        causes = asyncio.create_task(self._find_causes(session_id, seconds))
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            said = f"session {session_id!r}: no result of {method!r} within {seconds:g} s"
            raise TimeoutError("; ".join([said, *await causes])) from None
        except errors.ThreadNotFoundError as error:
            raise missing_session_error(session_id) from error
        finally:
            causes.cancel()
            _METHOD.reset(outside)

    async def _find_causes(self, session_id: str, timeout: float) -> list[str]:
        """Why there is no result, as far as the session and the server tell by shortly after the deadline."""
        lead = min(_LEAD, timeout / 2)
        await asyncio.sleep(timeout - lead)
        workflow_id = self.get_workflow_handle(session_id).id
        status = asyncio.create_task(
            look_up_or(workflow_id, self.query_status(session_id, lead + _GRACE), None)
        )
        wait = asyncio.create_task(self._diagnosis.explain_wait(workflow_id))
        queue = asyncio.create_task(self._diagnosis.explain_queue())
        looks: tuple[asyncio.Task[Any], ...] = status, wait, queue
        try:
            done, _ = await asyncio.wait(looks, timeout=lead + _GRACE)
        finally:
            for each in looks:
                each.cancel()
        seen = status.result() if status in done else None
        why = wait.result() if wait in done else ""
        told = [] if seen is None else [_describe_pending_calls(seen.pending), describe_calls(seen.failing)]
        reasons = [each for each in (*told, why) if each]
        if reasons or seen is not None:
            return reasons or ["nothing is known to hold it up"]
        crowd = queue.result() if queue in done else ""
        unseen = "" if wait in done else "the Temporal server did not say in time what holds it up"
        return [*filter(None, [crowd or unseen]), "the session did not answer a query either"]

    async def run_update(
        self,
        session_id: str,
        update: str,
        argument: Any,
        result_type: type[Any] | None,
        start: SessionInput | None,
    ) -> Any:
        """Repeat one update under the same id until it has a final result; `with_deadline` ends it in time.

        Raises:
            InvalidRequestError: It waits for a turn of the session whose tool asks for it.
            StoreUnavailableError: A store keeps the session from being opened.
        """
        if _awaits_turn(update, argument):
            self._refuse_own_tool(session_id)
        async with self._take_place(session_id, argument):
            asking = asyncio.ensure_future(
                self._repeat_update(session_id, update, argument, result_type, start)
            )
            handle = self.get_workflow_handle(session_id)
            unopened = asyncio.ensure_future(
                self._diagnosis.watch_execution(handle.id, f"session {session_id!r}")
            )
            try:
                await asyncio.wait((asking, unopened), return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    return asking.result()
                raise _unopened_error(session_id, argument, await unopened)
            finally:
                asking.cancel()
                unopened.cancel()
                await asyncio.gather(asking, unopened, return_exceptions=True)

    async def _repeat_update(
        self,
        session_id: str,
        update: str,
        argument: Any,
        result_type: type[Any] | None,
        start: SessionInput | None,
    ) -> Any:
        began = time.time()
        update_id = _update_id(update, argument)
        for attempt in itertools.count():
            try:
                return await self._update_once(session_id, update, argument, result_type, start, update_id)
            except _RetryUpdate as again:
                _log.debug("session %r: update %r is sent again: %s", session_id, update, again)
                if again.ended:
                    await self._check_alive(session_id, began)
                if again.gone and start is None:
                    raise errors.SessionNotFoundError(
                        f"session {session_id!r} is not running; name the agent to start it with"
                    ) from again
                if again.refused:
                    update_id = _update_id(update, argument)
            await asyncio.sleep(retry_pause(attempt, first=0.05, longest=1.6))
        raise AssertionError("unreachable")  # pragma: no cover

    def _refuse_own_tool(self, session_id: str) -> None:
        """Refuse a wait that cannot end: a tool waits for a turn of the session whose turn waits for it.

        A sub-agent's tool keeps the turns of all sessions above it waiting.  Sessions above one whose id
        holds a hash are not recognised.

        Raises:
            InvalidRequestError: This is such a tool.
        """
        if not activity.in_activity():
            return
        info, name = activity.info(), self._deployment.name
        below, caller = child_workflow_prefix(session_id, name), info.workflow_id or ""
        is_own = caller == workflow_id(session_id, name)
        is_below = below is not None and caller.startswith(below)
        if (is_own or is_below) and info.workflow_namespace == self._client.namespace:
            raise InvalidRequestError(
                f"session {session_id!r}: {_METHOD.get()!r} waits for the turn that runs, and that turn "
                "waits for this tool; use send, or ask another session"
            )

    def _take_place(self, session_id: str, argument: object) -> AbstractAsyncContextManager[object]:
        """A place among this client's messages; an answer to a call does not wait for one."""
        if not isinstance(argument, UserMessage):
            return nullcontext()
        return self._slots.setdefault(session_id, _Slots(self._slots, session_id))

    async def _update_once(
        self,
        session_id: str,
        update: str,
        argument: Any,
        result_type: type[Any] | None,
        start: SessionInput | None,
        update_id: str,
    ) -> Any:
        """A plain update first: it costs less, and a run is there more often than not."""
        options: dict[str, Any] = {
            "id": update_id,
            "result_type": result_type,
            "rpc_timeout": _LONGEST_CALL,
        }
        try:
            try:
                arguments = () if argument is None else (argument,)
                return await self.get_workflow_handle(session_id).execute_update(
                    update, *arguments, **options
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND or start is None:
                    raise
            return await self._update_with_start(session_id, update, argument, start, options)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise _no_answer_error() from error
        except WorkflowUpdateFailedError as error:
            raise _error_of_failure(error) from error
        except RPCError as error:
            refuse_unknown_namespace(self._client, error)
            if error.status is RPCStatusCode.NOT_FOUND:
                raise _RetryUpdate("not running", ended=True, gone=True) from error
            if error.status in PASSING:
                raise _RetryUpdate(error.status.name) from error
            raise

    async def _update_with_start(
        self, session_id: str, update: str, argument: Any, start: SessionInput, options: dict[str, Any]
    ) -> Any:
        operation = WithStartWorkflowOperation(
            SessionWorkflow.run,
            start,
            id=workflow_id(session_id, self._deployment.name),
            task_queue=self._task_queue,
            memo=memo_of(self._deployment),
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=self._search_attributes_of(start),
        )
        # Its future holds the start's outcome, where the server was asked; unread, it is reported as never
        # retrieved.
        started = asyncio.ensure_future(operation.workflow_handle())
        started.add_done_callback(discard_error)
        try:
            return await self._client.execute_update_with_start_workflow(
                update, argument, start_workflow_operation=operation, **options
            )
        finally:
            started.cancel()

    def _search_attributes_of(self, start: SessionInput) -> TypedSearchAttributes:
        return TypedSearchAttributes(
            [
                SearchAttributePair(key, start.metadata[name])
                for name, key in self._search_attributes.items()
                if name in start.metadata
            ]
        )

    async def _check_alive(self, session_id: str, since: float) -> None:
        """A run that ended under us may be followed by another; one that was terminated is not.

        Raises:
            SessionTerminatedError: It was terminated, or timed out, after we began to wait.
        """
        try:
            described = await self.get_workflow_handle(session_id).describe()
        except RPCError as error:
            if error.status in {RPCStatusCode.NOT_FOUND, *PASSING}:
                return
            raise
        closed = described.close_time.timestamp() if described.close_time else 0.0
        if (ended := _CLOSED_BY_SERVER.get(described.status)) and closed >= since:
            raise SessionTerminatedError(
                f"session {session_id!r}: its run {ended} while the call waited; ask again with the same "
                "message id"
            )

    async def update_if_running(
        self, session_id: str, update: str, argument: Any, result_type: type[Any] | None
    ) -> Any:
        """What a session that runs answers to one update, None where none runs; `with_deadline` ends it."""
        update_id = _update_id(update, argument)
        for attempt in itertools.count():
            try:
                return await self._update_once(session_id, update, argument, result_type, None, update_id)
            except _RetryUpdate as again:
                if again.ended:
                    return None
                _log.debug("session %r: update %r is sent again: %s", session_id, update, again)
                update_id = _update_id(update, argument) if again.refused else update_id
            await asyncio.sleep(retry_pause(attempt, first=0.05, longest=1.6))
        raise AssertionError("unreachable")  # pragma: no cover


class _Slots:
    """At most so many asks of this client for one session; forgets itself when nobody asks."""

    def __init__(self, every: "dict[str, _Slots]", session_id: str) -> None:
        self._every, self._session_id, self._users = every, session_id, 0
        self._semaphore = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._semaphore.acquire()
        except BaseException:
            self._leave_slot()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
        self._leave_slot()

    def _leave_slot(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._every.pop(self._session_id, None)


def _describe_pending_calls(pending: Sequence[PendingCall]) -> str:
    """What messages queue up behind: calls without an answer, and not their arguments, which are content."""
    if not pending:
        return ""
    answers = {"submit_approval" if each.kind == "approval" else "submit_tool_result" for each in pending}
    named = [f"{each.name} ({each.kind}, id {each.id!r})" for each in pending[:_NAMED]]
    more = [f"{len(pending) - _NAMED} more"] if len(pending) > _NAMED else []
    return (
        f"its turn is suspended: it waits for answers to {', '.join([*named, *more])}; "
        f"give them with {' and '.join(sorted(answers))}"
    )


def has_ended_pinned(found: WorkflowExecutionDescription) -> bool:
    """Whether only workers of one version would answer a query of an execution that has ended."""
    return found.status is not WorkflowExecutionStatus.RUNNING and PinnedRun.of(found) is not None


def no_run_error(session_id: str) -> errors.SessionNotFoundError:
    """The error for a session without a run that could be asked."""
    return errors.SessionNotFoundError(
        f"session {session_id!r} has no run: it never ran, or its history was deleted; check its id, "
        "or start "
        "it with ask"
    )


def missing_session_error(session_id: str) -> errors.SessionNotFoundError:
    """The error for a session of which nothing is stored."""
    return errors.SessionNotFoundError(
        f"session {session_id!r} is not there: nobody has asked it yet, or it was deleted; check its id and "
        "the deployment's name, or start it with ask"
    )


async def wait_through_cuts(wait: Callable[[], Awaitable[T]], subject: str) -> T:
    """What a wait for a result gives, however often its requests are cut off, as by a proxy.

    Args:
        wait: Waits, as often as it is called.
        subject: What it is about.

    Raises:
        RPCError: The server refuses, or none of the requests was held for a minute.
    """
    held_at = time.monotonic()
    for attempt in itertools.count():
        began = time.monotonic()
        try:
            return await wait()
        except (RPCError, asyncio.CancelledError) as error:
            cut = _find_cut(error)
            if cut is None:
                raise
            now = time.monotonic()
            held_at = now if now - began >= _HELD else held_at
            if now - held_at >= _OUTAGE:
                raise cut from None
            _log.debug("%s: the wait for a result was cut off (%s) and goes on", subject, cut.status.name)
        await asyncio.sleep(retry_pause(attempt, first=0.05, longest=1.6))
    raise AssertionError("unreachable")  # pragma: no cover


def _find_cut(error: BaseException) -> RPCError | None:
    """What cut a request off, if that is what it says; None for a cancel of our own, or a refusal.

    The SDK makes a cancel of the other side's CANCELLED, which is its cause; a cancel of a task has none.
    """
    found = error.__cause__ if isinstance(error, asyncio.CancelledError) else error
    return found if isinstance(found, RPCError) and found.status in PASSING else None


def has_deadline() -> bool:
    """Whether this runs inside `Updates.with_deadline`, which ends it in time."""
    return _METHOD.get() is not None


def _no_answer_error() -> BaseException:
    """What to raise for an update that the server did not answer: our caller's cancel, or another try."""
    task = asyncio.current_task()
    # The SDK has put an error of its own in the place of a cancel.
    cancelled = task is not None and task.cancelling() > 0
    return asyncio.CancelledError() if cancelled else _RetryUpdate("no answer in time")


def _unopened_error(session_id: str, argument: object, why: str) -> StoreUnavailableError:
    """The error for a session that is not opened, since a store is away; what was asked waits for it."""
    again = "it is asked once that answers"
    if isinstance(argument, UserMessage):
        again += f"; ask again with message id {argument.id!r} to get the answer"
        return StoreUnavailableError(
            f"session {session_id!r} cannot be opened now: {why}; {again}", message_id=argument.id
        )
    return StoreUnavailableError(f"session {session_id!r} cannot be opened now: {why}; {again}")


def _awaits_turn(update: str, argument: object) -> bool:
    """Whether an update has its result only once the turn that runs has ended."""
    if isinstance(argument, SubmitInput):
        return argument.wait or argument.call == RESUME
    return update in {"ask", "take_back"}


def _update_id(update: str, argument: Any) -> str:
    """Another for each call, and after each refusal; sessions know messages by their own id.

    Temporal answers a repeated update id with the result that a closed run gave: a session that was once
    cancelled or interrupted would say so for ever.
    """
    if isinstance(argument, SubmitInput):
        return f"{update}/{argument.by}/{uuid.uuid4().hex[:8]}"
    if isinstance(argument, UserMessage):
        return f"{update}/{argument.id}/{uuid.uuid4().hex[:8]}"
    return f"{update}/{uuid.uuid4().hex}"


def _type_of(error: WorkflowUpdateFailedError) -> str | None:
    return error.cause.type if isinstance(error.cause, ApplicationError) else None


def _error_of_failure(error: WorkflowUpdateFailedError) -> Exception:
    if _type_of(error) == _RUN_ENDED:
        return _RetryUpdate("its run ended", ended=True)
    if _type_of(error) == ASK_AGAIN:
        return _RetryUpdate("its run ends, or let it go", refused=True)
    if _type_of(error) == _NOT_TAKEN_UP:
        return _RetryUpdate("no worker took it up")
    if isinstance(error.cause, ApplicationError) and error.cause.type:
        return errors.for_caller(error.cause.type, error.cause.message, error.cause.details)
    return error


def _error_of_run(session_id: str, cause: BaseException) -> HelixError:
    """What a caller is told of a run that came to no result of its own."""
    run = f"session {session_id!r}: its run"
    again = "ask again to start the next one; finished turns are kept"
    if isinstance(cause, TerminatedError | RunTimeoutError):
        ended = "timed out" if isinstance(cause, RunTimeoutError) else "was terminated"
        return SessionTerminatedError(f"{run} {ended}; {again}")
    if isinstance(cause, CancelledError):
        return errors.SessionInterruptedError(f"{run} was cancelled; {again}")
    what = describe_failure(cause)
    kind, text = errors.split_text(what)
    # A session workflow's own failure has its type in its text, too.
    what = text if text.startswith(f"{kind}: ") else what
    return errors.SessionFailedError(f"{run} failed: {what}; mend that, and {again}", type=kind)


def _is_task_not_done(said: ApplicationError) -> bool:
    return said.type == TaskNotDoneError.__name__ or said.message == TASK_NOT_DONE


def root_error(error: BaseException) -> BaseException:
    """The typed error at the bottom of what Temporal wrapped, or the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and (
            found := errors.from_wire(cause.type or "", cause.message, cause.details)
        ):
            return found
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
