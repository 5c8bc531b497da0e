"""The agent, the workflow that runs it, and a scripted model that notes what it was asked."""

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from temporalio import activity, workflow
from temporalio.openai_agents.workflow import activity_as_tool

from helix_temporal.frameworks.openai_agents import HelixWorkflowSession

QUIET = RunConfig(tracing_disabled=True)


class ScriptedModel(Model):
    """Looks an order up, and tells where it is.  Each call is a line of ``DESK_CALLS``."""

    async def get_response(
        self,
        system_instructions: Any,  # noqa: ARG002 — the name in the SDK
        input: Any,  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> ModelResponse:
        """The next answer."""
        note_call(f"{len(input)} items")
        output: list[Any] = [say(f"I have read {len(input)} items.")]
        if input[-1].get("type") == "function_call_output":
            output = [say(f"Your order is {input[-1]['output']}.")]
        elif "NL-" in str(input[-1].get("content")):
            output = [
                ResponseFunctionToolCall(
                    type="function_call", name="find_order", call_id=uuid4().hex, arguments="{}"
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used."""
        raise NotImplementedError


def note_call(text: str) -> None:
    """A file outlives the process that is killed."""
    with Path(os.environ["DESK_CALLS"]).open("a") as file:
        file.write(f"{text}\n")


def say(text: str) -> ResponseOutputMessage:
    """A message of the model."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=uuid4().hex, type="message", role="assistant", status="completed", content=[part]
    )


class ScriptedProvider(ModelProvider):
    """For the worker, in the place of OpenAI's."""

    def get_model(self, model_name: str | None) -> Model:  # noqa: ARG002 — the name in the SDK
        """The one model."""
        return ScriptedModel()


@activity.defn
async def find_order() -> str:
    """Where the order is."""
    return "on its way"


@workflow.defn
class Desk:
    """Answers what a customer sends, until there is nothing more."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.answers: list[str] = []
        self.closed = False

    @workflow.run
    async def run(self, customer: str) -> list[str]:
        """All answers."""
        session = HelixWorkflowSession(customer)
        tool = activity_as_tool(find_order, start_to_close_timeout=timedelta(seconds=10))
        agent: Agent[Any] = Agent(name="desk", instructions="You help with orders.", tools=[tool])
        while True:
            await workflow.wait_condition(lambda: bool(self.waiting) or self.closed)
            if not self.waiting:
                return self.answers
            result = await Runner.run(agent, self.waiting[0], session=session, run_config=QUIET)
            self.answers.append(str(result.final_output))
            self.waiting.pop(0)

    @workflow.signal
    def send(self, text: str) -> None:
        """One more message."""
        self.waiting.append(text)

    @workflow.signal
    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
