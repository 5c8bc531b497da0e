"""A message comes while a session ends to wait: that end gives way to it."""

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, Gate
from tests.workflows.test_states import place, served
from tests.workflows.test_waits import LOCATE, asks_once

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]


async def test_an_end_that_gave_way_is_in_no_receipts(
    place: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing failed: the session stayed. ``evict`` was said to have failed by `CancelledError`."""
    desk, first, last = Desk(), Gate(), Gate()
    gates = [last, first]
    desk.scripts[sid] = asks_once(LOCATE)
    async with served(place, desk) as stand:
        threads = stand.served.plugin.backends.threads
        evict = threads.evict

        async def evicting(*given: Any) -> Any:
            if gates:
                await gates.pop().passing()
            return await evict(*given)

        monkeypatch.setattr(threads, "evict", evicting)
        client = stand.client(suspend="exit")
        await client.ask(sid, "go", agent="people")
        await first.reached.wait()
        await client.send(sid, "and?", agent="people")
        first.opened.set()
        assert (await client.session(sid).get_status()).receipts == ()
        await stand.handle(sid).cancel()
        await last.reached.wait()
        assert [each for each in (await client.session(sid).get_status()).receipts if not each.ok] == []
        last.opened.set()
        with pytest.raises(WorkflowFailureError):
            await stand.handle(sid).result()
        receipts = {each.name: each.ok for each in (await client.session(sid).get_status()).receipts}
        assert receipts["evict"]
