"""A worker with a graph on our threads, for a test or for a process of its own.

It writes a line to ``ran`` in its directory for each time that the model runs, and waits once where it is
told to.
"""

import asyncio
import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from temporalio import workflow
from temporalio.client import Client
from temporalio.langgraph import LangGraphPlugin, graph
from temporalio.worker import Worker

from helix_temporal.frameworks.langgraph_activities import HelixGraphPlugin
from helix_temporal.frameworks.langgraph_workflow import WorkflowSaver
from helix_temporal.settings import Settings

PLACE: dict[str, Path] = {}
"""Where this process keeps its threads: nodes are functions of a module."""
TIMES: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=5)}


class State(TypedDict):
    """What a thread holds."""

    told: Annotated[list[str], operator.add]


@workflow.defn
class Conversation:
    """Runs the graph for each text; one that begins with ``resume:`` answers an interrupt."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.done: list[list[str]] = []

    @workflow.run
    async def run(self, thread_id: str) -> list[str]:
        """Until it is told to end; what the thread holds then."""
        saver = WorkflowSaver()
        app = graph("conversation").compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": thread_id}}
        while True:
            await workflow.wait_condition(lambda: len(self.texts) > len(self.done))
            text = self.texts[len(self.done)]
            if text == "end":
                break
            resumes = text.startswith("resume:")
            given: Any = Command(resume=text[7:]) if resumes else {"told": [text]}
            result = await app.ainvoke(given, config, durability="exit")
            self.done.append(result["told"])
        state = await app.aget_state(config)
        told: list[str] = state.values["told"]
        return told

    @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def say(self, text: str) -> list[str]:
        """One run of the graph; what the thread holds behind it."""
        at = len(self.texts)
        self.texts.append(text)
        await workflow.wait_condition(lambda: len(self.done) > at)
        return self.done[at]

    @workflow.signal
    def end(self) -> None:
        """Finish."""
        self.texts.append("end")


def extend(told: Any, writes: Any) -> Any:
    """The reducer of a delta channel."""
    return [*(told or []), *(each for write in writes for each in write)]


class Delta(TypedDict):
    """As `State`; only what is new is stored."""

    told: Annotated[list[str], DeltaChannel(extend)]


async def note(state: Delta) -> dict[str, Any]:
    """A step in the workflow itself."""
    return {"told": ["noted"]}


@workflow.defn
class Historian:
    """Three turns, the history, a fork of the first, and the end of the thread."""

    @workflow.run
    async def run(self, thread_id: str) -> dict[str, Any]:
        """What it saw."""
        saver = WorkflowSaver()
        app = graph("notes").compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": thread_id}}
        turns = [await app.ainvoke({"told": [text]}, config, durability="exit") for text in "abc"]
        history = [each async for each in app.aget_state_history(config) if each.values.get("told")]
        fork = await app.ainvoke({"told": ["d"]}, history[-1].config, durability="exit")
        await saver.adelete_thread(thread_id)
        deleted = await saver.aget_tuple(config)
        ends = [len(each.values["told"]) for each in history]
        return {"delta": turns[-1]["told"], "ends": ends, "fork": fork["told"], "deleted": deleted}


def note_run(text: str) -> bool:
    """Write down that the model ran; whether it is to wait."""
    directory = PLACE["directory"]
    with (directory / "ran").open("a") as file:
        file.write(f"{text}\n")
    if text != "slow" or (directory / "stopped").exists():
        return False
    (directory / "stopped").touch()
    return True


async def answer(state: State) -> dict[str, Any]:
    """The model."""
    if note_run(state["told"][-1]):
        await asyncio.sleep(60)
    return {"told": [f"answer to {state['told'][-1]}"]}


async def ask(state: State) -> dict[str, Any]:
    """Waits for a person, if there is something to decide."""
    if state["told"][-1] != "answer to ask":
        return {"told": []}
    return {"told": [f"decided {interrupt('sure?')}"]}


def make_plugins(directory: Path) -> list[Any]:
    """The plugin of the graph, and ours as its guest."""
    PLACE["directory"] = directory
    builder = StateGraph(State)
    builder.add_node("answer", answer, metadata={"execute_in": "activity"})
    builder.add_node("ask", ask, metadata={"execute_in": "workflow"})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "ask")
    builder.add_edge("ask", END)
    notes = StateGraph(Delta)
    notes.add_node("note", note, metadata={"execute_in": "workflow"})
    notes.add_edge(START, "note")
    settings = Settings.from_env({"HELIX_DATA_DIRECTORY": str(directory)})
    graphs = LangGraphPlugin(graphs={"conversation": builder, "notes": notes}, default_activity_options=TIMES)
    return [graphs, HelixGraphPlugin(settings)]


def make_worker(client: Client, queue: str, directory: Path, **options: Any) -> Worker:
    """A worker of the conversation."""
    plugins = make_plugins(directory)
    return Worker(client, task_queue=queue, workflows=[Conversation, Historian], plugins=plugins, **options)


async def main(address: str, queue: str, directory: str) -> None:
    """Serve until killed."""
    client = await Client.connect(address)
    await make_worker(client, queue, Path(directory)).run()
