"""The graph: a scripted model, a person who must agree, and a memory across threads."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import interrupt


class State(TypedDict):
    """What a thread holds."""

    said: Annotated[list[str], operator.add]


def answer(said: list[str]) -> str:
    """In the place of a model: what it says by what was said."""
    newest = said[-1]
    if newest.startswith("person: "):
        return "The refund is on its way." if "yes" in newest else "I am sorry, there is no refund."
    return "I have to ask somebody."


async def reply(state: State) -> dict[str, Any]:
    """The model."""
    return {"said": [f"model: {answer(state['said'])}"]}


async def approve(state: State, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
    """A person agrees or not; how often they did is remembered for the user."""
    decision = interrupt(f"refund after {state['said'][0]!r}?")
    place = ("memories", config["configurable"]["user_id"])
    item = await store.aget(place, "refunds")
    count = item.value["count"] if item else 0
    await store.aput(place, "refunds", {"count": count + (decision == "yes")})
    return {"said": [f"person: {decision}"]}


builder = StateGraph(State)
builder.add_node("ask", reply)
builder.add_node("approve", approve)
builder.add_node("answer", reply)
builder.add_edge(START, "ask")
builder.add_edge("ask", "approve")
builder.add_edge("approve", "answer")
builder.add_edge("answer", END)
