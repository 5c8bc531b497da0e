"""Which sub-agents a session has called: shown to whoever asks, with a session store or without one."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.agents import ModelRequest
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import InvalidCursorError, InvalidRequestError, SessionNotFoundError
from helix_temporal.models.handles import ChildInfo
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.states import RemoteRef, SubSessionRef
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Answer, Desk
from tests.workflows._team import Team, ask
from tests.workflows.conftest import Crew, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def storeless(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Crew]:
    """A worker without a session store."""
    team, name = Team(), f"t{uuid.uuid4().hex[:12]}"
    settings = make_settings(temporal_address, redis_url, s3, name, session_store="none")
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, team.agents(), options=options, drain=1.0) as served:
        yield Crew(served, Desk(), team)


@pytest.fixture(params=["store", "thread"])
def either(request: pytest.FixtureRequest, crew: Crew, storeless: Crew) -> Crew:
    """With references, and with the calls in the thread alone."""
    return crew if request.param == "store" else storeless


def hands_on(request: ModelRequest) -> Answer:
    """Give each part of the message to a sub-agent; then be done."""
    last = request.messages[-1]
    return ask(*last.text.split(",")) if last.role == "user" else "done"


async def every_child(crew: Crew, session_id: str, limit: int = 50) -> list[ChildInfo]:
    """All of them, page by page."""
    found: list[ChildInfo] = []
    cursor: str | None = None
    while True:
        page = await crew.sessions.session(session_id).list_children(limit=limit, cursor=cursor)
        found += page.items
        assert page.has_more == (page.next_cursor is not None)
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def test_sub_agents_are_shown_newest_first(either: Crew, sid: str) -> None:
    """Who looks at a session sees who has worked for it, and how that ended."""
    either.team.leads[sid] = hands_on
    await either.sessions.ask(sid, "one,fail", agent="new")
    await either.sessions.ask(sid, "three")
    children = await every_child(either, sid)
    assert [(each.call, each.status) for each in children] == [
        ("call_0", "completed"),
        ("call_1", "failed"),
        ("call_0", "completed"),
    ]
    assert [(await either.texts(each.session_id))[:1] for each in children] == [["three"], [], ["one"]]


async def test_each_is_shown_with_its_agent_its_tool_and_what_it_used(either: Crew, sid: str) -> None:
    """Its id opens its history, its stream and its own sub-agents."""
    await either.sessions.ask(sid, "deep", agent="top")
    (middle,) = await every_child(either, sid)
    (helper,) = await every_child(either, middle.session_id)
    assert [(each.agent, each.tool) for each in (middle, helper)] == [
        ("middle", "helper"),
        ("helper", "helper"),
    ]
    assert [(each.usage.input_tokens, each.steps) for each in (middle, helper)] == [(111, 2), (1, 1)]
    assert await either.texts(helper.session_id) == ["deep", "1: deep"]


async def test_sub_agents_that_work_are_shown_meanwhile(either: Crew, sid: str) -> None:
    """A page shows who is busy, not only who was."""
    either.team.leads[sid] = hands_on
    asked = asyncio.create_task(either.sessions.ask(sid, f"hold {sid}", agent="new"))
    await asyncio.wait_for(either.team.gates[sid].reached.wait(), 20)
    assert [each.status for each in await every_child(either, sid)] == ["active"]
    either.team.gates[sid].opened.set()
    await asked
    assert [each.status for each in await every_child(either, sid)] == ["completed"]


async def test_a_continuing_sub_agent_is_shown_once(either: Crew, sid: str) -> None:
    """It is one session, whatever the number of its calls; over pages, too."""
    for text in ("one", "two", "three"):
        await either.sessions.ask(sid, text, agent="continue")
    (child,) = await every_child(either, sid, limit=1)
    assert (child.session_id, child.steps) == (f"{sid}>helper", 3)


async def test_pages_hold_each_sub_agent_once(either: Crew, sid: str) -> None:
    """A session of a year has called thousands."""
    either.team.leads[sid] = hands_on
    for text in ("a", "b,c", "d"):
        await either.sessions.ask(sid, text, agent="new")
    whole = await every_child(either, sid)
    assert len(whole) == 4
    assert await every_child(either, sid, limit=1) == whole
    first = await either.sessions.session(sid).list_children(limit=1)
    # The calls of one answer stay together where they are read in the thread.
    assert 1 <= len(first.items) <= 2


async def test_sub_agents_of_an_ended_session_are_shown_without_waking_it(either: Crew, sid: str) -> None:
    """From the archive, where the rest of it is."""
    await either.sessions.ask(sid, "one", agent="new")
    await either.finish(sid)
    (child,) = await every_child(either, sid)
    assert (child.status, child.usage.input_tokens) == ("completed", 1)
    described = await either.handle(sid).describe()
    assert described.close_time is not None


async def test_a_call_that_was_not_approved_has_no_session(either: Crew, sid: str) -> None:
    """Nobody began to work."""
    result = await either.sessions.ask(sid, "one", agent="approved")
    (call,) = result.pending
    assert await every_child(either, sid) == []
    denied = ToolApproval(approval_id=call.id, approved=False, reason="no")
    await either.sessions.session(sid).submit_approval(denied, wait=True)
    assert await every_child(either, sid) == []


async def test_a_session_that_called_nobody_has_no_sub_agents(either: Crew, sid: str) -> None:
    """That is an empty list, while one that is not there is an error, and so is a foreign cursor."""
    await either.sessions.ask(sid, "hello", agent="helper")
    assert (await either.sessions.session(sid).list_children()).items == ()
    with pytest.raises(SessionNotFoundError):
        await either.sessions.session("nobody").list_children()
    with pytest.raises(InvalidCursorError):
        await either.sessions.session(sid).list_children(cursor="x")
    with pytest.raises(InvalidRequestError, match="1 to 200"):
        await either.sessions.session(sid).list_children(limit=0)


async def test_a_reference_to_a_sub_agent_elsewhere_is_shown_as_it_is(crew: Crew, sid: str) -> None:
    """Whoever runs it keeps the reference; we know no more of it."""
    await crew.sessions.ask(sid, "hello", agent="helper")
    await crew.finish(sid)
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    remote = RemoteRef(endpoint_id="berlin", remote_session_id="r-1")
    await sessions.add_sub_session_refs(sid, [SubSessionRef(sub_session_id=f"{sid}-r", remote=remote)])
    (child,) = await every_child(crew, sid)
    assert (child.remote, child.usage.input_tokens) == (remote, 0)
