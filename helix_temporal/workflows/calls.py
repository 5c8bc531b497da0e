"""The only place where workflow code starts activities: time-outs, retries, typed errors."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, Unpack

from temporalio import activity, exceptions, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutType
from temporalio.exceptions import TimeoutError as TemporalTimeoutError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from helix_temporal import errors
from helix_temporal._failures import describe_failure
from helix_temporal.activities import SessionActivities, ThreadActivities
from helix_temporal.activities._runtime import limits_of
from helix_temporal.activities.rewinds import TakeBacks
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.errors import NotServedError, StoreUnavailableError
from helix_temporal.models.agents import AgentFacts, HookEvent, ToolFacts, UserMessageDecision
from helix_temporal.models.deployments import deployment_name
from helix_temporal.models.handles import PlanTakeBackInput, PlanTakeBackResult
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.sessions import (
    AnswerRef,
    CallPolicy,
    FailingCall,
    SetPropertiesInput,
    SetPropertiesResult,
)
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    LoadAnswerInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    SaveValuesResult,
    ToolInput,
    ToolResult,
)
from helix_temporal.models.threads import (
    EvictThreadResult,
    FlushThreadInput,
    FlushThreadResult,
    ThreadEpochInput,
)
from helix_temporal.models.waiting import HasStartedInput, ParentLink, SubAgentCall
from helix_temporal.session.pending_calls import SubAgentCalls
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.sub_agents import SubAgents

R = TypeVar("R")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


elsewhere: Final[ContextVar[bool]] = ContextVar("elsewhere", default=False)
"""The activity that is scheduled now must not run at the worker that has this workflow in its cache."""


class RollOuts:
    """Remembers which activities are waited for, so that the session's status can name them."""

    def __init__(self) -> None:
        self._missing: dict[int, FailingCall] = {}
        self._made = 0

    @property
    def failing(self) -> tuple[FailingCall, ...]:
        """The calls that wait for a worker that has their activity."""
        return tuple(self._missing.values())

    @contextmanager
    def remember(self) -> Iterator[Callable[[FailingCall], None]]:
        """Around the wait for one activity: what the status tells of it, until the block ends."""
        number = self._made
        self._made += 1

        def note_missing(call: FailingCall) -> None:
            self._missing[number] = call

        try:
            yield note_missing
        finally:
            elsewhere.set(False)
            self._missing.pop(number, None)

    async def run_until_served(self, call: Callable[[], Awaitable[R]], what: str, seconds: float) -> R:
        """The result of an activity, once a worker has it.

        Args:
            call: Schedules the activity.
            what: Names it for people.
            seconds: How long other workers are tried, from the first answer of one that lacks it: while
                no worker polled the queue, none was asked.

        Raises:
            NotServedError: None had it in that time.
        """
        since, pause, rounds = 0, _FIRST_PAUSE, 0
        with self.remember() as note_missing:
            while True:
                try:
                    return await call()
                except ActivityError as error:
                    if not is_not_registered(error):
                        raise
                    rounds += 1
                    since = since or now_ms()
                    if now_ms() - since >= 1000 * seconds:
                        raise _not_served(what, error, seconds) from error
                    note_missing(
                        FailingCall(
                            activity=error.activity_type,
                            attempt=rounds + 1,
                            error=f"{NotServedError.__name__}: {_not_served(what, error, seconds)}",
                            worker=error.identity,
                            since=since,
                        )
                    )
                await workflow.sleep(timedelta(seconds=pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
                elsewhere.set(True)


_OURS: Final = "helix."
"""Begins the names of the pack's activities."""
_NOT_FOUND: Final = "NotFoundError"
_NOT_REGISTERED: Final = "is not registered on this worker"
"""What the SDK says of an activity that a worker lacks, as an error of that type."""


def is_not_registered(error: ActivityError) -> bool:
    """Whether the worker that was asked has no activity of that name."""
    cause = error.cause
    return isinstance(cause, ApplicationError) and cause.type == _NOT_FOUND and _NOT_REGISTERED in str(cause)


def _not_served(what: str, error: ActivityError, seconds: float) -> NotServedError:
    return NotServedError(
        f"{what} is not known to the worker that was asked ({error.identity}); "
        f"other workers are asked for {seconds:g} s"
    )


OPEN_POLICY = CallPolicy()
"""The policy until the open has brought the worker's own."""
_LAST_ATTEMPT: Final = 60.0
"""Seconds after a roll-out's time, in which a worker says that nobody has what is missing."""


class Calls(Protocol):
    """What a session does outside itself.  Typed errors come as what they are."""

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """Open the session's thread.

        Sub-agents that run are waited for.  Before a re-open that cuts, those that are suspended end their
        turns.

        Raises:
            OpenedDespiteCancel: It was cancelled meanwhile.
        """
        ...

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """One model call and everything around it."""
        ...

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """Commit tool results without a model call."""
        ...

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult | SubAgentCall:
        """One tool call; raises `ToolFailedError` when all attempts failed.

        Of a sub-agent that is suspended, since it waits for people, it comes without a result.
        """
        ...

    async def agent_facts(self, request: AgentFactsInput) -> AgentFacts:
        """What a worker says of the agent that has these tools."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def new_id(self) -> str:
        """A message id, the same on replay."""
        ...


class ToolFailedError(Exception):
    """A tool failed for good; its text is for the model."""


class OpenedDespiteCancel(asyncio.CancelledError):
    """Cancelled while a thread was being opened; it is open now, and has to be archived and evicted."""

    def __init__(self, opened: OpenSessionResult) -> None:
        super().__init__()
        self.opened = opened


class TemporalCalls:
    """`Calls` by activities of this worker's task queue, and child workflows for sub-agents.

    Args:
        parent: Whose sub-agent the session is.
        sub_agent_calls: Calls of sub-agents that wait, as the session knows them; None where there is none.
    """

    def __init__(
        self,
        policy: CallPolicy = OPEN_POLICY,
        parent: ParentLink | None = None,
        sub_agent_calls: SubAgentCalls | None = None,
    ) -> None:
        self.policy, self.roll_outs = policy, RollOuts()
        below = SubAgentCalls(now_ms) if sub_agent_calls is None else sub_agent_calls
        self.children = SubAgents(parent, below, self.has_started, self.workflow_id)

    def workflow_id(self, session_id: str) -> str:
        """The workflow id of a session of this deployment."""
        return workflow_id(session_id, deployment_name(self.policy.deployment))

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """As `Calls.open`.

        A cancel waits for its end: whoever cleans up must know the epoch that it took.
        """
        cancels: list[bool] = []
        # Children of an aborted turn end before the turn is cut; a reset cuts nothing.
        cut = request.reopen is not None and not request.reopen.reset
        await self.children.wait_until_ended(lambda: cancels.append(True), request, cut=cut)
        if off := tuple(self.children.cut):
            request = request.model_copy(update={"cut_children": off})
        options = self.store_options(beats=True)
        if request.reopen is None:
            # Its worker may lack the agent.  Only a worker's settings say how long others are tried.
            longest = max(self.policy.store_schedule_to_close, self.policy.roll_out + _LAST_ATTEMPT)
            options["schedule_to_close_timeout"] = timedelta(seconds=longest)
        handle = workflow.start_activity_method(SessionActivities.open, request, **options)
        try:
            opened = await with_typed_errors(
                run_to_completion(handle, lambda: cancels.append(True), lambda: False)
            )
        except Exception as error:
            if cancels:
                raise asyncio.CancelledError from error
            raise
        self.children.forget_cut(off)
        if cancels:
            raise OpenedDespiteCancel(opened)
        return opened

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """As `Calls.run_step`."""
        return await with_typed_errors(
            workflow.execute_activity_method(SessionActivities.run_step, request, **self.model_options())
        )

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """As `Calls.end_turn`."""
        return await with_typed_errors(
            workflow.execute_activity_method(SessionActivities.end_turn, request, **self.model_options())
        )

    async def load_answer(self, thread_id: str, answer: AnswerRef) -> str | None:
        """Text of an answer that was given before; None if it is too long."""
        request = LoadAnswerInput(thread_id=thread_id, answer=answer)
        return (
            await with_typed_errors(
                workflow.execute_activity_method(
                    SessionActivities.load_answer, request, **self.store_options()
                )
            )
        ).text

    async def set_properties(self, request: SetPropertiesInput) -> SetPropertiesResult:
        """Set properties of the session in the session store."""
        return await with_typed_errors(
            workflow.execute_activity_method(
                SessionActivities.set_properties, request, **self.store_options()
            )
        )

    async def plan_take_back(self, request: PlanTakeBackInput) -> PlanTakeBackResult:
        """Where a request to take turns back cuts the thread."""
        return await with_typed_errors(
            workflow.execute_activity_method(
                TakeBacks.plan_take_back, request, **self.store_options(beats=True)
            )
        )

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult | SubAgentCall:
        """As `Calls.run_tool`."""
        if facts.kind == "agent":
            return await self.children.run(facts, request)
        limit = facts.schedule_to_close

        once = facts.start_to_close or self.policy.tool_start_to_close
        silent = facts.heartbeat or self.policy.heartbeat

        async def attempt() -> ToolResult:
            outcome: ToolResult = await workflow.execute_activity(
                facts.activity,
                request,
                result_type=ToolResult,
                start_to_close_timeout=timedelta(seconds=once),
                schedule_to_close_timeout=timedelta(seconds=limit) if limit else None,
                heartbeat_timeout=timedelta(seconds=silent),
                retry_policy=self._make_retry_policy(maximum_attempts=facts.max_attempts),
                summary=facts.name,
            )
            return outcome

        what = f"tool {facts.name!r} of agent {request.agent!r}"
        try:
            return await self.roll_outs.run_until_served(
                attempt, what, min(self.policy.roll_out, limit or self.policy.roll_out)
            )
        except errors.NotServedError as error:
            raise ToolFailedError(str(error)) from error
        except ActivityError as error:
            if asyncio_cancelled(error):
                raise asyncio.CancelledError from error
            said = {
                TimeoutType.START_TO_CLOSE: tool_timeout_text(facts.name, once),
                TimeoutType.SCHEDULE_TO_CLOSE: tool_timeout_text(
                    facts.name, limit or 0, with_all_attempts=True
                ),
                TimeoutType.HEARTBEAT: f"tool {facts.name!r}: no sign of life for {silent:g} s",
            }
            raise ToolFailedError(_failure_text(error, said)) from error

    async def agent_facts(self, request: AgentFactsInput) -> AgentFacts:
        """As `Calls.agent_facts`."""
        options = self.store_options()
        options["schedule_to_close_timeout"] = timedelta(seconds=self.policy.roll_out + _LAST_ATTEMPT)
        return await with_typed_errors(
            workflow.execute_activity_method(SessionActivities.agent_facts, request, **options)
        )

    async def has_started(self, request: HasStartedInput) -> bool:
        """Whether a worker has begun with a sub-agent's session; true where that can't be told."""
        call = workflow.execute_activity_method(ChildActivities.has_started, request, **self.store_options())
        try:
            return (await with_typed_errors(call)).has_started
        except (ActivityError, errors.HelixError):
            return True

    async def run_hook(self, activity: str, event: HookEvent) -> UserMessageDecision | None:
        """Run a hook that is an activity."""

        def attempt() -> Awaitable[UserMessageDecision | None]:
            return workflow.execute_activity(
                activity,
                event,
                result_type=UserMessageDecision | None,  # type: ignore[arg-type]
                start_to_close_timeout=timedelta(seconds=self.policy.store_start_to_close),
                retry_policy=self._make_retry_policy(maximum_attempts=3),
            )

        # A cancel must not look like a hook that failed.
        return await with_typed_errors(
            self.roll_outs.run_until_served(attempt, f"hook {activity!r}", self.policy.roll_out)
        )

    async def try_flush(self, request: FlushThreadInput) -> FlushThreadResult:
        """Try once to archive."""
        return await workflow.execute_activity_method(
            ThreadActivities.flush,
            request,
            start_to_close_timeout=timedelta(seconds=self.policy.store_start_to_close),
            heartbeat_timeout=timedelta(seconds=self.policy.heartbeat),
            retry_policy=self._make_retry_policy(maximum_attempts=1),
        )

    def start_open(self, request: OpenSessionInput) -> "workflow.ActivityHandle[OpenSessionResult]":
        """Start opening again, for a finaliser, which awaits it to completion."""
        return workflow.start_activity_method(
            SessionActivities.open, request, **self._finaliser_options(beats=True)
        )

    def start_save(self, request: SaveValuesInput) -> "workflow.ActivityHandle[SaveValuesResult]":
        """Start saving the application's values; a finaliser awaits it to completion."""
        return workflow.start_activity_method(SessionActivities.save, request, **self._finaliser_options())

    def start_flush(self, request: FlushThreadInput) -> "workflow.ActivityHandle[FlushThreadResult]":
        """Start archiving; a finaliser awaits it to completion."""
        return workflow.start_activity_method(
            ThreadActivities.flush, request, **self._finaliser_options(beats=True)
        )

    def start_evict(self, request: ThreadEpochInput) -> "workflow.ActivityHandle[EvictThreadResult]":
        """Start dropping the hot thread; a finaliser awaits it to completion."""
        return workflow.start_activity_method(ThreadActivities.evict, request, **self._finaliser_options())

    async def pause(self, seconds: float) -> None:
        """As `Calls.pause`: a durable timer."""
        await workflow.sleep(seconds)

    def new_id(self) -> str:
        """As `Calls.new_id`."""
        return workflow.uuid4().hex

    # -- options, each call whole: a partial override never drops the rest

    def _make_retry_policy(self, *, maximum_attempts: int = 0) -> RetryPolicy:
        return RetryPolicy(
            initial_interval=timedelta(seconds=self.policy.retry_initial),
            backoff_coefficient=self.policy.retry_backoff,
            maximum_interval=timedelta(seconds=self.policy.retry_maximum),
            maximum_attempts=maximum_attempts,
        )

    def store_options(self, *, beats: bool = False) -> workflow.ActivityConfig:
        """For one operation on the stores; ``beats`` if it reports that it is alive."""
        config = workflow.ActivityConfig(
            start_to_close_timeout=timedelta(seconds=self.policy.store_start_to_close),
            schedule_to_close_timeout=timedelta(seconds=self.policy.store_schedule_to_close),
            retry_policy=self._make_retry_policy(),
        )
        if beats:
            config["heartbeat_timeout"] = timedelta(seconds=self.policy.heartbeat)
        return config

    def _finaliser_options(self, *, beats: bool = False) -> workflow.ActivityConfig:
        config = self.store_options(beats=beats)
        config["schedule_to_close_timeout"] = timedelta(seconds=self.policy.finaliser_budget)
        return config

    def model_options(self) -> workflow.ActivityConfig:
        """For what may take as long as a model call, and reports that it is alive."""
        return workflow.ActivityConfig(
            start_to_close_timeout=timedelta(seconds=self.policy.model_start_to_close),
            schedule_to_close_timeout=timedelta(seconds=self.policy.model_schedule_to_close),
            heartbeat_timeout=timedelta(seconds=self.policy.heartbeat),
            retry_policy=self._make_retry_policy(),
        )


async def with_typed_errors(call: Awaitable[R]) -> R:
    """Raise what the activity raised, rather than Temporal's wrapping of it."""
    try:
        return await call
    except ActivityError as error:
        if asyncio_cancelled(error):
            raise asyncio.CancelledError from error
        found = typed_error(error)
        if found is error:
            raise  # not "from" itself: its cause says what happened
        raise found from error


def asyncio_cancelled(error: ActivityError) -> bool:
    """Whether an activity ended because we asked it to."""
    return isinstance(error.cause, CancelledError)


def typed_error(error: ActivityError) -> Exception:
    """The `HelixError` that an activity raised; other failures stay as they are.

    Where time was up during an attempt, it is what the attempts before had failed by.
    """
    cause = error.cause
    if isinstance(cause, TemporalTimeoutError):
        cause = cause.cause
    if not isinstance(cause, ApplicationError) or cause.type is None:
        return error
    return errors.from_wire(cause.type, cause.message, cause.details) or error


def tool_timeout_text(tool: str, seconds: float, *, with_all_attempts: bool = False) -> str:
    """What a model is told of a tool that takes too long."""
    return f"tool {tool!r}: no result within {seconds:g} s" + ", with all attempts" * with_all_attempts


def add_failure_before(told: str, before: str) -> str:
    """The same with what the attempt before failed by, if it did."""
    return f"{told}; before: {before}" if before else told


def _failure_text(error: ActivityError, late: Mapping[TimeoutType, str]) -> str:
    cause = error.cause
    if isinstance(cause, ApplicationError):
        return cause.message
    if isinstance(cause, TemporalTimeoutError) and cause.type is not None and cause.type in late:
        before = cause.cause.message if isinstance(cause.cause, ApplicationError) else ""
        return add_failure_before(late[cause.type], before)
    return type(cause).__name__ if cause else "failed"


async def run_to_completion(
    handle: "workflow.ActivityHandle[R]", on_cancel: Callable[[], None], gives_way: Callable[[], bool]
) -> R:
    """Await an activity whatever happens meanwhile; cancels are remembered, not passed on.

    Once it ``gives_way`` the activity is cancelled instead of awaited.  One shield is not enough: the
    workflow would close before the activity ends.  Loops on a condition only, so that an eviction, which
    is no `CancelledError`, passes.
    """
    while not handle.done():
        try:
            await workflow.wait_condition(lambda: handle.done() or gives_way())
        except asyncio.CancelledError:
            on_cancel()
        else:
            if not handle.done():
                handle.cancel()
                await workflow.wait([handle])
    return handle.result()


def is_cancelled(before: int = 0) -> bool:
    """Whether this task was asked to end, more often than ``before``, rather than one that it waits for."""
    return count_cancels() > before


def count_cancels() -> int:
    """How often this task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def heed_cancel(call: Awaitable[R]) -> R:
    """What a call gives, unless this task was asked to end meanwhile.

    An activity that completes in the very workflow task in which it is cancelled gives its result, and
    nothing more is heard of the cancel.
    """
    result = await call
    if is_cancelled():
        raise asyncio.CancelledError
    return result


I = TypeVar("I")  # noqa: E741 — the input of an activity

_MAINTENANCE: Final = timedelta(hours=2)


async def call(
    method: Callable[[Any, I], Awaitable[R]],
    request: I,
    *,
    shielded: bool = False,
    policy: CallPolicy = OPEN_POLICY,
    **options: Unpack[workflow.ActivityConfig],
) -> R:
    """Run one activity of the pack on a worker that has the stores, and return its result.

    ::

        opened = await call(ThreadActivities.open, OpenThreadInput(thread_id="order-7"))

    The activity has the time-outs, heartbeats and retries that it was made for.  It stands for its
    operation: however often it is tried, it takes effect once.

    Args:
        method: The activity, as a method of its class in `helix_temporal.activities`.
        request: Its input.
        shielded: For ``finally`` blocks: await the end of the activity even if the workflow is cancelled
            meanwhile, at most as long as the policy's ``finaliser_budget``.  A cancel that comes during
            such a call does not end it, and is not raised after it.
        policy: Time-outs and retries; by default those of a worker without settings of its own.
        options: Of `temporalio.workflow.execute_activity`, instead of those that the activity has, such as
            ``task_queue`` where this workflow's own workers do not have the stores.

    Raises:
        HelixError: What the activity raised, as the class that it is, e.g. `HeadMovedError`.
        StoreUnavailableError: It had no result in time; also where no worker serves the activity.
        asyncio.CancelledError: The workflow was cancelled.
    """
    _end_with_dropped_run()
    chosen = call_options(method, policy)
    if shielded:
        chosen["schedule_to_close_timeout"] = timedelta(seconds=policy.finaliser_budget)
    chosen.update(options)
    handle = workflow.start_activity_method(method, request, **chosen)
    try:
        if shielded:
            return await with_typed_errors(run_to_completion(handle, lambda: None, lambda: False))
        return await with_typed_errors(handle)
    except ActivityError as error:
        if isinstance(error.cause, exceptions.TimeoutError):
            raise timed_out_error(method, error.cause) from error
        raise


def _end_with_dropped_run() -> None:
    """Raise `GeneratorExit` again in a run that its worker has dropped.

    A worker that ends leaves runs in its cache.  Python closes their coroutines when it collects them,
    and so enters their ``finally`` blocks, perhaps while another workflow runs: nothing may be started
    there.  Whoever takes the run over replays it.
    """
    dropped = sys.exception()
    if isinstance(dropped, GeneratorExit):
        raise dropped


def call_options(method: Callable[..., object], policy: CallPolicy = OPEN_POLICY) -> workflow.ActivityConfig:
    """The options with which `call` runs an activity."""
    calls = TemporalCalls(policy)
    match limits_of(method):
        case "store":
            return calls.store_options()
        case "heartbeat":
            return calls.store_options(beats=True)
        case "model":
            return calls.model_options()
        case "maintenance":
            options = calls.store_options(beats=True)
            options["start_to_close_timeout"] = _MAINTENANCE
            del options["schedule_to_close_timeout"]
            return options


def timed_out_error(method: Callable[..., object], error: exceptions.TimeoutError) -> StoreUnavailableError:
    """What to raise for an activity without a result; it names the last failure of its attempts."""
    definition = activity._Definition.from_callable(method)  # noqa: SLF001 — there is no public way to a name
    name = (definition.name if definition else None) or getattr(method, "__name__", "activity")
    last = error.cause
    why = "no attempt has ended; is a worker with HelixPlugin running on that task queue?"
    if last is not None:
        why = f"the last attempt failed: {describe_failure(last)}"
    return StoreUnavailableError(f"{name}: no result in time; {why}")


class RollOutInterceptor(Interceptor):
    """Sends an activity that this worker lacks through the task queue, where others can take it.

    The SDK hands an activity at once to the worker that runs the workflow ("eagerly").  That would be
    the same worker again, as long as it keeps the workflow in its cache.  And it gives what a worker lacks to
    the application's dynamic activity, where there is one, whose result would be taken for ours.

    Args:
        is_dynamic: Whether a function is such an activity.
    """

    def __init__(self, is_dynamic: Callable[[Callable[..., Any]], bool]) -> None:
        self._is_dynamic = is_dynamic

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """As in `Interceptor`."""
        return _Activities(next, self._is_dynamic)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002 — the name in the SDK
    ) -> type[WorkflowInboundInterceptor]:
        """As in `Interceptor`."""
        return _Inbound


class _Activities(ActivityInboundInterceptor):
    def __init__(
        self, following: ActivityInboundInterceptor, is_dynamic: Callable[[Callable[..., Any]], bool]
    ) -> None:
        super().__init__(following)
        self._is_dynamic = is_dynamic

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name = activity.info().activity_type
        if name.startswith(_OURS) and self._is_dynamic(input.fn):
            # As the SDK fails it on a worker without a dynamic activity.
            text = f"Activity function {name} {_NOT_REGISTERED}; a dynamic activity does not stand in for it"
            raise ApplicationError(text, type=_NOT_FOUND)
        return await super().execute_activity(input)


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> "workflow.ActivityHandle[Any]":
        if elsewhere.get():
            input.disable_eager_execution = True
        return self.next.start_activity(input)
