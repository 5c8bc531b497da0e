"""A session in this process, or one that a session workflow runs; and how a turn runs here."""

import asyncio
import itertools
import logging
import math
import secrets
import string
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol, Self

from temporalio.exceptions import ApplicationError

from helix_temporal._failures import describe_failure
from helix_temporal.activities import Payloads, Stepper, ToolRunner
from helix_temporal.activities._runtime import (
    application_error,
    as_reopen,
    code_failure,
    is_cancellation,
)
from helix_temporal.activities.step_facts import TurnAnswers
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.client import SessionHandle
from helix_temporal.errors import HelixError, InvalidRequestError, SessionNotFoundError
from helix_temporal.models.agents import AgentFacts, BeforeUserMessage, ToolFacts
from helix_temporal.models.base import JsonObject, canonical_json, storable_text, wall_clock_ms
from helix_temporal.models.facade import (
    ErrorEvent,
    MessageEvent,
    ResultEvent,
    SessionEvent,
    StopEvent,
    StoredSession,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from helix_temporal.models.ids import CallKey
from helix_temporal.models.messages import Message, Usage, decode_message
from helix_temporal.models.sessions import AskStatus, CallPolicy, ExitReason, OpenHandle, UserMessage
from helix_temporal.models.states import SessionProperties, refuse_past
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
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.turns import encode_messages
from helix_temporal.session.record import SessionRecord, check_values
from helix_temporal.stores._cancellation import finish_before_cancel
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.storage import SessionStorage
from helix_temporal.stores.protocols.threads import Create, OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.workflows.calls import ToolFailedError, add_failure_before, tool_timeout_text
from helix_temporal.workflows.opening import CurrentThread
from helix_temporal.workflows.turn import Turn, TurnResult

Emit = Callable[[SessionEvent], None]

_logger = logging.getLogger(__name__)

_OWNER = "facade"
_POLICY = CallPolicy()


class StateChanges:
    """What the tools of a turn change of the session's state, until the turn has ended."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, str, int], JsonObject] = {}

    async def stage_changes(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a call changes; the same call again replaces it."""
        check_values(changes)
        call = CallKey.parse(request.key)
        self._changes[request.position, call.answer_id, call.at] = changes
        return request.key

    def merge_changes(self, state: Mapping[str, Any], answers: Collection[str]) -> JsonObject:
        """The state with the changes of calls that these answers ask for, in their order."""
        merged = dict(state)
        for (_, answer_id, _), changes in sorted(self._changes.items()):
            if answer_id in answers:
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
        return OpenSessionResult(handle=handle, facts=self._agent.build_facts(), policy=_POLICY)

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """As `Calls.run_step`: tried again as long as an activity would be.

        What the last attempt raised passes as it is.
        """
        result = await self._try_step(request)
        await self._emit_messages(request.session_id, request.head, result.head)
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
    agent: Agent, stored: StoredSession, message: UserMessage, emit: Emit
) -> tuple[TurnResult, tuple[Message, ...], JsonObject]:
    """Run one turn on top of a stored session; its result, all messages with it, and the state after it.

    Raises:
        HelixError: The turn failed; nothing of it counts.
    """
    # As an activity has it: no two turns have the same, and with it go the keys of model calls.
    epoch = time.time_ns() // 1000
    threads = HotThreads(MemoryThreads())
    messages = encode_messages(stored.messages)
    metadata = _text_metadata(stored.metadata)
    slice_data = canonical_json(SessionRecord(agent=agent.name, metadata=metadata).model_dump(mode="json"))
    opened = await threads.open(OpenThread(stored.id, epoch, _OWNER, messages=messages, slice=slice_data))
    request = OpenSessionInput(
        session_id=stored.id, thread_id=stored.id, agent=agent.name, owner=_OWNER, metadata=metadata
    )
    handle, trace = OpenHandle(epoch=epoch, head=opened.header.head), stored.properties.tracing_context
    thread = CurrentThread(request, handle, agent.build_facts(), tracing_context=trace)
    calls = LocalCalls(agent, threads, emit)
    turn = Turn(calls, thread, number=_count_turns(stored) + 1, max_steps=agent.max_steps)
    result = await turn.run([message])
    emit(StopEvent(stop_reason=result.exit_reason.value, usage=result.usage))
    added = await read_message_range(threads, stored.id, len(stored.messages), thread.head.position)
    answers = {each.id for each in added if each.tool_calls}
    return result, (*stored.messages, *added), calls.changes.merge_changes(stored.state, answers)


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


def session_not_found_error(session_id: str) -> SessionNotFoundError:
    """The error for a session that was never created, or was deleted."""
    return SessionNotFoundError(
        f"Session not found: {session_id!r} was never created here, or was deleted; check its id and its "
        "storage, or create it"
    )


def refused_message_error(reason: str | None) -> InvalidRequestError:
    """The error for a message that the hook does not let pass."""
    return InvalidRequestError(f"the message is refused: {reason}")


def answer_before(stored: StoredSession, message_id: str) -> Message | None:
    """The answer that a message of the session got; None if its turn ended without one.

    Raises:
        IdempotencyConflictError: The id belongs to a message that is no user's.
    """
    found = TurnAnswers([message_id])
    found.follow(0, encode_messages(stored.messages))
    answer = found.answers.get(message_id)
    return None if answer is None else stored.messages[answer.position]


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


_LETTERS: Final = string.ascii_letters + string.digits


def generate_session_id() -> str:
    """``sess_`` and 16 random letters and digits."""
    return "sess_" + "".join(secrets.choice(_LETTERS) for _ in range(16))


def generate_message_id() -> str:
    """``msg_`` and 20 random letters and digits."""
    return "msg_" + "".join(secrets.choice(_LETTERS) for _ in range(20))


class Engine(Protocol):
    """What answers a message of a session."""

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """Run one turn and tell what happens; what it stores is stored when it returns."""
        ...

    async def load_session(self) -> StoredSession:
        """The session as it is now."""
        ...

    async def get_state(self) -> dict[str, Any]:
        """What tools have made of its state."""
        ...

    async def get_usage(self) -> Usage:
        """What its model calls used."""
        ...


class LocalEngine:
    """Runs turns in this process, each under a lease, and stores the session after each.

    Of the agent's hooks ``before_user_message`` is run, once a turn; the others are the workflow's.
    """

    def __init__(
        self, agent: Agent, storage: SessionStorage, session_id: str, locks: LockManager | None
    ) -> None:
        self._agent, self._storage, self._session_id, self._locks = agent, storage, session_id, locks

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer_message`; a message that is in the session already gets the answer that it got.

        Raises:
            IdempotencyConflictError: The message has the id of an answer or of a tool's result.
            LeaseLostError: Another process took the session over; what was not being stored is not.
            SessionNotFoundError: It was deleted meanwhile.
            SessionExpiredError: It is past its time; `resume_session` renews it.
            InvalidRequestError: The hook refuses the message.
        """
        async with hold_lease(self._locks, self._session_id):
            result = await self._answer_under_lease(message, emit)
        emit(result)

    async def _answer_under_lease(self, message: UserMessage, emit: Any) -> ResultEvent:
        # Somebody else may have had a turn since ours.
        found = await self.load_session()
        if any(each.id == message.id for each in found.messages):
            answer = answer_before(found, message.id)
            ended = ExitReason.INTERRUPTED if answer is None else ExitReason.COMPLETED
            emit(StopEvent(stop_reason=ended.value))
            return ResultEvent(text=None if answer is None else answer.text)
        refuse_past(found.id, found.properties.expires_at, wall_clock_ms())
        message = await run_before_user_message(self._agent, found, message)
        result, messages, state = await run_turn(self._agent, found, message, emit)
        changes = {
            "messages": messages,
            "state": state,
            "usage": found.usage + result.usage,
            "updated_at": max(wall_clock_ms(), found.updated_at + 1),
        }
        # Else a cancelled write would go on after the lease was given back, over the next holder's turn.
        await finish_before_cancel(self._storage.save(found.model_copy(update=changes)))
        text = None if result.answer is None else messages[result.answer.position].text
        return ResultEvent(text=text, usage=result.usage)

    async def load_session(self) -> StoredSession:
        """See `Engine.load_session`.

        Raises:
            SessionNotFoundError: It was deleted meanwhile.
        """
        found = await self._storage.load(self._session_id)
        if found is None:
            raise session_not_found_error(self._session_id)
        return found

    async def get_state(self) -> dict[str, Any]:
        """See `Engine.get_state`."""
        return dict((await self.load_session()).state)

    async def get_usage(self) -> Usage:
        """See `Engine.get_usage`."""
        return (await self.load_session()).usage


@asynccontextmanager
async def hold_lease(locks: LockManager | None, session_id: str) -> AsyncIterator[None]:
    """Be the only one who writes the session, where its storage has locks."""
    async with AsyncExitStack() as stack:
        if locks is not None:
            await stack.enter_async_context(locks.hold(f"session/{session_id}"))
        yield


class WorkflowEngine:
    """Lets the session workflow run the turns; what it stores is on its workers."""

    def __init__(
        self,
        session: SessionHandle,
        properties: SessionProperties | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._session = session
        self._properties, self._metadata = properties, metadata

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer_message`."""
        result = await self._session.ask(
            message.text,
            message_id=message.id,
            properties=self._properties,
            metadata=self._metadata,
        )
        self._properties = None
        if result.status is AskStatus.REFUSED:
            raise refused_message_error(result.error)
        emit(MessageEvent(message=Message(id=message.id, role="user", content=message.text)))
        if result.status is AskStatus.FAILED:
            raise InvalidRequestError(result.error or "the turn failed")
        if result.text:
            emit(TextEvent(text=result.text))
        emit(StopEvent(stop_reason=(result.exit_reason or result.status).value))
        emit(ResultEvent(text=result.text))

    async def load_session(self) -> StoredSession:
        """See `Engine.load_session`: read through the workflow's workers."""
        messages = await self._session.get_messages()
        return StoredSession(id=self._session.session_id, messages=tuple(messages))

    async def get_state(self) -> dict[str, Any]:
        """See `Engine.get_state`: what the session store says."""
        return dict((await self._session.get_state()).custom_state)

    async def get_usage(self) -> Usage:
        """See `Engine.get_usage`: what the thread says of its model calls."""
        return (await self._session.get_usage()).tokens


class Session:
    """One conversation: `send` a message, then `receive` what happens until its answer is there.

    Made by `create_session`, `resume_session` and `fork_session`.

    Attributes:
        id: The session's.
        agent_name: Of the agent that answers.
    """

    def __init__(self, session_id: str, engine: Engine, agent_name: str) -> None:
        self.id, self.agent_name = session_id, agent_name
        self._engine = engine
        self._pending: UserMessage | None = None
        self._receiving = False
        self._closed = self._deleted = False
        self._running: asyncio.Task[None] | None = None

    async def send(self, text: str, *, message_id: str | None = None) -> str:
        """Take a message; its turn runs while `receive` is read.  Returns the message's id.

        Raises:
            InvalidRequestError: The session is closed, a turn is under way, or ``text`` is empty.
        """
        self._check_open()
        if self._receiving or self._pending is not None:
            raise InvalidRequestError("a message is being answered; receive its answer first")
        if not text:
            raise InvalidRequestError("text is empty; give at least one character")
        self._pending = UserMessage(id=message_id or generate_message_id(), text=text)
        return self._pending.id

    async def receive(self) -> AsyncGenerator[SessionEvent, None]:
        """What happens in the turn, to its result; a turn that fails ends with an `ErrorEvent`.

        Leaving the loop early cancels the turn, and nothing of it is stored unless that had begun.  After
        a ``break`` Python ends the loop in its own time; `contextlib.aclosing` ends it there.

        Raises:
            InvalidRequestError: The session is closed, or nothing was sent.
        """
        self._check_open()
        if self._pending is None:
            raise InvalidRequestError("no message was sent; call send first")
        message, self._pending, self._receiving = self._pending, None, True
        events: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        turn = self._running = asyncio.create_task(self._run_pending_turn(message, events))
        try:
            while (event := await events.get()) is not None:
                yield event
            await turn
        finally:
            self._receiving, self._running = False, None
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    async def get_messages(self) -> list[Message]:
        """All messages of finished turns, whoever had them.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return [*(await self._engine.load_session()).messages]

    async def get_state(self) -> dict[str, Any]:
        """What tools have made of the session's state (`ToolOutcome.state`), up to the newest finished turn.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return await self._engine.get_state()

    async def get_usage(self) -> Usage:
        """What model calls used, over all turns.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return await self._engine.get_usage()

    async def close(self) -> None:
        """Use it no more; every finished turn is stored already."""
        self._closed, self._pending = True, None

    async def end_deleted(self) -> None:
        """The session is being deleted: its turn ends, and whoever receives it is told."""
        await self.close()
        self._deleted = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run_pending_turn(
        self, message: UserMessage, events: "asyncio.Queue[SessionEvent | None]"
    ) -> None:
        try:
            await self._engine.answer_message(message, events.put_nowait)
        except HelixError as error:
            events.put_nowait(_error_event(error))
        except (Exception, asyncio.CancelledError) as error:
            if not is_cancellation(error):
                _logger.warning("a turn of session %r failed", self.id, exc_info=error)
                events.put_nowait(
                    ErrorEvent(error_type=type(error).__name__, message=describe_failure(error))
                )
            elif self._deleted:
                events.put_nowait(_error_event(session_not_found_error(self.id)))
            else:
                raise
        finally:
            events.put_nowait(None)

    @property
    def closed(self) -> bool:
        """Whether it was closed; another one for the same session is made by `resume_session`."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"session {self.id!r} is closed; resume_session opens it again")


def _error_event(error: HelixError) -> ErrorEvent:
    return ErrorEvent(error_type=type(error).__name__, message=storable_text(str(error)))
