"""Chat models of LangChain that talk to the stand-in, and OpenAI's chat format as they read it."""

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from helix_temporal.adapters.langchain import LangChainModel
from tests.adapters._standin import Reply, StandIn, events


def claude(standin: StandIn, **fields: Any) -> LangChainModel:
    """Anthropic's models through LangChain."""
    given: dict[str, Any] = {"model": "claude-test", "api_key": "k-secret", "base_url": standin.url} | fields
    return LangChainModel(ChatAnthropic(**given))


def gpt(standin: StandIn, **fields: Any) -> LangChainModel:
    """OpenAI's chat completions through LangChain."""
    given: dict[str, Any] = {
        "model": "gpt-test",
        "api_key": "k-secret",
        "base_url": standin.url,
        "stream_usage": True,
    }
    return LangChainModel(ChatOpenAI(**(given | fields)))


def says(text: str = "", *calls: dict[str, Any], stop: str | None = None, **delta: Any) -> Reply:
    """A stream of chat completions; each call has ``id``, ``name`` and ``arguments`` as text."""
    stop = stop or ("tool_calls" if calls else "stop")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [*[{"content": piece} for piece in (text[:2], text[2:])]]
    for at, call in enumerate(calls):
        begin = {"name": call["name"], "arguments": ""}
        deltas += [
            {"tool_calls": [{"index": at, "id": call["id"], "type": "function", "function": begin}]},
            {"tool_calls": [{"index": at, "function": {"arguments": call["arguments"]}}]},
        ]
    chunks = [_chunk({"delta": each, "finish_reason": None}) for each in [*deltas, delta]]
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 5,
        "total_tokens": 25,
        "prompt_tokens_details": {"cached_tokens": 15},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    last = [_chunk({"delta": {}, "finish_reason": stop})] if stop != "nothing" else []
    return events(*chunks, *last, _chunk(None, usage=usage), "[DONE]")


def _chunk(choice: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    choices = [] if choice is None else [{"index": 0, "logprobs": None, **choice}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test"}
    return {**head, "choices": choices, **more}


class Parrot(BaseChatModel):
    """A model that does not stream, gives what it is told to give, and keeps what it was sent."""

    answers: list[AIMessage]
    kind: str = "parrot"
    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return self.kind

    @property
    def sent(self) -> list[list[BaseMessage]]:
        """The messages of each call."""
        return self._sent

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=tools, **options)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._sent.append(messages)
        answer = self.answers[len(self._sent) - 1].model_copy(deep=True)
        return ChatResult(generations=[ChatGeneration(message=answer)])
