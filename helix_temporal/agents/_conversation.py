"""Recorded conversations in OpenAI's chat format: JSON or JSON lines, read and split into turns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from helix_temporal.agents._openai_chat import (
    SYSTEM_ROLES,
    Content,
    calls_of,
    content_of,
    plain_text,
    refuse,
    rows_of,
    text_of,
)
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import JsonObject, canonical
from helix_temporal.models.messages import ToolCall


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One recorded answer, and what its tools gave: one result a call, in call order."""

    content: Content
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The answer's text."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What the user said, and the steps up to the answer that asks for no tool."""

    inputs: tuple[str, ...]
    steps: tuple[RecordedStep, ...]

    @property
    def text(self) -> str:
        """What the user said, rows in succession as one message."""
        return "\n\n".join(self.inputs)

    @property
    def answer(self) -> str:
        """The final answer's text."""
        return self.steps[-1].text


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """A message that a thread must hold once the conversation has been played with one ask a turn."""

    role: str
    text: str
    tool_call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A recorded conversation.

    Attributes:
        instructions: All system rows, joined.
        left_out: Rows at the end that belong to no finished turn.
    """

    instructions: str
    turns: tuple[RecordedTurn, ...]
    left_out: int = 0

    def expected(self) -> tuple[ExpectedMessage, ...]:
        """All messages of the thread, in order."""
        return tuple(message for turn in self.turns for message in _expected(turn))


def _expected(turn: RecordedTurn) -> Iterator[ExpectedMessage]:
    yield ExpectedMessage("user", turn.text)
    for step in turn.steps:
        yield ExpectedMessage("assistant", step.text, tuple(call.id for call in step.calls))
        for call, result in zip(step.calls, step.results, strict=True):
            yield ExpectedMessage("tool", result, (call.id,))


def read_conversation(path: str | Path) -> RecordedConversation:
    """Read a conversation from a file; see `parse_conversation`.

    Raises:
        InvalidRequestError: The file can't be read.
        InvalidMessageError: It is no conversation that can be played.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"conversation {str(path)!r} can't be read: {error.strerror}") from error
    return parse_conversation(data)


def parse_conversation(data: bytes | str) -> RecordedConversation:
    """Read a conversation and split it into turns.

    It may be a JSON array of messages, an object with ``messages``, or JSON lines of messages.  Rows of
    one role in succession belong together; unfinished turns are accepted only at the end.  Calls that
    equal each other (id, name and arguments) yet got different results get distinct ids, so that a
    call tells its result.

    Raises:
        InvalidMessageError: It is none of that; the message names the row or line, counted from 1.
    """
    builder = _Builder()
    for where, row in rows_of(data):
        try:
            builder.add(where, row)
        except ValidationError as error:
            reason = error.errors(include_url=False, include_context=False, include_input=False)[0]
            refuse(where, f"{'.'.join(map(str, reason['loc']))}: {reason['msg']}")
    return builder.conversation()


def result_key(call_id: str, name: str, arguments: Mapping[str, Any]) -> tuple[str, str, bytes]:
    """What tells a recorded result."""
    return call_id, name, canonical(dict(arguments))


# --- rows to turns ---------------------------------------------------------------------------------


@dataclass
class _OpenStep:
    where: str
    content: Content
    calls: list[ToolCall] = field(default_factory=list)
    results: list[str | None] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return None in self.results


class _Builder:
    """Takes row after row and keeps the turn under way."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._turns: list[RecordedTurn] = []
        self._inputs: list[str] = []
        self._steps: list[_OpenStep] = []
        self._rows_open = 0

    def add(self, where: str, row: JsonObject) -> None:
        role = row.get("role")
        if role in SYSTEM_ROLES:
            self._system.append(plain_text(where, row))
            return
        if role == "user":
            self._user(where, row)
        elif role == "assistant":
            self._assistant(where, row)
        elif role == "tool":
            self._tool(where, row)
        else:
            refuse(where, f"role {str(role)[:40]!r}; system, developer, user, assistant or tool expected")
        self._rows_open += 1

    def conversation(self) -> RecordedConversation:
        self._close_turn()
        if not self._turns:
            refuse("end", "no finished turn: a user's message and an answer to it expected")
        turns = _with_distinct_calls(self._turns)
        return RecordedConversation("\n\n".join(self._system), turns, left_out=self._rows_open)

    def _close_turn(self) -> bool:
        """Keep the turn under way if its last answer asks for nothing."""
        if not self._steps or self._steps[-1].calls:
            return False
        steps = tuple(
            RecordedStep(step.content, tuple(step.calls), tuple(str(result) for result in step.results))
            for step in self._steps
        )
        self._turns.append(RecordedTurn(tuple(self._inputs), steps))
        self._inputs, self._steps, self._rows_open = [], [], 0
        return True

    def _user(self, where: str, row: JsonObject) -> None:
        self._nothing_waits(where)
        if self._steps and not self._close_turn():
            refuse(where, "the turn before it has no final answer")
        self._inputs.append(plain_text(where, row))

    def _assistant(self, where: str, row: JsonObject) -> None:
        self._nothing_waits(where)
        if not self._inputs:
            refuse(where, "an answer before the first user's message can't be played; remove it")
        step = _OpenStep(where, content_of(where, row), calls_of(where, row))
        if self._steps and not self._steps[-1].calls:
            step.content = _joined(self._steps.pop().content, step.content)
        step.results = [None] * len(step.calls)
        self._steps.append(step)

    def _tool(self, where: str, row: JsonObject) -> None:
        wanted = row.get("tool_call_id")
        step = self._steps[-1] if self._steps else None
        for at, call in enumerate(step.calls if step else ()):
            if step is not None and call.id == wanted and step.results[at] is None:
                step.results[at] = plain_text(where, row)
                return
        refuse(where, f"tool_call_id {str(wanted)[:80]!r} answers no open call of the answer before it")

    def _nothing_waits(self, where: str) -> None:
        if self._steps and self._steps[-1].waits:
            step = self._steps[-1]
            call = step.calls[step.results.index(None)]
            refuse(where, f"call {call.id[:80]!r} of {step.where} has no result yet")


def _joined(first: Content, second: Content) -> Content:
    if isinstance(first, str) and isinstance(second, str):
        return "\n\n".join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _parts(content: Content) -> list[JsonObject]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


# --- calls that look alike -------------------------------------------------------------------------


def _with_distinct_calls(turns: Sequence[RecordedTurn]) -> tuple[RecordedTurn, ...]:
    known: dict[tuple[str, str, bytes], str] = {}
    return tuple(
        RecordedTurn(turn.inputs, tuple(_distinct(step, known) for step in turn.steps)) for turn in turns
    )


def _distinct(step: RecordedStep, known: dict[tuple[str, str, bytes], str]) -> RecordedStep:
    calls: list[ToolCall] = []
    for call, result in zip(step.calls, step.results, strict=True):
        call_id, number = call.id, 1
        while known.setdefault(result_key(call_id, call.name, call.arguments), result) != result:
            number += 1
            call_id = f"{call.id[:240]}.{number}"
        calls.append(call.model_copy(update={"id": call_id}))
    return RecordedStep(step.content, tuple(calls), step.results)
