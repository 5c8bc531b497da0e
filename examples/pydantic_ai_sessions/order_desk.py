"""The agent, the workflow that runs it, and a scripted model that notes what it was asked."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from temporalio import workflow

from helix_temporal.frameworks.pydantic_ai_workflow import load_conversation, save_conversation


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Looks an order up, and tells where it is."""
    note_call(str(len(messages)))
    last: Any = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"Your order is {last.content}.")])
    if "NL-" in last.content:
        return ModelResponse(parts=[ToolCallPart("find_order", {})])
    return ModelResponse(parts=[TextPart(f"I have read {len(messages)} messages.")])


def note_call(text: str) -> None:
    """Add a line to a file, which outlives a process that is killed."""
    with Path(os.environ["ORDER_DESK_CALLS"]).open("a") as file:
        file.write(f"{text}\n")


# Temporal takes a worker for dead after this time without a heartbeat; pydantic-ai sends them.
durability = TemporalDurability(model_activity_config={"heartbeat_timeout": timedelta(seconds=5)})
agent: Any = Agent(FunctionModel(answer), name="order_desk", capabilities=[durability])


@agent.tool_plain
def find_order() -> str:
    """Where the order is."""
    note_call("find_order")
    return "on its way"


@workflow.defn
class OrderDesk(PydanticAIWorkflow):
    """Answers what a customer sends, until there is nothing more."""

    __pydantic_ai_agents__ = (agent,)

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.closed = False

    @workflow.run
    async def run(self, customer: str) -> list[str]:
        """All answers."""
        answers: list[str] = []
        conversation = await load_conversation(customer)
        while True:
            await workflow.wait_condition(lambda: bool(self.waiting) or self.closed)
            if not self.waiting:
                return answers
            result = await agent.run(self.waiting.pop(0), conversation=conversation)
            conversation = await save_conversation(result)
            answers.append(str(result.output))

    @workflow.signal
    def send(self, text: str) -> None:
        """One more message."""
        self.waiting.append(text)

    @workflow.signal
    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
