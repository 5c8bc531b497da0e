"""A travel agent that plans with what was said before.

It answers by a script; by Claude where ANTHROPIC_API_KEY is set, by GPT where OPENAI_API_KEY is.
"""

import os

from helix_temporal.agents import Agent, Model, ModelRequest, ScriptedModel, StreamingModel


def answer(request: ModelRequest) -> str:
    """All that the traveller has said, as the model was given it."""
    said = [each.text.rstrip(".") for each in request.messages if each.role == "user"]
    if said[-1].endswith("?"):
        return f"We have: {'; '.join(said[:-1])}."
    return f"Noted as number {len(said)}: {said[-1]}."


def model() -> Model | StreamingModel:
    """The real one where there is a key."""
    if os.environ.get("ANTHROPIC_API_KEY"):
        from helix_temporal.adapters.anthropic import AnthropicModel  # noqa: PLC0415 (an extra)

        return AnthropicModel(os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5"), max_tokens=1024)
    if os.environ.get("OPENAI_API_KEY"):
        from helix_temporal.adapters.openai_responses import OpenAIResponsesModel  # noqa: PLC0415

        return OpenAIResponsesModel(os.environ.get("OPENAI_MODEL", "gpt-5"))
    return ScriptedModel(answer)


travel = Agent(
    name="travel",
    model=model(),
    instructions="You plan a journey with the user. Answer in one short sentence.",
)
