"""LangGraph: `AsyncPostgresSaver` and `HelixSaver` under a graph with a list of messages.

Messages have ids, by which ``add_messages`` knows them.  `RedisSaver` needs modules of
Redis (JSON and search) that the server here does not have.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from bench.faults.stores import Item, OurBackends, Subject
from helix_temporal.errors import FencedError
from helix_temporal.frameworks.langgraph import HelixSaver


class State(TypedDict):
    """Messages."""

    messages: Annotated[list, add_messages]


class GraphThread:
    """One thread of a graph over any saver, and what closes it."""

    def __init__(self, saver: Any, thread_id: str, close: Any) -> None:
        graph = StateGraph(State)
        graph.add_node("store", lambda _: {})
        graph.add_edge(START, "store")
        graph.add_edge("store", END)
        self._graph, self._saver, self._close = graph.compile(checkpointer=saver), saver, close
        self._thread_id, self._refused = thread_id, False
        self._config: Any = {"configurable": {"thread_id": thread_id}}

    @classmethod
    async def open_postgres(cls, address: str, thread_id: str) -> "GraphThread":
        """A connection of its own, and tables."""
        opened = AsyncPostgresSaver.from_conn_string(address)
        saver = await opened.__aenter__()
        await saver.setup()
        return cls(saver, thread_id, lambda: opened.__aexit__(None, None, None))

    @classmethod
    async def open_ours(cls, address: str, thread_id: str, *, exclusive: bool = False) -> "GraphThread":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        saver = HelixSaver(backends.records, backends.sessions, exclusive=exclusive)
        return cls(saver, thread_id, backends.close)

    @classmethod
    async def open_exclusive(cls, address: str, thread_id: str) -> "GraphThread":
        """A saver that owns its threads."""
        return await cls.open_ours(address, thread_id, exclusive=True)

    async def append(self, items: Sequence[Item]) -> None:
        """One run of the graph, with its input as messages."""
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        messages = [kinds[each.role](content=each.text, id=each.name) for each in items]
        try:
            await self._graph.ainvoke({"messages": messages}, self._config)
        except FencedError:
            self._refused = True
            raise

    async def read(self, newest: int | None = None) -> list[str]:
        """The state, which is the whole list."""
        found = await self._graph.aget_state(self._config)
        texts = [each.content for each in found.values.get("messages", [])]
        return texts if newest is None else texts[-newest:]

    async def refresh(self) -> None:
        """An exclusive saver that was refused takes the thread over; others refuse nobody."""
        if self._refused:
            await self._saver.take_over(self._thread_id)
            self._refused = False

    async def delete(self) -> None:
        """The thread."""
        await self._saver.adelete_thread(self._thread_id)

    async def close(self) -> None:
        """Close the connection."""
        await self._close()


SUBJECTS = [
    Subject("AsyncPostgresSaver", "postgres", GraphThread.open_postgres, batch=500),
    Subject("HelixSaver, PostgreSQL", "postgres", GraphThread.open_ours, batch=500, ours=True),
    Subject(
        "HelixSaver(exclusive), PostgreSQL", "postgres", GraphThread.open_exclusive, batch=500, ours=True
    ),
    Subject("HelixSaver, Redis", "redis", GraphThread.open_ours, batch=500, ours=True),
]
