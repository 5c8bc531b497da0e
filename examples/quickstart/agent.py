"""A support agent with two tools.  Change it, start the worker again, and ask.

It answers by a script, so that no key is needed.  A real model is any object with
``async def generate(self, request: ModelRequest) -> ModelResponse``: see README.md beside this file.
"""

import re

from helix_temporal import Agent, ModelRequest, ModelResponse, ScriptedModel, ToolCall, tool

ORDERS: dict[str, dict[str, str | None]] = {
    "NL-20417": {"status": "shipped", "carrier": "PostNord", "arrives": "2025-03-17"},
    "NL-20433": {"status": "being packed", "carrier": None, "arrives": "2025-03-20"},
}


@tool
def get_order(order_id: str) -> dict[str, str | None]:
    """Look up an order by its number, such as NL-20417."""
    return ORDERS.get(order_id, {"status": "unknown"})


@tool
def add_days(order_id: str, days: int) -> str:
    """Deliver an order some days later."""
    return f"{order_id} now arrives {days} days later"


def answer(request: ModelRequest) -> ModelResponse | str:
    """What the model says: first the tool that the newest message asks for, then what it gave."""
    said = request.messages[-1]
    if said.role == "tool":
        return f"Here is what I found: {said.text}"
    order = re.search(r"NL-\d+", said.text)
    later = re.search(r"(\d+) days later", said.text)
    if order and later:
        call = ToolCall(id="call", name="add_days", arguments={"order_id": order[0], "days": int(later[1])})
        return ModelResponse(tool_calls=(call,))
    if order:
        return ModelResponse(
            tool_calls=(ToolCall(id="call", name="get_order", arguments={"order_id": order[0]}),)
        )
    before = len(request.messages) - 1
    return f"I remember {before} messages before this one. Which order is it about? For example NL-20417."


support = Agent(
    name="support",
    model=ScriptedModel(answer),
    instructions="You are the customer assistant of Nordlicht Outdoor. Be brief and friendly.",
    tools=[get_order, add_days],
)
