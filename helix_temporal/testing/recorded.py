"""Recorded conversations: read from a file, and played again by an agent that answers from it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson
from pydantic import ValidationError

from helix_temporal.agents.agent import Agent
from helix_temporal.agents.checks import NAME
from helix_temporal.agents.context import ContextPolicy
from helix_temporal.agents.model import ScriptedModel
from helix_temporal.agents.tools import Tool, ToolContext, ToolOutcome
from helix_temporal.errors import HelixError, InvalidMessageError, InvalidRequestError
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.base import JsonObject, canonical_json, check_json
from helix_temporal.models.messages import Message, ToolCall, Usage

Content = str | list[JsonObject]

SYSTEM_ROLES: Final = ("system", "developer")


def refuse(where: str, reason: str) -> NoReturn:
    """Raise `InvalidMessageError` that names the row."""
    raise InvalidMessageError(f"conversation, {where}: {reason}")


def rows_of(data: bytes | str) -> list[tuple[str, JsonObject]]:
    """All rows, each with its place for error messages.

    Raises:
        InvalidMessageError: It is neither JSON nor JSON lines, or holds something else than messages.
    """
    text = _decoded(data)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2:
            refuse(f"line {error.lineno}", f"not JSON: {error.msg}")
        return [(f"line {at}", _line(at, line, error)) for at, line in lines]
    if isinstance(value, dict) and "messages" in value:
        value = value["messages"]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        refuse("row 1", "a JSON array of messages, an object with messages, or JSON lines expected")
    return [(f"row {at}", _object(f"row {at}", row)) for at, row in enumerate(value, 1)]


def _decoded(data: bytes | str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start}", "not UTF-8")


def _line(at: int, line: str, whole: orjson.JSONDecodeError) -> JsonObject:
    try:
        row = _object(f"line {at}", orjson.loads(line))
    except orjson.JSONDecodeError as error:
        # A broken JSON document is no JSON lines from its first line on: tell where the document broke.
        place = (whole.lineno, whole.msg) if at == 1 else (at, error.msg)
        refuse(f"line {place[0]}", f"not JSON: {place[1]}")
    if "messages" in row:
        refuse(f"line {at}", "one of several conversations; give a file with a single one")
    return row


def _object(where: str, row: object) -> JsonObject:
    if not isinstance(row, dict):
        refuse(where, f"a message object expected, got {type(row).__name__}")
    try:
        check_json(row)
    except HelixError as error:
        refuse(where, str(error))
    return row


def text_of(content: Content) -> str:
    """The text of a content: itself, or its text parts joined."""
    if isinstance(content, str):
        return content
    return "".join(str(part["text"]) for part in content if part.get("type") == "text")


def content_of(where: str, row: JsonObject) -> Content:
    """What the row says: text or parts, a refusal's text, or nothing."""
    content = row.get("content")
    if content is None:
        refusal = row.get("refusal")
        return refusal if isinstance(refusal, str) else ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        texts = all(isinstance(part.get("text"), str) for part in parts if part.get("type") == "text")
        if len(parts) == len(content) and texts:
            return parts
    refuse(where, "content: text, a list of parts, or null expected")


def plain_text(where: str, row: JsonObject) -> str:
    """What the row says, where only text can be played."""
    content = content_of(where, row)
    if isinstance(content, list):
        other = next((part.get("type") for part in content if part.get("type") != "text"), None)
        if other is not None:
            refuse(where, f"content part of type {str(other)[:40]!r}: only text can be played in this role")
    return text_of(content)


def calls_of(where: str, row: JsonObject) -> list[ToolCall]:
    """The tools that an assistant's row asks for, their arguments parsed."""
    calls = row.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list):
        refuse(where, "tool_calls: a list expected")
    return [_call(where, f"tool_calls[{at}]", call) for at, call in enumerate(calls)]


def _call(where: str, place: str, call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        refuse(where, f"{place}: an object with id and function expected")
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        refuse(where, f"{place}.function.name {str(name)[:80]!r}: 1-64 of A-Z a-z 0-9 _ - expected")
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError as error:
            refuse(where, f"{place}.function.arguments: not JSON: {error.msg}")
    if not isinstance(arguments, dict):
        refuse(where, f"{place}.function.arguments: a JSON object expected")
    try:
        return ToolCall.model_validate({"id": call.get("id"), "name": name, "arguments": arguments})
    except InvalidMessageError as error:
        refuse(where, f"{place}.function.arguments: {error}")


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
    return call_id, name, canonical_json(dict(arguments))


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


PLACE: Final = "recording"
"""Where an answer notes its turn and step in the recording, in ``provider``."""

Place = tuple[int, int]


def replay_agent(
    conversation: RecordedConversation,
    name: str = "replay",
    *,
    model_delay: float = 0.0,
    tool_delay: float = 0.0,
    on_call: Callable[[ModelRequest], None] | None = None,
) -> Agent:
    """An agent that answers a recorded conversation's turns as they were answered.

    Ask it the ``text`` of each turn.  Which answer is due follows from the messages in the thread
    alone, and a tool's result from its call alone, so retries, other processes and forks play
    alike.  What the recording doesn't hold gets a short answer that says so.

    Args:
        conversation: What to play.
        name: The agent's name.
        model_delay: Seconds that each answer takes.
        tool_delay: Seconds that each tool takes.
        on_call: Told of every model call; see `ScriptedModel`.
    """
    return Agent(
        name=name,
        model=ScriptedModel(_Recording(conversation.turns), delay=model_delay, on_call=on_call),
        instructions=conversation.instructions,
        tools=_tools(conversation, tool_delay),
        context=_policy(conversation),
        max_steps=max(50, *(len(turn.steps) + 1 for turn in conversation.turns)),
    )


class _Recording:
    """The script: from the messages to the answer that followed them in the recording."""

    def __init__(self, turns: Sequence[RecordedTurn]) -> None:
        self._turns = turns

    def __call__(self, request: ModelRequest) -> ModelResponse:
        at, place = _newest_answer(request.messages)
        given = request.messages[at + 1 :]
        due = self._after(place, given)
        if due is None:
            return _unrecorded(request, place)
        step = self._turns[due[0]].steps[due[1]]
        return ModelResponse(
            content=step.content,
            tool_calls=step.calls,
            usage=_usage(request.messages, step.text),
            provider={PLACE: [*due]},
            stop_reason="tool_calls" if step.calls else "stop",
        )

    def _after(self, place: Place | None, given: Sequence[Message]) -> Place | None:
        turn, step = place if place is not None else (-1, 0)
        said = [message.text for message in given if message.role == "user"]
        if not said:
            steps = self._turns[turn].steps if 0 <= turn < len(self._turns) else ()
            return (turn, step + 1) if step + 1 < len(steps) else None
        text = "\n\n".join(said)
        for candidate in self._nearest(turn):
            if self._turns[candidate].text == text:
                return candidate, 0
        return None

    def _nearest(self, turn: int) -> Iterator[int]:
        """The turn that is due, then the same one again, later ones and earlier ones."""
        later = range(turn + 1, len(self._turns))
        yield from later[:1]
        yield from (turn,) if 0 <= turn < len(self._turns) else ()
        yield from later[1:]
        yield from range(min(turn, len(self._turns)))


def _newest_answer(messages: Sequence[Message]) -> tuple[int, Place | None]:
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            match messages[at].provider.get(PLACE):
                case [int(turn), int(step)]:
                    return at, (turn, step)
                case _:
                    return at, None
    return -1, None


def _unrecorded(request: ModelRequest, place: Place | None) -> ModelResponse:
    text = f"That is not part of the recording. I have {len(request.messages) - 1} messages before it."
    return ModelResponse(
        content=text,
        usage=_usage(request.messages, text),
        # The recording goes on from where it was.
        provider={PLACE: [*place]} if place is not None else {},
        stop_reason="stop",
    )


def _usage(messages: Sequence[Message], answer: str) -> Usage:
    """Four characters a token: about right, and the same every time."""
    return Usage(
        input_tokens=sum(len(message.text) for message in messages) // 4,
        output_tokens=len(answer) // 4 + 1,
    )


class _RecordedTool:
    """Gives the recorded result of a call."""

    def __init__(self, name: str, results: Mapping[tuple[str, str, bytes], str], delay: float) -> None:
        self._name = name
        self._results = results
        self._delay = delay

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext, /) -> ToolOutcome:
        if self._delay:
            await asyncio.sleep(self._delay)
        result = self._results.get(result_key(context.call_id, self._name, arguments))
        if result is None:
            return ToolOutcome("The recording holds no result of this call.", is_error=True)
        return ToolOutcome(result)


def _tools(conversation: RecordedConversation, delay: float) -> tuple[Tool, ...]:
    steps = [step for turn in conversation.turns for step in turn.steps]
    recorded = [pair for step in steps for pair in zip(step.calls, step.results, strict=True)]
    results = {result_key(call.id, call.name, call.arguments): result for call, result in recorded}
    names = dict.fromkeys(call.name for call, _ in recorded)
    return tuple(
        Tool(
            name=name,
            handler=_RecordedTool(name, results, delay),
            description=f"Gives what {name} gave in the recording.",
            parameters={"type": "object", "additionalProperties": True},
        )
        for name in names
    )


def _policy(conversation: RecordedConversation) -> ContextPolicy:
    """Wide enough for two turns of any size: the newest answer before a question tells the place."""
    rows = max(
        len(turn.steps) + sum(len(step.calls) for step in turn.steps) + 1 for turn in conversation.turns
    )
    size = max(_size(turn) for turn in conversation.turns)
    narrow = ContextPolicy()
    return ContextPolicy(
        max_messages=max(narrow.max_messages, 2 * rows + 2),
        max_bytes=max(narrow.max_bytes, 2 * size + 64 * 1024),
    )


def _size(turn: RecordedTurn) -> int:
    """An upper bound of what a turn takes in a thread, in bytes."""
    texts = [turn.text]
    for step in turn.steps:
        texts += [str(step.content), *step.results]
        texts += [str(call.arguments) + call.name + call.id for call in step.calls]
    # JSON may escape a character in up to six bytes; ids and field names take some more.
    return 6 * sum(len(text.encode()) for text in texts) + 1024 * len(texts)
