"""Messages that come while a run ends: each has a turn somewhere, and is told the truth of it."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.activities._states import StateKeeper
from helix_temporal.activities._step import Stepper
from helix_temporal.agents import ModelRequest
from helix_temporal.models.hooks import UserMessageDecision
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_failures import permanent
from tests.workflows.test_states import place, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

TAGGED = SessionProperties(tags=("b",))


@pytest.fixture
def slow_store(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The session store takes properties once the gate is open."""
    gate, set_properties = Gate(), StateKeeper.set_properties

    async def slowly(self: StateKeeper, *given: Any) -> Any:
        await gate.passing()
        return await set_properties(self, *given)

    monkeypatch.setattr(StateKeeper, "set_properties", slowly)
    return gate


async def came(stand: Stand, sid: str, text: str, way: str) -> "asyncio.Task[Any]":
    """Somebody sends, or asks, a message with properties."""
    call: Any = getattr(stand.sessions, way)
    options = {"agent": "main", "message_id": f"m-{text}", "properties": TAGGED, "timeout": 60}
    return asyncio.create_task(call(sid, text, **options))


@pytest.mark.parametrize("way", ["send", "ask"])
@pytest.mark.parametrize("ends", ["continues as new", "is cancelled"])
async def test_a_message_whose_properties_are_slow_while_the_run_ends_has_its_turn(
    place: Settings, sid: str, slow_store: Gate, way: str, ends: str
) -> None:
    """It was accepted by nobody, or `ask` waited for ever, and with it the end of the run."""
    desk, model = Desk(), Gate()
    desk.scripts[sid] = model.then()
    async with served(place, desk, max_turns_per_run=1 if ends == "continues as new" else 50) as stand:
        first = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=60))
        await model.reached.wait()
        second = await came(stand, sid, "two", way)
        await slow_store.reached.wait()
        if ends == "is cancelled":
            await stand.handle(sid).cancel()
        model.opened.set()
        await first
        await asyncio.sleep(1)
        slow_store.opened.set()
        await asyncio.wait_for(second, 30)
        async with asyncio.timeout(20):
            while "two" not in await stand.texts(sid):  # noqa: ASYNC110 (another process tells)
                await asyncio.sleep(0.1)
        again = await stand.sessions.ask(sid, "two", agent="main", message_id="m-two", timeout=30)
        assert again.status is AskStatus.ANSWERED
        assert [text for text in await stand.texts(sid) if text == "two"] == ["two"]
        await stand.finish(sid)


async def test_a_message_that_was_held_by_a_hook_is_not_said_to_be_in_the_thread(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The turn before it is; and its own never began."""
    await stand.sessions.ask(sid, "one", agent="hooked", timeout=30)
    hook = Gate()

    async def held(_: Any) -> UserMessageDecision:
        await hook.passing()
        return UserMessageDecision()

    desk.hooks[sid, "before_user_message"] = held
    asked = asyncio.create_task(stand.sessions.ask(sid, "two", agent="hooked", timeout=30))
    await hook.reached.wait()
    await stand.handle(sid).cancel()
    told = await asked
    hook.opened.set()
    assert (told.status, told.in_thread, told.archived) == (AskStatus.INTERRUPTED, False, None)
    assert await stand.texts(sid) == ["one", "1: one"]


@pytest.mark.parametrize("place", ["redis and postgres", "postgres alone", "memory alone"], indirect=True)
async def test_a_turn_that_stands_is_said_to_be_in_the_thread(
    place: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was finished, and its end was being written down, when the cancel came."""
    gate, committed = Gate(), Stepper._committed

    async def slowly(self: Stepper, *given: Any) -> Any:
        await gate.passing()
        return await committed(self, *given)

    async with served(place, Desk()) as stand:
        monkeypatch.setattr(Stepper, "_committed", slowly)
        asked = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=30))
        await gate.reached.wait()
        await stand.handle(sid).cancel()
        await asyncio.sleep(1)
        gate.opened.set()
        told = await asked
        assert (told.status, told.in_thread) == (AskStatus.INTERRUPTED, True)
        assert await stand.texts(sid) == ["one", "1: one"]


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
async def test_messages_that_were_sent_to_a_session_that_ends_are_named(
    stand: Stand, desk: Desk, sid: str, ends: str
) -> None:
    """Nobody waits for them, so nobody would send them again: the result says which had no turn."""
    model = Gate()

    async def fails(request: ModelRequest) -> str:
        await model.passing()
        return permanent(request)

    desk.scripts[sid] = fails
    first = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=30))
    await model.reached.wait()
    await stand.sessions.send(sid, "two", agent="main", message_id="m-two")
    if ends == "is cancelled":
        await stand.handle(sid).cancel()
    model.opened.set()
    await first
    with pytest.raises(WorkflowFailureError):
        await stand.handle(sid).result()
    receipts = (await stand.sessions.status(sid)).receipts
    (sent,) = [each for each in receipts if each.name == "sent"]
    assert (sent.ok, sent.detail) == (False, "no turn any more for 1: m-two")
