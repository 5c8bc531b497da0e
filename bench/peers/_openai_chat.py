"""The chat workflow of temporalio-openai-agents, alone: the sandbox imports this again."""

import asyncio
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from agents import Agent, Runner, TResponseInputItem


@workflow.defn(name="bench.openai_chat")
class Chat:
    """Waits for asks until it is closed; continues as new with the transcript when that is suggested."""

    @workflow.init
    def __init__(self, items: list[Any]) -> None:
        self._items, self._closed, self._busy = items, False, asyncio.Lock()

    @workflow.run
    async def run(self, _: list[Any]) -> None:
        """Serve asks."""
        info = workflow.info()
        await workflow.wait_condition(lambda: self._closed or info.is_continue_as_new_suggested())
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._closed:
            workflow.continue_as_new(self._items)

    @workflow.update
    async def ask(self, text: str) -> str:
        """One turn."""
        async with self._busy:
            said: TResponseInputItem = {"role": "user", "content": text}
            result = await Runner.run(Agent(name="plain", instructions=""), [*self._items, said])
            self._items = result.to_input_list()
            return str(result.final_output)

    @workflow.signal
    def close(self) -> None:
        """End after what is under way."""
        self._closed = True
