"""Metadata and the trace of a session: models, tools, hooks and sub-agents get those that it has stored."""

from typing import Any

import pytest

from helix_temporal.agents import ModelRequest
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties, TracingContext
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_states import PAIRINGS, place, served
from tests.workflows.test_waits import ACT, WIPE, asks

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]

TRACE = TracingContext(
    trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331", trace_flags="01"
)
NEWER = TracingContext(trace_id="4bf92f3577b34da6a3ce929d0e0e4736", span_id="00f067aa0ba902b7")
MINE = {"tenant": "acme"}


def wipes_then_acts(request: ModelRequest) -> Any:
    """A tool that somebody approves, one that runs after it, and an answer."""
    asked = sum(message.role == "assistant" for message in request.messages)
    return [asks(WIPE), asks(ACT), "done"][asked]


async def test_metadata_outlast_an_execution(stand: Stand, desk: Desk, sid: str) -> None:
    """Who asks again a day later does not repeat the tenant: tools and hooks know it as the model does."""
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "one", agent="hooked", metadata=MINE)
    await stand.finish(sid)
    desk.contexts[sid].clear()
    desk.heard[sid].clear()
    client = stand.client(max_turns_per_run=1)
    await client.ask(sid, "two", agent="hooked")
    await client.ask(sid, "three")
    assert [each.metadata for each in desk.contexts[sid]] == [MINE, MINE]
    assert [each.metadata for each in desk.requests[sid]] == [MINE] * 6
    assert desk.heard[sid]
    assert [dict(event.metadata) for _, event in desk.heard[sid]] == [MINE] * len(desk.heard[sid])


async def test_metadata_of_a_session_are_those_that_it_began_with(stand: Stand, desk: Desk, sid: str) -> None:
    """Tools are not given others than models are."""
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "one", agent="main", metadata=MINE)
    await stand.finish(sid)
    await stand.sessions.ask(sid, "two", agent="main", metadata={"tenant": "other"})
    assert [each.metadata for each in desk.contexts[sid]] == [MINE, MINE]
    assert [each.metadata for each in desk.requests[sid]] == [MINE] * 4


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_resumed_turn_goes_on_with_the_trace_of_its_caller(place: Settings, sid: str) -> None:
    """The approval comes days later from another process, which knows nothing of the caller's trace."""
    desk = Desk()
    desk.scripts[sid] = wipes_then_acts
    mine = SessionProperties(tracing_context=TRACE)
    async with served(place, desk) as stand:
        client = stand.client(suspend="exit")
        asked = await client.ask(sid, "go", agent="people", properties=mine)
        assert asked.status is AskStatus.SUSPENDED
        await client.session(sid).result()
        (call,) = asked.pending
        reply = await client.session(sid).submit_approval(
            ToolApproval(approval_id=call.id, approved=True), wait=True
        )
        assert reply.result is not None
        assert reply.result.text == "done"
        assert [each.tracing_context for each in desk.contexts[sid]] == [TRACE, TRACE]
        assert [each.tracing_context for each in desk.requests[sid]] == [TRACE, TRACE, TRACE]
        assert TRACE.traceparent == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_each_message_may_bring_its_own_trace(stand: Stand, desk: Desk, sid: str) -> None:
    """In an execution that goes on, over continue-as-new, and none once it is taken away."""
    desk.scripts[sid] = first_tools_then("done", "x")
    client = stand.client(max_turns_per_run=2)
    await client.ask(sid, "one", agent="main")
    await client.ask(sid, "two", properties=SessionProperties(tracing_context=NEWER))
    await client.ask(sid, "three")
    await client.ask(sid, "four", properties=SessionProperties(user_id="u"))
    await client.session(sid).set_properties(SessionProperties(tracing_context=None))
    await client.ask(sid, "five")
    assert [each.tracing_context for each in desk.contexts[sid]] == [None, NEWER, NEWER, NEWER, None]


async def test_sub_agents_go_on_with_the_trace(crew: Crew, sid: str) -> None:
    """A call of theirs is a part of what the caller traces."""
    mine = SessionProperties(tracing_context=TRACE)
    await crew.sessions.ask(sid, "work", agent="new", properties=mine)
    assert crew.team.traces[sid] == [TRACE, TRACE, TRACE]
