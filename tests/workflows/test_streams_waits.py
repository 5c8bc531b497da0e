"""What a session's stream shows of waits for people, and of sub-agents."""

import pytest

from helix_temporal.models import streams
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.waiting import ToolApproval
from tests.workflows._desk import Desk
from tests.workflows._team import ask
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_waits import LOCATE, WIPE, asks_once

pytestmark = pytest.mark.asyncio(loop_scope="session")


def types(turn: list[StoredChunk]) -> list[str]:
    return [stored.chunk.type for stored in turn]


async def test_a_wait_is_told_with_what_it_is_for(stand: Stand, desk: Desk, sid: str) -> None:
    """The page asks its user, and knows under which names to answer."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    live = stand.sessions.session(sid, agent="people").stream_ask("go")
    turn = [stored async for stored in live]
    result = await live.result()
    assert result.status is AskStatus.SUSPENDED
    assert types(turn)[-2:] == ["tool_approval_request", "suspended"]
    told = turn[-1].chunk
    assert isinstance(told, streams.Suspended)
    assert [call["id"] for call in told.calls] == [call.id for call in result.pending]
    assert [call["kind"] for call in told.calls] == ["client", "approval"]


async def test_a_turn_that_goes_on_is_read_on(stand: Stand, desk: Desk, sid: str) -> None:
    """One turn, however long somebody thought about it: from its start to its end in one stream."""
    desk.scripts[sid] = asks_once(WIPE)
    view, live = StreamView(), stand.sessions.session(sid, agent="people").stream_ask("go")
    async for stored in live:
        view.feed(stored)
    assert view.status == "suspended"
    (call,) = (await live.result()).pending
    await stand.sessions.session(sid).submit_approval(ToolApproval(approval_id=call.id, approved=True))
    following = stand.sessions.stream(sid, after=view.last_sequence, message_id=live.message_id)
    rest = [stored async for stored in following]
    for stored in rest:
        view.feed(stored)
    assert types(rest)[-1] == "run_ended"
    assert "run_resumed" in types(rest)
    assert (view.status, view.text) == ("completed", "wiped disk")


async def test_a_sub_agent_is_shown_where_it_works(crew: Crew, sid: str) -> None:
    """Its session has a stream of its own; the page can show that, too."""
    live = crew.sessions.session(sid, agent="new").stream_ask("how are you")
    turn = [stored.chunk async for stored in live]
    [start] = [each for each in turn if isinstance(each, streams.SubAgentStart)]
    [end] = [each for each in turn if isinstance(each, streams.SubAgentEnd)]
    child = await crew.child(sid)
    assert (start.sub_session_id, start.sub_agent_type) == (child, "helper")
    assert (end.sub_session_id, end.success, end.result) == (child, True, "1: how are you")
    names = [each.type for each in turn]
    assert names.index("subagent_end") < names.index("tool_end")
    told = [stored.chunk async for stored in crew.sessions.stream(child)]
    assert isinstance(told[-1], streams.RunEnded)


async def test_the_end_of_a_sub_agent_shows_the_beginning_of_what_it_gave(crew: Crew, sid: str) -> None:
    """A page says what came of it, however much that is, and why there is nothing."""
    crew.team.leads[sid] = lambda request: (
        ask("large 5000", "fail") if request.messages[-1].role == "user" else "done"
    )
    live = crew.sessions.session(sid, agent="new").stream_ask("go")
    turn = [stored.chunk async for stored in live]
    large, failed = [each for each in turn if isinstance(each, streams.SubAgentEnd)]
    assert (large.result, large.success) == ("x" * 2000, True)
    assert (failed.success, failed.sub_agent_type) == (False, "helper")
    assert "PlayedError: on purpose" in str(failed.result)
