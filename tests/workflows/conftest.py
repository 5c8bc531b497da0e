"""One worker for all of these tests, on real servers; what its agents do, each test decides itself."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from helix_temporal.client import SessionClient, _updates, workflow_id
from helix_temporal.devstack import S3Endpoint, temporal
from helix_temporal.devstack.servers import open_place
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.states import SubSessionRef
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.testing.serving import Served, session_worker
from tests._services import stack_environment
from tests.workflows._caller import CallActivity
from tests.workflows._clerk import Clerk
from tests.workflows._desk import Desk
from tests.workflows._embedded import EmbeddedSession
from tests.workflows._metered import Metered, live_a_day, metered_worker
from tests.workflows._team import Team

TIMEOUTS = Timeouts(
    heartbeat_timeout=timedelta(seconds=2),
    heartbeat_every=timedelta(seconds=0.3),
    max_heartbeat_throttle_interval=timedelta(seconds=0.5),
    roll_out=timedelta(seconds=2),
    # A busy archive may take seconds: what it refuses at once costs a step nothing.
    flush_attempt=timedelta(seconds=5),
    flush_retry_maximum=timedelta(seconds=1),
    finaliser_budget=timedelta(seconds=5),
)


WITHOUT_ACTIVITIES = "--dynamic-config-value=activity.enableStandalone=false"
"""Of a Temporal server: it answers as one that does not know standalone activities."""


def make_settings(
    temporal_address: str, redis_url: str | None, s3: S3Endpoint, name: str, **changes: Any
) -> Settings:
    """Settings with a task queue and prefixes named ``name``, and short time-outs."""
    fields: dict[str, Any] = {
        "temporal_address": temporal_address,
        "redis_url": redis_url,
        "redis_prefix": f"{name}:",
        "s3_endpoint": s3.endpoint,
        "s3_bucket": s3.bucket,
        "s3_region": s3.region,
        "s3_access_key": s3.access_key,
        "s3_secret_key": s3.secret_key,
        "s3_prefix": name,
        "task_queue": name,
        "allow_plaintext": True,
        "timeouts": TIMEOUTS,
    }
    return Settings(**(fields | changes))


@dataclass(frozen=True)
class Stand:
    """The shared worker, and how to look at what became of a session."""

    served: Served
    desk: Desk

    @property
    def sessions(self) -> SessionClient:
        """The client whose sessions wait a minute for the next message."""
        return self.served.sessions

    def client(self, **options: object) -> SessionClient:
        """A client whose sessions have these options."""
        return self.served.create_client(SessionOptions.model_validate({"idle_timeout": 60} | options))

    def handle(self, session_id: str) -> WorkflowHandle[object, object]:
        """The session's newest run."""
        return self.served.client.get_workflow_handle(workflow_id(session_id))

    async def events(self, session_id: str, run_id: str | None = None) -> list[HistoryEvent]:
        """The history of the newest run, or of that one."""
        handle = self.served.client.get_workflow_handle(workflow_id(session_id), run_id=run_id)
        return list((await handle.fetch_history()).events)

    async def texts(self, session_id: str) -> list[str]:
        """Texts of the thread's finished turns."""
        return [message.text for message in await self.messages(session_id)]

    async def messages(self, session_id: str) -> list[Message]:
        """The thread's finished turns."""
        return await self.sessions.session(session_id).get_messages()

    async def at_rest(self, session_id: str) -> None:
        """Wait until nothing of the newest run is under way, so that its history does not grow by itself."""
        async with asyncio.timeout(30):
            while True:
                raw = (await self.handle(session_id).describe()).raw_description
                if not (raw.HasField("pending_workflow_task") or raw.pending_activities):
                    return
                await asyncio.sleep(0.05)

    async def accepted(self, session_id: str, count: int) -> None:
        """Wait until the newest run has accepted so many updates."""
        async with asyncio.timeout(30):
            while True:
                kinds = [each.WhichOneof("attributes") for each in await self.events(session_id)]
                if kinds.count("workflow_execution_update_accepted_event_attributes") >= count:
                    return
                await asyncio.sleep(0.05)

    async def heard_cancel(self, session_id: str) -> None:
        """Wait until a worker has done a workflow task with the newest run's cancel."""
        cancel = "workflow_execution_cancel_requested_event_attributes"
        done = "workflow_task_completed_event_attributes"
        async with asyncio.timeout(30):
            while True:
                kinds = [each.WhichOneof("attributes") for each in await self.events(session_id)]
                if cancel in kinds and done in kinds[kinds.index(cancel) :]:
                    return
                await asyncio.sleep(0.05)

    async def finish(self, session_id: str) -> None:
        """Close the session and wait until it has ended."""
        await self.sessions.session(session_id).close()
        await self.sessions.session(session_id).result()


@contextlib.asynccontextmanager
async def start_stand(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """A worker on a queue of its own."""
    desk = Desk()
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with session_worker(
        settings,
        desk.agents(),
        options=SessionOptions(idle_timeout=60),
        workflows=[EmbeddedSession, CallActivity, Clerk],
        drain=1.0,
    ) as served:
        yield Stand(served, desk)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stand(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """The shared worker."""
    async with start_stand(temporal_address, redis_url, s3) as started:
        yield started


@pytest.fixture(scope="session")
def older_temporal_address() -> Iterator[str]:
    """A Temporal server without standalone activities, as those before 1.31 are."""
    with open_place(None, stack_environment(os.environ)) as place:
        endpoint, _ = temporal.start_local_server(place, extra=[WITHOUT_ACTIVITIES])
        yield endpoint.address


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def older_stand(older_temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """The same on the older server."""
    async with start_stand(older_temporal_address, redis_url, s3) as started:
        yield started


@dataclass(frozen=True)
class Crew(Stand):
    """A worker whose agents call each other."""

    team: Team

    async def children(self, session_id: str) -> list[SubSessionRef]:
        """The sub-agents' sessions that the session store knows of."""
        sessions = self.served.plugin.backends.sessions
        assert sessions is not None
        return list(await sessions.list_sub_session_refs(session_id))

    async def child(self, session_id: str) -> str:
        """The only sub-agent's session."""
        (ref,) = await self.children(session_id)
        return ref.sub_session_id


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def crew(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Crew]:
    """The shared worker of agents that call each other."""
    team = Team()
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with session_worker(
        settings, team.agents(), options=SessionOptions(idle_timeout=60), drain=1.0
    ) as served:
        yield Crew(served, Desk(), team)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def metered(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Metered]:
    """A worker that gives out metrics, after a day of sessions."""
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with metered_worker(settings) as started:
        await live_a_day(started)
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def sid(stand: Stand) -> AsyncIterator[str]:
    """A session id of the test's own; a run that is left is terminated."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    yield session_id
    try:
        await stand.handle(session_id).terminate()
    except RPCError:
        # It had ended, or never began.
        return


@pytest.fixture
def patient_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds a session up is looked for longer: a busy server takes more than a second to say so."""
    monkeypatch.setattr(_updates, "_GRACE", 2.0)


@pytest.fixture
def desk(stand: Stand) -> Desk:
    return stand.desk
