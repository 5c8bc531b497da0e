"""Suspended sessions that end: nobody is left waiting, and no message that was accepted is lost."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.agents import ToolContext
from helix_temporal.models.sessions import AskStatus, ExitReason
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_waits import ACT, LOCATE, asks, asks_once

pytestmark = pytest.mark.asyncio(loop_scope="session")


def upper(request: Any) -> str:
    """Answers with what was said last."""
    return str(request.messages[-1].text).upper()


def held(desk: Desk, sid: str) -> Gate:
    """The tool ``act`` runs until the gate is opened."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    return gate


async def test_a_message_that_comes_while_a_suspended_session_ends_is_not_lost(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """It was accepted: the execution looks once more before it goes."""
    gate = Gate()
    desk.scripts[sid] = asks_once(LOCATE)
    desk.hooks[sid, "session_ended"] = lambda _: gate.passing()
    client = stand.client(suspend="exit")
    (call,) = (await client.ask(sid, "go", agent="hooked")).pending
    await gate.reached.wait()
    await client.send(sid, "and?", agent="hooked")
    gate.opened.set()
    desk.scripts[sid] = upper
    await client.session(sid, agent="hooked").submit_tool_result(call, "Bonn", wait=True)
    await stand.finish(sid)
    assert await stand.texts(sid) == ["go", "", "Bonn", "BONN", "and?", "AND?"]


async def test_closing_a_session_that_waits_loses_no_message(stand: Stand, desk: Desk, sid: str) -> None:
    """It ends once what was sent to it has had its turn."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await stand.sessions.ask(sid, "go", agent="people")).pending
    await stand.sessions.send(sid, "and?", agent="people")
    await stand.sessions.session(sid).close()
    desk.scripts[sid] = upper
    await stand.sessions.session(sid).submit_tool_result(call, "Bonn")
    assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.COMPLETED
    assert await stand.texts(sid) == ["go", "", "Bonn", "BONN", "and?", "AND?"]


async def test_closing_tells_those_who_wait_for_the_end_of_the_turn(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """They would hold the execution for as long as a person thinks."""
    desk.scripts[sid] = asks_once(LOCATE)
    first = await stand.sessions.ask(sid, "go", agent="people", message_id="m")
    again = asyncio.create_task(stand.sessions.ask(sid, "go", agent="people", message_id="m"))
    await stand.accepted(sid, 2)
    await stand.finish(sid)
    assert (await again).pending == first.pending


async def test_who_asks_while_tools_still_run_is_told_when_the_session_goes(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Neither may hold an execution that is to end while people think."""
    gate = held(desk, sid)
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    client = stand.client(suspend="exit")
    first = await client.ask(sid, "go", agent="people", message_id="m")
    await gate.reached.wait()
    again = asyncio.create_task(client.ask(sid, "go", agent="people", message_id="m"))
    other = asyncio.create_task(client.ask(sid, "and?", agent="people", message_id="n"))
    await stand.accepted(sid, 3)
    gate.opened.set()
    assert (await again).pending == first.pending
    told = await other
    assert (told.status, told.in_thread) == (AskStatus.SUSPENDED, False)
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED


async def test_a_cancel_while_the_turn_goes_on_takes_nothing_back(stand: Stand, desk: Desk, sid: str) -> None:
    """The message was told to be in the thread, and the answer of a person was taken."""
    gate = Gate()

    async def script(request: Any) -> Any:
        if request.messages[-1].role == "user":
            return asks(LOCATE)
        await gate.passing()
        return "done"

    desk.scripts[sid] = script
    asked = await stand.sessions.ask(sid, "go", agent="people")
    assert asked.in_thread
    await stand.sessions.session(sid).submit_tool_result(asked.pending[0], "Bonn")
    await gate.reached.wait()
    await stand.handle(sid).cancel()
    with pytest.raises(WorkflowFailureError):
        await stand.handle(sid).result()
    gate.opened.set()
    assert await stand.texts(sid) == ["go", "", "Bonn"]
