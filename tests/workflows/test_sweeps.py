"""The maintenance worker's workflow: archives what no session looks after, whatever ails single threads."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.maintenance import SweepInput, SweepResult
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.testing.serving import session_worker
from helix_temporal.workflows import SweepWorkflow
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def lazy(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """A stand of the test's own that archives at the end of sessions only, so there is something to sweep."""
    desk = Desk()
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", flush="exit")
    async with session_worker(
        settings, desk.agents(), options=SessionOptions(idle_timeout=60), drain=1.0
    ) as served:
        yield Stand(served, desk)


async def leave(stand: Stand, *session_ids: str) -> None:
    """Sessions that answered once and were terminated."""
    for session_id in session_ids:
        await stand.sessions.ask(session_id, "hello", agent="main")
        await stand.handle(session_id).terminate()


async def sweep(stand: Stand, **fields: object) -> SweepResult:
    return await stand.served.client.execute_workflow(
        SweepWorkflow.run,
        SweepInput.model_validate(fields),
        id=f"sweep-{uuid.uuid4().hex}",
        task_queue=stand.served.plugin.settings.task_queue,
    )


async def test_threads_of_terminated_sessions_are_archived(lazy: Stand, unique: str) -> None:
    """No ``finally`` runs after a terminate."""
    await leave(lazy, f"{unique}-a", f"{unique}-b", f"{unique}-c")
    assert (await lazy.sessions.session(f"{unique}-a").describe_thread()).archived == 0
    found = await sweep(lazy)
    assert (found.seen, found.archived, found.failures) == (3, 3, 0)
    assert (await lazy.sessions.session(f"{unique}-a").describe_thread()).archived == 2


async def test_a_second_sweep_finds_nothing_to_do(lazy: Stand, unique: str) -> None:
    """It is run every minute."""
    await leave(lazy, f"{unique}-a", f"{unique}-b")
    await sweep(lazy)
    found = await sweep(lazy)
    assert (found.seen, found.archived, found.clean) == (2, 0, 2)


async def test_pages_of_a_sweep_add_up(lazy: Stand, unique: str) -> None:
    """A page is what one look at the hot store finds."""
    await leave(lazy, *(f"{unique}-{number}" for number in range(5)))
    found = await sweep(lazy, page=2)
    assert (found.seen, found.archived) == (5, 5)


async def test_a_thread_that_cannot_be_archived_is_named_and_stops_nobody(lazy: Stand, unique: str) -> None:
    """A damaged archive of one customer must not keep the others' turns in Redis."""
    await lazy.sessions.ask(f"{unique}-b-damaged", "hello", agent="main")
    await lazy.finish(f"{unique}-b-damaged")
    await lazy.sessions.ask(f"{unique}-b-damaged", "more", agent="main")
    await lazy.handle(f"{unique}-b-damaged").terminate()
    await leave(lazy, f"{unique}-a", f"{unique}-c")
    backends = lazy.served.plugin.backends
    await backends.blobs.put(
        backends.tiered.layout.manifest_key(f"{unique}-b-damaged"), b"damaged by somebody"
    )
    found = await sweep(lazy)
    assert (found.seen, found.archived, found.failures, found.failed) == (3, 2, 1, (f"{unique}-b-damaged",))


async def test_an_evicting_sweep_empties_redis_and_harms_no_live_session(lazy: Stand, unique: str) -> None:
    """What is archived need not be hot; a live session makes it hot again with its next step."""
    await leave(lazy, f"{unique}-dead")
    await lazy.sessions.ask(f"{unique}-alive", "one", agent="main")
    await sweep(lazy, evict=True)
    assert await lazy.served.plugin.backends.hot.read_header(f"{unique}-dead") is None
    assert (await lazy.sessions.ask(f"{unique}-alive", "two")).text == "3: two"
    await lazy.finish(f"{unique}-alive")


async def test_without_a_cold_tier_a_sweep_says_that_there_is_nothing_to_do(
    temporal_address: str, redis_url: str, s3: S3Endpoint, unique: str
) -> None:
    """Redis alone is then the archive."""
    none = dict.fromkeys(("s3_endpoint", "s3_bucket", "s3_access_key", "s3_secret_key"))
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", **none)
    desk = Desk()
    async with session_worker(settings, desk.agents(), options=SessionOptions(idle_timeout=60)) as served:
        stand = Stand(served, desk)
        await stand.sessions.ask(f"{unique}-a", "hello", agent="main")
        assert (await stand.sessions.ask(f"{unique}-a", "again")).text == "3: again"
        found = await sweep(stand)
        assert (found.seen, found.gone, found.failures) == (1, 1, 0)
        await stand.finish(f"{unique}-a")
        assert await stand.texts(f"{unique}-a") == ["hello", "1: hello", "again", "3: again"]
