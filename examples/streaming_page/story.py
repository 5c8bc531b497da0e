"""A storyteller: by a script, word by word; by Claude where ANTHROPIC_API_KEY is set, by GPT where
OPENAI_API_KEY is.
"""

import asyncio
import os
from collections.abc import AsyncIterator

from helix_temporal import Agent, ModelRequest, ModelResponse, ToolCall, ToolOutcome, tool
from helix_temporal.adapters import model_by_key
from helix_temporal.agents import ModelEvent, ReasoningDelta, TextDelta

WORDS = 200


@tool
async def look_up(place: str) -> ToolOutcome:
    """Look up what a place is known for, and remember that the story was there."""
    await asyncio.sleep(0.5)
    return ToolOutcome(f"{place} is known for its lighthouse.", state={"last_place": place})


class Storyteller:
    """Thinks, looks the place up, then tells a story a word at a time."""

    def __init__(self, pause: float = 0.04) -> None:
        self._pause = pause

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `helix_temporal.agents.StreamingModel`."""
        newest = request.messages[-1]
        if newest.role == "user":
            yield ReasoningDelta("Where does this story happen? ")
            await asyncio.sleep(self._pause)
            yield ReasoningDelta("I had better look it up.")
            call = ToolCall(id="look", name="look_up", arguments={"place": newest.text[:60]})
            yield ModelResponse(tool_calls=(call,))
            return
        text = ""
        for number in range(WORDS):
            word = newest.text + " " if number == 0 else f"word{number} "
            text += word
            yield TextDelta(word)
            await asyncio.sleep(self._pause)
        yield ModelResponse(content=text)


story = Agent(
    name="story",
    model=model_by_key(os.environ) or Storyteller(),
    instructions="Tell a short story about the place that the user names. Look the place up first.",
    tools=[look_up],
)
