"""A slow or failing archive of one session is that session's own trouble, and is told."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.sessions import AskStatus
from tests.workflows._shore import Shore, shore

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def sea(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shore]:
    async with shore(temporal_address, redis_url, s3) as found:
        yield found


async def test_a_slow_put_of_one_session_leaves_the_others_archived(sea: Shore) -> None:
    """Ten answers that two healthy sessions gave while a third waits for S3 survive a wiped Redis."""
    sessions, (slow, *healthy) = sea.sessions, sea.names
    for name in sea.names:
        await sessions.ask(name, "hello", agent="main")
    sea.proxy.delay(f"{slow}/manifest", 60.0)
    late = asyncio.create_task(sessions.ask(slow, "late"))
    async with asyncio.timeout(20):
        while len(sea.stand.desk.requests[slow]) < 2:  # noqa: ASYNC110 (a worker tells nobody)
            await asyncio.sleep(0.02)
    for text in ("one", "two", "three", "four", "five"):
        told = await asyncio.gather(*(sessions.ask(name, text) for name in healthy))
        assert [each.archived for each in told] == [True, True]
    assert (await late).archived is False
    await sea.wipe()
    for name in healthy:
        assert await sea.users(name) == ["hello", "one", "two", "three", "four", "five"]


async def test_an_answer_says_whether_it_is_archived(sea: Shore) -> None:
    """Who asked knows what a lost Redis would cost; asked again later it says what has become of it."""
    sessions, (name, *_) = sea.sessions, sea.names
    assert (await sessions.ask(name, "one", agent="main")).archived is True
    sea.proxy.refuse()
    told = await sessions.ask(name, "two", message_id="two")
    assert (told.status, told.in_thread, told.archived) == (AskStatus.ANSWERED, True, False)
    assert (await sessions.ask(name, "two", message_id="two")).archived is False
    sea.proxy.refuse(False)
    await sea.status(name, lambda info: info.archived)
    again = await sessions.ask(name, "two", message_id="two")
    assert (again.text, again.archived) == (told.text, True)


async def test_the_status_says_how_far_the_archive_is_behind(sea: Shore) -> None:
    """Where it stands, how much that is, since when, and why."""
    sessions, (name, *_) = sea.sessions, sea.names
    await sessions.ask(name, "one", agent="main")
    assert (await sessions.session(name).get_status()).lag is None
    sea.proxy.refuse()
    await sessions.ask(name, "two")
    first = (await sessions.session(name).get_status()).lag
    await sessions.ask(name, "three")
    lag = (await sessions.session(name).get_status()).lag
    assert first is not None
    assert lag is not None
    assert (lag.start, lag.messages, lag.since) == (2, 4, first.since)
    assert lag.bytes > first.bytes > 0
    assert lag.since > 1_600_000_000_000
    assert "Unavailable" in lag.error
    sea.proxy.refuse(False)
    assert (await sea.status(name, lambda info: info.archived)).lag is None


async def test_without_a_cold_tier_nothing_is_said(
    temporal_address: str, redis_url: str, s3: S3Endpoint
) -> None:
    """True would be a lie, and False an alarm."""
    async with shore(temporal_address, redis_url, s3, s3_endpoint=None, s3_bucket=None) as alone:
        assert (await alone.sessions.ask(alone.names[0], "one", agent="main")).archived is None
