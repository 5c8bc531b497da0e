"""Models of providers, each in a module of its own that imports its vendor's library.

Install the extra of the same name: ``helix-temporal[anthropic]``, ``[langchain]``, …  Nothing here imports
a vendor's library, so that one adapter never asks for another's.
"""

from collections.abc import Mapping
from typing import Final

from helix_temporal.agents import Model, StreamingModel

__all__ = ["model_by_key"]

_CLAUDE: Final = "claude-sonnet-4-5"
_GPT: Final = "gpt-5"


def model_by_key(environment: Mapping[str, str]) -> Model | StreamingModel | None:
    """Claude where ``ANTHROPIC_API_KEY`` is set, GPT where ``OPENAI_API_KEY`` is; None without a key.

    ``ANTHROPIC_MODEL`` and ``OPENAI_MODEL`` name another model of the same provider.  For examples, and for
    tests that play a script unless somebody gives them a key; an agent of yours names its model.

    Raises:
        ModuleNotFoundError: The provider's extra is not installed.
    """
    if environment.get("ANTHROPIC_API_KEY"):
        from helix_temporal.adapters.anthropic import AnthropicModel  # noqa: PLC0415 (an extra)

        return AnthropicModel(environment.get("ANTHROPIC_MODEL") or _CLAUDE)
    if environment.get("OPENAI_API_KEY"):
        from helix_temporal.adapters.openai_responses import OpenAIResponsesModel  # noqa: PLC0415

        return OpenAIResponsesModel(environment.get("OPENAI_MODEL") or _GPT)
    return None
