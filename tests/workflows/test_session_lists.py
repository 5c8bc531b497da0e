"""What the session store keeps of a session beside its conversation: set, changed, and found again."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ToolContext, agent_tool, tool
from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidRequestError
from helix_temporal.facade import create_session
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.states import SessionProperties, SessionStatus, TracingContext, WorkspaceRef
from helix_temporal.models.usage import CustomUsageEntry
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, calls
from tests.workflows.conftest import Stand
from tests.workflows.test_states import PAIRINGS, place, served, state_of
from tests.workflows.test_waits import WIPE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]

TRACE = TracingContext(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")


async def names(client: SessionClient, **filters: Any) -> list[str]:
    return [each.session_id for each in (await client.list_sessions(**filters)).items]


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_sessions_are_found_by_what_was_set(place: Settings, sid: str) -> None:
    """By user, tags, status and agent; by short workflows as by stores that the program has."""
    later = int(time.time() * 1000) + 3_600_000
    async with served(place, Desk()) as stand:
        mine = SessionProperties(
            user_id="u1",
            title="Where is my order?",
            tags=("red", "round"),
            expires_at=later,
            workspaces=(WorkspaceRef(provider_id="disk", workspace_id="w"),),
            tracing_context=TRACE,
        )
        await stand.sessions.ask(f"{sid}-a", "one", agent="main", properties=mine)
        await stand.sessions.ask(f"{sid}-b", "one", agent="main", properties=SessionProperties(user_id="u2"))
        await stand.sessions.ask(f"{sid}-c", "one", agent="main")
        state = await state_of(stand, f"{sid}-a")
        assert (state.user_id, state.tags, state.expires_at) == ("u1", ("red", "round"), later)
        assert (state.workspaces, state.tracing_context) == (mine.workspaces, TRACE)
        assert (state.mode, state.stream_id, state.output) == ("persistent", f"{sid}-a", "1: one")
        near = SessionClient(
            stand.served.client, task_queue=place.task_queue, stores=stand.served.plugin.backends
        )
        for client in (stand.sessions, near):
            assert await names(client, user_id="u1") == [f"{sid}-a"]
            (shown,) = (await client.list_sessions(user_id="u1", include=("custom_state",))).items
            assert (shown.title, shown.metadata, shown.custom_state) == (mine.title, {}, state.custom_state)
            assert await names(client, tags=("round",)) == [f"{sid}-a"]
            assert set(await names(client, status=(SessionStatus.ACTIVE,))) == {f"{sid}-{n}" for n in "abc"}
        first = await stand.sessions.list_sessions(limit=2)
        assert (len(first.items), first.total, first.has_more) == (2, 3, True)
        rest = await stand.sessions.list_sessions(limit=2, cursor=first.next_cursor)
        assert len({each.session_id for each in (*first.items, *rest.items)}) == 3


async def test_what_was_set_is_changed_while_the_session_runs_and_after(place: Settings, sid: str) -> None:
    """Only what is named."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main", properties=SessionProperties(user_id="u1"))
        await stand.sessions.session(sid).set_properties(SessionProperties(tags=("a",)))
        await stand.sessions.ask(sid, "two", agent="main", properties=SessionProperties(tags=("b",)))
        state = await state_of(stand, sid)
        assert (state.user_id, state.tags, state.output) == ("u1", ("b",), "3: two")
        await stand.finish(sid)
        await stand.sessions.session(sid).set_properties(SessionProperties(user_id=None))
        assert (await state_of(stand, sid)).user_id is None


async def test_a_session_that_ends_after_its_answer_is_a_standard_one(place: Settings, sid: str) -> None:
    """Written once."""
    async with served(place, Desk(), persistent=False) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        assert (await state_of(stand, sid)).mode == "standard"


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_resumed_turn_is_counted(place: Settings, sid: str) -> None:
    """Once, however it was answered; a long answer is named rather than kept twice."""
    desk = Desk()
    desk.scripts[sid] = asks_once(WIPE)
    async with served(place, desk) as stand:
        (call,) = await left(stand, sid)
        assert (await state_of(stand, sid)).resume_count == 0
        approval = ToolApproval(approval_id=call.id, approved=True)
        await stand.client().session(sid).submit_approval(approval, wait=True)
        assert (await state_of(stand, sid)).resume_count == 1
        desk.scripts[sid] = lambda request: "x" * 9000
        await stand.client().ask(sid, "more", agent="people")
        messages = await stand.messages(sid)
        output = (await state_of(stand, sid)).output
        assert output == {"message_id": messages[-1].id, "position": len(messages) - 1}


async def test_the_facade_sets_them_with_the_first_message(place: Settings, sid: str) -> None:
    """By its workflow as in its own storage."""
    async with served(place, Desk()) as stand:
        agent = next(each for each in Desk().agents() if each.name == "main")
        mine = SessionProperties(user_id="u1", tags=("t",))
        session = await create_session(agent, session_id=sid, client=stand.sessions, properties=mine)
        await session.send("one")
        assert [each.type async for each in session.receive()][-1] == "result"
        assert await names(stand.sessions, user_id="u1") == [sid]


async def test_without_a_session_store_nothing_is_listed(place: Settings, sid: str) -> None:
    """It says so at once."""
    async with served(place.model_copy(update={"session_store": "none"}), Desk()) as stand:
        with pytest.raises(InvalidRequestError, match="no session store"):
            await stand.sessions.list_sessions()


class _Counting:
    """A model that calls the tool which it has, and then answers."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        if request.messages[-1].role != "user":
            return ModelResponse(content="done")
        name = request.tools[0].name
        return calls("x", name=name) if name == "fetch" else calls("x", name=name, task="go")


@tool(attempts=2)
async def fetch(what: str, context: ToolContext) -> str:
    """Fetch something."""
    context.record("pages", 3)
    context.record("fee", Decimal("0.02"), "USD")
    if context.attempt == 1:
        raise ValueError
    with pytest.raises(InvalidRequestError):
        context.record("pages", 0.5)  # type: ignore[arg-type]
    return what


@asynccontextmanager
async def counters(place: Settings) -> AsyncIterator[Stand]:
    below = Agent(name="below", model=_Counting(), tools=[fetch])
    above = Agent(name="above", model=_Counting(), tools=[agent_tool("helper", agent="below")])
    options = SessionOptions(idle_timeout=60)
    async with session_worker(place, [below, above], options=options, drain=1.0) as running:
        yield Stand(running, Desk())


@pytest.mark.parametrize("place", ["redis and postgres", "memory alone"], indirect=True)
async def test_tools_count_what_is_theirs_and_sums_reach_the_root(place: Settings, sid: str) -> None:
    """Once, though the first attempt failed after it had counted; entries are found over all sessions."""
    async with counters(place) as stand:
        result = await stand.sessions.ask(sid, "go", agent="above", timeout=40)
        assert result.text == "done"
        recorded = (await stand.sessions.session(sid).get_usage()).recorded
        first = await stand.sessions.query_usage(kinds=("custom",), limit=1)
        rest = await stand.sessions.query_usage(kinds=("custom",), cursor=first.next_cursor)
        with pytest.raises(InvalidRequestError, match="kinds"):
            await stand.sessions.query_usage(kinds=("customs",))
    page = (*first.items, *rest.items)
    assert (len(first.items), first.total, rest.next_cursor) == (1, len(page), None)
    assert recorded is not None
    assert recorded.custom == {"pages": {"fetch": 3}, "fee": {"fetch": Decimal("0.02")}}
    entries = [each for each in page if isinstance(each, CustomUsageEntry)]
    assert {(each.metric, each.unit) for each in entries} == {("pages", None), ("fee", "USD")}
    assert all(each.session_id.startswith(f"{sid}>") for each in entries)
