"""LangGraph: `AsyncPostgresSaver` under a graph of one node; ``delta`` keeps messages in a `DeltaChannel`."""

import sys
from typing import Annotated, Any, TypedDict

from _speak import Turn, serve
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


def _add_all(messages: Any, writes: Any) -> Any:
    for write in writes:
        messages = add_messages(messages or [], write)
    return messages


class Classic(TypedDict):
    """The whole list is stored whenever it changes."""

    messages: Annotated[list, add_messages]
    note: str


class Delta(TypedDict):
    """What is added is stored, and the whole list now and then."""

    messages: Annotated[list, DeltaChannel(_add_all)]
    note: str


class LangGraph:
    """One thread of a graph; a turn is one ``ainvoke``."""

    def __init__(self, opened: Any, saver: AsyncPostgresSaver, thread_id: str) -> None:
        graph = StateGraph(Delta if "delta" in sys.argv else Classic)
        graph.add_node("answer", self._answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self._graph, self._opened, self._thread_id = graph.compile(checkpointer=saver), opened, thread_id
        self._turn: Turn | None = None

    @classmethod
    async def open(cls, dsn: str, thread_id: str) -> "LangGraph":
        """A connection of its own, and tables."""
        opened = AsyncPostgresSaver.from_conn_string(dsn)
        saver = await opened.__aenter__()
        await saver.setup()
        return cls(opened, saver, thread_id)

    async def write(self, turn: Turn) -> None:
        """One run of the graph."""
        user = HumanMessage(content=turn.user, id=f"{turn.name}-user")
        self._turn = turn
        await self._graph.ainvoke({"messages": [user]}, self._config())

    async def hydrate(self) -> list[str]:
        """The state."""
        found = await self._graph.aget_state(self._config())
        return [message.content for message in found.values["messages"]]

    async def refresh(self) -> None:
        """It refuses nobody."""

    async def close(self) -> None:
        """Close the connection."""
        await self._opened.__aexit__(None, None, None)

    async def _answer(self, _: Any) -> dict[str, Any]:
        turn = self._turn
        return {"messages": [AIMessage(content=turn.answer, id=f"{turn.name}-answer")], "note": turn.note}

    def _config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self._thread_id}}


if __name__ == "__main__":
    serve(LangGraph.open, "langgraph", "langgraph-checkpoint-postgres", "psycopg")
