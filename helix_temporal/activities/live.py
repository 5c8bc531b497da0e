"""What steps and tools tell on a session's stream."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from helix_temporal.activities._runtime import current_attempt, scheduled_ms
from helix_temporal.activities.stream_buffer import BufferedStreamWriter, Grace, Keyed, said_of
from helix_temporal.agents import Agent, ToolOutcome
from helix_temporal.errors import FencedError, StreamNotFoundError
from helix_temporal.models import streams
from helix_temporal.models.agents import (
    ModelEvent,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolFacts,
)
from helix_temporal.models.base import JsonObject, dump_json, only_set
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.ids import CallKey, make_result_id
from helix_temporal.models.messages import Message, ToolCall, are_left_out
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    ToolInput,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import WaitingCall, child_session_id
from helix_temporal.session.projection import end_of_run
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.streams import StreamStore, StreamWriter
from helix_temporal.stores.streams.runs import BegunRun, run_at_work
from helix_temporal.telemetry import metrics

SHOWN: Final = 16 * 1024
"""Bytes of a tool's arguments or result, as JSON, that are shown; larger ones are read from the thread."""
SHOWN_OF_QUESTION: Final = 2000
"""Characters of the users' messages that are shown with the begin of their turn."""
SHOWN_OF_CHILD: Final = 2000
"""Characters of a sub-agent's answer that are shown with its end."""


def run_of(request: RunStepInput | EndTurnInput | ToolInput) -> str:
    """The run that a request belongs to; a turn that began before there were runs has its number."""
    number = request.turn if isinstance(request, RunStepInput | ToolInput) else 0
    return request.run_id or f"turn-{number}"


def step_of(request: RunStepInput) -> str:
    """A step's name: of its run and place, so that a step that is taken back and done again has the same."""
    return f"{run_of(request)}/{request.head.position}"


def turn_begins(request: RunStepInput, inputs: Sequence[Message]) -> list[Keyed]:
    """With a turn's first step: which messages it is for, and what they say."""
    asked = [each for each in inputs if each.role == "user"]
    if not asked:
        return []
    started = streams.RunStarted(
        turn=request.turn,
        message_ids=tuple(each.id for each in asked),
        texts=tuple(_shorten_together([each.text for each in asked], SHOWN_OF_QUESTION)),
    )
    return [Keyed(started, f"run/{run_of(request)}/started")]


def _shorten_together(texts: Sequence[str], most: int) -> Iterator[str]:
    """The texts, from the first one on, as far as so many characters reach."""
    for text in texts:
        if most <= 0:
            return
        yield text[:most]
        most -= len(text)


def step_begins(request: RunStepInput, message_id: str, number: int, attempt: int) -> list[Keyed]:
    """An attempt calls the model; what earlier ones said is void."""
    told: dict[str, Any] = {"step_id": step_of(request), "step": number}
    items = []
    if any(each.answered is not None for each in request.inputs):
        items.append(Keyed(streams.RunResumed(step=number), f"answer/{request.head.last_id}/resumed"))
    if attempt > 1:
        void = streams.StepDiscarded(**told, attempt=attempt - 1)
        items.append(Keyed(void, f"answer/{message_id}/instead"))
    started = streams.StepStarted(**told, message_id=message_id, attempt=attempt)
    return [*items, Keyed(started, f"answer/{message_id}/started")]


def step_fails(request: RunStepInput, message_id: str, number: int, attempt: int) -> Keyed:
    """The attempt came to nothing."""
    void = streams.StepDiscarded(
        step_id=step_of(request), step=number, message_id=message_id, attempt=attempt
    )
    return Keyed(void, f"answer/{message_id}/discarded")


def step_stands(
    request: RunStepInput, agent: Agent, answer: Message, position: int, number: int | None
) -> list[Keyed]:
    """The answer is in the thread, and these tools are asked for."""
    about: dict[str, Any] = {"message_id": answer.id} | only_set(step=number)
    committed = streams.StepCommitted(
        step_id=step_of(request), position=position, characters=len(answer.text), **about
    )
    items = [Keyed(committed, f"answer/{answer.id}/committed")]
    if answer.usage is not None:
        items.append(Keyed(streams.UsageChunk(usage=answer.usage, **about), f"answer/{answer.id}/usage"))
    for at, call in enumerate(answer.tool_calls):
        name = make_result_id(answer.id, at)
        start = streams.ToolStart(
            tool_call_id=call.id,
            tool_name=call.name,
            **_field_or_size("arguments", call.arguments, {}),
            **about,
        )
        items.append(Keyed(start, f"call/{name}/start"))
        facts = _find_tool_facts(agent, call.name)
        if facts is not None and facts.kind == "agent":
            child = child_session_id(request.session_id, facts.name, facts.thread, name)
            sub = streams.SubAgentStart(
                sub_session_id=child,
                sub_agent_type=facts.agent or "",
                tool_call_id=call.id,
                **about,
            )
            items.append(Keyed(sub, f"call/{name}/child"))
    return items


def step_ends(request: RunStepInput, result: RunStepResult) -> list[Keyed]:
    """What comes after the step: the end of the turn, or a wait for people."""
    if not result.calls:
        return [_turn_ends(request, result.head, answered=True)]
    if not result.waiting:
        return []
    asker = result.head.last_id
    waits = [(each, result.calls[each.at]) for each in result.waiting]
    calls = tuple(_describe_waiting_call(each, call) for each, call in waits)
    asks = [_build_approval_request(each, call, asker) for each, call in waits if each.kind == "approval"]
    return [*asks, Keyed(streams.Suspended(calls=calls, message_id=asker), f"answer/{asker}/suspended")]


def _describe_waiting_call(waiting: WaitingCall, call: ToolCall) -> JsonObject:
    told: JsonObject = {"id": waiting.id, "tool_call_id": call.id, "tool_name": call.name}
    until = only_set(until=waiting.until)
    return {**told, "kind": waiting.kind, **until}


def _build_approval_request(waiting: WaitingCall, call: ToolCall, asker: str) -> Keyed:
    large = are_left_out(call.arguments)
    asked = streams.ToolApprovalRequest(
        tool_call_id=call.id,
        tool_name=call.name,
        approval_id=waiting.id,
        input=None if large else call.arguments,
        message_id=asker,
    )
    return Keyed(asked, f"call/{waiting.id}/approval")


def turn_ends(request: EndTurnInput, inputs: Sequence[Message], head: Head) -> list[Keyed]:
    """The turn is over with the results of its tools."""
    return [*tools_end(request, None, inputs), _turn_ends(request, head, answered=False)]


def _turn_ends(request: RunStepInput | EndTurnInput, head: Head, *, answered: bool) -> Keyed:
    status, reason = end_of_run(request)
    answer = {"message_id": head.last_id, "position": head.position - 1} if answered else {}
    ended = streams.RunEnded(status=status.value, exit_reason=reason or status.value, **answer)
    return Keyed(ended, f"run/{run_of(request)}/ended")


def turn_is_cut(run_id: str, status: RunStatus, reason: str) -> Keyed:
    """The turn came to no end of its own, and does not stay in the thread."""
    ended = streams.RunEnded(status=status.value, exit_reason=reason, in_thread=False)
    return Keyed(ended, f"run/{run_id}/ended")


def is_turn_in_thread(run: BegunRun, record: SessionRecord) -> bool:
    """Whether the turn of this run is in the thread whose slice this is."""
    return run.run_id == record.run if run.turn is None else run.turn <= record.turns


def tools_end(
    request: RunStepInput | EndTurnInput, agent: Agent | None, inputs: Sequence[Message]
) -> list[Keyed]:
    """The results that a step takes: those that their tools told of already, and those of other calls."""
    children = {each.id: each.child for each in request.inputs if each.child is not None}
    items = []
    for result in inputs:
        if result.role != "tool":
            continue
        child = children.get(result.id)
        if child is not None:
            facts = None if agent is None else _find_tool_facts(agent, result.name or "")
            end = streams.SubAgentEnd(
                sub_session_id=child.session_id,
                sub_agent_type=child.agent or ("" if facts is None else facts.agent or ""),
                tool_call_id=result.tool_call_id,
                result=result.text[:SHOWN_OF_CHILD],
                success=child.status == "completed",
                message_id=_asked_by(result.id),
            )
            items.append(Keyed(end, f"call/{result.id}/child-end"))
        items.append(_tool_end(result))
    return items


def tool_ends(request: ToolInput, outcome: ToolOutcome) -> list[Keyed]:
    """A tool has run, and what it changed of the state."""
    key = CallKey.parse(request.key)
    result = Message(
        id=key.result_id,
        role="tool",
        content=outcome.content,
        tool_call_id=request.call.id,
        is_error=outcome.is_error,
    )
    items = [_tool_end(result)]
    if outcome.state:
        patches = tuple(_build_state_patch(name, value) for name, value in outcome.state.items())
        patch = streams.StatePatch(patches=patches, message_id=key.answer_id)
        items.insert(0, Keyed(patch, f"call/{result.id}/state"))
    return items


def _find_tool_facts(agent: Agent, tool: str) -> ToolFacts | None:
    found = agent.find_tool(tool)
    return None if found is None else found.build_facts(agent.name)


def _asked_by(result_id: str) -> str:
    """The answer that asks for the tool whose result has this id."""
    return result_id.rsplit(".", 1)[0]


def _tool_end(result: Message) -> Keyed:
    fields: dict[str, Any] = {} if result.is_error else _field_or_size("result", result.content, None)
    if result.is_error:
        fields = {"success": False, "error": result.text[:SHOWN]}
    end = streams.ToolEnd(tool_call_id=result.tool_call_id or "", message_id=_asked_by(result.id), **fields)
    # A name for each outcome: a call that failed for good may run again after a reset, and work.
    return Keyed(end, f"call/{result.id}/{'failed' if result.is_error else 'end'}")


def _field_or_size(field: str, value: Any, instead: Any) -> dict[str, Any]:
    """The field if it is small enough, else its size."""
    size = len(dump_json(value))
    return {field: value} if size <= SHOWN else {field: instead, f"{field}_bytes": size}


def _build_state_patch(name: str, value: Any) -> JsonObject:
    # A member's name in a JSON pointer (RFC 6901).
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    return {"op": "add", "path": path, "value": value}


log = logging.getLogger(__name__)


class Streaming:
    """Tells on the sessions' streams what happens.

    A thread's slice says how far the stream had come (``reached``), and every writer that has read the slice
    names that place: a stream that ends before it was lost, or set back with an older copy of its store, and
    begins with a ``stream_resync`` before anything is told on it.  That a thread had to be hydrated proves
    nothing of its stream, which may be intact.

    Args:
        store: None where nothing is shown.
    """

    def __init__(self, store: StreamStore | None = None) -> None:
        self._store, self._grace = store, Grace()

    def open_step_stream(
        self, request: RunStepInput, agent: Agent, message_id: str, number: int, reached: int = 0
    ) -> "StepStream":
        """A stream for one attempt of a step, whose answer will have this id."""
        run = run_of(request)
        writer = self._create_stream_writer(request.session_id, run, request.epoch, request.agent, reached)
        return StepStream(writer, request, agent, message_id, number)

    def open_tool_stream(self, request: ToolInput) -> "ToolStream":
        """A stream for one attempt of a tool."""
        writer = self._create_stream_writer(request.session_id, run_of(request), request.epoch, request.agent)
        return ToolStream(writer, request)

    async def tell_standing_step(
        self,
        request: RunStepInput,
        agent: Agent,
        inputs: Sequence[Message],
        answer: Message,
        result: RunStepResult,
        reached: int,
    ) -> None:
        """Tell of a step that was found in the thread: the attempt that made it may have told nothing."""
        items = [
            *turn_begins(request, inputs),
            *tools_end(request, agent, inputs),
            *step_stands(request, agent, answer, result.head.position - 1, None),
            *step_ends(request, result),
        ]
        run = run_of(request)
        await self._write_chunks(request.session_id, run, request.epoch, items, request.agent, reached)

    async def tell_turn_ended(
        self, request: EndTurnInput, inputs: Sequence[Message], head: Head, reached: int
    ) -> None:
        """Tell that a turn ended with the results of its tools."""
        items = turn_ends(request, inputs, head)
        await self._write_chunks(request.session_id, run_of(request), request.epoch, items, reached=reached)

    async def tell_opened(
        self, request: OpenSessionInput, header: HotHeader, record: SessionRecord, left: str | None = None
    ) -> None:
        """Tell what an open did: a turn was aborted or taken back, or the thread was set back.

        ``left`` is the run of a turn that an earlier execution left behind.  A re-open whose thread has lost
        what its workflow knows of resyncs the stream, whose store may be the one that lost it.  Any other
        open is of a thread that is whole, hydrated or not: there the stream itself shows whether it was set
        back, to the first who writes (see the class).
        """
        epoch, reached = header.epoch, record.stream_reached
        if request.rewind_to is None and _has_lost(request, header.head):
            await self._reset_stream(request.session_id, epoch, "restored")
        if left is not None:
            await self.tell_left_behind(request.session_id, left, epoch, reached)
        if request.abandoned is not None:
            cut = turn_is_cut(request.abandoned, RunStatus.ABORTED, "aborted")
            await self._write_chunks(request.session_id, request.abandoned, epoch, [cut], reached=reached)
        if request.rewind_to is not None:
            await self._reset_stream(request.session_id, epoch, "rewind")

    async def tell_left_behind(self, session_id: str, run_id: str, epoch: int, reached: int = 0) -> None:
        """Tell that an earlier execution was terminated within this run."""
        cut = turn_is_cut(run_id, RunStatus.SUPERSEDED, "superseded")
        # Above every earlier epoch and below this one: an open that dies before the end is written is done
        # again, and looks for it where nobody has written under this epoch.
        await self._write_chunks(session_id, run_id, epoch - 1, [cut], reached=reached)

    async def find_run_at_work(self, session_id: str, epoch: int, record: SessionRecord) -> str | None:
        """The run that the stream shows at work, which no execution before ``epoch`` can end any more.

        None if its turn stands in the thread, whose ``record`` this is: only the word of its end was lost.
        """
        found: BegunRun | None = None
        async with self._suppress_failures(session_id):
            if self._store is not None:
                found = await run_at_work(self._store, session_id, below=epoch)
        return None if found is None or is_turn_in_thread(found, record) else found.run_id

    async def tell_closed(self, request: SaveValuesInput, run_id: str | None) -> None:
        """Tell that a session ends, and with it this run that was under way."""
        if run_id is None or request.session_id is None:
            return
        if request.status == SessionStatus.FAILED.value:
            cut = turn_is_cut(run_id, RunStatus.FAILED, "failed")
        else:
            cut = turn_is_cut(run_id, RunStatus.INTERRUPTED, "cancelled")
        # As in the thread, a step that may still be running is shut out.
        await self._write_chunks(request.session_id, run_id, request.epoch + 1, [cut])

    async def _reset_stream(self, session_id: str, epoch: int, reason: str) -> None:
        """Reset the stream: what was shown counts no longer, since turns of it were cut or lost."""
        async with self._suppress_failures(session_id):
            if self._store is not None:
                await self._store.reset_stream(
                    session_id, reason=reason, fence=epoch, operation_id=f"{reason}/{epoch}"
                )

    @contextlib.asynccontextmanager
    async def _suppress_failures(self, session_id: str) -> AsyncIterator[None]:
        """Leave out, and log, what takes too long or fails."""
        seconds = self._grace.seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except StreamNotFoundError:
            return
        except TimeoutError:
            self._grace.note_timeout(seconds)
        except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
            log.warning("stream of session %r: %s", session_id, said_of(error))

    async def _write_chunks(
        self,
        session_id: str,
        run_id: str,
        epoch: int,
        items: Sequence[Keyed],
        agent: str | None = None,
        reached: int = 0,
    ) -> None:
        async with self._create_stream_writer(session_id, run_id, epoch, agent, reached) as writer:
            with contextlib.suppress(FencedError):
                await writer.write_last(*items)

    def _create_stream_writer(
        self, session_id: str, run: str, fence: int | None, agent: str | None, reached: int = 0
    ) -> BufferedStreamWriter:
        store, what = self._store, f"session {session_id!r}"
        if store is None:
            return BufferedStreamWriter(None, what)

        async def opens() -> StreamWriter:
            return await store.create_writer(
                session_id,
                agent_id=run,
                agent_type=agent,
                run_id=run,
                fence=fence,
                resume=True,
                reached=reached,
            )

        return BufferedStreamWriter(opens, what, self._grace)


def _has_lost(request: OpenSessionInput, head: Head) -> bool:
    """Whether the thread ends before what the workflow that opens it again knows of it."""
    known_head = None if request.reopen is None else request.reopen.head
    return known_head is not None and known_head.position > head.position


class StepStream:
    """Tells of one attempt of a step; as a context manager, of its failure, too."""

    def __init__(
        self, writer: BufferedStreamWriter, request: RunStepInput, agent: Agent, message_id: str, number: int
    ) -> None:
        self._writer, self._request, self._agent = writer, request, agent
        self.message_id, self.number = message_id, number
        self._attempt = current_attempt()
        self._about: dict[str, Any] = {"message_id": message_id, "step": number}
        self._spoke = self._thought = self._thinks = False
        self._before: list[Keyed] = []
        self._stands: list[Keyed] = []
        self._begun: asyncio.Future[int | None] | None = None
        self._has_begun = False

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # One that is cancelled must not be held up.
            if isinstance(error, Exception) and not self._stands:
                void = step_fails(self._request, self.message_id, self.number, self._attempt)
                with contextlib.suppress(FencedError):
                    await self._writer.write_last(void)
        finally:
            await self._writer.__aexit__(kind, error, trace)

    @property
    def reached(self) -> int:
        """The highest sequence that was written; 0 if none was yet."""
        return self._writer.reached

    def tell_begin(self, inputs: Sequence[Message]) -> None:
        """Tell that the model is about to be called with these inputs."""
        begins = turn_begins(self._request, inputs)
        if begins and begins[0].key is not None:
            self._begun = self._writer.watch_key(begins[0].key)
        self._before = [*begins, *tools_end(self._request, self._agent, inputs)]
        self._writer.put(
            *self._before,
            *step_begins(self._request, self.message_id, self.number, self._attempt),
        )

    async def find_turn_start(self) -> int:
        """The sequence before the turn's chunks, the same for every attempt; 0 if it is not known."""
        found = None if self._begun is None else await self._writer.wait_briefly(self._begun)
        return 0 if found is None else found - 1

    async def on_event(self, event: ModelEvent) -> None:
        """Show a piece of the model's answer.

        Raises:
            FencedError: This attempt was left behind: the session was opened again.
        """
        self._record_first_chunk()
        if isinstance(event, ModelResponse):
            return  # it is paid for: `tell_answer` is told of it, where that is recorded
        if self._writer.fenced is not None:
            raise self._writer.fenced
        if isinstance(event, ReasoningDelta):
            self._write_thinking(event.text)
            return
        self._end_thinking()
        if isinstance(event, TextDelta):
            self._write_text(event.text)
        elif isinstance(event, ToolCallStarted):
            start = streams.ToolArgStreamStart(
                tool_call_id=event.call_id, tool_name=event.name, **self._about
            )
            self._writer.put(Keyed(start))
        elif isinstance(event, ToolArgumentsDelta):
            self._writer.put_piece(
                streams.ToolArgStreamDelta, "delta", event.text, tool_call_id=event.call_id, **self._about
            )

    def _record_first_chunk(self) -> None:
        """Record how long a turn was silent; an answer that comes whole is a piece, too."""
        if self._has_begun:
            return
        self._has_begun = True
        if self.number == 1 and metrics.find_meter() is not None:
            silent = time.time() - scheduled_ms() / 1000
            metrics.FIRST_CHUNK.record(silent, agent=self._request.agent)

    def tell_answer(self, answer: Message) -> None:
        """Tell the complete answer: what no piece of a stream has shown.

        Raises:
            FencedError: As `on_event`.
        """
        self._record_first_chunk()
        if self._writer.fenced is not None:
            raise self._writer.fenced
        if not self._thought and isinstance(answer.content, list):
            for part in answer.content:
                if part.get("type") == "thinking":
                    self._write_thinking(str(part.get("text", "")))
        self._end_thinking()
        if not self._spoke:
            self._write_text(answer.text)

    def tell_committed(self, stored: Message, head: Head) -> None:
        """Tell that the step is in the thread, with this attempt's answer or another's."""
        position = head.position - 1
        self._stands = step_stands(self._request, self._agent, stored, position, self.number)
        self._writer.put(*self._stands)

    async def tell_end(self, result: RunStepResult) -> None:
        """Tell what comes after the step, and wait a moment until all is written."""
        last = step_ends(self._request, result)
        with contextlib.suppress(FencedError):  # the step counts all the same
            await self._writer.write_last(*last, again=[*self._before, *self._stands])

    def _write_text(self, text: str) -> None:
        self._writer.put_piece(streams.TextChunk, "delta", text, at_once=not self._spoke, **self._about)
        self._spoke = self._spoke or bool(text)

    def _write_thinking(self, text: str) -> None:
        self._writer.put_piece(streams.Thinking, "content", text, at_once=not self._thought, **self._about)
        self._thought = self._thinks = True

    def _end_thinking(self) -> None:
        if self._thinks:
            self._writer.put(Keyed(streams.Thinking(content="", is_complete=True, **self._about)))
            self._thinks = False


class ToolStream:
    """Tells of one attempt of a tool."""

    def __init__(self, writer: BufferedStreamWriter, request: ToolInput) -> None:
        self._writer, self._request = writer, request
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    async def __aenter__(self) -> Self:
        await self._writer.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._writer.__aexit__(*error)

    def emit(self, event_name: str, data: Any = None, key: str | None = None) -> None:
        """Tell those who watch; from the tool's thread as well.  See `ToolContext.emit`."""
        call = CallKey.parse(self._request.key)
        chunk = streams.Custom(
            event_name=event_name, data=data, message_id=call.answer_id, tool_call_id=self._request.call.id
        )
        item = Keyed(chunk, None if key is None else f"call/{call.result_id}/event/{key}")
        if threading.get_ident() == self._thread:
            self._writer.put(item)
        else:
            self._loop.call_soon_threadsafe(self._writer.put, item)

    async def tell_end(self, outcome: ToolOutcome) -> None:
        """Tell the result; waits a moment until all is written."""
        with contextlib.suppress(FencedError):  # its caller takes no notice of a late attempt
            await self._writer.write_last(*tool_ends(self._request, outcome))
