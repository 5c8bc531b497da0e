"""What reading costs does not grow with what there is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.testing.contracts.session_store import OpenSessions
from helix_temporal.testing.proxy import FaultProxy
from tests import _postgres
from tests._session_stores import store_over
from tests._sessions import LONG, postgres_place, redis_place

MESSAGES = 10_000
SESSIONS = 20_000 if LONG else 1_000

pytestmark = pytest.mark.timeout(600 if LONG else 120)


@dataclass
class Metered:
    """A store, and what goes over the network to it."""

    opened: OpenSessions
    proxy: FaultProxy

    @asynccontextmanager
    async def at_most(self, *, replies: int, size: int) -> AsyncIterator[None]:
        """Fails if there were more answers, or more bytes in them."""
        before = self.proxy.replies, self.proxy.bytes_down
        yield
        assert self.proxy.replies - before[0] <= replies
        assert self.proxy.bytes_down - before[1] <= size


@pytest.fixture(params=["redis", "postgres"])
async def metered(request: pytest.FixtureRequest, redis_prefix: str) -> AsyncIterator[Metered]:
    """An empty store behind a proxy."""
    if request.param == "redis":
        url = urlsplit(request.getfixturevalue("redis_url"))
        async with (
            FaultProxy.start(f"{url.hostname}:{url.port}") as proxy,
            redis_place(f"redis://{proxy.address}", redis_prefix) as place,
        ):
            yield Metered(store_over(place), proxy)
        return
    dsn, prefix = urlsplit(request.getfixturevalue("postgres_dsn")), _postgres.own_prefix("costs")
    async with (
        _postgres.emptied(dsn.geturl(), prefix),
        FaultProxy.start(f"{dsn.hostname}:{dsn.port}") as proxy,
    ):
        through = dsn._replace(netloc=f"{dsn.username}@{proxy.address}").geturl()
        async with postgres_place(through, prefix) as place:
            yield Metered(store_over(place), proxy)


async def test_a_page_of_a_long_session_costs_what_a_page_costs(metered: Metered) -> None:
    """Of ten thousand messages fifty are sent, wherever they stand (case 31)."""
    store = metered.opened.sessions
    await store.create_session("long")
    for first in range(0, MESSAGES, 1_000):
        messages = [Message(id=f"m{n}", role="user", content="x" * 100) for n in range(first, first + 1_000)]
        await store.append_messages("long", messages)
    await store.get_messages("long")
    for offset in (0, MESSAGES // 2, MESSAGES - 50):
        async with metered.at_most(replies=4, size=40_000):
            page = await store.get_messages("long", offset=offset)
        assert [each.id for each in page.messages] == [f"m{n}" for n in range(offset, offset + 50)]
        assert page.total == MESSAGES
    async with metered.at_most(replies=4, size=4_000):
        assert await store.get_message_count("long") == MESSAGES


async def test_a_page_of_many_sessions_costs_what_a_page_costs(metered: Metered) -> None:
    """Filtered or not, by number or by cursor, only the page is sent (case 108)."""
    store = metered.opened.sessions
    options = [CreateSession(agent_type=f"agent-{n % 2}", user_id=f"user-{n % 100}") for n in range(100)]
    for first in range(0, SESSIONS, 100):
        await asyncio.gather(
            *(store.create_session(f"s{first + n:05}", each) for n, each in enumerate(options))
        )
    order = OrderBy(field="created_at", direction="asc")
    await store.list_sessions(SessionQuery(order_by=order))
    async with metered.at_most(replies=12, size=80_000):
        page = await store.list_sessions(SessionQuery(order_by=order))
    assert (len(page.sessions), page.total) == (50, SESSIONS)
    async with metered.at_most(replies=12, size=80_000):
        page = await store.list_sessions(SessionQuery(order_by=order, cursor=page.next_cursor))
    assert len(page.sessions) == 50
    async with metered.at_most(replies=12, size=80_000):
        page = await store.list_sessions(SessionQuery(user_id="user-7", agent_type="agent-1"))
    assert page.total == SESSIONS // 100
    async with metered.at_most(replies=12, size=80_000):
        page = await store.list_sessions(SessionQuery(user_id="user-7", agent_type="agent-0"))
    assert page.total == 0
