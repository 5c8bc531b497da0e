"""A graph that looks an order up and answers, and the workflow that runs it for each question."""

import operator
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from temporalio import workflow
from temporalio.langgraph import graph

from helix_temporal.frameworks.langgraph_workflow import WorkflowSaver

ORDERS = {"NL-20417": "on its way", "NL-20433": "delivered"}
TIMES: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=10)}
"""Of all activities here.  Temporal tries one again so long after its worker was killed."""


class State(TypedDict):
    """What a thread holds.  A message that is added twice stands there twice."""

    messages: Annotated[list[str], operator.add]


async def find_order(state: State) -> dict[str, Any]:
    """Look up the order that the question ends with."""
    number = state["messages"][-1].split()[-1].rstrip("?")
    return {"messages": [f"tool: {number} is {ORDERS[number]}"]}


async def answer(state: State) -> dict[str, Any]:
    """In the place of a model: the newest message, and how many it was sent."""
    found = state["messages"][-1].removeprefix("tool: ")
    return {"messages": [f"model: {found}; I have read {len(state['messages'])} messages"]}


builder = StateGraph(State)
builder.add_node("find_order", find_order, metadata={"execute_in": "activity", **TIMES})
builder.add_node("answer", answer, metadata={"execute_in": "activity", **TIMES})
builder.add_edge(START, "find_order")
builder.add_edge("find_order", "answer")
builder.add_edge("answer", END)


@workflow.defn
class OrderDesk:
    """Answers questions on one thread."""

    @workflow.run
    async def run(self, thread_id: str, questions: list[str]) -> None:
        """One run of the graph for each question, and one checkpoint."""
        app = graph("orders").compile(checkpointer=WorkflowSaver())
        config: Any = {"configurable": {"thread_id": thread_id}}
        for question in questions:
            await app.ainvoke({"messages": [f"user: {question}"]}, config, durability="exit")
