"""`HelixSessionService` beside ADK's `DatabaseSessionService`, on one PostgreSQL, taking turns.

Run in the environment of ``make test-frameworks NAME=google-adk``, with ``sqlalchemy greenlet`` beside:

    build/frameworks/google-adk/bin/python bench/peers/google_adk_sessions.py

Reads the newest 20 of 3,000 events, all 3,000, appends, and lists 10,000 sessions; then the histories of a
workflow of 20 and 60 turns of 2 KB and 2 KB.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Not the folder of this script: a module of it has the name of a package.
sys.path[0] = str(ROOT)

from google.adk.events.event import Event  # noqa: E402 (after the path)
from google.adk.events.event_actions import EventActions  # noqa: E402
from google.adk.sessions import DatabaseSessionService  # noqa: E402
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig  # noqa: E402
from google.genai import types  # noqa: E402
from temporalio.client import Client  # noqa: E402
from temporalio.google_adk import GoogleAdkPlugin  # noqa: E402
from temporalio.worker import Worker  # noqa: E402

from helix_temporal import Backends, Settings  # noqa: E402
from helix_temporal.frameworks.google_adk import HelixSessionService  # noqa: E402
from helix_temporal.frameworks.google_adk.worker import HelixGoogleAdkPlugin  # noqa: E402
from helix_temporal.models.store_calls import OrderBy, SessionQuery  # noqa: E402
from helix_temporal.stores.postgres import PostgresBackend  # noqa: E402
from tests import _services  # noqa: E402
from tests.frameworks._google_adk_model import register_model  # noqa: E402
from tests.frameworks._google_adk_workflows import APP, USER, Conversation, Talk  # noqa: E402

NAMES: Final[dict[str, Any]] = {"app_name": APP, "user_id": USER}


_WAYS: Final[dict[str, dict[str, bool]]] = {
    "InMemorySessionService": {"in_memory": True},
    "HelixWorkflowSessionService": {},
    "the same, with HelixModel": {"by_reference": True},
}


def make_event(number: int, size: int = 200) -> Event:
    """An event with a text and a change of the state."""
    content = types.Content(role="user", parts=[types.Part(text="x" * size)])
    actions = EventActions(state_delta={"note": number})
    return Event(author="user", invocation_id=f"i{number}", content=content, actions=actions)


async def fill_session(service: BaseSessionService, events: int) -> float:
    """Make the long session; milliseconds an append."""
    session = await service.create_session(**NAMES, session_id="long")
    begun = time.perf_counter()
    for number in range(events):
        await service.append_event(session, make_event(number))
    return (time.perf_counter() - begun) * 1000 / events


async def fill_list(service: BaseSessionService, sessions: int) -> None:
    """Make the sessions of the list, some at once."""
    names = iter(range(sessions))

    async def fill() -> None:
        for number in names:
            await service.create_session(
                app_name="list", user_id=USER, session_id=f"s{number}", state={"title": f"chat {number}"}
            )

    await asyncio.gather(*(fill() for _ in range(8)))


async def measure(call: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of a call."""
    begun = time.perf_counter()
    await call()
    return (time.perf_counter() - begun) * 1000


def show(what: str, found: dict[str, list[float]]) -> None:
    """A row of the table: the median of each, and its range."""
    for name, each in found.items():
        low, high = min(each), max(each)
        print(f"{what:34} {name:30} {statistics.median(each):10.1f} ms   {low:9.1f} … {high:.1f}", flush=True)


async def take_turns(what: str, calls: dict[str, Callable[[], Awaitable[Any]]], times: int) -> None:
    """Measure each, one after the other, again and again."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        await call()
    for _ in range(times):
        for name, call in calls.items():
            found[name].append(await measure(call))
    show(what, found)


async def compare_reads(services: dict[str, BaseSessionService], events: int, times: int) -> None:
    """Reads of a long session."""
    for name, service in services.items():
        show(f"append, mean of {events}", {name: [await fill_session(service, events)]})

    def reader(service: BaseSessionService, newest: int | None) -> Callable[[], Awaitable[Any]]:
        async def read() -> None:
            config = GetSessionConfig(num_recent_events=newest)
            found = await service.get_session(**NAMES, session_id="long", config=config)
            assert found is not None
            assert len(found.events) == (newest or events)

        return read

    for newest, count in ((20, times), (None, max(times // 5, 3))):
        what = f"newest {newest} of {events} events" if newest else f"all {events} events"
        await take_turns(what, {name: reader(each, newest) for name, each in services.items()}, count)


async def compare_lists(services: dict[str, BaseSessionService], sessions: int, times: int) -> None:
    """Lists of many sessions, whole."""
    for service in services.values():
        await fill_list(service, sessions)

    def lister(service: BaseSessionService) -> Callable[[], Awaitable[Any]]:
        async def read() -> None:
            found = await service.list_sessions(app_name="list", user_id=USER)
            assert len(found.sessions) == sessions

        return read

    calls = {name: lister(each) for name, each in services.items()}
    await take_turns(f"list of {sessions} sessions", calls, max(times // 10, 3))


async def measure_page(backends: Backends, name: str, times: int) -> None:
    """One page of 200 of such a list, which is what the store is asked for each time."""
    assert backends.sessions is not None
    store = backends.sessions
    first = (await store.list_sessions(SessionQuery(limit=1, agent_type="google-adk"))).sessions[0]
    query = SessionQuery(
        tags=first.tags[1:], limit=200, order_by=OrderBy(field="created_at", direction="asc"),
        include=("custom_state",),
    )  # fmt: skip
    await take_turns("  a page of 200", {name: lambda: store.list_sessions(query)}, times)


async def measure_histories(address: str, backends: Backends, turns: Sequence[int]) -> None:
    """Bytes of a workflow's history, with sessions of ours and with ADK's in memory."""
    register_model()
    plugins = [GoogleAdkPlugin(), HelixGoogleAdkPlugin(backends.settings, backends=backends)]
    client = await Client.connect(address, plugins=plugins)
    queue = uuid.uuid4().hex
    async with Worker(client, task_queue=queue, workflows=[Conversation]):
        for count in turns:
            for what, ways in _WAYS.items():
                name = f"h{count} {what}"
                talk = Talk(name, [f"size 2048 {n} {'y' * 2030}" for n in range(count)], **ways)
                handle = await client.start_workflow(
                    Conversation.run, talk, id=f"{queue}-{name}", task_queue=queue
                )
                await handle.result()
                info = (await handle.describe()).raw_description.workflow_execution_info
                size = info.history_size_bytes / 1e6
                print(f"history of {count:3} turns {what:30} {size:8.2f} MB {info.history_length:6} events")


async def main() -> None:
    """All of it; ``--quick`` a tenth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("reads", "lists", "histories"))
    given = parser.parse_args()
    events, sessions, times = (300, 1000, 5) if given.quick else (3000, 10_000, 20)
    broker = _services.Broker()
    services = {kind: _services.service(kind) for kind in ("postgres", "redis", "temporal")}
    dsn = services["postgres"]["HELIX_POSTGRES_DSN"]
    own = uuid.uuid4().hex[:8]
    common = {"HELIX_ALLOW_PLAINTEXT": "true"}
    opened = {
        "ours, PostgreSQL": Backends(
            Settings.from_env(common | {"HELIX_POSTGRES_DSN": dsn, "HELIX_TABLE_PREFIX": f"b{own}_"})
        ),
        "ours, Redis": Backends(
            Settings.from_env(common | services["redis"] | {"HELIX_REDIS_PREFIX": f"b{own}:"})
        ),
    }
    database = DatabaseSessionService(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    tables = PostgresBackend(dsn, table_prefix=f"b{own}_")
    await tables.migrations.run()
    await tables.close()
    contestants: dict[str, BaseSessionService] = {
        name: HelixSessionService(each.sessions) for name, each in opened.items() if each.sessions
    }
    contestants["DatabaseSessionService"] = database
    try:
        if given.only in {None, "reads"}:
            await compare_reads(contestants, events, times)
        if given.only in {None, "lists"}:
            await compare_lists(contestants, sessions, times)
            for name, each in opened.items():
                await measure_page(each, name, times)
        if given.only in {None, "histories"}:
            address = services["temporal"]["HELIX_TEMPORAL_ADDRESS"]
            await measure_histories(address, opened["ours, Redis"], (20, 60))
    finally:
        await database.close()
        for each in opened.values():
            await each.close()
        broker.close()


if __name__ == "__main__":
    os.environ.setdefault("HELIX_REQUIRE_SERVICES", "1")
    asyncio.run(main())
