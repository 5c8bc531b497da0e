"""How a client, which has no stores, has a worker do a thing: by a standalone activity, or a workflow."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest
from temporalio.client import (
    ActivityFailureError,
    ActivityHandle,
    Client,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TemporalTimeoutError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._failures import describe_failure
from helix_temporal.client._diagnosis import ActivityRun, Diagnosis, Execution
from helix_temporal.client._server_check import refuse_unknown_namespace
from helix_temporal.client._updates import has_deadline, root_error, wait_through_cuts
from helix_temporal.errors import ApplicationCodeError, HelixError, NoWorkerError, StoreUnavailableError
from helix_temporal.models.deployments import Deployment, memo_of
from helix_temporal.models.ids import short_workflow_prefix
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.workflows import LookRequest, LookWorkflow, ThreadRequest, ThreadWorkflow
from helix_temporal.workflows.calls import OPEN_POLICY, call_options, timed_out_error
from helix_temporal.workflows.short_calls import ALL_SESSIONS, ShortRequest

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

_ENDING: Final = timedelta(seconds=2)
_GIVEN_UP: Final = "nobody waits for it any more"
_WORKFLOWS: Final[Mapping[type[ShortRequest], Any]] = {
    LookRequest: LookWorkflow.run,
    ThreadRequest: ThreadWorkflow.run,
}

_LACKING: Final = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED})
"""What a server answers that has no standalone activities, has them switched off, or keeps them from us."""
_REFUSALS: Final = _LACKING | {RPCStatusCode.INVALID_ARGUMENT}
"""Answers to a start by which nothing was started."""
_TRY_AGAIN: Final = 600.0
"""Seconds for which a server that lacks standalone activities is not asked again: it may be upgraded."""


class StandaloneActivities:
    """Whether the server runs standalone activities (1.31 and newer), as its answers say.

    The first call is the question: it costs a server without them one refused request, and no client needs
    the right to describe the namespace.  Only a refusal is remembered.  A server that is downgraded refuses
    the next start.
    """

    def __init__(self) -> None:
        self._refused_at: float | None = None

    @property
    def may_be_there(self) -> bool:
        """Whether it is worth a try."""
        return self._refused_at is None or time.monotonic() - self._refused_at >= _TRY_AGAIN

    def note_refusal(self, error: RPCError) -> None:
        """Remember that the server lacks them, if that is what it said."""
        if error.status in _LACKING:
            if self._refused_at is None:
                _log.debug("no standalone activities (%s): calls run as short workflows", error.status.name)
            self._refused_at = time.monotonic()


class _Started(Protocol):
    """A call that the server has accepted."""

    @property
    def execution(self) -> Execution: ...

    async def get_result(self, subject: str) -> Any:
        """What the activity returned.

        Raises:
            HelixError: What it raised, or why it has no result.
        """
        ...

    async def end(self, reason: str) -> None:
        """Nobody waits for it: those of many such calls would run once a worker comes."""
        ...

    async def forget(self) -> None:
        """Its caller has what came of it."""
        ...


class _ShortWorkflow:
    def __init__(self, handle: WorkflowHandle[Any, Any], request: ShortRequest) -> None:
        self._handle, self._request = handle, request
        self.execution: Execution = handle.id

    async def get_result(self, subject: str) -> Any:
        try:
            return getattr(await self._handle.result(), self._request.wanted)
        except WorkflowFailureError as error:
            cause = error.cause
            raised = isinstance(cause, ActivityError) and isinstance(cause.cause, ApplicationError)
            raise _error_of(subject, error, cause, raised=raised) from error

    async def end(self, reason: str) -> None:
        with contextlib.suppress(RPCError):
            await self._handle.terminate(reason, rpc_timeout=_ENDING)

    async def forget(self) -> None:
        """It stays until the namespace's retention ends, or the session is deleted."""


async def _delete_activity(client: Client, run: ActivityRun) -> None:
    """Have the server delete an activity, as far as it lets us; one that runs is terminated by that."""
    request = DeleteActivityExecutionRequest(
        namespace=client.namespace, activity_id=run.activity_id, run_id=run.run_id
    )
    with contextlib.suppress(RPCError):
        await client.workflow_service.delete_activity_execution(request, timeout=_ENDING)


class _StandaloneActivity:
    def __init__(self, client: Client, handle: ActivityHandle[Any], request: ShortRequest) -> None:
        self._client, self._handle, self._request = client, handle, request
        self._run = ActivityRun(handle.id, handle.run_id or "")
        self.execution: Execution = self._run

    async def get_result(self, subject: str) -> Any:
        try:
            return await self._handle.result()
        except ActivityFailureError as error:
            cause = error.cause
            if isinstance(cause, TemporalTimeoutError) and not isinstance(root_error(error), HelixError):
                raise timed_out_error(self._request.activity, cause) from error
            raised = isinstance(cause, ApplicationError)
            raise _error_of(subject, error, cause, raised=raised) from error

    async def end(self, reason: str) -> None:  # noqa: ARG002 (a deletion has none)
        # What still runs is terminated by it.
        await self.forget()

    async def forget(self) -> None:
        """Have the server delete it, with its input and result, which it keeps for the retention otherwise.

        A server that does not let us keeps them for so long; the call has its result all the same.
        """
        await _delete_activity(self._client, self._run)


class ShortCalls:
    """Runs activities for a client: the only place that decides by what.

    A standalone activity where the server has them: one round trip of a worker instead of three, and nothing
    of it is left.  Else a workflow around the activity, with the same time-outs, retries and errors.

    A call is never made in both ways if the first may have taken effect, except for reads:

    * The workflow is started only after the server has refused the activity, so nothing ran.  If it had
      accepted an earlier try of the same request whose answer got lost, the operation is done twice by its
      own ids: a text and properties are the same again, a deletion finds nothing, and a fork is refused,
      since its target exists.
    * Once the activity is accepted, a server that no longer has them, or keeps results from us, can't say
      what became of it.  A read is made again; of a change the caller is told, as of any answer that got
      lost.

    Whatever else ends a call, also while it starts, ends what was started for it: nobody would have the
    result.  A wait that a proxy cuts off is none of that, and goes on.

    Args:
        policy: Time-outs and retries; None for those that a worker has without settings.
        deployment: Whose the sessions are.
        diagnosis: Says why nothing happens.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        policy: CallPolicy | None,
        deployment: Deployment,
        diagnosis: Diagnosis,
    ) -> None:
        self._client, self._task_queue, self._policy = client, task_queue, policy
        self._deployment, self._diagnosis = deployment, diagnosis
        self._standalone = StandaloneActivities()

    async def run(self, request: ShortRequest) -> Any:
        """What the request's activity returns.

        Raises:
            HelixError: What it raised.
            ApplicationCodeError: Code of the application failed in it.
            StoreUnavailableError: It has no result; repeat it.
            NoWorkerError: No worker polls the task queue, and the call is taken back.
            InvalidConfigError: The namespace is not there.
        """
        subject = "all sessions" if request.about == ALL_SESSIONS else f"session {request.about!r}"
        try:
            started = await self._start(request)
            try:
                return await self._wait(started, subject)
            except RPCError as error:
                if error.status not in _LACKING or isinstance(started, _ShortWorkflow):
                    raise
                self._standalone.note_refusal(error)
                if not isinstance(request, LookRequest):
                    raise StoreUnavailableError(
                        f"{subject}: the server no longer has standalone activities, and does not say what "
                        f"became of this call ({error.status.name}); repeat it"
                    ) from error
            return await self._wait(await self._start_workflow(request), subject)
        except RPCError as error:
            refuse_unknown_namespace(self._client, error)
            raise

    async def _start(self, request: ShortRequest) -> _Started:
        if self._standalone.may_be_there:
            try:
                return await self._start_activity(request)
            except RPCError as error:
                if error.status not in _REFUSALS:
                    raise
                self._standalone.note_refusal(error)
        return await self._start_workflow(request)

    async def _start_activity(self, request: ShortRequest) -> _Started:
        options = call_options(request.activity, self._policy or OPEN_POLICY)
        name = self._make_id(request)
        starting = self._client.start_activity_method(
            request.activity,
            request.given,
            id=name,
            task_queue=self._task_queue,
            **cast("dict[str, Any]", options),
        )
        handle = await _start_or_take_back(
            starting, lambda: _delete_activity(self._client, ActivityRun(name, ""))
        )
        return _StandaloneActivity(self._client, handle, request)

    async def _start_workflow(self, request: ShortRequest) -> _Started:
        name = self._make_id(request)
        starting = self._client.start_workflow(
            _WORKFLOWS[type(request)],
            request if self._policy is None else request.model_copy(update={"policy": self._policy}),
            id=name,
            task_queue=self._task_queue,
            memo=memo_of(self._deployment),
        )
        unknown = _ShortWorkflow(self._client.get_workflow_handle(name), request)
        return _ShortWorkflow(await _start_or_take_back(starting, lambda: unknown.end(_GIVEN_UP)), request)

    def _make_id(self, request: ShortRequest) -> str:
        prefix = short_workflow_prefix(request.KIND, request.about, self._deployment.name)
        return f"{prefix}{uuid.uuid4().hex}"

    async def _wait(self, started: _Started, subject: str) -> Any:
        try:
            async with self._diagnosis.log_while_waiting(started.execution, subject):
                if has_deadline():
                    result = await self._get_result(started, subject)
                else:
                    result = await self._wait_with_diagnosis(started, subject)
        except NoWorkerError:
            await started.end("no worker polls its task queue")
            raise
        except HelixError:
            await started.forget()
            raise
        except (Exception, asyncio.CancelledError):
            await started.end(_GIVEN_UP)
            raise
        await started.forget()
        return result

    async def _get_result(self, started: _Started, subject: str) -> Any:
        return await wait_through_cuts(lambda: started.get_result(subject), subject)

    async def _wait_with_diagnosis(self, started: _Started, subject: str) -> Any:
        """The result, while there are workers for it.

        Raises:
            NoWorkerError: None polls its task queue.
        """
        result = asyncio.ensure_future(self._get_result(started, subject))
        unserved = asyncio.ensure_future(self._diagnosis.wait_until_unserved(started.execution))
        try:
            await asyncio.wait((result, unserved), return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return await result
            raise NoWorkerError(f"{subject}: {await unserved}")
        finally:
            result.cancel()
            unserved.cancel()


async def _start_or_take_back(starting: Awaitable[T], take_back: Callable[[], Awaitable[None]]) -> T:
    """What a start gives; where it has none, and may have taken effect, what it started is ended.

    Args:
        starting: The start.
        take_back: Ends what was started, by its id.
    """
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except RPCError as error:
        if error.status not in _REFUSALS:
            await take_back()
        raise
    except asyncio.CancelledError:
        # A second cancel, of somebody who does not wait for it, must not leave the call at the server.
        await asyncio.shield(asyncio.ensure_future(_take_back_late(start, take_back)))
        raise


async def _take_back_late(start: "asyncio.Future[T]", take_back: Callable[[], Awaitable[None]]) -> None:
    # A request that is dropped may reach the server after the one that ends it.
    await asyncio.wait((start,), timeout=_ENDING.total_seconds())
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    await take_back()


def _error_of(subject: str, error: BaseException, cause: BaseException, *, raised: bool) -> Exception:
    """What a caller is told of a call that failed.

    Args:
        subject: What it was about.
        error: As the SDK raised it.
        cause: Its cause.
        raised: Whether code in the activity raised it; the pack's own raises errors of the pack.
    """
    found = root_error(error)
    if isinstance(found, HelixError):
        return found
    what = f"{subject}: no result: {describe_failure(cause)}"
    return ApplicationCodeError(what) if raised else StoreUnavailableError(f"{what}; repeat it")
