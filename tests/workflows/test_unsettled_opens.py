"""Opens that end without a verdict: an attempt that lands later takes nothing back."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.api.history.v1 import HistoryEvent

from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import FencedError, SessionInterruptedError, StoreUnavailableError
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.testing.proxy import FaultProxy, StallReply
from helix_temporal.testing.serving import session_worker
from helix_temporal.workflows import calls
from tests.workflows._desk import Desk
from tests.workflows.conftest import TIMEOUTS, Stand, make_settings
from tests.workflows.test_archive_down import Shore

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

SHORT = TIMEOUTS.model_copy(
    update={
        "store_start_to_close": timedelta(seconds=1),
        "store_schedule_to_close": timedelta(seconds=2),
    }
)


@pytest.fixture(scope="module")
def impatient() -> Iterator[None]:
    """An open has a minute beside the roll-out, as a worker may lack the agent; here none does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_LAST_ATTEMPT", 0.0)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shore(
    temporal_address: str, redis_url: str, s3: S3Endpoint, impatient: None
) -> AsyncIterator[Shore]:
    """A worker that gives up soon, whose S3 is behind a proxy."""
    desk = Desk()
    async with FaultProxy.start(s3.endpoint) as proxy:
        name = f"t{uuid.uuid4().hex[:12]}"
        endpoint = f"http://{proxy.address}"
        settings = make_settings(temporal_address, redis_url, s3, name, s3_endpoint=endpoint, timeouts=SHORT)
        options = SessionOptions(idle_timeout=60)
        async with session_worker(settings, desk.agents(), options=options, drain=1.0) as served:
            yield Shore(Stand(served, desk), proxy, "")
            proxy.refuse(False)


FAILS = {"refused": StoreUnavailableError, "stalled": TimeoutError}
"""How S3 is away, and what is told of it."""


@pytest_asyncio.fixture(loop_scope="session", params=FAILS)
async def sid(shore: Shore, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A session of one turn, whose rewind to its beginning came to no verdict while S3 was away."""
    session_id, sessions = f"s-{uuid.uuid4().hex[:8]}", shore.stand.sessions
    await sessions.ask(session_id, "one", agent="main")
    opens = shore.stand.served.plugin.backends.tiered.open
    under_way = list[object]()

    async def opens_without_archive(*given: Any) -> object:
        """S3 was there when it was looked where to cut."""
        under_way.append(given)
        try:
            return await opens_away(*given)
        finally:
            under_way.remove(given)

    async def opens_away(*given: Any) -> object:
        if request.param == "stalled":
            shore.proxy.fail(StallReply(), times=100)
        else:
            shore.proxy.refuse()
        return await opens(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shore.stand.served.plugin.backends.tiered, "open", opens_without_archive)
        with pytest.raises(FAILS[request.param]):
            await sessions.session(session_id).rewind(EMPTY)
        # Its last attempt, which still waits for S3, would take effect once that is back.
        async with asyncio.timeout(30):
            while under_way:  # noqa: ASYNC110 (an attempt that is cancelled tells nobody)
                await asyncio.sleep(0.05)
    shore.proxy.refuse(False)
    shore.proxy.forget()
    yield session_id
    await sessions.session(session_id).close()


def opens(events: list[HistoryEvent]) -> list[HistoryEvent]:
    """The opens of an execution."""
    return [
        each
        for each in events
        if each.activity_task_scheduled_event_attributes.activity_type.name == "helix.sessions.open"
    ]


async def land(shore: Shore, session_id: str) -> None:
    """What a late attempt of that rewind does."""
    rewind = opens(await shore.stand.events(session_id))[1]
    owner = (await shore.stand.handle(session_id).describe()).raw_description
    await shore.stand.served.plugin.backends.tiered.open(
        OpenThread(
            session_id,
            rewind.event_time.ToMicroseconds(),
            owner.workflow_execution_info.first_run_id,
            Create.NEVER,
            rewind_to=EMPTY,
        )
    )


async def test_a_turn_after_it_is_not_taken_back(shore: Shore, sid: str) -> None:
    """The thread is opened once more before the turn, which fences whatever is still under way."""
    assert (await shore.stand.sessions.ask(sid, "two")).text == "3: two"
    with pytest.raises(FencedError):
        await land(shore, sid)
    await shore.stand.finish(sid)
    assert len(opens(await shore.stand.events(sid))) == 3
    assert [each.text for each in await shore.stand.messages(sid) if each.role == "user"] == ["one", "two"]


async def test_a_session_that_ends_after_it_has_ended(shore: Shore, sid: str) -> None:
    """The thread is opened once more before it is closed, or the late attempt would open it again."""
    await shore.stand.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await shore.stand.sessions.session(sid).result()
    with pytest.raises(FencedError):
        await land(shore, sid)
    assert [each.text for each in await shore.stand.messages(sid) if each.role == "user"] == ["one"]


async def test_an_open_that_took_effect_unheard_does_not_keep_the_end_from_being_saved(
    shore: Shore, sid: str
) -> None:
    """The session has another epoch than it knows, and knows that."""
    await land(shore, sid)
    await shore.stand.finish(sid)
    result = await shore.stand.sessions.session(sid).result()
    assert {each.name: each.ok for each in result.receipts} == {"open": True, "save": True, "evict": True}
    assert await shore.stand.messages(sid) == []
