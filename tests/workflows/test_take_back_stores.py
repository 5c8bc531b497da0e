"""Turns that are taken back, on every pairing of stores: thread and state go back together."""

import pytest

from helix_temporal.agents import ToolContext, ToolOutcome
from helix_temporal.models.sessions import AskStatus
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.test_states import PAIRINGS, place, served, state_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]


@pytest.mark.parametrize("place", [*PAIRINGS, "redis and postgres, flushed at exit"], indirect=True)
async def test_every_pairing_of_stores_takes_turns_back(place: Settings, sid: str) -> None:
    """One unit where threads and states lie together, two where they don't: the same in the end."""
    desk, numbers = Desk(), dict[str, int]()
    desk.scripts[sid] = first_tools_then("done", "x")

    def act(what: str, context: ToolContext) -> ToolOutcome:
        # A busy machine may have a call made twice, under one key.
        return ToolOutcome(what, state={"k": numbers.setdefault(context.key, len(numbers) + 1)})

    desk.acts[sid] = act
    async with served(place, desk) as stand:
        handle = stand.sessions.session(sid, agent="main")
        for text in ("one", "two", "three"):
            await handle.ask(text)
        assert (await handle.regenerate()).status is AskStatus.ANSWERED
        assert (await state_of(stand, sid)).custom_state == {"k": 4}
        await stand.finish(sid)
        checkpoints = (await handle.list_checkpoints()).items
        second = next(each for each in checkpoints if each.head.position == 8)
        await handle.restore_checkpoint(second.id)
        state = await state_of(stand, sid)
        assert (state.custom_state, state.head) == ({"k": 2}, second.head)
        await handle.rewind_to_turn(-1)
        assert (await state_of(stand, sid)).custom_state == {"k": 1}
        await handle.ask("again")
        state = await state_of(stand, sid)
        assert (state.custom_state, state.head.position) == ({"k": 5}, 8)
        await stand.finish(sid)
        users = [each.text for each in await stand.messages(sid) if each.role == "user"]
        assert users == ["one", "again"]
