"""What is live of a turn, from its chunks: the step that is not in the thread yet, and calls under way.

What is in the thread already is read from there: a chunk that tells of it only says that it is time to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from pydantic import JsonValue

from helix_temporal.models import streams
from helix_temporal.models.streams import ChunkBase
from helix_temporal.models.waiting import name_failure
from helix_temporal.views.models import ConversationTurn
from helix_temporal.views.shortening import shorten_value
from helix_temporal.views.words import Progress

MAX_TEXT: Final = 32_000
"""Characters of a step's text that are sent again to whoever connects in its middle."""
MAX_CALLS: Final = 30
_EVENT_VALUE: Final = 200
"""Characters of what a tool tells of itself that are kept."""

CallProgress = Literal["asked", "running", "done", "failed", "denied", "expired"]


@dataclass(slots=True)
class LiveStep:
    """An answer that is being written; ``cut`` characters at its begin are left out."""

    message_id: str | None = None
    number: int | None = None
    text: str = ""
    thinking: str = ""
    cut: int = 0


@dataclass(slots=True)
class LiveCall:
    """A tool call since its step; ``event``, with its value, is the last that its tool told while it ran."""

    call_id: str
    name: str
    progress: CallProgress = "asked"
    error: str | None = None
    event: str = ""
    event_value: JsonValue = None
    sub_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run by its id, or none (empty)."""

    run_id: str = ""


@dataclass(frozen=True, slots=True)
class LiveQuestion:
    """What a turn was begun with; it stands in the thread as soon as the turn's first step does."""

    turn: int
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveChanges:
    """What has changed since the changes before.

    Attributes:
        step: The step as it is, where another one is shown now; else None.
        cleared: No step is shown any more.
        text, thinking: What has come to the step that is shown.
        calls: All calls under way, where one of them has changed.
        stored: The thread has more, or what it has stands otherwise.
        run: The run under way, or none, where it is another one than before; else None.
        resync: Why all that is shown is void.
    """

    step: LiveStep | None = None
    cleared: bool = False
    text: str = ""
    thinking: str = ""
    calls: tuple[LiveCall, ...] | None = None
    status: Progress | None = None
    run: LiveRun | None = None
    stored: bool = False
    resync: str | None = None


@dataclass(slots=True)
class LiveTurn:
    """Takes chunks in, and gives out what has changed.

    Attributes:
        question: Of the turn under way, while no step of it is known to be stored.
    """

    status: Progress = "idle"
    step: LiveStep | None = None
    calls: dict[str, LiveCall] = field(default_factory=dict)
    run: LiveRun = LiveRun()
    question: LiveQuestion | None = None
    _void: set[str] = field(default_factory=set)
    _new_step: bool = False
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _calls_changed: bool = False
    _shown_status: Progress | None = None
    _shown_run: LiveRun | None = None
    _stored: bool = False
    _resync: str | None = None

    def take_chunk(self, chunk: ChunkBase) -> None:
        """Take the next chunk in."""
        match chunk:
            case streams.TextChunk() | streams.Thinking():
                self._take_piece(chunk)
            case streams.StepStarted():
                self._begin_step(chunk)
            case streams.StepDiscarded():
                self._discard_step()
            case streams.StepCommitted():
                self._end_step()
            case streams.StreamResync():
                self._resync = chunk.reason
            case _:
                if not self._take_call(chunk):
                    self._take_run(chunk)

    def pop_changes(self) -> LiveChanges:
        """What has changed since this was called before."""
        step = self.step if self._new_step else None
        status = self.status if self.status != self._shown_status else None
        changes = LiveChanges(
            step=step,
            cleared=self._new_step and self.step is None,
            text="" if self._new_step else "".join(self._text),
            thinking="" if self._new_step else "".join(self._thinking),
            calls=tuple(self.calls.values()) if self._calls_changed else None,
            status=status,
            run=self.run if self.run != self._shown_run else None,
            stored=self._stored,
            resync=self._resync,
        )
        self._new_step = self._calls_changed = self._stored = False
        self._shown_status, self._shown_run = self.status, self.run
        self._text.clear()
        self._thinking.clear()
        return changes

    def correct_status(self, status: Progress) -> None:
        """Take the status from the stores: chunks that would have told it have not come."""
        if status == "idle" and self.status != "idle":
            self._leave_turn("idle", LiveRun())
        self._set_status(status)

    def follow_thread(self, turns: Iterable[ConversationTurn]) -> None:
        """Take from the turns under way how their calls stand: the chunk of an end may come later.

        One that waits stands there with what is wanted: here it would stand twice.
        """
        for call in (call for turn in turns for message in turn.messages for call in message.calls):
            shown = self.calls.get(call.call_id)
            if shown is None:
                continue
            if call.waiting is not None:
                del self.calls[call.call_id]
                self._calls_changed = True
            elif call.result_due and shown.progress in {"asked", "running"}:
                self._change_call(call.call_id, "", cast("CallProgress", call.status))

    def show_status_again(self) -> None:
        """Tell the status with the next changes, though it is the same."""
        self._shown_status = None

    def _take_piece(self, chunk: streams.TextChunk | streams.Thinking) -> None:
        if chunk.message_id is not None and chunk.message_id in self._void:
            return
        if self.step is None:
            self._show_step(LiveStep(chunk.message_id, chunk.step))
        step = self.step
        assert step is not None
        if None not in {chunk.message_id, step.message_id} and chunk.message_id != step.message_id:
            return  # a late piece of an attempt before
        self._set_status("running")
        if isinstance(chunk, streams.TextChunk):
            kept = step.text + chunk.delta
            step.cut += max(0, len(kept) - MAX_TEXT)
            step.text = kept[-MAX_TEXT:]
            self._text.append(chunk.delta)
        else:
            step.thinking = (step.thinking + chunk.content)[-MAX_TEXT:]
            self._thinking.append(chunk.content)

    def _begin_step(self, chunk: streams.StepStarted) -> None:
        self._discard_step()
        if self.calls:
            self.calls.clear()
            self._calls_changed = True
            self._stored = True
        self._set_status("running")
        self._show_step(LiveStep(chunk.message_id, chunk.step))

    def _discard_step(self) -> None:
        if self.step is not None:
            if self.step.message_id is not None:
                self._void.add(self.step.message_id)
            self._show_step(None)

    def _end_step(self) -> None:
        self._stored, self.question = True, None
        if self.step is not None:
            self._show_step(None)

    def _show_step(self, step: LiveStep | None) -> None:
        self.step, self._new_step = step, True
        self._text.clear()
        self._thinking.clear()

    def _take_call(self, chunk: ChunkBase) -> bool:
        """Whether it tells of a tool call."""
        match chunk:
            case streams.ToolArgStreamStart():
                self._change_call(chunk.tool_call_id, chunk.tool_name, "asked")
            case streams.ToolStart():
                self._change_call(chunk.tool_call_id, chunk.tool_name, "running")
            case streams.ToolApprovalRequest():
                # It waits in the thread, with what is to be approved: here it would stand twice.
                self._calls_changed |= self.calls.pop(chunk.tool_call_id, None) is not None
                self._stored = True
            case streams.ToolEnd():
                ended = "done" if chunk.success else name_failure(chunk.error or "")
                if chunk.tool_call_id in self.calls:
                    self._change_call(chunk.tool_call_id, "", ended, chunk.error)
                # What is recorded of it says how it ended, before its result is in the thread.
                self._stored = True
            case streams.SubAgentStart() if chunk.tool_call_id is not None:
                self._change_call(chunk.tool_call_id, chunk.sub_agent_type, "running")
                self.calls[chunk.tool_call_id].sub_session_id = chunk.sub_session_id or None
            case streams.Custom() if chunk.tool_call_id in self.calls:
                call = self.calls[chunk.tool_call_id]
                call.event, call.event_value = chunk.event_name, shorten_value(chunk.data, _EVENT_VALUE)[0]
                self._calls_changed = True
            case _:
                return False
        return True

    def _change_call(self, call_id: str, name: str, progress: CallProgress, error: str | None = None) -> None:
        call = self.calls.setdefault(call_id, LiveCall(call_id, name))
        call.name, call.progress, call.error = call.name or name, progress, error
        call.event, call.event_value = "", None  # told of what it was at before
        while len(self.calls) > MAX_CALLS:
            del self.calls[next(iter(self.calls))]
        self._calls_changed = True

    def _take_run(self, chunk: ChunkBase) -> None:
        match chunk:
            case streams.RunStarted():
                self._leave_turn("running", LiveRun(chunk.agent_id))
                self.question = LiveQuestion(chunk.turn, chunk.texts)
            case streams.RunEnded():
                self._leave_turn("idle", LiveRun())
            case streams.RunPaused() | streams.Suspended():
                self._set_status("waiting")
                self._stored = True
            case streams.RunResumed():
                self._set_status("running")
                self._stored = True

    def _leave_turn(self, status: Progress, run: LiveRun) -> None:
        """Between turns: all that was under way is in the thread, or void."""
        self.run, self.question = run, None
        self._discard_step()
        self._void.clear()
        if self.calls:
            self.calls.clear()
            self._calls_changed = True
        self._set_status(status)
        self._stored = True

    def _set_status(self, status: Progress) -> None:
        self.status = status
