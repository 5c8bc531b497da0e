"""What people get wrong when they call a session, and lists, which all have one shape."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import Client

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient
from helix_temporal.errors import (
    AgentMismatchError,
    InvalidCursorError,
    InvalidIdError,
    InvalidRequestError,
    ThreadNotFoundError,
)
from helix_temporal.plugin import HelixPlugin
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[SessionClient, str], Awaitable[Any]]


async def test_a_session_that_runs_refuses_another_agent(stand: Stand, sid: str) -> None:
    """It was answered by the first one, silently.  After it is closed, the other one goes on."""
    await stand.sessions.ask(sid, "one", agent="main")
    with pytest.raises(AgentMismatchError, match="runs with agent 'main', not with 'serial'; close it first"):
        await stand.sessions.ask(sid, "two", agent="serial")
    with pytest.raises(AgentMismatchError):
        await stand.sessions.send(sid, "two", agent="serial")
    assert await stand.texts(sid) == ["one", "1: one"]
    await stand.finish(sid)
    assert (await stand.sessions.ask(sid, "three", agent="serial")).in_thread
    assert (await stand.sessions.status(sid)).agent == "serial"


async def test_a_client_sends_to_the_queue_of_its_plugin(stand: Stand, sid: str) -> None:
    """Settings name it once."""
    sessions = SessionClient(stand.served.client)
    assert (await sessions.ask(sid, "one", agent="main", timeout=20)).in_thread


async def test_a_client_whose_plugin_names_no_queue_sends_to_the_usual_one(stand: Stand) -> None:
    """Without settings both sides have the same one."""
    address = stand.served.plugin.settings.temporal_address
    client = await Client.connect(address, plugins=[HelixPlugin()], lazy=True)
    assert SessionClient(client)._task_queue == "helix"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s, i: s.ask(i, None, agent="main"), "text: a string expected, got NoneType"),
        (lambda s, i: s.ask(i, b"hello", agent="main"), "text: a string expected, got bytes"),
        (lambda s, i: s.send(i, 5, agent="main"), "text: a string expected, got int"),
        (lambda s, i: s.ask(i, "a", agent="main", metadata={"tier": 1}), r"metadata.tier: .*string, got int"),
        (lambda s, i: s.ask(i, "a", agent="main", metadata=["x"]), "metadata: .*dictionary, got list"),
        (lambda s, i: s.ask(i, "a", agent="main", mode="news"), "mode: "),
        (lambda s, i: s.ask(i, "a", agent=""), "agent: its name expected .*, got ''"),
        (lambda s, i: s.ask(i, "a", agent=Agent(name="m", model=ScriptedModel(["b"]))), "agent: .*got Agent"),
        (lambda s, i: s.ask(i, "a", agent="main", timeout="20"), "timeout: seconds expected, got str"),
        (lambda s, i: s.ask(i, "", agent="main", timeout=20), "text is empty"),
        (lambda s, i: s.submit_tool_result(i, "call", error=5, agent="main"), "error: a string expected"),
        (lambda s, i: s.history(i, limit="many"), "limit: .*got str"),
        (lambda s, i: s.turns(i, start=-1), "start: .*got int"),
        (lambda s, i: s.fork(i, f"{i}-2", at=-1), "at: .*got int"),
        (lambda s, i: s.rewind_to_turn(i, "one", agent="main"), "turns: .*got str"),
    ],
)
async def test_what_does_not_fit_is_refused_by_an_error_of_the_pack(
    stand: Stand, sid: str, call: Call, said: str
) -> None:
    """It names the argument and what is expected, once, and no value but those of names."""
    with pytest.raises(InvalidRequestError, match=said) as caught:
        await call(stand.sessions, sid)
    assert "InvalidRequestError" not in str(caught.value)


async def test_an_error_names_its_type_once(stand: Stand, sid: str) -> None:
    """What a session could not be opened by was told as ``ThreadNotFoundError: ThreadNotFoundError: …``."""
    with pytest.raises(ThreadNotFoundError) as caught:
        await stand.sessions.rewind_to_turn(sid, 1, agent="main", timeout=20)
    assert str(caught.value).startswith(f"thread {sid!r}")


@pytest.mark.parametrize("session_id", [None, 5, b"s"])
async def test_an_id_that_is_no_text_is_refused(stand: Stand, session_id: Any) -> None:
    """Also where nothing is to be started."""
    with pytest.raises(InvalidIdError):
        await stand.sessions.ask(session_id, "hello", agent="main")
    with pytest.raises(InvalidIdError):
        await stand.sessions.status(session_id)
    with pytest.raises(InvalidIdError):
        await stand.sessions.history(session_id)


async def test_history_is_read_by_pages_in_both_directions(stand: Stand, sid: str) -> None:
    """As every list: ``items``, and ``next_cursor`` for the page that follows."""
    for text in ("one", "two", "three"):
        await stand.sessions.ask(sid, text, agent="main")
    first = await stand.sessions.history(sid, limit=4)
    second = await stand.sessions.history(sid, limit=4, cursor=first.next_cursor)
    texts = [each.text for each in (*first.items, *second.items)]
    assert texts == await stand.texts(sid)
    assert (first.has_more, first.total, second.first, second.next_cursor) == (True, 6, 4, None)
    newest = await stand.sessions.history(sid, limit=4, backward=True)
    before = await stand.sessions.history(sid, limit=4, backward=True, cursor=newest.next_cursor)
    assert [each.text for each in (*before.items, *newest.items)] == texts
    assert before.next_cursor is None
    with pytest.raises(InvalidCursorError):
        await stand.sessions.history(sid, cursor="next")


async def test_turns_are_read_by_pages_whose_numbers_go_on(stand: Stand, sid: str) -> None:
    """As every list."""
    for text in ("one", "two", "three"):
        await stand.sessions.ask(sid, text, agent="main")
    first = await stand.sessions.turns(sid, limit=2)
    second = await stand.sessions.turns(sid, limit=2, cursor=first.next_cursor)
    assert [(each.number, each.text) for each in (*first.items, *second.items)] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert second.next_cursor is None
    assert (first.has_more, first.total) == (True, None)
    with pytest.raises(InvalidCursorError):
        await stand.sessions.turns(sid, cursor="1")
