"""The workflow in which ADK's runner lives, its agent and tool, and a scripted model."""

import os
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types
from temporalio import activity, workflow
from temporalio.google_adk.workflow import activity_as_tool
from temporalio.workflow import ActivityConfig

from helix_temporal.frameworks.google_adk.model import HelixModel
from helix_temporal.frameworks.google_adk.workflow import HelixWorkflowSessionService

# No activity here sends heartbeats: Temporal waits this long before it repeats one whose worker died.
TIMEOUT = timedelta(seconds=5)


class ScriptedModel(BaseLlm):
    """Looks an order up, and says what the tool has said.  Each call is a line of the file ``CALLS``."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002 (it answers in one piece)
    ) -> AsyncGenerator[LlmResponse, None]:
        contents = llm_request.contents
        note_call(f"model({len(contents)} contents)")
        last = contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=f"NL-20417 is {last.function_response.response['result']}.")
        elif "NL-20417" in last.text:
            part = types.Part(function_call=types.FunctionCall(name="find_order", args={"order": "NL-20417"}))
        else:
            part = types.Part(text="You are welcome.")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))

    @classmethod
    def supported_models(cls) -> list[str]:
        return ["scripted"]


@activity.defn
async def find_order(order: str) -> str:
    """Finds out where an order is."""
    note_call(f"find_order({order})")
    return "on its way"


def note_call(text: str) -> None:
    """A file outlives the worker that is killed."""
    with Path(os.environ["CALLS"]).open("a") as file:
        file.write(f"{text}\n")


@workflow.defn
class Support:
    """Answers each line of a customer in one session of ADK."""

    @workflow.run
    async def run(self, session_id: str, lines: list[str]) -> list[str]:
        model = HelixModel("scripted", ActivityConfig(start_to_close_timeout=TIMEOUT))
        tool = activity_as_tool(find_order, start_to_close_timeout=TIMEOUT)
        runner = Runner(
            app_name="shop",
            agent=LlmAgent(name="support", model=model, tools=[tool]),
            session_service=HelixWorkflowSessionService(timeout=TIMEOUT),
            auto_create_session=True,
        )
        answers = list[str]()
        for line in lines:
            message = types.Content(role="user", parts=[types.Part(text=line)])
            events = runner.run_async(user_id="ann", session_id=session_id, new_message=message)
            answers += [each.content.parts[0].text async for each in events if each.is_final_response()]
        return answers
