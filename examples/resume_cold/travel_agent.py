"""A travel agent that plans with what was said before.

It answers by a script; by Claude where ANTHROPIC_API_KEY is set, by GPT where OPENAI_API_KEY is.
"""

import os

from helix_temporal import Agent, ModelRequest, ScriptedModel
from helix_temporal.adapters import model_by_key


def answer(request: ModelRequest) -> str:
    """All that the traveller has said, as the model was given it."""
    said = [each.text.rstrip(".") for each in request.messages if each.role == "user"]
    if said[-1].endswith("?"):
        return f"We have: {'; '.join(said[:-1])}."
    return f"Noted as number {len(said)}: {said[-1]}."


travel = Agent(
    name="travel",
    model=model_by_key(os.environ) or ScriptedModel(answer),
    instructions="You plan a journey with the user. Answer in one short sentence.",
)
