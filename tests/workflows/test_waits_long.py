"""Deadlines of days, histories that grow too long, and resets, while people think."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from helix_temporal.client import SessionClient
from helix_temporal.devstack import programs
from helix_temporal.devstack.temporal import TEST_SERVER
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.waiting import NO_ANSWER
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.workflows import AgentSession
from helix_temporal.workflows.session import _ContinueAsNew
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_idle import served
from tests.workflows.test_reset import check, reset, task_ends
from tests.workflows.test_waits import LOCATE, asks_once, suspended

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = 86_400.0
HURRY = ("hurry", {"what": "up"})


@contextlib.asynccontextmanager
async def skipping(
    tmp_path: Path, desk: Desk
) -> AsyncIterator[tuple[WorkflowEnvironment, Callable[..., SessionClient]]]:
    """Sessions on a server whose clock jumps."""
    name = f"t{uuid.uuid4().hex[:8]}"
    plugin = HelixPlugin(Settings(task_queue=name, cold_directory=tmp_path), agents=desk.agents())
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(programs.find_program(TEST_SERVER, os.environ)), plugins=[plugin]
    )
    async with served(environment, plugin):

        def client(**options: Any) -> SessionClient:
            given = SessionOptions.model_validate({"idle_timeout": 60} | options)
            return SessionClient(environment.client, task_queue=name, options=given)

        yield environment, client


async def test_a_call_that_nobody_answers_fails_at_its_deadline(tmp_path: Path) -> None:
    """The model is told, and goes on: a day is one timer in the history."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    desk.scripts[sid] = asks_once(HURRY, LOCATE)
    async with skipping(tmp_path, desk) as (environment, client):
        sessions = client()
        result = await sessions.ask(sid, "go", agent="people", message_id="m")
        hurry, locate = result.pending
        await environment.sleep(DAY - 3600)
        assert (await sessions.session(sid).get_status()).pending == (hurry, locate)
        await environment.sleep(2 * 3600)
        async with asyncio.timeout(20):
            while (await sessions.session(sid).get_status()).pending != (locate,):  # noqa: ASYNC110 (a server's timer)
                await asyncio.sleep(0.05)
        assert (await sessions.session(sid).submit_tool_result(hurry, "late")).status == "expired"
        reply = await sessions.session(sid).submit_tool_result(locate, "Bonn", wait=True)
        assert reply.result is not None
        assert reply.result.text == f"{NO_ANSWER} | Bonn"


async def test_the_deadline_of_a_session_that_was_left_counts_when_it_wakes(tmp_path: Path) -> None:
    """Nothing ran meanwhile; whoever comes late is told so, and the turn goes on without the answer."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    desk.scripts[sid] = asks_once(HURRY)
    async with skipping(tmp_path, desk) as (environment, client):
        sessions = client(suspend="exit")
        (call,) = (await sessions.ask(sid, "go", agent="people", message_id="m")).pending
        await sessions.session(sid).result()
        await environment.sleep(DAY + 3600)
        assert (await sessions.session(sid).submit_tool_result(call, "late")).status == "expired"
        again = await sessions.ask(sid, "go", agent="people", message_id="m")
        assert (again.status, again.text) == (AskStatus.ANSWERED, NO_ANSWER)


async def test_resuming_gives_up_what_is_too_late(tmp_path: Path) -> None:
    """For programs that look for calls whose deadline has passed."""
    desk, sid = Desk(), f"s-{uuid.uuid4().hex[:8]}"
    desk.scripts[sid] = asks_once(HURRY)
    async with skipping(tmp_path, desk) as (environment, client):
        sessions = client(suspend="exit")
        await sessions.ask(sid, "go", agent="people", message_id="m")
        await sessions.session(sid).result()
        await environment.sleep(DAY + 3600)
        await sessions.session(sid).resume()
        again = await sessions.ask(sid, "go", agent="people", message_id="m")
        assert (again.status, again.text) == (AskStatus.ANSWERED, NO_ANSWER)


async def test_a_suspended_turn_is_carried_into_the_next_run(
    stand: Stand, desk: Desk, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that grew too long while people thought is no reason to ask them again."""

    def move_if_suspended(self: AgentSession) -> None:
        if self._execution.is_suspended and self._input.carried is None:
            raise _ContinueAsNew

    monkeypatch.setattr(AgentSession, "_move_if_long", move_if_suspended)
    desk.scripts[sid] = asks_once(LOCATE)
    result = await suspended(stand, sid)
    assert (await stand.sessions.session(sid).get_status()).pending == result.pending
    reply = await stand.sessions.session(sid).submit_tool_result(result.pending[0], "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn"
    assert await stand.texts(sid) == ["go", "", "Bonn", "Bonn"]
    assert len(desk.requests[sid]) == 2
    started = (await stand.events(sid))[0].workflow_execution_started_event_attributes
    assert started.continued_execution_run_id


async def test_a_reset_while_people_think_asks_them_once(stand: Stand, desk: Desk, sid: str) -> None:
    """The new branch finds the step standing, and waits for the very same call."""
    desk.scripts[sid] = asks_once(LOCATE)
    result = await suspended(stand, sid)
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    reply = await stand.sessions.session(sid).submit_tool_result(
        result.pending[0], "Bonn", wait=True, timeout=30
    )
    assert reply.status == "submitted"
    assert reply.result is not None
    assert reply.result.text == "Bonn"
    assert len(desk.requests[sid]) == 2
    await check(stand, sid, ["go"])


async def test_a_reset_to_before_an_answer_takes_it_again(stand: Stand, desk: Desk, sid: str) -> None:
    """The server applies the submission again; it finds its own turn, and nobody pays twice."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    await stand.sessions.session(sid).submit_tool_result(call, "Bonn", wait=True)
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    again = await stand.sessions.session(sid).submit_tool_result(call, "Rome", timeout=30)
    assert again.status == "already_completed"
    assert (await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")).text == "Bonn"
    assert len(desk.requests[sid]) == 2
    await check(stand, sid, ["go"])
