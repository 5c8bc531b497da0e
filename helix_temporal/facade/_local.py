"""A turn in this process: the workflow's own turn, with calls that run here."""

import asyncio
import secrets
from collections.abc import Callable

from temporalio.exceptions import ApplicationError

from helix_temporal.activities import Payloads, Stepper, ToolRunner
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.errors import HelixError, InvalidRequestError
from helix_temporal.models.agents import ToolFacts
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
from helix_temporal.models.sessions import OpenHandle, UserMessage
from helix_temporal.models.steps import (
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
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.workflows._calls import ToolFailedError
from helix_temporal.workflows._conversation import Conversation
from helix_temporal.workflows._turns import Turn, TurnResult

Emit = Callable[[SessionEvent], None]

_OWNER = "facade"
_EPOCH = 1
_PAUSE = 0.2


class LocalCalls:
    """`Calls` of a turn that runs in this process, over a thread in its memory."""

    def __init__(self, agent: Agent, threads: HotThreads, emit: Emit) -> None:
        payloads = Payloads(MemoryPayloads())
        self._threads, self._emit = threads, emit
        self._stepper = Stepper(threads, AgentRegistry([agent]), payloads)
        self._tools = ToolRunner(threads, payloads)
        self._by_name = {tool.name: tool for tool in agent.tools}

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """Never: nobody else writes this thread."""
        raise InvalidRequestError(f"session {request.session_id!r}: its thread is this process's own")

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """As `Calls.run_step`."""
        result = await self._stepper.run(request)
        await self._tell(request.session_id, request.head, result.head)
        return result

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """As `Calls.end_turn`."""
        result = await self._stepper.end_turn(request)
        await self._tell(request.session_id, request.head, result.head)
        return result

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """As `Calls.run_tool`: tried again as often as the tool says."""
        for attempt in range(1, facts.max_attempts + 1):
            try:
                return await asyncio.wait_for(
                    self._tools.run(self._by_name[request.tool], request), facts.start_to_close
                )
            except HelixError as error:
                raise ToolFailedError(str(error)) from error
            except (ApplicationError, TimeoutError) as error:
                final = isinstance(error, ApplicationError) and error.non_retryable
                if final or attempt == facts.max_attempts:
                    raise ToolFailedError(str(error) or type(error).__name__) from error
            await self.pause(_PAUSE * attempt)
        raise AssertionError("unreachable")

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
) -> tuple[TurnResult, tuple[Message, ...]]:
    """Run one turn on top of a stored session; its result, and all messages with it.

    Raises:
        HelixError: The turn failed; nothing of it counts.
    """
    threads = HotThreads(MemoryThreads())
    records = records_of(stored.messages)
    opened = await threads.open(OpenThread(stored.id, _EPOCH, _OWNER, records=records))
    request = OpenSessionInput(session_id=stored.id, thread_id=stored.id, agent=agent.name, owner=_OWNER)
    talk = Conversation(request, OpenHandle(epoch=_EPOCH, head=opened.header.head), agent.facts())
    calls = LocalCalls(agent, threads, emit)
    turn = Turn(calls, talk, number=_turns(stored) + 1, max_steps=agent.max_steps)
    result = await turn.run([message])
    emit(StopEvent(stop_reason=result.exit_reason.value, usage=result.usage))
    added = await read(threads, stored.id, len(stored.messages), talk.head.position)
    return result, (*stored.messages, *added)


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
        metadata={key: value for key, value in stored.metadata.items() if isinstance(value, str)},
        message_id=message.id,
        text=message.text,
    )
    try:
        decision = await agent.hooks.call("before_user_message", event)
    except Exception as error:  # noqa: BLE001 (a user's code; its text may hold what must not be told)
        raise InvalidRequestError(f"hook before_user_message failed: {type(error).__name__}") from None
    if decision is None or decision.text is None:
        if decision is not None and decision.refuse is not None:
            raise InvalidRequestError(f"the message is refused: {decision.refuse}")
        return message
    return message.model_copy(update={"text": decision.text})


async def read(threads: HotThreads, thread_id: str, start: int, stop: int) -> list[Message]:
    """The messages of a range, whether their turn has ended or not."""
    found: list[Message] = []
    while start + len(found) < stop:
        page = await threads.read(
            ReadPage(thread_id, start + len(found), stop, limit=500, committed_only=False, whole=False)
        )
        found += (from_record(each) for each in page.records)
    return found


def _turns(stored: StoredSession) -> int:
    return sum(1 for each in stored.messages if each.role == "user")
