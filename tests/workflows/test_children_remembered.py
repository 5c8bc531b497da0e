"""Answers to questions of sub-agents are remembered by the session through which they were given."""

import asyncio
from typing import Any

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.models.waiting import PendingCall
from helix_temporal.workflows import AgentSession
from helix_temporal.workflows.session import _ContinueAsNew
from tests.workflows._team import HURRIED
from tests.workflows.conftest import Crew
from tests.workflows.test_children_exit_beside import both, own_and_below

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def closed(client: SessionClient, sid: str) -> None:
    """The session has ended: what is remembered is in its slice."""
    await client.session(sid).close()
    assert (await client.session(sid).result()).exit_reason is not ExitReason.FAILED


async def repeats(client: SessionClient, sid: str, call: PendingCall) -> list[str | None]:
    """What the first answer, sent again, is told; and another one, and one to a call that never was."""
    first = await client.session(sid).submit_tool_result(call, "blue", submission_id="one", timeout=30)
    other = await client.session(sid).submit_tool_result(call, "red", submission_id="two", timeout=30)
    unknown = await client.session(sid).submit_tool_result("nothing", "red", timeout=30)
    return [each.status for each in (first, other, unknown)]


async def moved(crew: Crew, sid: str) -> bool:
    """Whether the newest run goes on with what another one had."""
    started = (await crew.events(sid))[0].workflow_execution_started_event_attributes
    return bool(started.continued_execution_run_id)


@pytest.mark.parametrize(
    "options",
    [{}, {"max_turns_per_run": 1}, {"max_turns_per_run": 1, "suspend": "exit"}],
    ids=["wait", "wait-and-move", "exit-and-move"],
)
async def test_a_repeat_in_a_later_execution_is_told_what_the_first_answer_was_told(
    crew: Crew, sid: str, options: dict[str, Any]
) -> None:
    """The button is pressed again, after the history was cut, and the session ended: it counted once."""
    client = crew.client(**options)
    asked = await client.ask(sid, "colour?", agent="asks", message_id="m", timeout=30)
    (call,) = asked.pending
    reply = await client.session(sid).submit_tool_result(
        call, "blue", submission_id="one", wait=True, timeout=30
    )
    assert reply.status == "submitted"
    assert (await client.ask(sid, "again", message_id="m", timeout=30)).text == "they said blue"
    assert await repeats(client, sid, call) == ["submitted", "already_completed", "not_pending"]
    await closed(client, sid)
    assert await moved(crew, sid) is ("max_turns_per_run" in options)
    assert await repeats(client, sid, call) == ["submitted", "already_completed", "not_pending"]


@pytest.mark.parametrize("agent", ["asks-hurried", "asks-hurried-below"])
@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_an_answer_that_comes_too_late_is_told_so_also_after_the_sub_agent_has_gone(
    crew: Crew, sid: str, agent: str, suspend: str
) -> None:
    """The deadline has passed: whoever asks below, and whether it is still there, makes no difference."""
    client = crew.client(suspend=suspend)
    (call,) = (await client.ask(sid, "colour?", agent=agent, message_id="m", timeout=30)).pending
    await asyncio.sleep(HURRIED + 0.1)
    await client.session(sid).resume()
    assert (
        await client.ask(sid, "colour?", message_id="m", timeout=30)
    ).text == "they said No answer in time."
    assert await repeats(client, sid, call) == ["expired", "expired", "not_pending"]
    await client.ask(sid, "and now?", message_id="n", timeout=30)
    await closed(client, sid)
    assert await repeats(client, sid, call) == ["expired", "expired", "not_pending"]


async def test_a_turn_that_waits_takes_along_what_was_answered_below(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in another run, with a question of its own; only its next step tells the slice."""

    def move_if_suspended(self: AgentSession) -> None:
        live = self._execution
        if self._input.session_id == sid and live.is_suspended and self._input.carried is None:
            raise _ContinueAsNew

    monkeypatch.setattr(AgentSession, "_move_if_long", move_if_suspended)
    crew.team.leads[sid] = both
    client = crew.client()
    asked = await client.ask(sid, "go", agent="asks-too", message_id="m", timeout=30)
    assert asked.status is AskStatus.SUSPENDED
    own, below = own_and_below(await all_asked(client, sid))
    await client.session(sid).submit_tool_result(below, "blue", submission_id="one", wait=True, timeout=30)
    reply = await client.session(sid).submit_tool_result(own, "small", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "small / they said blue"
    assert await moved(crew, sid)
    await closed(client, sid)
    assert await repeats(client, sid, below) == ["submitted", "already_completed", "not_pending"]


async def all_asked(client: SessionClient, sid: str) -> tuple[PendingCall, ...]:
    """The session's own question, and the one below it, once both are asked."""
    while len(pending := await client.session(sid).get_pending_calls()) < 2:
        continue
    return pending
