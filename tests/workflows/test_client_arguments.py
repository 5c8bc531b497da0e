"""What people get wrong when they call a session, and lists, which all have one shape."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import Client

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient
from helix_temporal.errors import (
    AgentMismatchError,
    InvalidConfigError,
    InvalidCursorError,
    InvalidIdError,
    InvalidRequestError,
    SessionNotFoundError,
)
from helix_temporal.plugin import HelixPlugin
from tests.workflows._desk import Desk, Gate
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
    assert (await stand.sessions.session(sid).get_status()).agent == "serial"


async def test_a_session_that_is_closed_is_asked_as_another_agent_at_once(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The error says to close it first: whoever does so need not know when it has ended."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=30))
    await gate.reached.wait()
    await stand.sessions.session(sid).close()
    asked = asyncio.create_task(stand.sessions.ask(sid, "two", agent="serial", timeout=30))
    sent = asyncio.create_task(stand.sessions.send(sid, "three", agent="serial", timeout=30))
    await asyncio.sleep(0.3)
    gate.opened.set()
    assert (await first).in_thread
    assert (await asked).in_thread
    await sent
    assert (await stand.sessions.session(sid).get_status()).agent == "serial"


async def test_a_client_sends_to_the_queue_of_its_plugin(stand: Stand, sid: str) -> None:
    """Settings name it once."""
    sessions = SessionClient(stand.served.client)
    assert (await sessions.ask(sid, "one", agent="main", timeout=20)).in_thread


async def test_a_client_whose_plugin_names_no_queue_sends_to_the_usual_one(stand: Stand) -> None:
    """Without settings both sides have the same one."""
    address = stand.served.plugin.settings.temporal_address
    client = await Client.connect(address, plugins=[HelixPlugin()], lazy=True)
    assert SessionClient(client)._connection.task_queue == "helix"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s, i: s.ask(i, None, agent="main"), "text: a string expected, got NoneType"),
        (lambda s, i: s.ask(i, b"hello", agent="main"), "text: a string expected, got bytes"),
        (lambda s, i: s.send(i, 5, agent="main"), "text: a string expected, got int"),
        (lambda s, i: s.ask(i, "a", agent="main", metadata={"tier": 1}), r"metadata.tier: .*string, got int"),
        (
            lambda s, i: s.ask(i, "a", agent="main", metadata=["x"]),
            "metadata: a dictionary expected, got list",
        ),
        (lambda s, i: s.ask(i, "a", agent="main", mode="news"), "mode: "),
        (lambda s, i: s.ask(i, "a", agent=""), "agent name ''"),
        (lambda s, i: s.ask(i, "a", agent=Agent(name="m", model=ScriptedModel(["b"]))), "agent: .*got Agent"),
        (lambda s, i: s.ask(i, "a", agent="main", timeout="20"), "timeout: a number expected, got str"),
        (lambda s, i: s.ask(i, "", agent="main", timeout=20), "text is empty"),
        (
            lambda s, i: s.session(i, agent="main").submit_tool_result("call", error=5),
            "error: a string expected",
        ),
        (lambda s, i: s.session(i).list_messages(limit="many"), "limit: .*got str"),
        (lambda s, i: s.session(i).list_turns(start=-1), "start: .*got int"),
        (lambda s, i: s.session(i).fork(f"{i}-2", at=-1), "at: .*got int"),
        (lambda s, i: s.session(i, agent="main").rewind_to_turn("one"), "turns: .*got str"),
        (lambda s, i: s.session(i).rewind({"position": 1}), "to: Head expected, got dict"),
        (
            lambda s, i: s.ask(i, "a", properties={"expire_at": 5}),
            "properties: SessionProperties expected, got dict",
        ),
        (
            lambda s, i: s.session(i).set_properties({"expire_at": 5}),
            "properties: SessionProperties expected, got dict",
        ),
        (lambda s, i: s.ask(i, "a", fork_from="t"), "fork_from: ForkFrom expected, got str"),
        (lambda s, i: s.ask(i, "a", mode="news"), "mode: 'auto' or 'new' or .* expected, got str"),
        (
            lambda s, i: s.session(i).submit_approval({"approved": True}),
            "approval: ToolApproval expected, got dict",
        ),
        (lambda s, i: s.session(i).submit_tool_result(5), "call: a string or PendingCall expected, got int"),
        (lambda s, i: s.session(i).submit_tool_result("c", parts=5), "parts: a list expected, got int"),
        (
            lambda s, i: s.session(i).submit_tool_result("c", wait=3.0),
            "wait: True or False expected, got float",
        ),
        (lambda s, i: s.session(i).list_turns(limit="1"), "limit: an integer expected, got str"),
        (lambda s, i: s.session(i).list_turns(newest="1"), "newest: an integer expected, got str"),
        (lambda s, i: s.session(i).list_turns(cursor=5), "cursor: a string expected, got int"),
        (lambda s, i: s.session(i).list_messages(cursor=5), "cursor: a string expected, got int"),
        (lambda s, i: s.session(i).list_children(limit="1"), "limit: an integer expected, got str"),
        (lambda s, i: s.list_sessions({"user_id": "u"}), "query: SessionQuery expected, got dict"),
        (lambda s, i: s.list_sessions(userid="u"), "userid is no field of SessionQuery: user_id is meant"),
        (lambda s, i: s.query_usage("s"), "query: UsageQuery expected, got str"),
        (lambda s, i: s.query_usage(kind="x"), "kind is no field of UsageQuery: kinds is meant"),
        (lambda s, i: s.session(i).wait_for_change("1"), "version: an integer expected, got str"),
        (lambda s, i: s.session(i).wait_for_change(timeout="1"), "timeout: a number expected, got str"),
        (lambda s, i: s.session(i).delete(grace="1"), "grace: a number expected, got str"),
        (lambda s, i: s.session(i).stop(abort="no"), "abort: True or False expected, got str"),
        (lambda s, i: s.stream(i, after="now").__anext__(), "after: an integer or 'turn' expected, got str"),
        (lambda s, i: s.stream(i, until="end").__anext__(), "until: 'turn' or 'closed' expected, got str"),
        (lambda s, i: s.session(i, agent=Agent).ask("a"), "agent: a string expected, got type"),
    ],
)
async def test_what_does_not_fit_is_refused_by_an_error_of_the_pack(
    stand: Stand, sid: str, call: Call, said: str
) -> None:
    """It names the argument and what is expected, once, and no value but those of names."""
    with pytest.raises(InvalidRequestError, match=said) as caught:
        await call(stand.sessions, sid)
    assert "InvalidRequestError" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda s, i: s.ask(i, "a", agent="main", timout=5),
            "timout is no argument of ask: timeout is meant",
        ),
        (lambda s, i: s.ask(i, "a", agnet="main"), "agnet is no argument of ask: agent is meant"),
        (
            lambda s, i: s.send(i, "a", mode="new"),
            "mode is no argument of send; it has session_id, text, agent, ",
        ),
        (
            lambda s, i: s.stream(i, untill="turn").__anext__(),
            "untill is no argument of stream: until is meant",
        ),
        (
            lambda s, i: s.session(i).ask("a", msg=1, timout=5),
            "timout is no argument of ask: timeout is meant",
        ),
        (
            lambda s, i: s.session(i).stream_ask("a", timout=5).result(),
            "timout is no argument of stream_ask: timeout is meant",
        ),
        (
            lambda s, i: s.session(i).list_turns(offset=1),
            "offset is no argument of list_turns; it has start, ",
        ),
        (
            lambda s, i: s.session(i, agents="main").ask("a"),
            "agents is no argument of session: agent is meant",
        ),
    ],
)
async def test_a_misspelt_argument_is_refused_by_its_nearest_name(
    stand: Stand, sid: str, call: Call, said: str
) -> None:
    """It was Python's `TypeError`, which names no method."""
    with pytest.raises(InvalidRequestError, match=said):
        await call(stand.sessions, sid)


async def test_an_argument_that_is_missing_is_told_with_the_method(stand: Stand, sid: str) -> None:
    """As Python does."""
    call: Any = stand.sessions.session(sid).ask
    with pytest.raises(TypeError, match=r"^ask\(\): missing a required argument: 'text'$"):
        await call()


@pytest.mark.parametrize("timeout", [float("nan"), float("-inf"), -1, -0.5, 0])
@pytest.mark.parametrize(
    "call",
    [
        lambda s, i, t: s.ask(i, "a", agent="main", timeout=t),
        lambda s, i, t: s.session(i, agent="main").stream_ask("a", timeout=t).result(),
        lambda s, i, t: s.session(i, agent="main").ask("a", timeout=t),
        lambda s, i, t: s.send(i, "a", agent="main", timeout=t),
        lambda s, i, t: s.session(i, agent="main").submit_tool_result("call", "result", timeout=t),
        lambda s, i, t: s.session(i, agent="main").resume(timeout=t),
        lambda s, i, t: s.session(i, agent="main").regenerate(timeout=t),
        lambda s, i, t: s.session(i, agent="main").rewind_to_turn(1, timeout=t),
        lambda s, i, t: s.session(i).wait_for_change(timeout=t),
        lambda s, i, t: s.session(i).delete(timeout=t),
    ],
)
async def test_a_timeout_that_is_not_above_0_is_refused(
    stand: Stand, sid: str, call: Callable[[SessionClient, str, float], Awaitable[Any]], timeout: float
) -> None:
    """NaN was a `ValueError` of the standard library, and a negative one waited for two seconds."""
    with pytest.raises(InvalidRequestError, match="timeout: a number of seconds above 0 expected, got "):
        await call(stand.sessions, sid, timeout)


async def test_an_edit_needs_an_agent_to_start_the_new_session_with(stand: Stand, sid: str) -> None:
    """A handle without one talks to sessions that run, and the edit's does not yet."""
    await stand.sessions.ask(sid, "one", agent="main", message_id=f"{sid}-m")
    with pytest.raises(SessionNotFoundError, match=f"'{sid}-edit' is not running; name the agent"):
        await stand.sessions.session(sid).edit(f"{sid}-m", "uno", f"{sid}-edit")


@pytest.mark.parametrize("timeout", [float("inf"), 1e20])
async def test_a_timeout_may_be_without_end(stand: Stand, sid: str, timeout: float) -> None:
    """`wait_for_change` took it, and `ask` failed by an `OverflowError`."""
    assert (await stand.sessions.ask(sid, "one", agent="main", timeout=timeout)).in_thread
    assert (await stand.sessions.session(sid).wait_for_change(timeout=timeout)).turns == 1


async def test_an_error_names_its_type_once(stand: Stand, sid: str) -> None:
    """What a session could not be opened by was told with its type, twice."""
    with pytest.raises(SessionNotFoundError) as caught:
        await stand.sessions.session(sid, agent="main").rewind_to_turn(1, timeout=20)
    assert str(caught.value).startswith(f"session {sid!r} is not there: ")


@pytest.mark.parametrize("session_id", [None, 5, b"s", {"id": "s"}])
async def test_an_id_that_is_no_text_is_refused(stand: Stand, session_id: Any) -> None:
    """Also where nothing is to be started."""
    with pytest.raises(InvalidIdError):
        await stand.sessions.ask(session_id, "hello", agent="main")
    with pytest.raises(InvalidIdError):
        await stand.sessions.session(session_id).get_status()
    with pytest.raises(InvalidIdError):
        await stand.sessions.session(session_id).list_messages()
    with pytest.raises(InvalidIdError):
        await stand.sessions.session(session_id).submit_tool_result("call", "result")
    with pytest.raises(InvalidIdError):
        await stand.sessions.session(session_id).resume()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"options": {"idle_timeout": 5}}, "options: SessionOptions expected, got dict"),
        ({"policy": {"heartbeat": 5}}, "policy: CallPolicy expected, got dict"),
        ({"client": "127.0.0.1:7233"}, "client: Client expected, got str"),
    ],
)
async def test_a_client_is_made_of_the_right_things(stand: Stand, options: Any, said: str) -> None:
    """Otherwise the first message would fail, with something obscure."""
    with pytest.raises(InvalidConfigError, match=said):
        SessionClient(**({"client": stand.served.client} | options))


async def test_history_is_read_by_pages_in_both_directions(stand: Stand, sid: str) -> None:
    """As every list: ``items``, and ``next_cursor`` for the page that follows."""
    for text in ("one", "two", "three"):
        await stand.sessions.ask(sid, text, agent="main")
    first = await stand.sessions.session(sid).list_messages(limit=4)
    second = await stand.sessions.session(sid).list_messages(limit=4, cursor=first.next_cursor)
    texts = [each.text for each in (*first.items, *second.items)]
    assert texts == await stand.texts(sid)
    assert (first.has_more, first.total, second.first, second.next_cursor) == (True, 6, 4, None)
    newest = await stand.sessions.session(sid).list_messages(limit=4, backward=True)
    before = await stand.sessions.session(sid).list_messages(
        limit=4, backward=True, cursor=newest.next_cursor
    )
    assert [each.text for each in (*before.items, *newest.items)] == texts
    assert before.next_cursor is None
    with pytest.raises(InvalidCursorError):
        await stand.sessions.session(sid).list_messages(cursor="next")


async def test_turns_are_read_by_pages_whose_numbers_go_on(stand: Stand, sid: str) -> None:
    """As every list."""
    for text in ("one", "two", "three"):
        await stand.sessions.ask(sid, text, agent="main")
    first = await stand.sessions.session(sid).list_turns(limit=2)
    second = await stand.sessions.session(sid).list_turns(limit=2, cursor=first.next_cursor)
    assert [(each.number, each.text) for each in (*first.items, *second.items)] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
    ]
    assert second.next_cursor is None
    assert (first.has_more, first.total) == (True, None)
    with pytest.raises(InvalidCursorError):
        await stand.sessions.session(sid).list_turns(cursor="1")
