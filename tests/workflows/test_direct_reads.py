"""A client that is given the stores reads them itself: the same answers, and nobody has to be at work."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.backends import Backends
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.client import SessionClient, SessionStores
from helix_temporal.coldtier import TieredThreads
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidRequestError,
    SessionNotFoundError,
)
from helix_temporal.models.sessions import AskStatus
from helix_temporal.settings import Settings
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sqlite import SqliteBackend
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_handle import counting, served, talk

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOBODY = "a queue that nobody serves"
"""A short workflow would wait there for ever."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def settings(
    temporal_address: str, redis_url: str, s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Threads in Redis over S3, states in SQLite."""
    data, name = tmp_path_factory.mktemp("states"), f"t{uuid.uuid4().hex[:12]}"
    return make_settings(temporal_address, redis_url, s3, name, session_store="sqlite", data_directory=data)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kept(settings: Settings) -> AsyncIterator[Stand]:
    """A worker."""
    async with served(settings, Desk()) as stand:
        yield stand


@pytest_asyncio.fixture(loop_scope="session")
async def backends(settings: Settings) -> AsyncIterator[Backends]:
    """Stores of the application's own process, as settings say."""
    made = Backends(settings)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def stores(settings: Settings, s3: S3Endpoint) -> AsyncIterator[SessionStores]:
    """The same places, put together by hand."""
    assert settings.redis_url is not None
    assert settings.s3_bucket is not None
    redis = RedisBackend(settings.redis_url, prefix=settings.redis_prefix)
    blobs = S3Blobs(
        settings.s3_bucket,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
    )
    assert settings.sqlite_file is not None
    sqlite = SqliteBackend(settings.sqlite_file)
    yield SessionStores(
        threads=TieredThreads(redis.threads, blobs, prefix=settings.s3_prefix),
        usage=sqlite.usage,
        sessions=RowSessions(sqlite.sessions),
    )
    await redis.close()
    await sqlite.close()
    await blobs.close()


@pytest.fixture(params=["backends", "stores"])
def direct(kept: Stand, request: pytest.FixtureRequest) -> SessionClient:
    """A client that no worker would answer."""
    given = request.getfixturevalue(request.param)
    return SessionClient(kept.served.client, task_queue=NOBODY, stores=given)


@pytest.fixture(params=["by workflow", "direct"])
def anyone(kept: Stand, backends: Backends, request: pytest.FixtureRequest) -> SessionClient:
    """A client that asks the worker, or one that need not."""
    near = SessionClient(kept.served.client, task_queue=NOBODY, stores=backends)
    return kept.sessions if request.param == "by workflow" else near


async def test_all_reads_answer_as_those_by_workflow(kept: Stand, sid: str, direct: SessionClient) -> None:
    """What a program learns of a session does not depend on how it asks; hot, and when it has gone cold."""
    counting(kept, sid)
    handle, near = kept.sessions.session(sid, agent="main"), direct.session(sid)
    await talk(handle, "one", "two", "three")
    await everything_agrees(kept.sessions, direct, sid)
    await kept.finish(sid)
    await everything_agrees(kept.sessions, direct, sid)
    turns = (await near.list_turns(newest=1)).items
    assert [each.text for each in turns] == ["three"]
    assert (await direct.session(sid).find_turn("m-two")).start == (await near.list_turns()).items[1].start
    state = await near.get_state()
    assert state is not None
    assert state.custom_state == {"k": 3}


async def everything_agrees(far: SessionClient, near: SessionClient, session_id: str) -> None:
    assert await near.session(session_id).get_messages() == await far.session(session_id).get_messages()
    assert await near.session(session_id).list_messages(limit=2) == await far.session(
        session_id
    ).list_messages(limit=2)
    assert await near.session(session_id).describe_thread() == await far.session(session_id).describe_thread()
    assert await near.session(session_id).get_state() == await far.session(session_id).get_state()
    assert await near.session(session_id).get_usage() == await far.session(session_id).get_usage()
    assert await near.session(session_id).list_turns() == await far.session(session_id).list_turns()
    assert await near.session(session_id).get_run("nobody's") == await far.session(session_id).get_run(
        "nobody's"
    )
    checkpoints = await far.session(session_id).list_checkpoints(limit=2)
    assert await near.session(session_id).list_checkpoints(limit=2) == checkpoints
    assert await near.session(session_id).get_checkpoint(checkpoints.items[1].id) == checkpoints.items[1]


async def test_what_is_not_there_is_told_in_the_same_words(
    kept: Stand, sid: str, anyone: SessionClient
) -> None:
    """Typed errors, as if a worker had looked."""
    with pytest.raises(SessionNotFoundError):
        await anyone.session(sid).list_messages()
    with pytest.raises(SessionNotFoundError):
        await anyone.session(sid).get_usage()
    with pytest.raises(SessionNotFoundError):
        await anyone.session(sid).get_checkpoint("none")
    with pytest.raises(SessionNotFoundError):
        await anyone.session(sid).list_turns()
    with pytest.raises(SessionNotFoundError):
        await anyone.session(sid).get_state()
    await talk(kept.sessions.session(sid, agent="main"), "one")
    with pytest.raises(CheckpointNotFoundError):
        await anyone.session(sid).get_checkpoint("none")
    with pytest.raises(InvalidRequestError, match="no turn begins at 1"):
        await anyone.session(sid).list_turns(start=1)
    with pytest.raises(InvalidRequestError, match="no finished turn has"):
        await anyone.session(sid).find_turn("nobody said this")


async def test_a_large_message_comes_as_it_is(kept: Stand, sid: str, direct: SessionClient) -> None:
    """Nothing passes through Temporal, which would limit its size."""
    large = "x" * 700_000
    kept.desk.scripts[sid] = lambda _: large
    await kept.sessions.ask(sid, "say much", agent="main")
    page = await direct.session(sid).list_messages(start=1)
    assert page.items[0].text == large


async def test_who_has_the_stores_can_ask_as_well(kept: Stand, sid: str, backends: Backends) -> None:
    """The answer's text is read there, too; talking needs a worker as ever."""
    queue = kept.served.plugin.settings.task_queue
    client = SessionClient(kept.served.client, task_queue=queue, stores=backends)
    asked = await client.ask(sid, "hello", agent="main")
    assert (asked.status, asked.text) == (AskStatus.ANSWERED, "1: hello")
    assert (await client.session(sid).fork(f"{sid}-copy")).position == 2
    assert len(await client.session(f"{sid}-copy").get_messages()) == 2


async def test_without_a_session_store_there_are_no_checkpoints(
    kept: Stand, sid: str, stores: SessionStores
) -> None:
    """The state is then what the thread says."""
    alone = SessionStores(threads=stores.threads, usage=stores.usage)
    client = SessionClient(kept.served.client, task_queue=NOBODY, stores=alone)
    await talk(kept.sessions.session(sid, agent="main"), "one")
    state = await client.session(sid).get_state()
    assert state is not None
    assert (state.agent_type, (await client.session(sid).list_checkpoints()).items) == ("main", ())
