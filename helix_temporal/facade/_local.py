"""A turn in this process: the workflow's own turn, with calls that run here."""

import asyncio
import itertools
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from temporalio.exceptions import ApplicationError

from helix_temporal.activities import Payloads, Stepper, ToolRunner
from helix_temporal.activities._application_code import ATTEMPTS, is_bug, told
from helix_temporal.activities._errors import application_error
from helix_temporal.activities._step_rules import TurnAnswers, check_values
from helix_temporal.activities._wire import as_reopen
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.errors import ApplicationCodeError, HelixError, InvalidRequestError
from helix_temporal.models._json import canonical
from helix_temporal.models.agents import AgentFacts, ToolFacts
from helix_temporal.models.facade import (
    MessageEvent,
    SessionEvent,
    StopEvent,
    StoredSession,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from helix_temporal.models.hooks import BeforeUserMessage
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import Head
from helix_temporal.models.rows import records_of
from helix_temporal.models.sessions import CallPolicy, OpenHandle, SliceState, UserMessage
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    ToolInput,
    ToolResult,
)
from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.threads import Create, OpenThread, ReadPage
from helix_temporal.workflows._calls import ToolFailedError, late
from helix_temporal.workflows._conversation import Conversation
from helix_temporal.workflows._turns import Turn, TurnResult

Emit = Callable[[SessionEvent], None]

JsonObject = dict[str, Any]

_logger = logging.getLogger(__name__)

_OWNER = "facade"
_POLICY = CallPolicy()


class StateChanges:
    """What the tools of a turn change of the session's state, until the turn has ended."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, str], JsonObject] = {}

    async def stage(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a call changes; the same call again replaces it."""
        check_values(changes)
        self._changes[request.position, request.key] = changes
        return request.key

    def merged(self, state: Mapping[str, Any], answers: Collection[str]) -> JsonObject:
        """The state with the changes of calls that these answers ask for, in their order."""
        merged = dict(state)
        for (_, key), changes in sorted(self._changes.items(), key=lambda each: each[0][0]):
            # The key's last parts name the answer and the call.
            if key.rsplit("/", 2)[1] in answers:
                merged |= changes
        check_values(merged)
        return merged


class LocalCalls:
    """`Calls` of a turn that runs in this process, over a thread in its memory.

    Attributes:
        changes: What its tools change of the session's state.
    """

    def __init__(self, agent: Agent, threads: HotThreads, emit: Emit) -> None:
        payloads = Payloads(MemoryPayloads())
        self.changes = StateChanges()
        self._agent, self._threads, self._emit = agent, threads, emit
        self._agents = AgentRegistry([agent])
        self._stepper = Stepper(threads, self._agents, payloads)
        self._tools = ToolRunner(threads, payloads, states=self.changes)
        self._by_name = {tool.name: tool for tool in agent.tools}

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """As `Calls.open`, again: a tool has taken the turn's steps back."""
        epoch = (request.known_epoch or 0) + 1
        opened = await self._threads.open(
            OpenThread(
                request.thread_id,
                epoch,
                _OWNER,
                create=Create.NEVER,
                reopen=as_reopen(request.reopen),
            )
        )
        handle = OpenHandle(epoch=epoch, head=opened.header.head)
        return OpenSessionResult(handle=handle, facts=self._agent.facts(), policy=_POLICY)

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """As `Calls.run_step`: tried again as long as an activity would be.

        What the last attempt raised passes as it is.
        """
        result = await self._try_step(request)
        await self._tell(request.session_id, request.head, result.head)
        return result

    async def _try_step(self, request: RunStepInput) -> RunStepResult:
        clock = asyncio.get_running_loop().time
        began, last = clock(), None
        ends = began + _POLICY.model_schedule_to_close
        for number in itertools.count(1):
            seconds = min(_POLICY.model_start_to_close, ends - clock())
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await self._stepper.run(request)
            except Exception as error:  # noqa: BLE001 (a model is a user's code: what it raises may pass)
                late = limit.expired()
                raised = TimeoutError(_late_step(request.agent, seconds)) if late else error
            failure = _step_failure(raised, number, clock() - began)
            pause = _pause_after(failure, number)
            if failure.non_retryable or clock() + pause >= ends:
                # Where the time is up, what went wrong before says more.
                raise (last or raised) if late else raised
            _logger.warning(
                "attempt %d of a step of session %r failed: %s", number, request.session_id, failure.message
            )
            last = raised
            await self.pause(pause)
        raise AssertionError("unreachable")  # pragma: no cover

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """As `Calls.end_turn`."""
        result = await self._stepper.end_turn(request)
        await self._tell(request.session_id, request.head, result.head)
        return result

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """As `Calls.run_tool`: tried again as often, and for as long, as an activity would be."""
        clock, limit = asyncio.get_running_loop().time, facts.schedule_to_close
        once = facts.start_to_close or _POLICY.tool_start_to_close
        ends, before = clock() + (limit or math.inf), ""
        for number in itertools.count(1):
            left = ends - clock()
            try:
                return await self._run_once(request, number, min(once, left))
            except TimeoutError as error:
                if left <= once:
                    told = f"{late(facts.name, limit or 0)}, with all attempts{before}"
                    raise ToolFailedError(told) from error
                failure = ApplicationError(late(facts.name, once))
            except ApplicationError as error:
                failure = error
            pause = _pause_after(failure, number)
            if failure.non_retryable or number >= facts.max_attempts or clock() + pause >= ends:
                raise ToolFailedError(failure.message or type(failure).__name__) from failure
            before = f"; before: {failure.message}"
            await self.pause(pause)
        raise AssertionError("unreachable")  # pragma: no cover

    async def _run_once(self, request: ToolInput, number: int, seconds: float) -> ToolResult:
        tool, hides = self._by_name[request.tool], self._agent.hide_errors
        try:
            async with asyncio.timeout(seconds):
                return await self._tools.run(tool, request, hides=hides, number=number)
        except HelixError as error:
            raise application_error(error, number) from error

    async def agent_facts(self, request: AgentFactsInput) -> AgentFacts:
        """As `Calls.agent_facts`."""
        return self._agents.with_tools(request.agent, request.tools).facts()

    async def pause(self, seconds: float) -> None:
        """As `Calls.pause`."""
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        """As `Calls.new_id`."""
        return secrets.token_hex(16)

    def patched(self, _change: str, /) -> bool:
        """As `Calls.patched`: nothing is replayed."""
        return True

    async def _tell(self, thread_id: str, before: Head, after: Head) -> None:
        for message in await read(self._threads, thread_id, before.position, after.position):
            self._emit(MessageEvent(message=message))
            if message.role == "assistant" and message.text:
                self._emit(TextEvent(text=message.text))
            for call in message.tool_calls:
                self._emit(ToolUseEvent(id=call.id, name=call.name, input=dict(call.arguments)))
            if message.role == "tool":
                self._emit(
                    ToolResultEvent(
                        tool_use_id=message.tool_call_id or "",
                        content=message.content,
                        is_error=message.is_error,
                    )
                )


async def run_turn(
    agent: Agent, stored: StoredSession, message: UserMessage, emit: Emit
) -> tuple[TurnResult, tuple[Message, ...], JsonObject]:
    """Run one turn on top of a stored session; its result, all messages with it, and the state after it.

    Raises:
        HelixError: The turn failed; nothing of it counts.
    """
    # As an activity has it: no two turns have the same, and with it go the keys of model calls.
    epoch = time.time_ns() // 1000
    threads = HotThreads(MemoryThreads())
    records = records_of(stored.messages)
    metadata = _texts(stored.metadata)
    known = canonical(SliceState(agent=agent.name, metadata=metadata).model_dump(mode="json"))
    opened = await threads.open(OpenThread(stored.id, epoch, _OWNER, records=records, slice=known))
    request = OpenSessionInput(
        session_id=stored.id, thread_id=stored.id, agent=agent.name, owner=_OWNER, metadata=metadata
    )
    handle, trace = OpenHandle(epoch=epoch, head=opened.header.head), stored.properties.tracing_context
    talk = Conversation(request, handle, agent.facts(), tracing_context=trace)
    calls = LocalCalls(agent, threads, emit)
    turn = Turn(calls, talk, number=_turns(stored) + 1, max_steps=agent.max_steps)
    result = await turn.run([message])
    emit(StopEvent(stop_reason=result.exit_reason.value, usage=result.usage))
    added = await read(threads, stored.id, len(stored.messages), talk.head.position)
    answers = {each.id for each in added if each.tool_calls}
    return result, (*stored.messages, *added), calls.changes.merged(stored.state, answers)


async def admitted(agent: Agent, stored: StoredSession, message: UserMessage) -> UserMessage:
    """The message as the agent's ``before_user_message`` lets it pass.

    Raises:
        InvalidRequestError: The hook refuses it, or failed.
    """
    if agent.hooks.before_user_message is None:
        return message
    event = BeforeUserMessage(
        session_id=stored.id,
        thread_id=stored.id,
        agent=agent.name,
        metadata=_texts(stored.metadata),
        message_id=message.id,
        text=message.text,
    )
    try:
        decision = await agent.hooks.call("before_user_message", event)
    except Exception as error:  # noqa: BLE001 (a user's code; its text may hold what must not be told)
        raise refusal(f"hook before_user_message failed: {type(error).__name__}") from None
    if decision is not None and decision.refuse is not None:
        raise refusal(decision.refuse)
    if decision is None or decision.text is None:
        return message
    return message.model_copy(update={"text": decision.text})


def _pause_after(failure: ApplicationError, number: int) -> float:
    """Seconds until the attempt behind this one, as a worker's policy has it unless the error says when."""
    if failure.next_retry_delay is not None:
        return failure.next_retry_delay.total_seconds()
    return min(_POLICY.retry_initial * _POLICY.retry_backoff ** min(number - 1, 20), _POLICY.retry_maximum)


def _step_failure(error: Exception, number: int, waited: float) -> ApplicationError:
    """What an activity would fail with; it says whether another attempt follows."""
    if isinstance(error, ApplicationError):
        return error
    if not isinstance(error, HelixError):
        if not is_bug(error):
            return ApplicationError(told(error), type=type(error).__name__)
        error = ApplicationCodeError(told(error), attempts=ATTEMPTS)
    return application_error(error, number, waited)


def _late_step(agent: str, seconds: float) -> str:
    return f"model of agent {agent!r}: no answer within {seconds:g} s"


def refusal(reason: str | None) -> InvalidRequestError:
    """The error for a message that the hook does not let pass."""
    return InvalidRequestError(f"the message is refused: {reason}")


def answer_before(stored: StoredSession, message_id: str) -> Message | None:
    """The answer that a message of the session got; None if its turn ended without one.

    Raises:
        IdempotencyConflictError: The id belongs to a message that is no user's.
    """
    found = TurnAnswers([message_id])
    found.follow(0, records_of(stored.messages))
    answer = found.answers.get(message_id)
    return None if answer is None else stored.messages[answer.position]


async def read(threads: HotThreads, thread_id: str, start: int, stop: int) -> list[Message]:
    """The messages of a range, whether their turn has ended or not."""
    found: list[Message] = []
    while start + len(found) < stop:
        page = await threads.read(
            ReadPage(thread_id, start + len(found), stop, limit=500, committed_only=False, whole=False)
        )
        found += (from_record(each) for each in page.records)
    return found


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """What an agent is given of a session's metadata: texts, as in a session workflow."""
    return {key: value for key, value in metadata.items() if isinstance(value, str)}


def _turns(stored: StoredSession) -> int:
    return sum(1 for each in stored.messages if each.role == "user")
