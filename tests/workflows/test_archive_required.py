"""``archive="required"``: nobody is answered, and no tool is run, before the archive has the step."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from helix_temporal.backends import Backends
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings, Timeouts
from tests.workflows._desk import first_tools_then
from tests.workflows._shore import Shore, shore
from tests.workflows.conftest import TIMEOUTS

pytestmark = pytest.mark.asyncio(loop_scope="session")

REQUIRED = SessionOptions(idle_timeout=60, archive="required")


def hasty(flush_attempt: float) -> Timeouts:
    """A step is tried for six seconds in all, each time so long."""
    return TIMEOUTS.model_copy(
        update={
            "model_start_to_close": timedelta(seconds=2),
            "flush_attempt": timedelta(seconds=flush_attempt),
        }
    )


@pytest_asyncio.fixture(loop_scope="session")
async def sea(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shore]:
    """By the workers' setting."""
    async with shore(temporal_address, redis_url, s3, archive="required") as found:
        yield found


async def test_nobody_is_answered_before_the_archive_has_it(sea: Shore) -> None:
    """The answer waits for S3, and is paid for once."""
    sessions, name = sea.sessions, sea.names[0]
    await sessions.ask(name, "one", agent="main")
    sea.proxy.refuse()
    asked = asyncio.create_task(sessions.ask(name, "two"))
    await sea.tried(name, 3)
    assert not asked.done()
    sea.proxy.refuse(False)
    result = await asked
    assert (result.status, result.text, result.archived) == (AskStatus.ANSWERED, "3: two", True)
    assert len(sea.stand.desk.requests[name]) == 2


async def test_no_tool_is_run_before_the_archive_has_the_call(sea: Shore) -> None:
    """A lost Redis would run it twice."""
    sessions, name, desk = sea.sessions, sea.names[0], sea.stand.desk
    await sessions.ask(name, "one", agent="main")
    desk.scripts[name] = first_tools_then("done", "look")
    sea.proxy.refuse()
    asked = asyncio.create_task(sessions.ask(name, "two"))
    await sea.tried(name, 3)
    assert desk.contexts[name] == []
    sea.proxy.refuse(False)
    assert (await asked).text == "done"
    assert len(desk.contexts[name]) == 1


async def test_an_answer_that_was_given_survives_redis_and_a_wiped_step_is_done_again(sea: Shore) -> None:
    """Redis is lost while the step waits for S3: it is run again, and nothing that was told is gone."""
    sessions, name = sea.sessions, sea.names[0]
    await sessions.ask(name, "one", agent="main")
    sea.proxy.refuse()
    asked = asyncio.create_task(sessions.ask(name, "two"))
    await sea.tried(name, 2)
    await sea.wipe()
    sea.proxy.refuse(False)
    result = await asked
    assert (result.status, result.archived, result.receipts) == (AskStatus.ANSWERED, True, ())
    await sea.wipe()
    assert await sea.users(name) == ["one", "two"]


async def test_a_session_may_do_without(sea: Shore) -> None:
    """What its options say counts more than the workers' setting."""
    sessions = sea.stand.client(archive="eventual")
    await sessions.ask(sea.names[0], "one", agent="main")
    sea.proxy.refuse()
    result = await sessions.ask(sea.names[0], "two", timeout=20)
    assert (result.status, result.archived) == (AskStatus.ANSWERED, False)


@pytest.mark.parametrize("flush_attempt", [0.3, 1.3], ids=["its time ends between attempts", "within one"])
async def test_past_its_time_a_typed_error_tells_and_the_answer_is_kept(
    temporal_address: str, redis_url: str, s3: S3Endpoint, flush_attempt: float
) -> None:
    """The message is in the thread; asked again under its id it is answered, and not paid for again."""
    timeouts = hasty(flush_attempt)
    async with shore(temporal_address, redis_url, s3, archive="required", timeouts=timeouts) as sea:
        sessions, name = sea.sessions, sea.names[0]
        await sessions.ask(name, "one", agent="main")
        sea.proxy.delay(name, 30)
        failed = await sessions.ask(name, "two", message_id="two")
        assert (failed.status, failed.in_thread, failed.archived) == (AskStatus.FAILED, True, False)
        assert failed.error is not None
        assert failed.error.startswith("NotArchivedError")
        sea.proxy.forget()
        result = await sessions.ask(name, "two", agent="main", message_id="two", timeout=30)
        assert (result.status, result.text, result.archived) == (AskStatus.ANSWERED, "3: two", True)
        assert len(sea.stand.desk.requests[name]) == 2


async def test_one_session_may_require_it(temporal_address: str, redis_url: str, s3: S3Endpoint) -> None:
    """By its options, which it remembers; also where threads are archived at the end only."""
    async with shore(temporal_address, redis_url, s3, flush="exit") as sea:
        strict, name = sea.served.create_client(REQUIRED), sea.names[0]
        assert (await strict.ask(name, "one", agent="main")).archived is True
        assert (await sea.sessions.ask(sea.names[1], "one", agent="main")).archived is False
        await sea.wipe()
        assert await sea.users(name) == ["one"]


async def test_it_takes_a_cold_tier(temporal_address: str, redis_url: str, s3: S3Endpoint) -> None:
    """Told before the model is paid; to workers, at their start."""
    async with shore(temporal_address, redis_url, s3, s3_endpoint=None, s3_bucket=None) as sea:
        refused = await sea.served.create_client(REQUIRED).ask(sea.names[0], "one", agent="main")
        assert refused.error is not None
        assert refused.error.startswith("InvalidConfigError")
        assert sea.stand.desk.requests[sea.names[0]] == []
    with pytest.raises(InvalidConfigError, match="no cold tier"):
        Backends(Settings(archive="required"))


async def test_it_contradicts_an_archive_at_the_end() -> None:
    """Both can't be meant."""
    with pytest.raises(InvalidConfigError, match="flush"):
        Settings(archive="required", flush="exit")
