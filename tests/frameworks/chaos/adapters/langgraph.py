"""Turns through `HelixSaver`: runs of a graph, each writer in a thread of its own.

Two runs at once of one thread are for whoever has it: the second one to end would take the first one's place.
"""

import operator
from datetime import timedelta
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph

from helix_temporal import Backends
from helix_temporal.frameworks.langgraph import HelixSaver

NAMED = True
WRITERS: Final = ("a", "b", "c")


class State(TypedDict):
    """What was said."""

    said: Annotated[list[str], operator.add]


async def answer(state: State) -> dict[str, list[str]]:
    """To the last question."""
    return {"said": [state["said"][-1].replace(" q", " a")]}


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer: one run, stored as it ends."""
    graph, config = _open(backends), _configure(name.partition("-")[0])
    before = await graph.aget_state(config)
    if f"{name} a" not in before.values.get("said", ()):
        await graph.ainvoke({"said": [f"{name} q"]}, config, durability="exit")


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    graph = _open(backends)
    states = [await graph.aget_state(_configure(each)) for each in WRITERS]
    return [text for state in states for text in state.values.get("said", ())]


async def archive(backends: Backends) -> None:
    """What the daily run does."""
    saver = HelixSaver(backends.records, backends.sessions)
    for writer in WRITERS:
        await saver.aarchive(f"chaos-{writer}", older_than=timedelta(0))


def _open(backends: Backends) -> Any:
    graph = StateGraph(State)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=HelixSaver(backends.records, backends.sessions))


def _configure(writer: str) -> Any:
    return {"configurable": {"thread_id": f"chaos-{writer}"}}
