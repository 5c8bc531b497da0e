"""Workers with Worker Versioning serve sessions, and a session goes on with the version that is current."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig
from temporalio.workflow import _Definition

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import HelixError
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served
from helix_temporal.worker import HelixWorker
from helix_temporal.workflows import WORKFLOWS
from tests.workflows._clerk import Clerk
from tests.workflows._desk import Desk
from tests.workflows._proxy import ProxyPlugin
from tests.workflows._releases import make_current, pin, until
from tests.workflows.conftest import make_settings

GET_VERSION, NOT_PINNED = "get_system_info", "sessions of this worker are not pinned"

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Settings:
    """A task queue and a deployment of its own."""
    return make_settings(temporal_address, redis_url, s3, f"v{uuid.uuid4().hex[:12]}")


@contextlib.asynccontextmanager
async def versioned(
    settings: Settings, desk: Desk, build: str, *, asks: bool = True, proxy: Any = None
) -> AsyncIterator[Served]:
    """A worker as a user writes it: nothing is said of the behaviour of the pack's workflows.

    Args:
        settings: With the task queue, after which the Worker Deployment is named here.
        desk: What the agents do.
        build: The worker's.
        asks: The plugin connects the client, and asks the server what it can do.
        proxy: Prepares a proxy by which it asks; None for none.
    """
    plugin = HelixPlugin(settings, agents=desk.agents())
    proxies = [] if proxy is None else [ProxyPlugin(proxy)]
    client = await Client.connect(settings.temporal_address, plugins=[plugin, *proxies] if asks else [])
    if not asks:
        client = Client(client.service_client, plugins=[plugin])
    version = WorkerDeploymentVersion(deployment_name=settings.task_queue, build_id=build)
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=True)
    sessions = SessionClient(client, task_queue=settings.task_queue, options=SessionOptions(idle_timeout=60))
    async with HelixWorker(client, plugin, deployment_config=config, drain=1.0):
        yield Served(client, plugin, sessions)


async def version_of(served: Served, session_id: str) -> tuple[str, int]:
    """Build id of the worker that served the session's newest workflow task, and what it said of it."""
    handle = served.client.get_workflow_handle(workflow_id(session_id))
    info = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
    return info.deployment_version.build_id, info.behavior


@pytest.mark.parametrize(
    ("asks", "behaviour"), [(True, VersioningBehavior.PINNED), (False, VersioningBehavior.AUTO_UPGRADE)]
)
async def test_a_session_runs_on_versioned_workers_and_goes_on_with_the_next_version(
    settings: Settings, *, asks: bool, behaviour: VersioningBehavior
) -> None:
    """Pinned where the server tells of new versions; else taken over, as workflows of the pack replay."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    async with versioned(settings, desk, "one", asks=asks) as first:
        await make_current(first.client, settings.task_queue, "one")
        assert (await first.sessions.ask(sid, "a", agent="main", timeout=30)).text == "1: a"
        assert await version_of(first, sid) == ("one", behaviour.value)
        async with versioned(settings, desk, "two", asks=asks) as second:
            await make_current(second.client, settings.task_queue, "two")
            assert (await second.sessions.ask(sid, "b", timeout=30)).text == "3: b"
            assert (await version_of(second, sid))[0] == "two"
            await second.sessions.session(sid).close()
            await second.sessions.session(sid).result()


@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.CANCELLED])
async def test_a_server_that_does_not_say_its_version_at_once_is_asked_again(
    settings: Settings, caplog: pytest.LogCaptureFixture, status: RPCStatusCode
) -> None:
    """One lost answer when a worker starts would leave all of its sessions unpinned, as long as it runs."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    refusing = lambda proxy: proxy.refuse(GET_VERSION, status, times=2)  # noqa: E731 (the proxy's first words)
    async with versioned(settings, desk, "one", proxy=refusing) as first:
        await make_current(first.client, settings.task_queue, "one")
        assert (await first.sessions.ask(sid, "a", agent="main", timeout=30)).text == "1: a"
        assert await version_of(first, sid) == ("one", VersioningBehavior.PINNED.value)
        await first.sessions.session(sid).close()
        await first.sessions.session(sid).result()
    assert NOT_PINNED not in caplog.text


async def test_a_worker_that_does_not_pin_its_sessions_says_so_and_why(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Its operator would learn of it by the first roll-out that breaks a turn."""
    denied = RPCStatusCode.PERMISSION_DENIED
    async with versioned(settings, Desk(), "one", proxy=lambda each: each.refuse(GET_VERSION, denied)):
        pass
    async with versioned(settings, Desk(), "one", asks=False):
        pass
    warned = [each.message for each in caplog.records if each.levelname == "WARNING"]
    warned = [each for each in warned if NOT_PINNED in each]
    assert len(warned) == 2
    assert "the server does not say its version (PERMISSION_DENIED)" in warned[0]
    assert "Client.connect" in warned[1]


async def test_a_run_that_is_pinned_to_a_build_without_workers_is_told_as_that(settings: Settings) -> None:
    """Workers of the next build poll its task queue, and are not given its tasks."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    async with versioned(settings, desk, "one") as first:
        await make_current(first.client, settings.task_queue, "one")
        await first.sessions.ask(sid, "a", agent="main", timeout=30)
        await pin(first.client, settings.task_queue, sid, "one")
    async with versioned(settings, desk, "two") as second:
        await make_current(second.client, settings.task_queue, "two")
        with pytest.raises(TimeoutError) as caught:
            await second.sessions.ask(sid, "b", timeout=12)
        await second.client.get_workflow_handle(workflow_id(sid)).terminate()
    said = f"pinned to build 'one' of worker deployment '{settings.task_queue}', and no worker of that build"
    assert said in str(caught.value)
    command = f"update-options --workflow-id {workflow_id(sid)} --versioning-override-behavior auto_upgrade"
    assert command in str(caught.value)


async def test_a_worker_whose_version_is_not_current_says_so_once_and_when_it_is_probed(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready and gets no work: its operator looks at its log, and at its probes."""
    monkeypatch.setattr("helix_temporal.health.NOTICED_AFTER", 0.5)
    monkeypatch.setattr("helix_temporal.health.ASKED_EVERY", 0.0)
    settings = settings.model_copy(update={"health_port": free_port(), "health_host": "127.0.0.1"})
    said = f"build 'one' of Worker Deployment '{settings.task_queue}', which is not current: it gets no"
    async with versioned(settings, Desk(), "one") as first:
        await until(lambda: _is_told(settings, said))
        await until(lambda: _has_logged(caplog, said))
        await make_current(first.client, settings.task_queue, "one")
        assert (await _read_probe(settings)).startswith('{"ok": true')
        assert json.loads(await _read_probe(settings))["notes"] == {}
    assert len([each for each in caplog.records if said in each.getMessage()]) == 1


async def _is_told(settings: Settings, said: str) -> bool:
    body = json.loads(await _read_probe(settings))
    return bool(body["ok"]) and said in body["notes"].get("version", "")


async def _has_logged(caplog: pytest.LogCaptureFixture, said: str) -> bool:
    return said in caplog.text


async def _read_probe(settings: Settings) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", settings.health_port)
    writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


async def test_workers_whose_version_is_not_current_are_told_as_that(settings: Settings) -> None:
    """They poll, and get nothing: whoever has just switched versions on would look elsewhere."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    async with versioned(settings, desk, "one") as first:
        with pytest.raises(TimeoutError) as caught:
            await first.sessions.ask(sid, "a", agent="main", timeout=12)
        await make_current(first.client, settings.task_queue, "one")
        assert (await first.sessions.ask(sid, "b", agent="main", timeout=30)).status == "answered"
    assert f"as build 'one' of Worker Deployment '{settings.task_queue}', which is not current" in str(
        caught.value
    )
    assert f"set-current-version --deployment-name {settings.task_queue} --build-id one" in str(caught.value)


async def test_workers_without_a_version_that_are_gone_hide_no_version_that_is_not_current(
    settings: Settings,
) -> None:
    """The server remembers them for five minutes: they would be named, or slots that nobody has taken."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    plugin = HelixPlugin(settings, agents=desk.agents())
    client = await Client.connect(settings.temporal_address, plugins=[plugin])
    async with HelixWorker(client, plugin, drain=1.0):
        sessions = SessionClient(client, task_queue=settings.task_queue)
        assert (await sessions.ask(f"{sid}-before", "a", agent="main", timeout=30)).status == "answered"
    async with versioned(settings, desk, "one") as first:
        with pytest.raises(TimeoutError) as caught:
            await first.sessions.ask(sid, "a", agent="main", timeout=15)
        with pytest.raises((HelixError, TimeoutError)) as unread:
            await first.sessions.session(f"{sid}-before").get_messages()
        await make_current(first.client, settings.task_queue, "one")
        assert (await first.sessions.ask(sid, "b", agent="main", timeout=30)).status == "answered"
    for each in (caught, unread):
        assert f"as build 'one' of Worker Deployment '{settings.task_queue}', which is not" in str(each.value)


@pytest.mark.parametrize("versioned", [False, True])
async def test_every_workflow_of_the_pack_has_a_behaviour_where_versioning_is_used(
    settings: Settings, *, versioned: bool
) -> None:
    """Without one such a worker does not start; on others the server refuses tasks that name one.

    Nobody has connected here: what the server can do is not known.
    """
    version = WorkerDeploymentVersion(deployment_name="d", build_id="1")
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=versioned)
    options: Any = {"task_queue": "q", "workflows": [Clerk], "deployment_config": config}
    found = HelixPlugin(settings).configure_worker(options).get("workflows", ())
    expected = VersioningBehavior.AUTO_UPGRADE if versioned else VersioningBehavior.UNSPECIFIED
    assert {each.name: each.versioning_behavior for each in map(_Definition.must_from_class, found)} == {
        _Definition.must_from_class(each).name: expected for each in WORKFLOWS
    } | {"tests.clerk": VersioningBehavior.UNSPECIFIED}
