"""`HelixSession` beside `SQLAlchemySession` and `RedisSession`, in one PostgreSQL and one Redis, by turns.

In an environment with the extra ``openai-agents`` and ``sqlalchemy greenlet``, with addresses of a database
and a Redis that may be written to::

    export HELIX_POSTGRES_DSN=postgresql://… HELIX_REDIS_URL=redis://…
    python -m bench.frameworks.openai_sessions [ITEMS]

Appends a turn (two items of 1 KB) to a new session and to a long one; reads the newest 20 and all of it;
takes the newest item back and adds it again.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import redis.asyncio as redis
from agents.extensions.memory.redis_session import RedisSession
from agents.extensions.memory.sqlalchemy_session import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.openai_agents import HelixSession
from helix_temporal.stores.postgres import PostgresBackend

ROUNDS: Final = 5
CALLS: Final = 40
"""Of each kind and contestant in a round."""
TEXT: Final = ("What a turn says is about as long as this line, and a few more like it. " * 15)[:1000]

MakeSession = Callable[[str], Any]
Ask = Callable[[], Awaitable[Any]]


def make_turn(number: int) -> list[Any]:
    """Two items."""
    return [
        {"role": "user", "content": f"{number} {TEXT}"},
        {"role": "assistant", "content": f"{number} {TEXT}"},
    ]


async def open_ours(stack: contextlib.AsyncExitStack, **variables: str) -> MakeSession:
    """Sessions in our stores."""
    backends = Backends(Settings.from_env({"HELIX_ALLOW_PLAINTEXT": "true", **variables}))
    stack.push_async_callback(backends.close)
    store = backends.sessions
    assert store is not None
    return lambda name: HelixSession(name, store)


async def open_contestants(stack: contextlib.AsyncExitStack) -> dict[str, MakeSession]:
    """Sessions by their names, each with tables or keys of its own."""
    dsn, url, own = os.environ["HELIX_POSTGRES_DSN"], os.environ["HELIX_REDIS_URL"], uuid.uuid4().hex[:8]
    tables = PostgresBackend(dsn, table_prefix=f"b{own}_")
    await tables.migrations.run()
    await tables.close()
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    stack.push_async_callback(engine.dispose)
    begun = SQLAlchemySession(f"{own} first", engine=engine, create_tables=True)
    await begun.get_items()

    client = redis.from_url(url)
    stack.push_async_callback(client.aclose)

    def make_in_redis(name: str) -> Any:
        return RedisSession(f"{own} {name}", redis_client=client, key_prefix=f"peer{own}")

    return {
        "ours, PostgreSQL": await open_ours(
            stack, HELIX_POSTGRES_DSN=dsn, HELIX_TABLE_PREFIX=f"b{own}_"
        ),
        "SQLAlchemySession": lambda name: SQLAlchemySession(f"{own} {name}", engine=engine),
        "ours, Redis": await open_ours(stack, HELIX_REDIS_URL=url, HELIX_REDIS_PREFIX=f"b{own}:"),
        "RedisSession": make_in_redis,
    }  # fmt: skip


async def fill_session(session: Any, items: int) -> None:
    """Some turns at once: how it came there is not measured."""
    for first in range(0, items // 2, 50):
        turns = [make_turn(number) for number in range(first, min(first + 50, items // 2))]
        await session.add_items([item for turn in turns for item in turn])


async def take_turns(what: str, asks: dict[str, Ask], calls: int = CALLS) -> None:
    """A row: milliseconds of a call, the median of each round; their median, and their range."""
    found: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(ROUNDS + 1):
        for name, ask in asks.items():
            taken = []
            for _ in range(calls):
                begun = time.perf_counter()
                await ask()
                taken.append(1_000 * (time.perf_counter() - begun))
            if number:  # the first one warms up
                found[name].append(statistics.median(taken))
    for name, each in found.items():
        print(f"| {what} | {name} | {statistics.median(each):.2f} ms | {min(each):.2f} … {max(each):.2f} |")


async def measure(contestants: dict[str, MakeSession], items: int) -> None:
    """All rows."""
    print("| what | session | median | range |\n|---|---|---|---|")

    def appending(session: Any) -> Ask:
        return lambda: session.add_items(make_turn(0))

    await take_turns(
        "append a turn to a new session", {name: appending(make("new")) for name, make in contestants.items()}
    )
    long = {name: make("long") for name, make in contestants.items()}
    for session in long.values():
        await fill_session(session, items)

    def reading(session: Any, newest: int | None) -> Ask:
        async def read() -> None:
            assert len(await session.get_items(newest)) == (newest or items)

        return read

    for newest, calls in ((20, CALLS), (None, 5)):
        what = f"newest {newest} of {items:,} items" if newest else f"all {items:,} items"
        await take_turns(what, {name: reading(each, newest) for name, each in long.items()}, calls)

    def popping(session: Any) -> Ask:
        async def pop() -> None:
            await session.add_items([await session.pop_item()])

        return pop

    await take_turns("pop an item, add it", {name: popping(each) for name, each in long.items()})
    await take_turns(
        f"append a turn to {items:,} items", {name: appending(each) for name, each in long.items()}
    )


async def main() -> None:
    """The table."""
    async with contextlib.AsyncExitStack() as stack:
        contestants = await open_contestants(stack)
        await measure(contestants, int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)


if __name__ == "__main__":
    asyncio.run(main())
