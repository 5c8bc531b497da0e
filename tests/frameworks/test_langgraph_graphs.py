"""Real graphs of LangGraph on `HelixSaver`: interrupts, sub-graphs, branches, time travel, delta channels."""

import asyncio
import operator
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from helix_temporal import Backends
from helix_temporal.errors import FencedError, InvalidRequestError, RunningLoopError
from helix_temporal.frameworks.background_loop import shared_loop
from helix_temporal.frameworks.langgraph import HelixSaver, HelixStore
from helix_temporal.frameworks.langgraph_records import CHECKPOINT
from tests.docs._pages import ROOT, titled
from tests.frameworks.conftest import BackendsOpener
from tests.frameworks.test_langgraph import count_records, list_steps, make_saver, run_without_loop

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    """What the graphs of these tests know."""

    told: Annotated[list[str], operator.add]
    answer: str


def extend(told: Any, writes: Any) -> Any:
    """The reducer of a delta channel."""
    return [*(told or []), *(each for write in writes for each in write)]


class Delta(TypedDict):
    """As `State`; what is told is stored as what was added."""

    told: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=4)]


def say(text: str) -> Any:
    """A node that tells something."""

    async def node(state: Any) -> Any:
        return {"told": [text]}

    return node


async def ask(state: Any) -> Any:
    """A node that waits for a human."""
    return {"told": [f"answered {interrupt('go on?')}"]}


def line(schema: Any = State, **nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    """A graph of nodes one behind the other."""
    graph = StateGraph(schema)
    before = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(before, name)
        before = name
    graph.add_edge(before, END)
    return graph


@pytest.fixture
async def backends(open_backends: BackendsOpener) -> AsyncIterator[Backends]:
    """The stores under test."""
    async with open_backends() as opened:
        yield opened


@pytest.fixture
async def saver(backends: Backends) -> HelixSaver:
    """The saver under test."""
    return make_saver(backends)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_interrupt_is_answered_in_another_process(
    open_backends: BackendsOpener, durability: Any
) -> None:
    """The nodes before it do not run again."""
    graph = line(first=say("first"), ask=ask, last=say("last"))
    async with open_backends() as backends:
        stopped = graph.compile(checkpointer=make_saver(backends))
        result = await stopped.ainvoke({"told": ["hi"]}, CONFIG, durability=durability)
        assert [each.value for each in result["__interrupt__"]] == ["go on?"]
    async with open_backends() as backends:
        resumed = graph.compile(checkpointer=make_saver(backends))
        assert (await resumed.aget_state(CONFIG)).next == ("ask",)
        result = await resumed.ainvoke(Command(resume="yes"), CONFIG, durability=durability)
        assert result["told"] == ["hi", "first", "answered yes", "last"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_sub_graph_is_resumed_where_it_stopped(
    open_backends: BackendsOpener, durability: Any
) -> None:
    """It has a namespace of its own, in threads that were deleted before too."""
    graph = line(
        before=say("before"), inner=line(within=say("within"), ask=ask).compile(), after=say("after")
    )
    async with open_backends() as backends:
        saver = make_saver(backends)
        stopped = graph.compile(checkpointer=saver)
        for _ in range(2):
            await saver.adelete_thread("t")
            await stopped.ainvoke({"told": []}, CONFIG, durability=durability)
        state = await stopped.aget_state(CONFIG, subgraphs=True)
        assert state.tasks[0].state.next == ("ask",)
    async with open_backends() as backends:
        resumed = graph.compile(checkpointer=make_saver(backends))
        result = await resumed.ainvoke(Command(resume="yes"), CONFIG, durability=durability)
        assert result["told"] == ["before", "before", "within", "answered yes", "after"]


async def test_parallel_nodes_that_succeeded_do_not_run_again(saver: HelixSaver) -> None:
    """One of twelve fails: what the others wrote is pending, and is used when the run goes on."""
    ran: list[str] = []
    broken = True

    async def wait_for_others() -> None:
        pending = set[str]()
        while len(pending) < len(names) - 1:
            await asyncio.sleep(0.02)
            found = await saver.aget_tuple(CONFIG)
            pending = {task for task, *_ in (found.pending_writes if found else None) or ()}

    def make_node(name: str) -> Any:
        async def node(state: State) -> Any:
            ran.append(name)
            if name == "n05" and broken:
                await wait_for_others()
                raise ValueError(name)
            return {"told": [name]}

        return node

    graph = StateGraph(State)
    names = [f"n{number:02}" for number in range(12)]
    for name in names:
        graph.add_node(name, make_node(name))
        graph.add_edge(START, name)
    app = graph.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="n05"):
        await app.ainvoke({"told": []}, CONFIG)
    broken = False
    result = await app.ainvoke(None, CONFIG)
    assert result["told"] == names
    assert sorted(ran) == sorted([*names, "n05"])


async def test_a_thread_is_forked_from_a_checkpoint_of_its_past(saver: HelixSaver) -> None:
    """Both branches stay whole, though their channels come to the same number of versions."""
    app = line(one=say("one"), two=say("two"), three=say("three")).compile(checkpointer=saver)
    await app.ainvoke({"told": ["hi"]}, CONFIG)
    history = [each async for each in app.aget_state_history(CONFIG)]
    old_end = history[0].config
    before_two = next(each for each in history if each.next == ("two",))
    fork = await app.aupdate_state(before_two.config, {"told": ["changed"]})
    result = await app.ainvoke(None, fork)
    assert result["told"] == ["hi", "one", "changed", "two", "three"]
    assert (await app.aget_state(old_end)).values["told"] == ["hi", "one", "two", "three"]
    replayed = await app.ainvoke(None, before_two.config)
    assert replayed["told"] == ["hi", "one", "two", "three"]


async def test_a_graph_runs_without_an_event_loop(open_backends: BackendsOpener) -> None:
    """By the methods that are not async, in a thread; the history is a list of pages."""
    app = line(one=lambda state: {"told": ["one"]}, ask=lambda state: {"told": [interrupt("?")]})

    def use(backends: Backends) -> Any:
        saver = make_saver(backends)
        compiled = app.compile(checkpointer=saver)
        compiled.invoke({"told": ["hi"]}, CONFIG)
        result = compiled.invoke(Command(resume="yes"), CONFIG)
        steps = [each.metadata["step"] for each in compiled.get_state_history(CONFIG)]
        saver.copy_thread("t", "copy")
        saver.prune(["t"])
        left = len(list(saver.list(CONFIG)))
        saver.delete_for_runs(["none"])
        saver.delete_thread("t")
        return result["told"], steps, left, saver.get_tuple(CONFIG)

    told = await run_without_loop(open_backends, use)
    assert told == (["hi", "one", "yes"], [2, 1, 0, -1], 1, None)


async def test_a_second_run_of_an_exclusive_saver_fences_the_first(open_backends: BackendsOpener) -> None:
    """Both asked the model; one writes."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(state: State) -> Any:
        reached.set()
        await go_on.wait()
        return {"told": ["slow"]}

    async with open_backends() as one, open_backends() as two:
        first = line(slow=slow, last=say("last")).compile(checkpointer=make_saver(one, exclusive=True))
        second = line(fast=say("fast")).compile(checkpointer=make_saver(two, exclusive=True))
        running = asyncio.create_task(first.ainvoke({"told": ["one"]}, CONFIG, durability="sync"))
        await reached.wait()
        await second.ainvoke({"told": ["two"]}, CONFIG)
        go_on.set()
        with pytest.raises(FencedError):
            await running
        assert (await second.aget_state(CONFIG)).values["told"] == ["one", "two", "fast"]


class TestDeltaChannels:
    async def turns(self, saver: HelixSaver, number: int, thread_id: str = "t", **more: Any) -> Any:
        """The graph after some turns of two steps."""
        app = line(Delta, one=say("one"), two=say("two")).compile(checkpointer=saver)
        for turn in range(number):
            config: Any = {"configurable": {"thread_id": thread_id, **more}}
            await app.ainvoke({"told": [f"turn {turn}"]}, config)
        return app

    def told(self, number: int) -> list[str]:
        """What they tell."""
        return [each for turn in range(number) for each in (f"turn {turn}", "one", "two")]

    async def test_a_channel_is_made_of_what_was_added(self, open_backends: BackendsOpener) -> None:
        """Now and at each checkpoint of the past, in another process."""
        async with open_backends() as backends:
            await self.turns(make_saver(backends), 5)
        async with open_backends() as backends:
            app = await self.turns(make_saver(backends), 0)
            assert (await app.aget_state(CONFIG)).values["told"] == self.told(5)
            ends = [each async for each in app.aget_state_history(CONFIG) if not each.next]
            assert [each.values["told"] for each in ends] == [self.told(n) for n in range(5, 0, -1)]

    @pytest.mark.parametrize("number", [1, 2, 3, 4])
    async def test_pruning_keeps_what_the_newest_checkpoint_is_made_of(
        self, backends: Backends, number: int
    ) -> None:
        """And no more: the ancestors up to the nearest snapshot."""
        saver = make_saver(backends)
        app = await self.turns(saver, number)
        before = await count_records(backends, CHECKPOINT)
        await saver.aprune(["t"])
        assert (await app.aget_state(CONFIG)).values["told"] == self.told(number)
        left = await count_records(backends, CHECKPOINT)
        assert left <= min(5, before)
        await saver.aprune(["t"])
        assert await count_records(backends, CHECKPOINT) == left
        await self.turns(saver, 2)
        assert (await app.aget_state(CONFIG)).values["told"] == self.told(number) + self.told(2)

    async def test_a_copy_is_made_of_the_same(self, saver: HelixSaver) -> None:
        """Of a thread that is pruned afterwards."""
        app = await self.turns(saver, 3)
        await saver.acopy_thread("t", "copy")
        await saver.adelete_thread("t")
        state = await app.aget_state({"configurable": {"thread_id": "copy"}})
        assert state.values["told"] == self.told(3)

    async def test_a_run_that_later_ones_are_made_of_is_not_torn_out(self, saver: HelixSaver) -> None:
        """It is refused, and nothing is lost; together with the later ones it goes."""
        await self.turns(saver, 1, run_id="first")
        app = await self.turns(saver, 1, run_id="second")
        with pytest.raises(InvalidRequestError, match="delta channels"):
            await saver.adelete_for_runs(["first"])
        assert (await app.aget_state(CONFIG)).values["told"] == self.told(1) * 2
        await saver.adelete_for_runs(["second"])
        assert (await app.aget_state(CONFIG)).values["told"] == self.told(1)
        await saver.adelete_for_runs(["first"])
        assert await list_steps(saver) == []

    async def test_without_an_event_loop_it_is_the_same(self, open_backends: BackendsOpener) -> None:
        """LangGraph asks for the history by another method then."""

        def use(backends: Backends) -> Any:
            nodes = {"one": lambda state: {"told": ["one"]}}
            app = line(Delta, **nodes).compile(checkpointer=make_saver(backends))
            for _ in range(3):
                app.invoke({"told": ["turn"]}, CONFIG)
            return app.get_state(CONFIG).values["told"]

        assert await run_without_loop(open_backends, use) == ["turn", "one"] * 3


class TestPages:
    def run(self, program: str, directory: Path) -> list[str]:
        """The lines that a program prints, in a process of its own."""
        own = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
        variables = {**own, "HELIX_DATA_DIRECTORY": str(directory), "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, program], env=variables, capture_output=True, text=True, timeout=100, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    def test_the_program_of_the_page_runs_as_it_stands(self, tmp_path: Path, data_directory: Path) -> None:
        """A second run goes on with the conversation."""
        page = dict(titled(ROOT / "docs" / "frameworks" / "langgraph.md", "python"))
        program = tmp_path / "assistant.py"
        program.write_text(page["assistant.py"])
        told = [self.run(str(program), data_directory) for _ in range(2)]
        assert told == [["You have said 1 things."], ["You have said 2 things."]]

    def test_the_example_runs_as_its_page_says(self, data_directory: Path) -> None:
        """Resumed, branched, pruned, and of two writers one refused."""
        told = self.run(
            str(ROOT / "examples" / "langgraph_sessions" / "langgraph_sessions.py"), data_directory
        )
        assert [line.split(":")[0] for line in told] == [
            *("asks", "answers", "knows", "branch", "before", "pruned", "refused")
        ]
        assert told[2:6] == [
            "knows:   {'count': 1}",
            "branch:  model: I am sorry, there is no refund.",
            "before:  model: The refund is on its way.",
            "pruned:  5 checkpoints before the branch, 1 now",
        ]


class TestThreadsBesideALoop:
    """LangGraph runs synchronous nodes in threads; what they call belongs to the graph's event loop."""

    async def test_a_synchronous_node_uses_the_store_of_an_asynchronous_graph(
        self, saver: HelixSaver, backends: Backends
    ) -> None:
        """What it has put, an asynchronous one gets."""
        store = HelixStore(backends.records, backends.sessions)

        def remember(state: State, runtime: Runtime[Any]) -> Any:
            assert runtime.store is not None
            runtime.store.put(("ann", "memories"), "k", {"likes": "pizza"})
            return {"told": ["put"]}

        async def recall(state: State, runtime: Runtime[Any]) -> Any:
            assert runtime.store is not None
            found = await runtime.store.aget(("ann", "memories"), "k")
            assert found is not None
            return {"told": [found.value["likes"]]}

        graph = line(remember=remember, recall=recall).compile(checkpointer=saver, store=store)
        assert (await graph.ainvoke({"told": ["hi"]}, CONFIG))["told"] == ["hi", "put", "pizza"]

    async def test_a_synchronous_node_runs_a_graph_of_its_own(self, saver: HelixSaver) -> None:
        """With the saver of the graph above it, and an interrupt."""
        inner = line(ask=ask_at_once).compile()

        def run_inner(state: State) -> Any:
            return {"told": inner.invoke({"told": []})["told"]}

        graph = line(outer=run_inner).compile(checkpointer=saver)
        await graph.ainvoke({"told": ["hi"]}, CONFIG)
        done = await graph.ainvoke(Command(resume="yes"), CONFIG)
        assert done["told"] == ["hi", "answered yes"]

    async def test_an_asynchronous_call_follows_a_synchronous_one(
        self, saver: HelixSaver, backends: Backends
    ) -> None:
        """The loop in a thread that was first stays the one of the stores."""
        graph = line(first=say("first")).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "s"}}
        store = HelixStore(backends.records, backends.sessions)

        def use_first() -> None:
            store.put(("ann", "memories"), "k", {"n": 1})

        await asyncio.to_thread(use_first)
        assert (await graph.ainvoke({"told": []}, config))["told"] == ["first"]
        history = [each.values["told"] async for each in graph.aget_state_history(config)]
        assert history[0] == ["first"]
        found = await store.aget(("ann", "memories"), "k")
        assert found is not None
        await shared_loop().call(backends.close())

    async def test_a_loop_that_waits_for_such_a_call_is_told(
        self, saver: HelixSaver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It can't be answered: rather an error than a program that stands still."""
        monkeypatch.setattr("helix_temporal.frameworks.stores_loop.BEGIN_WITHIN", 0.2)
        assert await saver.aget_tuple(CONFIG) is None
        with ThreadPoolExecutor() as pool, pytest.raises(RunningLoopError, match="has not turned"):
            pool.submit(saver.get_tuple, CONFIG).result()


def ask_at_once(state: Any) -> Any:
    """As `ask`, for graphs that are not asynchronous."""
    return {"told": [f"answered {interrupt('go on?')}"]}
