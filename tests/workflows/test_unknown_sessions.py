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
    "checkpoint": lambda s, i: s.checkpoint(i, "c"),
    "children": lambda s, i: s.children(i),
    "describe": lambda s, i: s.describe(i),
    "edit": lambda s, i: s.edit(i, "m", "a", f"{i}-2", agent="main", timeout=10),
    "find_turn": lambda s, i: s.find_turn(i, "m"),
    "fork": lambda s, i: s.fork(i, f"{i}-2"),
    "history": lambda s, i: s.history(i),
    "messages": lambda s, i: s.messages(i),
    "pending": lambda s, i: s.pending(i),
    "regenerate": lambda s, i: s.regenerate(i, timeout=10),
    "restore": lambda s, i: s.restore(i, "c", timeout=10),
    "result": lambda s, i: s.result(i),
    "resume": lambda s, i: s.resume(i, timeout=10),
    "rewind": lambda s, i: s.rewind(i, Head(position=1, last_id="m"), timeout=10),
    "rewind_to_turn": lambda s, i: s.rewind_to_turn(i, 1, timeout=10),
    "send": lambda s, i: s.send(i, "a", timeout=10),
    "set_properties": lambda s, i: s.set_properties(i, SessionProperties(user_id="u")),
    "status": lambda s, i: s.status(i),
    "submit_approval": lambda s, i: s.submit_approval(i, ToolApproval(approval_id="a", approved=True)),
    "submit_tool_result": lambda s, i: s.submit_tool_result(i, "c", "r"),
    "turns": lambda s, i: s.turns(i),
    "usage": lambda s, i: s.usage(i),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_session_that_never_was_is_told_as_that(stand: Stand, sid: str, name: str) -> None:
    """`result` let the server's own error through, where all others have one of the pack's."""
    with pytest.raises(NotFoundError, match=sid):
        await CALLS[name](stand.sessions, sid)


async def test_where_nothing_was_there_is_nothing_to_stop_or_to_tell(stand: Stand, sid: str) -> None:
    """What ends a session, and what looks for one thing, answers instead."""
    sessions = stand.sessions
    await sessions.close(sid)
    assert not await sessions.stop(sid)
    assert (await sessions.delete(sid)).removed == {}
    assert (await sessions.checkpoints(sid)).total == 0
    assert (await sessions.state(sid), await sessions.run(sid, "r")) == (None, None)
