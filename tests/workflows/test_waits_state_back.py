"""Redis went back to before an answer under ``suspend="exit"``: the state follows the thread."""

import pytest

from helix_temporal.models.states import ClientToolResponse, ToolResultSubmission
from helix_temporal.models.waiting import PendingCall
from helix_temporal.settings import Settings
from tests.workflows._backups import RedisBackup
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_states import place, served, state_of
from tests.workflows.test_waits import LOCATE, WIPE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]


async def answers_again(stand: Stand, sid: str, call: PendingCall) -> tuple[str, str]:
    """What the session store, and what a client says of a second answer."""
    store = stand.served.plugin.backends.sessions
    assert store is not None
    late = ToolResultSubmission(tool_call_id=call.id, response=ClientToolResponse(result="Rome"))
    stored = await store.submit_tool_result(sid, late)
    told = await stand.client(suspend="exit").session(sid, agent="people").submit_tool_result(call, "Rome")
    return stored.status, told.status


@pytest.mark.parametrize("place", ["redis alone"], indirect=True)
async def test_an_answered_call_is_not_pending_again_while_others_are(place: Settings, sid: str) -> None:
    """The store took a second answer, which changed nothing, while a client was told that it came late."""
    desk, backup = Desk(), RedisBackup(place)
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    async with served(place, desk) as stand:
        locate, wipe = await left(stand, sid)
        await backup.take()
        client = stand.client(suspend="exit")
        await client.session(sid).submit_tool_result(locate, "Bonn")
        await client.session(sid).result()
        await backup.put_back()
        assert locate.id in (await state_of(stand, sid)).pending_client_tool_calls
        await client.ask(sid, "and?", agent="people")
        await client.session(sid).result()
        assert list((await state_of(stand, sid)).pending_client_tool_calls) == [wipe.id]
        assert await answers_again(stand, sid, locate) == ("already_completed", "already_completed")


@pytest.mark.parametrize("place", ["redis alone"], indirect=True)
async def test_a_call_of_a_turn_that_has_ended_is_not_pending_again(place: Settings, sid: str) -> None:
    """The next execution finds in the archive that it was answered."""
    desk, backup = Desk(), RedisBackup(place)
    desk.scripts[sid] = asks_once(LOCATE)
    async with served(place, desk) as stand:
        (locate,) = await left(stand, sid)
        await backup.take()
        client = stand.client(suspend="exit")
        await client.session(sid).submit_tool_result(locate, "Bonn", wait=True)
        await stand.finish(sid)
        await backup.put_back()
        assert locate.id in (await state_of(stand, sid)).pending_client_tool_calls
        desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
        assert (await client.ask(sid, "next", agent="people")).text == "NEXT"
        assert (await state_of(stand, sid)).pending_client_tool_calls == {}
        assert await answers_again(stand, sid, locate) == ("already_completed", "already_completed")
        assert (await stand.texts(sid))[2:4] == ["Bonn", "Bonn"]
