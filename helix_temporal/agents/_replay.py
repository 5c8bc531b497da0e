"""An agent that plays a recorded conversation again, whatever process each of its calls runs in."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from helix_temporal.agents._conversation import RecordedConversation, RecordedTurn, result_key
from helix_temporal.agents.agent import Agent
from helix_temporal.agents.context import ContextPolicy
from helix_temporal.agents.model import ScriptedModel
from helix_temporal.agents.tools import Tool, ToolContext, ToolOutcome
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import Message, Usage

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
