"""Trees of sessions that sleep are started once a sub-agent's call has used up its time."""

import asyncio

import pytest

from helix_temporal.models.sessions import AskResult, AskStatus
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound, lineage
from tests.workflows.test_children_exit import left, once_more, state_of
from tests.workflows.test_waking import store_of, wake

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOO_LATE = "The sub-agent had no answer within 8 s."


async def all_due(crew: Crew) -> set[str]:
    """Sessions that the maintenance worker finds."""
    return {each.session_id for each in (await store_of(crew).list_due()).items}


async def due(crew: Crew, session_id: str) -> None:
    """Wait until it finds this one."""
    async with asyncio.timeout(20):
        while session_id not in await all_due(crew):  # noqa: ASYNC110 (the store has no event)
            await asyncio.sleep(0.1)


async def over(crew: Crew, sid: str) -> AskResult:
    """The end of the turn: who asks again before it goes on is told that it waits."""
    async with asyncio.timeout(20):
        while (result := await once_more(crew, sid)).status is AskStatus.SUSPENDED:
            continue
    return result


async def test_a_tree_whose_sub_agent_has_used_up_its_time_is_woken(crew: Crew, sid: str) -> None:
    """Nobody answers what it asked, and nobody comes by: its caller's model is told, and goes on."""
    (call,) = await left(crew, sid, agent="asks-shortly")
    assert call.until is None
    await due(crew, sid)
    assert (await wake(crew)).woken >= 1
    assert (await over(crew, sid)).text == TOO_LATE
    assert [each.role for each in await crew.messages(call.route[0])] == ["user", "assistant", "tool"]
    assert sid not in await all_due(crew)
    await check_sound(crew, sid, call.route[0])


async def test_the_time_of_a_call_on_any_level_wakes_the_tree_from_its_root(crew: Crew, sid: str) -> None:
    """The root itself has called somebody who has time left; below that one a call has none."""
    await left(crew, sid, agent="asks-shortly-below")
    middle, owner = await lineage(crew, sid)
    await due(crew, middle)
    assert sid not in await all_due(crew)
    assert (await wake(crew)).woken >= 1
    assert (await over(crew, sid)).text == TOO_LATE
    for session_id in (sid, middle, owner):
        assert (await state_of(crew, session_id)).suspended_awaiting_children == ()
    assert not {sid, middle, owner} & await all_due(crew)
    await check_sound(crew, sid, middle, owner)
