"""A support graph whose threads last: ``python examples/langgraph_sessions/langgraph_sessions.py``.

It needs the extra ``langgraph`` and nothing else: no key, no server.  With HELIX_POSTGRES_DSN or
HELIX_REDIS_URL the threads are there instead of in a directory.
"""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from langgraph.types import Command
from support_graph import builder

from helix_temporal import Backends, Settings
from helix_temporal.errors import FencedError
from helix_temporal.frameworks.langgraph import HelixSaver, HelixStore

CONFIG: Any = {"configurable": {"thread_id": "order 7", "user_id": "ada"}}


async def ask_for_refund(variables: Mapping[str, str]) -> None:
    """The first process: the graph stops where a person must agree."""
    backends = Backends(Settings.from_env(variables))
    saver = HelixSaver(backends.records, backends.sessions)
    store = HelixStore(backends.records, backends.sessions)
    graph = builder.compile(checkpointer=saver, store=store)
    result = await graph.ainvoke({"said": ["user: I want my money back for order 7"]}, CONFIG)
    print(f"asks:    {result['__interrupt__'][0].value}")
    await backends.close()


async def approve_refund(variables: Mapping[str, str]) -> None:
    """Another process, days later: the run goes on where it stopped."""
    backends = Backends(Settings.from_env(variables))
    saver = HelixSaver(backends.records, backends.sessions)
    store = HelixStore(backends.records, backends.sessions)
    graph = builder.compile(checkpointer=saver, store=store)
    result = await graph.ainvoke(Command(resume="yes"), CONFIG)
    print(f"answers: {result['said'][-1]}")
    item = await store.aget(("memories", "ada"), "refunds")
    print(f"knows:   {item.value if item else None}")
    await backends.close()


async def change_the_past(variables: Mapping[str, str]) -> None:
    """A branch from where the person was asked; the first answer stays where it is."""
    backends = Backends(Settings.from_env(variables))
    saver = HelixSaver(backends.records, backends.sessions)
    store = HelixStore(backends.records, backends.sessions)
    graph = builder.compile(checkpointer=saver, store=store)
    history = [each async for each in graph.aget_state_history(CONFIG)]
    asked = next(each for each in history if each.next == ("approve",))
    branch = await graph.aupdate_state(asked.config, None, as_node="ask")
    await graph.ainvoke(None, {"configurable": {**CONFIG["configurable"], **branch["configurable"]}})
    result = await graph.ainvoke(Command(resume="no"), CONFIG)
    print(f"branch:  {result['said'][-1]}")
    print(f"before:  {(await graph.aget_state(history[0].config)).values['said'][-1]}")
    await saver.aprune(["order 7"])
    left = [each async for each in saver.alist(CONFIG)]
    print(f"pruned:  {len(history)} checkpoints before the branch, {len(left)} now")
    await backends.close()


async def refuse_the_second_writer(variables: Mapping[str, str]) -> None:
    """Two processes on one thread: the one that was there first is told so, and writes nothing."""
    backends = Backends(Settings.from_env(variables))
    older = HelixSaver(backends.records, backends.sessions, exclusive=True)
    newer = HelixSaver(backends.records, backends.sessions, exclusive=True)
    await older.aget_tuple(CONFIG)
    await newer.aget_tuple(CONFIG)
    try:
        await builder.compile(checkpointer=older).ainvoke({"said": ["user: and order 8?"]}, CONFIG)
    except FencedError as error:
        print(f"refused: {error}")
    await backends.close()


async def main() -> None:
    """All four, on stores that outlive each of them."""
    with tempfile.TemporaryDirectory() as directory:
        elsewhere = {"HELIX_POSTGRES_DSN", "HELIX_REDIS_URL"} & os.environ.keys()
        variables = dict(os.environ) if elsewhere else {"HELIX_DATA_DIRECTORY": directory}
        await ask_for_refund(variables)
        await approve_refund(variables)
        await change_the_past(variables)
        await refuse_the_second_writer(variables)


if __name__ == "__main__":
    asyncio.run(main())
