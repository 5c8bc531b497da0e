"""A model that answers by what it was asked: known by its name to the activity, and not to workflows."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.models import LLMRegistry
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Answering(BaseLlm):
    """Answers by what it was asked; each call is a line of a file, which outlives the process.

    ``remember X`` asks for the tool, ``size N`` is as long; all else is echoed.
    """

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The answer to the newest content."""
        texts = [part.text or "" for each in llm_request.contents for part in each.parts or ()]
        if "HELIX_TEST_CALLS" in os.environ:
            _note_call(Path(os.environ["HELIX_TEST_CALLS"]), texts)
        await asyncio.sleep(float(os.environ.get("HELIX_TEST_PAUSE", "0")))
        yield LlmResponse(content=types.Content(role="model", parts=[self._answer(llm_request, texts[-1])]))

    def _answer(self, request: LlmRequest, text: str) -> types.Part:
        last = request.contents[-1].parts or []
        if last and last[-1].function_response:
            return types.Part(text="remembered")
        word, _, rest = text.partition(" ")
        if word == "remember":
            call = types.FunctionCall(id=f"call-{rest}", name="remember", args={"fact": rest})
            return types.Part(function_call=call)
        if word == "size":
            return types.Part(text="x" * int(rest.split()[0]))
        return types.Part(text=f"echo {text}")

    @classmethod
    def supported_models(cls) -> list[str]:
        """What it is called."""
        return ["answering"]


def register_model() -> None:
    """Let ADK find it by its name."""
    LLMRegistry.register(Answering)


def _note_call(calls: Path, texts: list[str]) -> None:
    with calls.open("a") as file:
        file.write(json.dumps(texts) + "\n")
