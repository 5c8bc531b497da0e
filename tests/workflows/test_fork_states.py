"""A fork begins with the state that the session had at that place."""

import pytest

from helix_temporal.agents import ToolContext, ToolOutcome
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.test_states import PAIRINGS, place, served, state_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_fork_has_what_a_tool_changed_in_the_newest_turn(place: Settings, sid: str) -> None:
    """Wherever the thread is copied: in the archive it lost its origin, and so the state, on its way back."""
    desk, copy = Desk(), f"{sid}-copy"

    async def look(_what: str, _context: ToolContext) -> ToolOutcome:
        return ToolOutcome("seen", state={"plan": "basic"})

    async with served(place, desk) as stand:
        desk.scripts[sid] = first_tools_then("done", "look")
        desk.acts[sid] = look
        await stand.sessions.ask(sid, "go", agent="main")
        await stand.sessions.session(sid).fork(copy)
        told = await stand.sessions.ask(copy, "more", agent="main")
        assert (await state_of(stand, copy)).custom_state == {"plan": "basic"}
        assert [each.detail for each in told.receipts] == []
        status = await stand.sessions.session(copy).get_status()
        assert [each.detail for each in status.receipts] == []
        for name in (sid, copy):
            await stand.finish(name)
