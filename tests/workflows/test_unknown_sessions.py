"""Sessions that never were: whoever reads them is told so by one error; whoever ends them gets an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import ToolApproval
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[SessionClient, str], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "ask": lambda s, i: s.ask(i, "a", timeout=10),
    "checkpoints": lambda s, i: s.session(i).list_checkpoints(),
    "checkpoint": lambda s, i: s.session(i).get_checkpoint("c"),
    "children": lambda s, i: s.session(i).list_children(),
    "describe": lambda s, i: s.session(i).describe_thread(),
    "edit": lambda s, i: s.session(i, agent="main").edit("m", "a", f"{i}-2", timeout=10),
    "find_turn": lambda s, i: s.session(i).find_turn("m"),
    "fork": lambda s, i: s.session(i).fork(f"{i}-2"),
    "history": lambda s, i: s.session(i).list_messages(),
    "messages": lambda s, i: s.session(i).get_messages(),
    "pending": lambda s, i: s.session(i).get_pending_calls(),
    "regenerate": lambda s, i: s.session(i).regenerate(timeout=10),
    "restore": lambda s, i: s.session(i).restore_checkpoint("c", timeout=10),
    "rewind by an agent": lambda s, i: s.session(i, agent="main").rewind_to_turn(1, timeout=10),
    "answer by an agent": lambda s, i: s.session(i, agent="people").submit_tool_result("c", "r", timeout=10),
    "result": lambda s, i: s.session(i).result(),
    "resume": lambda s, i: s.session(i).resume(timeout=10),
    "rewind": lambda s, i: s.session(i).rewind(Head(position=1, last_id="m"), timeout=10),
    "rewind_to_turn": lambda s, i: s.session(i).rewind_to_turn(1, timeout=10),
    "send": lambda s, i: s.send(i, "a", timeout=10),
    "run": lambda s, i: s.session(i).get_run("r"),
    "set_properties": lambda s, i: s.session(i).set_properties(SessionProperties(user_id="u")),
    "state": lambda s, i: s.session(i).get_state(),
    "status": lambda s, i: s.session(i).get_status(),
    "submit_approval": lambda s, i: s.session(i).submit_approval(
        ToolApproval(approval_id="a", approved=True)
    ),
    "submit_tool_result": lambda s, i: s.session(i).submit_tool_result("c", "r"),
    "turns": lambda s, i: s.session(i).list_turns(),
    "usage": lambda s, i: s.session(i).get_usage(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_session_that_never_was_is_told_as_that(stand: Stand, sid: str, name: str) -> None:
    """By one error: it was this one, that of a thread, None or an empty page, by method."""
    with pytest.raises(SessionNotFoundError, match=f"session '{sid}"):
        await CALLS[name](stand.sessions, sid)


async def test_where_nothing_was_there_is_nothing_to_stop_or_to_tell(stand: Stand, sid: str) -> None:
    """What ends a session answers instead."""
    sessions = stand.sessions
    await sessions.session(sid).close()
    assert not await sessions.session(sid).stop()
    assert (await sessions.session(sid).delete()).removed == {}


async def test_in_a_session_that_is_there_a_list_may_be_empty_and_a_run_unknown(
    stand: Stand, sid: str
) -> None:
    """Its workers may keep neither."""
    session = stand.sessions.session(sid, agent="main")
    await session.ask("hello", timeout=30)
    await stand.finish(sid)
    assert await session.get_run("nobody's") is None
    assert (await session.list_children()).items == ()
    page = await session.list_checkpoints()
    assert (page.next_cursor, page.has_more) == (None, False)


async def test_a_stream_waits_for_a_session_that_nobody_has_asked_yet(stand: Stand, sid: str) -> None:
    """Whoever shows it may be there first, also by the name of a run."""
    session = stand.sessions.session(sid, agent="main")
    first = asyncio.ensure_future(anext(session.stream()))
    await asyncio.sleep(0.2)
    assert not first.done()
    await session.ask("hello", timeout=30)
    assert (await first).sequence == 1
