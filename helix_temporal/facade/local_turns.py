"""A turn that runs in this process, on top of a stored session: its steps, tools and the hook before it."""

import asyncio
import itertools
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from temporalio.exceptions import ApplicationError

from helix_temporal._failures import describe_failure
from helix_temporal.activities import Payloads, Stepper, ToolRunner
from helix_temporal.activities._runtime import application_error, as_reopen, code_failure
from helix_temporal.activities.suspended_turns import shorten_result
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.errors import HelixError, InvalidRequestError
from helix_temporal.models.agents import AgentFacts, BeforeUserMessage, ToolFacts
from helix_temporal.models.base import JsonObject, canonical_json
from helix_temporal.models.facade import (
    MessageEvent,
    SessionEvent,
    StopEvent,
    StoredSession,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
    UnfinishedTurn,
)
from helix_temporal.models.ids import CallKey
from helix_temporal.models.limits import INLINE_RESULT
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.sessions import CallPolicy, OpenHandle, UserMessage
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
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.models.turns import encode_messages
from helix_temporal.session.record import SessionRecord, check_values
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import Create, OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.workflows.calls import ToolFailedError, add_failure_before, tool_timeout_text
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn, TurnResult

Emit = Callable[[SessionEvent], None]
Save = Callable[[StoredSession], Awaitable[None]]

_logger = logging.getLogger(__name__)

_OWNER = "facade"
_POLICY = CallPolicy()


class StateChanges:
    """What the tools of a turn change of the session's state, until the turn has ended.

    Args:
        changes: Of its steps before, where the turn was cut off; by `CallKey.in_session`.
    """

    def __init__(self, changes: Mapping[str, JsonObject]) -> None:
        self._changes = dict(changes)

    async def stage_changes(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a call changes; the same call again replaces it."""
        check_values(changes)
        self._changes[CallKey.parse(request.key).in_session] = changes
        return request.key

    def list_changes(self, messages: Sequence[Message]) -> dict[str, JsonObject]:
        """The changes by calls of these messages, in the order of the calls."""
        calls = (
            CallKey("", message.id, at).in_session
            for message in messages
            for at in range(len(message.tool_calls))
        )
        return {call: self._changes[call] for call in calls if call in self._changes}

    def merge_changes(self, state: Mapping[str, Any], messages: Sequence[Message]) -> JsonObject:
        """The state with the changes by calls of these messages."""
        merged = dict(state)
        for changes in self.list_changes(messages).values():
            merged |= changes
        check_values(merged)
        return merged


class LocalCalls:
    """`Calls` of a turn that runs in this process, over a thread in its memory.

    Args:
        stored: The session, with the turn if it was cut off before.
        save: Called with the session and the turn as far as it has come; see `UnfinishedTurn`.

    Attributes:
        changes: What its tools change of the session's state.
    """

    def __init__(
        self, agent: Agent, threads: HotThreads, stored: StoredSession, emit: Emit, save: Save
    ) -> None:
        self._payloads, unfinished = Payloads(MemoryPayloads()), stored.unfinished
        self.changes = StateChanges({} if unfinished is None else unfinished.changes)
        self._kept = {} if unfinished is None else {each.id: each for each in unfinished.messages}
        self._agent, self._threads, self._stored = agent, threads, stored
        self._emit, self._save = emit, save
        self._agents = AgentRegistry([agent])
        self._stepper = Stepper(threads, self._agents, self._payloads)
        self._tools = ToolRunner(threads, self._payloads, states=self.changes)
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
        return OpenSessionResult(handle=handle, facts=self._agent.build_facts(), policy=_POLICY)

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """As `Calls.run_step`: tried again as long as an activity would be.

        What the last attempt raised passes as it is.
        """
        if request.inputs[0].call is not None and request.inputs[0].id not in self._kept:
            # Else the tools would run again if the turn ends at the model.
            results = await self._stepper.messages.build_messages(request, request.inputs)
            await self._save_unfinished(request.head, results)
        result = await self._try_step(request)
        if result.calls and result.head.last_id not in self._kept:
            # Else the tools would run under other keys if the turn is asked for again.
            await self._save_unfinished(result.head)
        await self._emit_messages(request.session_id, request.head, result.head)
        return result

    async def _save_unfinished(self, head: Head, results: Sequence[Message] = ()) -> None:
        messages = (*await self.read_turn(head), *results)
        unfinished = UnfinishedTurn(messages=messages, changes=self.changes.list_changes(messages))
        await self._save(self._stored.model_copy(update={"unfinished": unfinished}))

    async def read_turn(self, head: Head) -> tuple[Message, ...]:
        """The turn's messages up to this head."""
        start = len(self._stored.messages)
        return (*await read_message_range(self._threads, self._stored.id, start, head.position),)

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
            pause = _decide_pause(failure, number, ends - clock())
            if pause is None:
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
        await self._emit_messages(request.session_id, request.head, result.head)
        return result

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """As `Calls.run_tool`: tried again as often, and for as long, as an activity would be.

        A call whose result was stored before the turn was cut off gets that one.
        """
        known = self._kept.get(CallKey.parse(request.key).result_id)
        if known is not None:
            return await shorten_result(self._payloads, self._stored.id, known, INLINE_RESULT)
        clock, limit = asyncio.get_running_loop().time, facts.schedule_to_close
        once = facts.start_to_close or _POLICY.tool_start_to_close
        ends, before = clock() + (limit or math.inf), ""
        for number in itertools.count(1):
            left = ends - clock()
            try:
                return await self._run_once(request, number, min(once, left))
            except TimeoutError as error:
                if left <= once:
                    told = tool_timeout_text(facts.name, limit or 0, with_all_attempts=True)
                    raise ToolFailedError(add_failure_before(told, before)) from error
                failure = ApplicationError(tool_timeout_text(facts.name, once))
            except ApplicationError as error:
                failure = error
            pause = _decide_pause(failure, number, ends - clock(), facts.max_attempts)
            if pause is None:
                raise ToolFailedError(failure.message or type(failure).__name__) from failure
            before = failure.message
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
        return self._agents.with_tools(request.agent, request.tools).build_facts()

    async def pause(self, seconds: float) -> None:
        """As `Calls.pause`."""
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        """As `Calls.new_id`."""
        return secrets.token_hex(16)

    async def _emit_messages(self, thread_id: str, before: Head, after: Head) -> None:
        for message in await read_message_range(self._threads, thread_id, before.position, after.position):
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
    agent: Agent, stored: StoredSession, message: UserMessage, emit: Emit, save: Save
) -> tuple[TurnResult, StoredSession]:
    """Run one turn on top of a stored session, or go on with the one that is unfinished there.

    Args:
        agent: Who answers.
        stored: Its unfinished turn, if it has one, is that of ``message``.
        message: The user's, as it is to be in the session.
        emit: Told what happens, from the turn's beginning.
        save: See `LocalCalls`.

    Returns:
        Its result, and the session with its messages and the state after it.

    Raises:
        HelixError: The turn failed.
    """
    threads = HotThreads(MemoryThreads())
    handle, metadata = await _open_thread(threads, agent, stored), _text_metadata(stored.metadata)
    request = OpenSessionInput(
        session_id=stored.id, thread_id=stored.id, agent=agent.name, owner=_OWNER, metadata=metadata
    )
    trace = stored.properties.tracing_context
    thread = CurrentThread(request, handle, agent.build_facts(), tracing_context=trace)
    calls = LocalCalls(agent, threads, stored, emit, save)
    turn = Turn(calls, thread, number=_count_turns(stored) + 1, max_steps=agent.max_steps)
    result = await turn.run([message])
    emit(StopEvent(stop_reason=result.exit_reason.value, usage=result.usage))
    added = await calls.read_turn(thread.head)
    changes = {
        "messages": (*stored.messages, *added),
        "unfinished": None,
        "state": calls.changes.merge_changes(stored.state, added),
    }
    return result, stored.model_copy(update=changes)


async def _open_thread(threads: HotThreads, agent: Agent, stored: StoredSession) -> OpenHandle:
    """The session as a thread, opened where its finished turns end.

    Steps of an unfinished turn stand behind that: the turn finds them there, and asks no model for them.
    """
    # As an activity has it: no two turns have the same, and with it go the keys of model calls.
    epoch = time.time_ns() // 1000
    record = SessionRecord(agent=agent.name, metadata=_text_metadata(stored.metadata))
    opened = await threads.open(
        OpenThread(
            stored.id,
            epoch,
            _OWNER,
            messages=encode_messages(stored.messages),
            slice=canonical_json(record.model_dump(mode="json")),
        )
    )
    handle = OpenHandle(epoch=epoch, head=opened.header.head)
    if stored.unfinished is not None:
        await _append_steps(threads, stored.id, handle, stored.unfinished.messages)
    return handle


async def _append_steps(
    threads: HotThreads, thread_id: str, handle: OpenHandle, messages: Sequence[Message]
) -> None:
    """Append the steps of an unfinished turn; results that no answer follows are no step yet."""
    head, inputs = handle.head, list[StoredMessage]()
    for message in encode_messages(messages):
        if message.kind != Kind.CALLS:
            inputs.append(message)
            continue
        appended = await threads.append(StepAppend(thread_id, handle.epoch, head, (*inputs,), message))
        head, inputs = appended.head, []


async def run_before_user_message(agent: Agent, stored: StoredSession, message: UserMessage) -> UserMessage:
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
        metadata=_text_metadata(stored.metadata),
        message_id=message.id,
        text=message.text,
    )
    try:
        decision = await agent.hooks.run_hook("before_user_message", event)
    except Exception as error:  # noqa: BLE001 (a user's code; its text may hold what must not be told)
        raise refused_message_error(f"hook before_user_message failed: {type(error).__name__}") from None
    if decision is not None and decision.refuse is not None:
        raise refused_message_error(decision.refuse)
    if decision is None or decision.text is None:
        return message
    return message.model_copy(update={"text": decision.text})


def _decide_pause(
    failure: ApplicationError, number: int, left: float, attempts: float = math.inf
) -> float | None:
    """Seconds until the next attempt, as a worker's policy has it unless the error says when.

    None if no other one follows: the failure is final, there were so many ``attempts``, or the seconds that
    are ``left`` for all of them end before.
    """
    pause = min(_POLICY.retry_initial * _POLICY.retry_backoff ** min(number - 1, 20), _POLICY.retry_maximum)
    if failure.next_retry_delay is not None:
        pause = failure.next_retry_delay.total_seconds()
    is_last = failure.non_retryable or number >= attempts or pause >= left
    return None if is_last else pause


def _step_failure(error: Exception, number: int, waited: float) -> ApplicationError:
    """What an activity would fail with; it says whether another attempt follows."""
    if not isinstance(error, (HelixError, ApplicationError)):
        error = code_failure(error, describe_failure(error))
    return error if isinstance(error, ApplicationError) else application_error(error, number, waited)


def _late_step(agent: str, seconds: float) -> str:
    return f"model of agent {agent!r}: no answer within {seconds:g} s"


def refused_message_error(reason: str | None) -> InvalidRequestError:
    """The error for a message that the hook does not let pass."""
    return InvalidRequestError(f"the message is refused: {reason}")


async def read_message_range(threads: HotThreads, thread_id: str, start: int, stop: int) -> list[Message]:
    """The messages of a range, whether their turn has ended or not."""
    found: list[Message] = []
    while start + len(found) < stop:
        page = await threads.read(
            ReadPage(thread_id, start + len(found), stop, limit=500, committed_only=False, whole=False)
        )
        found += (decode_message(each) for each in page.messages)
    return found


def _text_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    """What an agent is given of a session's metadata: texts, as in a session workflow."""
    return {key: value for key, value in metadata.items() if isinstance(value, str)}


def _count_turns(stored: StoredSession) -> int:
    return sum(1 for each in stored.messages if each.role == "user")
