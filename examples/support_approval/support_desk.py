"""A support agent that asks the customer, and may refund only what somebody has approved.

It answers by a script; by Claude where ANTHROPIC_API_KEY is set, by GPT where OPENAI_API_KEY is.
"""

import os
import re

from helix_temporal import (
    Agent,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolCall,
    ToolContext,
    ask_user,
    tool,
)
from helix_temporal.adapters import model_by_key

ORDERS = {"NL-20417": ("tent", 189), "NL-20433": ("stove", 54)}
PAID: dict[str, str] = {}
"""What the till has paid, by the key of the call: a second attempt of one call finds the first."""


@tool(approval=True, answer_within=3 * 86400)
def refund(order_id: str, context: ToolContext) -> str:
    """Give the customer the money for an order back."""
    if order_id not in ORDERS:
        return f"there is no order {order_id}"
    what, price = ORDERS[order_id]
    return PAID.setdefault(context.key, f"{price} euros for the {what} ({order_id})")


def answer(request: ModelRequest) -> ModelResponse:
    """Ask which order it is, refund that one, and say how it went."""
    newest = request.messages[-1]
    if newest.role == "user":
        arguments = {"question": "Which of your orders is it?", "options": list(ORDERS)}
        return ModelResponse(tool_calls=(ToolCall(id="which", name="ask_user", arguments=arguments),))
    if newest.name == "ask_user":
        order = re.search(r"NL-\d+", newest.text)
        if order is None:
            return ModelResponse("I need the number of the order, such as NL-20417.")
        call = ToolCall(id="pay", name="refund", arguments={"order_id": order[0]})
        return ModelResponse(tool_calls=(call,))
    if newest.is_error:
        return ModelResponse(f"I am sorry, I can't refund it: {newest.text}")
    return ModelResponse(f"You get your money back: {newest.text}.")


support = Agent(
    name="support",
    model=model_by_key(os.environ) or ScriptedModel(answer),
    instructions=(
        "You are the customer assistant of Nordlicht Outdoor. Be brief. A customer who wants money back: "
        f"ask with ask_user which order it is, of {', '.join(ORDERS)}; then call refund for it at once."
    ),
    tools=[refund, ask_user()],
)
