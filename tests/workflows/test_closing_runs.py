"""Messages that come while a run ends: each has a turn somewhere, and is told the truth of it."""

import asyncio
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.steps import Stepper
from helix_temporal.agents import ModelRequest
from helix_temporal.coldtier.store import TieredThreads
from helix_temporal.models.agents import UserMessageDecision
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_failures import permanent
from tests.workflows.test_inbox import until_waiting
from tests.workflows.test_states import place, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

TAGGED = SessionProperties(tags=("b",))


@pytest.fixture
def slow_store(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The session store takes properties once the gate is open."""
    gate, set_properties = Gate(), SessionSync.set_properties

    async def slowly(self: SessionSync, *given: Any) -> Any:
        await gate.passing()
        return await set_properties(self, *given)

    monkeypatch.setattr(SessionSync, "set_properties", slowly)
    return gate


def came(stand: Stand, sid: str, text: str, way: str) -> "asyncio.Task[Any]":
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
        second = came(stand, sid, "two", way)
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
    gate, committed = Gate(), Stepper._commit_state

    async def slowly(self: Stepper, *given: Any) -> Any:
        await gate.passing()
        return await committed(self, *given)

    async with served(place, Desk()) as stand:
        monkeypatch.setattr(Stepper, "_commit_state", slowly)
        asked = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", timeout=30))
        await gate.reached.wait()
        await stand.handle(sid).cancel()
        await stand.heard_cancel(sid)
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
    receipts = (await stand.sessions.session(sid).get_status()).receipts
    (sent,) = [each for each in receipts if each.name == "sent"]
    assert (sent.ok, sent.detail) == (False, "no turn any more for 1: m-two")


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
async def test_the_message_whose_turn_was_cut_is_named_with_those_that_waited(
    stand: Stand, desk: Desk, sid: str, ends: str
) -> None:
    """All of them were accepted, and none is in the thread: also the one that was being answered."""
    model = Gate()

    async def fails(request: ModelRequest) -> str:
        await model.passing()
        return permanent(request)

    desk.scripts[sid] = fails
    await stand.sessions.send(sid, "one", agent="main", message_id="m-one")
    await model.reached.wait()
    for at in range(25):
        await stand.sessions.send(sid, f"text {at}", message_id=f"m-{at}")
    if ends == "is cancelled":
        await stand.handle(sid).cancel()
    model.opened.set()
    with pytest.raises(WorkflowFailureError):
        await stand.handle(sid).result()
    receipts = (await stand.sessions.session(sid).get_status()).receipts
    (sent,) = [each for each in receipts if each.name == "sent"]
    named = ", ".join(["m-one", *(f"m-{at}" for at in range(25))])
    assert (sent.ok, sent.detail) == (False, f"no turn any more for 26: {named}")
    assert await stand.texts(sid) == []


async def test_a_message_that_was_asked_is_not_named_as_sent_after_continuing_as_new(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Who asks is told that its turn was interrupted; of those who sent, nobody would know."""
    first, second = Gate(), Gate()
    desk.scripts[sid] = first.then()
    client = stand.client(max_turns_per_run=1)
    one = asyncio.create_task(client.ask(sid, "one", agent="main", timeout=30))
    await first.reached.wait()
    two = asyncio.create_task(client.ask(sid, "two", timeout=30))
    await until_waiting(client, sid, 1)
    desk.scripts[sid] = second.then()
    first.opened.set()
    await one
    await second.reached.wait()
    await stand.handle(sid).cancel()
    told = await two
    assert (told.status, told.in_thread) == (AskStatus.INTERRUPTED, False)
    receipts = (await client.session(sid).get_status()).receipts
    assert "sent" not in [each.name for each in receipts]


async def test_receipts_of_an_end_that_was_called_off_are_not_shown(
    stand: Stand, desk: Desk, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session runs on: what its status tells is what had to be put right, not what an end has done."""
    gate, evict = Gate(), TieredThreads.evict

    async def slowly(self: TieredThreads, *given: Any) -> Any:
        await gate.passing()
        return await evict(self, *given)

    monkeypatch.setattr(TieredThreads, "evict", slowly)
    client = stand.client(idle_timeout=0.5)
    await client.ask(sid, "one", agent="main", timeout=30)
    await gate.reached.wait()
    desk.scripts[sid] = Gate().then()
    second = asyncio.create_task(client.ask(sid, "two", timeout=30))
    async with asyncio.timeout(20):
        while (await client.session(sid).get_status()).status != "running":  # noqa: ASYNC110 (another process tells)
            await asyncio.sleep(0.05)
    gate.opened.set()
    assert (await client.session(sid).get_status()).receipts == ()
    await stand.handle(sid).cancel()
    await second
