"""Programs that run with a key and without one."""

import pytest

from helix_temporal.adapters import model_by_key
from helix_temporal.adapters.anthropic import AnthropicModel
from helix_temporal.adapters.openai_responses import OpenAIResponsesModel


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({}, type(None)),
        ({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}, type(None)),
        ({"ANTHROPIC_API_KEY": "k"}, AnthropicModel),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "gpt-5-mini"}, OpenAIResponsesModel),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, AnthropicModel),
    ],
)
def test_the_model_is_that_of_the_provider_whose_key_is_there(
    environment: dict[str, str], kind: type[object]
) -> None:
    """An example answers by a script until somebody gives it a key."""
    assert type(model_by_key(environment)) is kind
