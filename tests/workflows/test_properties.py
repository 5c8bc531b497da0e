"""Properties that are set while a session runs: what was written last counts, in its execution as well."""

import asyncio
from typing import Any

import pytest

from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.errors import SessionExpiredError
from helix_temporal.models.states import SessionProperties
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

EXPIRED = SessionProperties(expires_at=1)
TAGGED = SessionProperties(tags=("a",))


@pytest.fixture
def late_result(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The first result for a session comes once the gate is open; its properties are written before."""
    gate, set_properties = Gate(), SessionSync.set_properties

    async def late(self: SessionSync, session_id: str, given: SessionProperties, epoch: int | None) -> Any:
        state = await set_properties(self, session_id, given, epoch)
        if epoch is not None and given == TAGGED:
            await gate.passing()
        return state

    monkeypatch.setattr(SessionSync, "set_properties", late)
    return gate


async def refused(stand: Stand, sid: str) -> None:
    """The session, which runs, knows that it has expired."""
    with pytest.raises(SessionExpiredError):
        await stand.sessions.ask(sid, "late", timeout=20)


async def test_a_run_that_goes_on_as_new_has_what_was_set_meanwhile(
    stand: Stand, desk: Desk, sid: str, late_result: Gate
) -> None:
    """The new run went on with the old time: it served a session that had expired, or refused one renewed."""
    model, client = Gate(), stand.client(max_turns_per_run=1)
    desk.scripts[sid] = model.then()
    first = asyncio.create_task(client.ask(sid, "one", agent="main"))
    await model.reached.wait()
    holds = asyncio.create_task(client.session(sid).set_properties(TAGGED))
    await late_result.reached.wait()
    model.opened.set()
    await first
    await asyncio.sleep(0.5)  # the run moves, and waits for the handler
    expires = asyncio.create_task(client.session(sid).set_properties(EXPIRED))
    await asyncio.sleep(1)
    late_result.opened.set()
    await asyncio.gather(holds, expires)
    await refused(stand, sid)


async def test_the_properties_that_were_written_last_count(stand: Stand, sid: str, late_result: Gate) -> None:
    """Two are set at once, and the older one's result comes after the newer one's."""
    await stand.sessions.ask(sid, "one", agent="main")
    older = asyncio.create_task(stand.sessions.session(sid).set_properties(TAGGED))
    await late_result.reached.wait()
    await stand.sessions.session(sid).set_properties(EXPIRED)
    late_result.opened.set()
    await older
    await refused(stand, sid)


async def test_a_session_that_ends_does_not_hold_up_who_sets_its_properties(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """They are stored, and its next execution finds them there."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.session(sid).close()
    await stand.sessions.session(sid).set_properties(EXPIRED)
    with pytest.raises(SessionExpiredError):
        await stand.sessions.ask(sid, "late", agent="main", timeout=20)
