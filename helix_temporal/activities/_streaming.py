"""Showing a session live: what its steps and tools tell, on its stream.

A stream shows what happens and decides nothing: a step whose stream fails goes on without one.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from helix_temporal.activities import _chunks as made
from helix_temporal.activities._context import attempt
from helix_temporal.activities._outlet import Grace, Keyed, Outlet, said_of
from helix_temporal.agents import Agent, ToolOutcome
from helix_temporal.errors import FencedError, StreamNotFoundError
from helix_temporal.models import chunks
from helix_temporal.models.agents import (
    ModelEvent,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.runs import RunStatus
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    ToolInput,
)
from helix_temporal.stores._stream_runs import BegunRun, run_at_work
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.streams import StreamStore, StreamWriter

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

    def step(
        self, request: RunStepInput, agent: Agent, message_id: str, number: int, reached: int = 0
    ) -> "StepStream":
        """For one attempt of a step, whose answer will have this id."""
        run = made.run_of(request)
        outlet = self._outlet(request.session_id, run, request.epoch, request.agent, reached)
        return StepStream(outlet, request, agent, message_id, number)

    def tool(self, request: ToolInput) -> "ToolStream":
        """For one attempt of a tool."""
        outlet = self._outlet(request.session_id, made.run_of(request), request.epoch, request.agent)
        return ToolStream(outlet, request)

    async def stood(
        self,
        request: RunStepInput,
        agent: Agent,
        inputs: Sequence[Message],
        answer: Message,
        result: RunStepResult,
        reached: int,
    ) -> None:
        """A step was found in the thread: the attempt that put it there may not have come to tell."""
        items = [
            *made.turn_begins(request, inputs),
            *made.tools_end(request, agent, inputs),
            *made.step_stands(request, agent, answer, result.head.position - 1, None),
            *made.step_ends(request, result),
        ]
        run = made.run_of(request)
        await self._tell(request.session_id, run, request.epoch, items, request.agent, reached)

    async def turn_ended(
        self, request: EndTurnInput, inputs: Sequence[Message], head: Head, reached: int
    ) -> None:
        """A turn ended with the results of its tools."""
        items = made.turn_ends(request, inputs, head)
        await self._tell(request.session_id, made.run_of(request), request.epoch, items, reached=reached)

    async def opened(
        self, request: OpenSessionInput, header: HotHeader, state: SliceState, left: str | None = None
    ) -> None:
        """A session was opened: its turn was aborted, it was taken back, or its thread was set back.

        ``left`` is the run of a turn that an earlier execution left behind.  A re-open whose thread has lost
        what its workflow knows of resyncs the stream, whose store may be the one that lost it.  Any other
        open is of a thread that is whole, hydrated or not: there the stream itself shows whether it was set
        back, to the first who writes (see the class).
        """
        epoch, reached = header.epoch, state.stream_reached
        if request.rewind_to is None and _has_lost(request, header.head):
            await self._resync(request.session_id, epoch, "restored")
        if left is not None:
            await self.left_behind(request.session_id, left, epoch, reached)
        if request.abandoned is not None:
            cut = made.turn_is_cut(request.abandoned, RunStatus.ABORTED, "aborted")
            await self._tell(request.session_id, request.abandoned, epoch, [cut], reached=reached)
        if request.rewind_to is not None:
            await self._resync(request.session_id, epoch, "rewind")

    async def left_behind(self, session_id: str, run_id: str, epoch: int, reached: int = 0) -> None:
        """An earlier execution was terminated within this run."""
        cut = made.turn_is_cut(run_id, RunStatus.SUPERSEDED, "superseded")
        # Above every earlier epoch and below this one: an open that dies before the end is written is done
        # again, and looks for it where nobody has written under this epoch.
        await self._tell(session_id, run_id, epoch - 1, [cut], reached=reached)

    async def at_work(self, session_id: str, epoch: int, state: SliceState) -> str | None:
        """The run that the stream shows at work, which no execution before ``epoch`` can end any more.

        None if its turn stands in the thread, whose ``state`` this is: only the word of its end was lost.
        """
        found: BegunRun | None = None
        async with self._briefly(session_id):
            if self._store is not None:
                found = await run_at_work(self._store, session_id, below=epoch)
        return None if found is None or made.stands(found, state) else found.run_id

    async def closes(self, request: SaveValuesInput, run_id: str | None) -> None:
        """A session ends, and with it this run that was under way."""
        if run_id is None or request.session_id is None:
            return
        if request.status == SessionStatus.FAILED.value:
            cut = made.turn_is_cut(run_id, RunStatus.FAILED, "failed")
        else:
            cut = made.turn_is_cut(run_id, RunStatus.INTERRUPTED, "cancelled")
        # As in the thread, a step that may still be running is shut out.
        await self._tell(request.session_id, run_id, request.epoch + 1, [cut])

    async def _resync(self, session_id: str, epoch: int, reason: str) -> None:
        """What was shown counts no longer: turns of it were cut, or lost."""
        async with self._briefly(session_id):
            if self._store is not None:
                await self._store.reset_stream(
                    session_id, reason=reason, fence=epoch, operation_id=f"{reason}/{epoch}"
                )

    @contextlib.asynccontextmanager
    async def _briefly(self, session_id: str) -> AsyncIterator[None]:
        """What takes too long or fails is left out, and logged."""
        seconds = self._grace.seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except StreamNotFoundError:
            return
        except TimeoutError:
            self._grace.in_vain(seconds)
        except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
            log.warning("stream of session %r: %s", session_id, said_of(error))

    async def _tell(
        self,
        session_id: str,
        run_id: str,
        epoch: int,
        items: Sequence[Keyed],
        agent: str | None = None,
        reached: int = 0,
    ) -> None:
        async with self._outlet(session_id, run_id, epoch, agent, reached) as outlet:
            with contextlib.suppress(FencedError):
                await outlet.settle(*items)

    def _outlet(
        self, session_id: str, run: str, fence: int | None, agent: str | None, reached: int = 0
    ) -> Outlet:
        store, what = self._store, f"session {session_id!r}"
        if store is None:
            return Outlet(None, what)

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

        return Outlet(opens, what, self._grace)


def _has_lost(request: OpenSessionInput, head: Head) -> bool:
    """Whether the thread ends before what the workflow that opens it again knows of it."""
    known = None if request.reopen is None else request.reopen.known
    return known is not None and known.position > head.position


class StepStream:
    """Tells of one attempt of a step; as a context manager, of its failure, too."""

    def __init__(
        self, outlet: Outlet, request: RunStepInput, agent: Agent, message_id: str, number: int
    ) -> None:
        self._outlet, self._request, self._agent = outlet, request, agent
        self.message_id, self.number = message_id, number
        self._attempt = attempt()
        self._about: dict[str, Any] = {"message_id": message_id, "step": number}
        self._spoke = self._thought = self._thinks = False
        self._before: list[Keyed] = []
        self._stands: list[Keyed] = []
        self._begun: asyncio.Future[int | None] | None = None

    async def __aenter__(self) -> Self:
        await self._outlet.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # One that is cancelled must not be held up.
            if isinstance(error, Exception) and not self._stands:
                void = made.step_fails(self._request, self.message_id, self.number, self._attempt)
                with contextlib.suppress(FencedError):
                    await self._outlet.settle(void)
        finally:
            await self._outlet.__aexit__(kind, error, trace)

    @property
    def reached(self) -> int:
        """The highest sequence that was written; 0 if none was yet."""
        return self._outlet.reached

    def begins(self, inputs: Sequence[Message]) -> None:
        """The model is about to be called with these inputs."""
        begins = made.turn_begins(self._request, inputs)
        if begins and begins[0].key is not None:
            self._begun = self._outlet.watch(begins[0].key)
        self._before = [*begins, *made.tools_end(self._request, self._agent, inputs)]
        self._outlet.put(
            *self._before,
            *made.step_begins(self._request, self.message_id, self.number, self._attempt),
        )

    async def place(self) -> int:
        """After which sequence the turn's chunks come, the same for every attempt; 0 where nobody knows."""
        found = None if self._begun is None else await self._outlet.soon(self._begun)
        return 0 if found is None else found - 1

    async def on_event(self, event: ModelEvent) -> None:
        """Show a piece of the model's answer.

        Raises:
            FencedError: This attempt was left behind: the session was opened again.
        """
        if isinstance(event, ModelResponse):
            return  # it is paid for: `answered` is told of it, where that is recorded
        if self._outlet.fenced is not None:
            raise self._outlet.fenced
        if isinstance(event, ReasoningDelta):
            self._think(event.text)
            return
        self._thought_out()
        if isinstance(event, TextDelta):
            self._say(event.text)
        elif isinstance(event, ToolCallStarted):
            start = chunks.ToolArgStreamStart(tool_call_id=event.call_id, tool_name=event.name, **self._about)
            self._outlet.put(Keyed(start))
        elif isinstance(event, ToolArgumentsDelta):
            self._outlet.piece(
                chunks.ToolArgStreamDelta, "delta", event.text, tool_call_id=event.call_id, **self._about
            )

    def answered(self, answer: Message) -> None:
        """The answer is complete: show what no piece of a stream has shown.

        Raises:
            FencedError: As `on_event`.
        """
        if self._outlet.fenced is not None:
            raise self._outlet.fenced
        if not self._thought and isinstance(answer.content, list):
            for part in answer.content:
                if part.get("type") == "thinking":
                    self._think(str(part.get("text", "")))
        self._thought_out()
        if not self._spoke:
            self._say(answer.text)

    def committed(self, stored: Message, head: Head) -> None:
        """The step stands in the thread, with this attempt's answer or another's."""
        position = head.position - 1
        self._stands = made.step_stands(self._request, self._agent, stored, position, self.number)
        self._outlet.put(*self._stands)

    async def ends(self, result: RunStepResult) -> None:
        """Tell what comes after the step, and wait a moment until all is written."""
        last = made.step_ends(self._request, result)
        with contextlib.suppress(FencedError):  # the step counts all the same
            await self._outlet.settle(*last, again=[*self._before, *self._stands])

    def _say(self, text: str) -> None:
        self._outlet.piece(chunks.TextDelta, "delta", text, at_once=not self._spoke, **self._about)
        self._spoke = self._spoke or bool(text)

    def _think(self, text: str) -> None:
        self._outlet.piece(chunks.Thinking, "content", text, at_once=not self._thought, **self._about)
        self._thought = self._thinks = True

    def _thought_out(self) -> None:
        if self._thinks:
            self._outlet.put(Keyed(chunks.Thinking(content="", is_complete=True, **self._about)))
            self._thinks = False


class ToolStream:
    """Tells of one attempt of a tool."""

    def __init__(self, outlet: Outlet, request: ToolInput) -> None:
        self._outlet, self._request = outlet, request
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    async def __aenter__(self) -> Self:
        await self._outlet.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._outlet.__aexit__(*error)

    def emit(self, event_name: str, data: Any = None, key: str | None = None) -> None:
        """Tell those who watch; from the tool's thread as well.  See `ToolContext.emit`."""
        answer_id, ordinal = made.call_of(self._request)
        chunk = chunks.Custom(
            event_name=event_name, data=data, message_id=answer_id, tool_call_id=self._request.call.id
        )
        item = Keyed(chunk, None if key is None else f"call/{answer_id}.{ordinal}/event/{key}")
        if threading.get_ident() == self._thread:
            self._outlet.put(item)
        else:
            self._loop.call_soon_threadsafe(self._outlet.put, item)

    async def ends(self, outcome: ToolOutcome) -> None:
        """Tell the result; waits a moment until all is written."""
        with contextlib.suppress(FencedError):  # its caller takes no notice of a late attempt
            await self._outlet.settle(*made.tool_ends(self._request, outcome))
