"""Sessions that never were: calls say so by an error of the pack, or have nothing to tell."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.errors import NotFoundError
from helix_temporal.models.records import Head
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.waiting import ToolApproval
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[SessionClient, str], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "ask": lambda s, i: s.ask(i, "a", timeout=10),
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
    "result": lambda s, i: s.session(i).result(),
    "resume": lambda s, i: s.session(i).resume(timeout=10),
    "rewind": lambda s, i: s.session(i).rewind(Head(position=1, last_id="m"), timeout=10),
    "rewind_to_turn": lambda s, i: s.session(i).rewind_to_turn(1, timeout=10),
    "send": lambda s, i: s.send(i, "a", timeout=10),
    "set_properties": lambda s, i: s.session(i).set_properties(SessionProperties(user_id="u")),
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
    """`result` let the server's own error through, where all others have one of the pack's."""
    with pytest.raises(NotFoundError, match=sid):
        await CALLS[name](stand.sessions, sid)


async def test_where_nothing_was_there_is_nothing_to_stop_or_to_tell(stand: Stand, sid: str) -> None:
    """What ends a session, and what looks for one thing, answers instead."""
    sessions = stand.sessions
    await sessions.session(sid).close()
    assert not await sessions.session(sid).stop()
    assert (await sessions.session(sid).delete()).removed == {}
    assert (await sessions.session(sid).list_checkpoints()).total == 0
    assert (await sessions.session(sid).get_state(), await sessions.session(sid).get_run("r")) == (None, None)
