"""A tool that waits for a turn of its own session: the turn waits for the tool, so it is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.agents import ToolContext
from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.stored_messages import Head
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.conftest import Crew, Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[SessionClient, str], Awaitable[Any]]

WAITING: dict[str, Call] = {
    "ask": lambda s, i: s.ask(i, "again", agent="main", timeout=3),
    "a long ask": lambda s, i: s.ask(i, "again" * 3000, agent="main", timeout=3),
    "stream_ask": lambda s, i: s.session(i, agent="main").stream_ask("again", timeout=3).result(),
    "handle": lambda s, i: s.session(i, agent="main").ask("again", timeout=3),
    "regenerate": lambda s, i: s.session(i, agent="main").regenerate(timeout=3),
    "rewind": lambda s, i: s.session(i, agent="main").rewind(Head(position=1, last_id="m"), timeout=3),
    "rewind_to_turn": lambda s, i: s.session(i, agent="main").rewind_to_turn(1, timeout=3),
    "restore": lambda s, i: s.session(i, agent="main").restore_checkpoint("c", timeout=3),
    "resume": lambda s, i: s.session(i, agent="main").resume(timeout=3),
    "submit": lambda s, i: s.session(i, agent="main").submit_tool_result("c", "r", wait=True, timeout=3),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_tool_cannot_wait_for_its_own_session(stand: Stand, desk: Desk, sid: str, name: str) -> None:
    """The message that timed out became the next turn, which called the tool again, for ever."""
    refused: list[str] = []

    async def act(what: str, context: ToolContext) -> str:
        with pytest.raises(InvalidRequestError) as caught:
            await WAITING[name](stand.sessions, context.session_id)
        refused.append(str(caught.value))
        return what

    desk.acts[sid], desk.scripts[sid] = act, first_tools_then("done", "a")
    assert (await stand.sessions.ask(sid, "go", agent="main", timeout=30)).text == "done"
    assert await stand.texts(sid) == ["go", "", "a", "done"]
    (said,) = refused
    assert "that turn waits for this tool" in said
    assert "use send, or ask another session" in said


@pytest.mark.parametrize("agent", ["new", "continue", "top"])
async def test_a_sub_agents_tool_cannot_wait_for_a_session_above_it(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """The turn above waits for the sub-agent, and that for its tool."""
    refused: list[str] = []

    async def act(what: str) -> str:
        with pytest.raises(InvalidRequestError) as caught:
            await crew.sessions.ask(sid, "again", agent=agent, timeout=3)
        refused.append(str(caught.value))
        return what

    monkeypatch.setattr(crew.team, "act", act)
    assert (await crew.sessions.ask(sid, "tool up", agent=agent, timeout=30)).status is AskStatus.ANSWERED
    assert [each.text for each in await crew.messages(sid) if each.role == "user"] == ["tool up"]
    (said,) = refused
    assert "that turn waits for this tool" in said


async def test_a_tool_may_leave_a_message_for_its_own_session(stand: Stand, desk: Desk, sid: str) -> None:
    """It is the next turn, for which nobody waits."""

    async def act(what: str, context: ToolContext) -> str:
        await stand.sessions.send(context.session_id, "later", agent="main", message_id="m-later")
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: (
        first_tools_then("done", "a")(request) if request.messages[-1].text != "later" else "heard"
    )
    assert (await stand.sessions.ask(sid, "go", agent="main", timeout=30)).text == "done"
    again = await stand.sessions.ask(sid, "later", agent="main", message_id="m-later", timeout=30)
    assert again.text == "heard"


async def test_a_tool_may_ask_another_session(stand: Stand, desk: Desk, sid: str) -> None:
    """Its turn does not wait for this tool."""

    async def act(what: str, context: ToolContext) -> str | None:
        other = await stand.sessions.ask(f"{context.session_id}-other", what, agent="main", timeout=20)
        return other.text

    desk.acts[sid], desk.scripts[sid] = act, first_tools_then("done", "a")
    assert (await stand.sessions.ask(sid, "go", agent="main", timeout=30)).text == "done"
    assert await stand.texts(sid) == ["go", "", "1: a", "done"]
    await stand.finish(f"{sid}-other")
