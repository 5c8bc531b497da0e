"""A session's stream as text, while it comes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from helix_temporal.cli._output import count_of, fold_text, format_json
from helix_temporal.models.streams import (
    ChunkBase,
    Custom,
    Error,
    RunEnded,
    RunPaused,
    RunStarted,
    StepDiscarded,
    StreamResync,
    SubAgentStart,
    Suspended,
    TextChunk,
    Thinking,
    ToolApprovalRequest,
    ToolEnd,
    ToolStart,
)
from helix_temporal.models.visible import make_visible
from helix_temporal.models.waiting import name_failure

_INDENT: Final = "    "


class LiveText:
    """Turns chunks into text that is printed as it is.

    Text of an answer is written piece by piece; everything else has a line of its own.
    """

    def __init__(self) -> None:
        self._answer: str | None = None
        self._at_line_start = True
        self._thinks = False

    def write_chunk(self, chunk: ChunkBase) -> str:
        """The text to print for a chunk; empty where people need not see it."""
        if isinstance(chunk, TextChunk):
            return self._write_piece(chunk, chunk.delta, thinks=False)
        if isinstance(chunk, Thinking):
            return self._write_piece(chunk, chunk.content, thinks=True)
        describe = _LINES.get(type(chunk))
        return "" if describe is None else self.end_line() + describe(chunk)

    def _write_piece(self, chunk: ChunkBase, text: str, *, thinks: bool) -> str:
        if not text:
            return ""
        begin = ""
        if chunk.message_id != self._answer or thinks != self._thinks or self._at_line_start:
            begin = self.end_line()
            if chunk.message_id != self._answer:
                step = f" · step {chunk.step}" if chunk.step is not None else ""
                begin += f"  assistant{step}\n"
            begin += f"{_INDENT}{'(thinking) ' if thinks else ''}"
        self._answer, self._thinks, self._at_line_start = chunk.message_id, thinks, False
        return begin + make_visible(text, lines=True).replace("\n", f"\n{_INDENT}")

    def end_line(self) -> str:
        """What ends the line that is being written, so that something else can be told; it goes on anew."""
        ended, self._at_line_start = self._at_line_start, True
        return "" if ended else "\n"


def _line(text: str, indent: str = _INDENT) -> str:
    lines = make_visible(text, lines=True).split("\n")
    return indent + f"\n{indent}".join(lines) + "\n"


def _fold(value: object) -> str:
    return fold_text(value if isinstance(value, str) else format_json(value))


def _describe_start(chunk: RunStarted) -> str:
    questions = "".join(_line("user", "  ") + _line(text) for text in chunk.texts)
    return _line(f"turn {chunk.turn}", "") + questions


def _describe_end(chunk: RunEnded) -> str:
    why = f" ({chunk.exit_reason})" if chunk.exit_reason not in {None, "", chunk.status} else ""
    lost = "" if chunk.in_thread else "; nothing of it stays in the thread"
    return _line(f"turn ended: {chunk.status}{why}{lost}", "  ") + "\n"


def _describe_result(chunk: ToolEnd) -> str:
    if not chunk.success:
        said = chunk.error or ""
        return _line(f"← {name_failure(said)}: {_fold(said)}")
    return _line("← done" if chunk.result is None else f"← {_fold(chunk.result)}")


def _describe_event(chunk: Custom) -> str:
    """What a tool tells of itself; events of the application without a call are for its own consumers."""
    if chunk.tool_call_id is None:
        return ""
    value = "" if chunk.data is None else f" {_fold(chunk.data)}"
    return _line(f"· {_fold(chunk.event_name)}{value}")


def _describe_call(chunk: ToolStart) -> str:
    large = chunk.arguments_bytes
    return _line(f"→ {chunk.tool_name} {_fold(chunk.arguments) if large is None else f'({large:,} bytes)'}")


_LINES: Final[Mapping[type[ChunkBase], Callable[[Any], str]]] = {
    RunStarted: _describe_start,
    RunEnded: _describe_end,
    RunPaused: lambda chunk: _line(f"waits{f': {chunk.reason}' if chunk.reason else ''}", "  "),
    Suspended: lambda chunk: _line(f"waits for {count_of(len(chunk.calls), 'call')}", "  "),
    StepDiscarded: lambda _: _line("(the attempt above was discarded)"),
    ToolStart: _describe_call,
    ToolEnd: _describe_result,
    Custom: _describe_event,
    ToolApprovalRequest: lambda chunk: _line(f"? {chunk.tool_name} waits for an approval"),
    SubAgentStart: lambda chunk: _line(f"→ agent {chunk.sub_agent_type}, session {chunk.sub_session_id}"),
    Error: lambda chunk: _line(f"error: {chunk.message}"),
    StreamResync: lambda chunk: _line(f"(what is above is void: {chunk.reason}; read it anew)", ""),
}
