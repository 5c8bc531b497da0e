"""What a consumer shows of a stream: a pure fold over its chunks.

Text of a discarded attempt disappears, as it does when another attempt of its step begins, and comes back if
that attempt's answer was committed after all (its worker only could not say so).  Of a turn that does not
stay in the thread nothing is shown.  Feeding a chunk that was fed before changes nothing as long as
sequences are given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import JsonValue

from helix_temporal.models.streams import (
    ChunkBase,
    Output,
    RunEnded,
    RunResumed,
    RunStarted,
    StepCommitted,
    StepDiscarded,
    StepStarted,
    StoredChunk,
    StreamResync,
    Suspended,
    TextChunk,
    Thinking,
    ToolArgStreamDelta,
    ToolArgStreamStart,
    ToolEnd,
    ToolStart,
)


@dataclass(slots=True)
class ToolView:
    """One tool call; ``success`` is None while it runs."""

    name: str
    arguments: str = ""
    started: bool = False
    result: JsonValue = None
    success: bool | None = None


@dataclass(slots=True)
class MessageView:
    """One answer, as far as it has come.

    Attributes:
        step_id, attempt: Where it comes from, if that was told.
        committed: It stands in the thread.
    """

    message_id: str
    step_id: str | None = None
    attempt: int = 0
    text: str = ""
    thinking: str = ""
    tools: dict[str, ToolView] = field(default_factory=dict)
    committed: bool = False


class StreamView:
    """See the module.

    Attributes:
        run_id, turn: Of the run that was told of last.
        status: ``running``, then what ``run_ended`` says; ``suspended`` while it waits for answers.
        resyncs: How often all that was shown became void: the consumer loads the session anew.
        last_sequence: Of the last chunk that counted; read on after it.
    """

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.turn: int | None = None
        self.status: str | None = None
        self.output: JsonValue = None
        self.resyncs = 0
        self.last_sequence = 0
        self._messages: dict[str, MessageView] = {}
        self._void: dict[str, int] = {}
        self._committed: dict[str, str] = {}
        self._newest: dict[str, str] = {}
        self._before: frozenset[str] = frozenset()
        self._tools: dict[str, ToolView] = {}

    @property
    def messages(self) -> list[MessageView]:
        """Those to be shown, in the order in which they began."""
        return [each for each in self._messages.values() if self._is_shown(each)]

    @property
    def text(self) -> str:
        """Of all messages that are shown."""
        return "".join(each.text for each in self.messages)

    def feed(self, stored: StoredChunk) -> None:
        """Take a chunk in; nothing if it or a later one was taken in before."""
        if stored.sequence > self.last_sequence:
            self.last_sequence = stored.sequence
            self.take(stored.chunk)

    def take(self, chunk: ChunkBase) -> None:
        """Take a chunk in, whatever its place."""
        match chunk:
            case TextChunk():
                self._message_of(chunk).text += chunk.delta
            case Thinking():
                self._message_of(chunk).thinking += chunk.content
            case ToolArgStreamStart() | ToolArgStreamDelta() | ToolStart() | ToolEnd():
                self._apply_tool_chunk(chunk)
            case StepStarted() | StepCommitted() | StepDiscarded():
                self._apply_step_chunk(chunk)
            case RunStarted() | RunEnded() | RunResumed() | Suspended() | Output() | StreamResync():
                self._apply_run_chunk(chunk)

    def _is_shown(self, message: MessageView) -> bool:
        if message.step_id is None:
            return True
        committed = self._committed.get(message.step_id)
        if committed is not None:
            return committed == message.message_id
        newest = self._newest.get(message.step_id, message.message_id) == message.message_id
        return newest and message.attempt > self._void.get(message.step_id, 0)

    def _message_of(self, chunk: ChunkBase) -> MessageView:
        key = chunk.message_id or ""
        return self._messages.setdefault(key, MessageView(key))

    def _apply_tool_chunk(self, chunk: ToolArgStreamStart | ToolArgStreamDelta | ToolStart | ToolEnd) -> None:
        if isinstance(chunk, ToolArgStreamStart | ToolStart):
            # Ids of calls are the provider's: another attempt or turn may use them again.
            beside = self._tools if chunk.message_id is None else self._message_of(chunk).tools
            self._tools[chunk.tool_call_id] = beside.setdefault(chunk.tool_call_id, ToolView(chunk.tool_name))
        shown = self._tools.get(chunk.tool_call_id)
        if shown is None:
            return
        if isinstance(chunk, ToolArgStreamDelta):
            shown.arguments += chunk.delta
        elif isinstance(chunk, ToolStart):
            shown.started = True
        elif isinstance(chunk, ToolEnd):
            shown.result, shown.success = chunk.result, chunk.success

    def _apply_step_chunk(self, chunk: StepStarted | StepCommitted | StepDiscarded) -> None:
        if isinstance(chunk, StepDiscarded):
            self._void[chunk.step_id] = max(chunk.attempt, self._void.get(chunk.step_id, 0))
            return
        message = self._message_of(chunk)
        message.step_id = chunk.step_id
        if isinstance(chunk, StepStarted):
            message.attempt = chunk.attempt
            # Whatever the earlier ones were called: one that was opened anew counts its attempts anew.
            self._newest[chunk.step_id] = message.message_id
            self._void.pop(chunk.step_id, None)
            self._committed.pop(chunk.step_id, None)
        else:
            message.committed = True
            self._committed[chunk.step_id] = message.message_id

    def _apply_run_chunk(
        self, chunk: RunStarted | RunEnded | RunResumed | Suspended | Output | StreamResync
    ) -> None:
        match chunk:
            case RunStarted():
                self.run_id, self.turn, self.status = chunk.agent_id, chunk.turn, "running"
                self._tools, self._before = {}, frozenset(self._messages)
            case RunEnded():
                self.status = chunk.status
                if not chunk.in_thread:
                    kept = self._before
                    self._messages = {key: each for key, each in self._messages.items() if key in kept}
            case RunResumed():
                self.status = "running"
            case Suspended():
                self.status = "suspended"
            case Output():
                self.output = chunk.output
            case StreamResync():
                self.resyncs += 1
                self._messages, self._tools, self._void, self._committed = {}, {}, {}, {}

    def __iter__(self) -> Iterator[MessageView]:
        """The messages to be shown."""
        return iter(self.messages)


__all__ = ["MessageView", "StreamView", "ToolView"]
