"""A session that is not open yet, since only another worker version has its agent, moves to that version."""

import asyncio
import uuid
from collections.abc import Mapping
from datetime import timedelta

import pytest

from helix_temporal.client import workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionFailedError, SessionNotFoundError
from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.settings import Settings
from tests.workflows._desk import Gate
from tests.workflows._releases import (
    NEW,
    OLD,
    PINNED,
    UNPINNED,
    Book,
    Release,
    Releases,
    build_of,
    failed_tasks,
    list_runs,
    pin,
    unpin,
    until,
)
from tests.workflows.conftest import TIMEOUTS, make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

PATIENT = TIMEOUTS.model_copy(update={"roll_out": timedelta(minutes=10)})


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Settings:
    """A task queue, and so a Worker Deployment, of its own; other workers are asked for a long time."""
    name = f"v{uuid.uuid4().hex[:12]}"
    return make_settings(temporal_address, redis_url, s3, name, timeouts=PATIENT)


@pytest.fixture
def sid() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def waits(release: Release, session_id: str) -> str:
    """Come back once the session waits for its agent, with what its status says of that."""
    said: list[str] = []

    async def is_told() -> bool:
        try:
            info = await release.sessions.session(session_id).get_status()
        except SessionNotFoundError:
            return False
        said[:] = [each.error for each in info.failing]
        return bool(said)

    await until(is_told)
    return said[0]


async def check_end(releases: Releases, release: Release, session_id: str, said: list[str]) -> None:
    """Each message had one turn, the session ends well, and no run of it had trouble."""
    handle = release.sessions.session(session_id)
    messages = await handle.get_messages()
    assert [each.text for each in messages if each.role == "user"] == said
    await handle.close()
    assert (await handle.result()).exit_reason is ExitReason.COMPLETED
    runs = await list_runs(release.client, releases.settings.task_queue)
    assert not await failed_tasks(release.client, runs)
    assert not releases.book.repeated()


@pytest.mark.parametrize("workflows", [PINNED, UNPINNED])
async def test_a_session_waits_for_its_agent_and_is_served_by_the_version_that_has_it(
    settings: Settings, sid: str, workflows: Mapping[str, type | None]
) -> None:
    """Somebody asks before the roll-out is done: nobody has to move the session by hand."""
    releases = Releases(settings, Book(), workflows)
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        sent = asyncio.create_task(old.sessions.send(sid, "say a", agent="added"))
        said = await waits(old, sid)
        asked = asyncio.create_task(old.sessions.ask(sid, "say b", agent="added", timeout=60))
        assert f"({settings.task_queue}:{OLD})" in said
        assert "helper, main" in said
        await releases.make_current(old, NEW)
        assert (await asked).status is AskStatus.ANSWERED
        await sent
        assert await build_of(old.client, sid) == NEW
        await check_end(releases, old, sid, ["say a", "say b"])


async def test_the_signal_moves_a_session_that_waits_for_its_agent(
    settings: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators send it to all that are left on a version: it need not ask again for its agent first."""
    monkeypatch.setattr("helix_temporal.workflows.agent_wait.FIRST_PAUSE", 300.0)
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "say a", agent="added", timeout=60))
        await waits(old, sid)
        await releases.make_current(old, NEW)
        await old.client.get_workflow_handle(workflow_id(sid)).signal("move")
        assert (await asked).text == "done: say a"
        await check_end(releases, old, sid, ["say a"])


async def test_what_came_before_the_session_was_open_comes_along(settings: Settings, sid: str) -> None:
    """A close that was acknowledged, and a message whose client has gone, are not forgotten by the move."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        with pytest.raises(TimeoutError):
            await old.sessions.ask(sid, "say a", agent="added", timeout=3)
        await waits(old, sid)
        handle = old.sessions.session(sid)
        await handle.close()
        await releases.make_current(old, NEW)
        assert (await handle.result()).exit_reason is ExitReason.COMPLETED
        assert releases.book.builds[sid, "say a"] == [NEW]
        assert not await failed_tasks(old.client, await list_runs(old.client, settings.task_queue))


async def test_who_stops_a_session_that_waits_for_its_agent_stops_the_turn_that_it_has_then(
    settings: Settings, sid: str
) -> None:
    """The message of that turn has come along, and so has the wish to stop it."""
    releases, gate = Releases(settings, Book(), {OLD: None, NEW: None}), Gate()
    releases.book.gates["act a"] = gate
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "act a", agent="added", timeout=60))
        await waits(old, sid)
        stopped = asyncio.create_task(old.sessions.session(sid).stop())
        await releases.make_current(old, NEW)
        await gate.reached.wait()
        assert await stopped
        gate.opened.set()
        await asked
        assert releases.book.builds[sid, "act a"] == [NEW]


async def test_a_session_whose_agent_no_version_has_fails_and_names_those_that_were_asked(
    settings: Settings, sid: str
) -> None:
    """The time of a roll-out is that of all versions together."""
    timeouts = TIMEOUTS.model_copy(update={"roll_out": timedelta(seconds=20)})
    releases = Releases(settings.model_copy(update={"timeouts": timeouts}), Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "say a", agent="typo", timeout=60))
        await waits(old, sid)
        await releases.make_current(old, NEW)
        result = await asked
        assert result.status is AskStatus.FAILED
        name = settings.task_queue
        assert result.error is not None
        assert result.error.startswith(
            f"AgentNotServedError: agent 'typo' is known to no worker version that was asked "
            f"({name}:{OLD}, {name}:{NEW}); the last one knows: added, helper, main. Make a version current"
        )
        with pytest.raises(SessionFailedError, match="agent 'typo'"):
            await old.sessions.session(sid).result()


async def test_a_session_that_is_held_on_a_version_is_opened_once_it_is_let_go(
    settings: Settings, sid: str
) -> None:
    """An override of the operator's counts, and costs no message."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "say a", agent="added", timeout=90))
        await waits(old, sid)
        await pin(old.client, settings.task_queue, sid, OLD)
        await releases.make_current(old, NEW)
        await asyncio.sleep(6)
        assert await build_of(old.client, sid) == OLD
        await unpin(old.client, sid)
        assert (await asked).text == "done: say a"
        await check_end(releases, old, sid, ["say a"])


async def test_a_session_that_is_told_to_move_in_vain_tries_again_with_pauses(
    settings: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that names the target version wrongly for a while must not have it hurry from run to run."""
    monkeypatch.setattr("helix_temporal.workflows.agent_wait.LONGEST_PAUSE", 2.0)
    monkeypatch.setattr("helix_temporal.workflows.session.has_target_changed", lambda: True)
    timeouts = TIMEOUTS.model_copy(update={"roll_out": timedelta(seconds=6)})
    releases = Releases(settings.model_copy(update={"timeouts": timeouts}), Book())
    async with releases.serve(OLD) as old:
        await releases.make_current(old, OLD)
        result = await old.sessions.ask(sid, "say a", agent="added", timeout=60)
        assert result.status is AskStatus.FAILED
        runs = await list_runs(old.client, settings.task_queue)
        assert 2 <= len([each for each in runs if each.id == workflow_id(sid)]) <= 5
