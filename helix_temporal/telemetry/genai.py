"""Names of OpenTelemetry's conventions for generative AI: the only module that knows them.

The conventions are in development and change.  So their version is pinned here, and spans say which it is by
their ``schema_url``.  Names of our own begin with ``helix.`` and stay.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from helix_temporal.models.messages import Message, Usage

VERSION: Final = "1.44.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"
SCOPE: Final = "helix_temporal"
"""The instrumentation scope of all spans."""

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

Value = str | int | bool | tuple[str, ...]
Attributes = dict[str, Value]

_PROVIDERS: Final = (
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("deepseek", "deepseek"),
    ("grok", "x_ai"),
)
_OTHER_PROVIDER: Final = "_OTHER"


def common_attributes(operation: str, session_id: str, run_id: str, agent: str) -> Attributes:
    """What every span of a turn has."""
    found: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": session_id,
        "helix.run.id": run_id,
    }
    if agent:
        found["gen_ai.agent.name"] = agent
    return found


def model_attributes(model: str) -> Attributes:
    """Which model is called, and whose it is as far as its name tells."""
    return {"gen_ai.provider.name": provider_of(model), "gen_ai.request.model": model}


@functools.lru_cache(maxsize=256)
def provider_of(model: str) -> str:
    """The conventions' word for a model's provider, by the model's name: a backfill knows no more."""
    name = model.lower().rsplit("/", maxsplit=1)[-1]
    return next((provider for start, provider in _PROVIDERS if name.startswith(start)), _OTHER_PROVIDER)


def usage_attributes(used: Usage) -> Attributes:
    """Tokens of one call.

    ``helix.usage.counted`` tells these spans from those of other instrumentations, which may count the same
    call once more: sum over spans that have it.
    """
    found: Attributes = {
        "helix.usage.counted": True,
        "gen_ai.usage.input_tokens": used.input_tokens,
        "gen_ai.usage.output_tokens": used.output_tokens,
    }
    for name, value in (
        ("gen_ai.usage.cache_read.input_tokens", used.cached_read_tokens),
        ("gen_ai.usage.cache_creation.input_tokens", used.cached_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", used.reasoning_tokens),
    ):
        if value:
            found[name] = value
    return found


def finish_attributes(reason: str) -> Attributes:
    """Why a model stopped."""
    return {"gen_ai.response.finish_reasons": (reason,)}


def tool_attributes(tool: str, call_id: str, kind: str = "function") -> Attributes:
    """Which tool is called; ``kind`` is ``function``, or ``extension`` for a sub-agent."""
    return {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": call_id, "gen_ai.tool.type": kind}


def error_attributes(error: str) -> Attributes:
    """What failed; see `helix_temporal.telemetry.spans.error_type`."""
    return {"error.type": error}


def input_attributes(messages: Iterable[Message], system: str = "") -> dict[str, Any]:
    """Texts that a model is given, as values that are still to be redacted."""
    found: dict[str, Any] = {"gen_ai.input.messages": [_as_parts(each) for each in messages]}
    return found | ({"gen_ai.system_instructions": [{"type": "text", "content": system}]} if system else {})


def output_attributes(message: Message) -> dict[str, Any]:
    """What a model has answered, as `input_attributes`."""
    return {"gen_ai.output.messages": [_as_parts(message)]}


def arguments_attributes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool is called with, as `input_attributes`."""
    return {"gen_ai.tool.call.arguments": dict(arguments)}


def result_attributes(result: object) -> dict[str, Any]:
    """What a tool gave, as `input_attributes`."""
    return {"gen_ai.tool.call.result": result}


def as_text(value: object) -> str:
    """Content as an attribute has it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _as_parts(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": message.text})
    elif message.text:
        parts.append({"type": "text", "content": message.text})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": parts}
