"""More people ask than the server lets updates wait for one run, while a turn waits for somebody."""

import asyncio

import pytest

from helix_temporal.models.sessions import AskStatus
from helix_temporal.workflows import session
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_waits import LOCATE, asks_once, suspended

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("clients", [1, 4], ids=["one client", "several clients"])
async def test_an_answer_comes_through_a_crowd_that_waits_behind_its_turn(
    stand: Stand, desk: Desk, sid: str, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes ten updates of a run at once; all of them waited for the one that it refused."""
    monkeypatch.setattr(session, "ASK_SECONDS", 1.0)
    desk.scripts[sid] = asks_once(LOCATE)
    await suspended(stand, sid)
    crowd = [stand.client() for _ in range(clients)]
    asking = [
        asyncio.create_task(crowd[at % clients].ask(sid, f"text {at}", message_id=f"c{at}", timeout=60))
        for at in range(16)
    ]
    await asyncio.sleep(2.0)
    async with asyncio.timeout(50):
        # Each turn takes those that have come so far, and waits for the next answer.
        asks = asyncio.gather(*asking)
        while (calls := (await stand.sessions.session(sid).get_status()).pending) or not asks.done():
            for call in calls:
                await stand.client().session(sid).submit_tool_result(call, "in Bonn", wait=True)
            await asyncio.wait([asks], timeout=0.5)
    told = {result.status for result in await asks}
    assert told <= {AskStatus.SUSPENDED, AskStatus.ANSWERED}
    texts = await stand.texts(sid)
    assert sorted(text for text in texts if text.startswith("text")) == sorted(
        f"text {at}" for at in range(16)
    )
