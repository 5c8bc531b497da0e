"""A long text that its store has lost costs one message; the session serves on."""

import asyncio

import pytest

from helix_temporal.agents import ModelRequest, ModelResponse
from helix_temporal.models.sessions import AskResult, AskStatus
from tests.workflows._desk import Desk, Gate, calls
from tests.workflows.conftest import Stand
from tests.workflows.test_inbox import until_waiting
from tests.workflows.test_reset import reset, task_ends

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "." * 10_000


async def lose_payloads(stand: Stand, session_id: str) -> None:
    """As a lifecycle rule of the bucket does, or somebody who tidies up."""
    await stand.served.plugin.backends.payloads.drop_all(session_id)


async def ask(stand: Stand, sid: str, text: str, name: str, *, long: bool = False) -> AskResult:
    return await stand.sessions.ask(
        sid, text + LONG if long else text, agent="main", message_id=f"m-{name}", timeout=40
    )


async def asked_while_busy(stand: Stand, desk: Desk, sid: str, *asks: tuple[str, bool]) -> list[AskResult]:
    """What became of messages that came during a turn, and whose payloads were lost before theirs."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(ask(stand, sid, "first", "first"))
    await gate.reached.wait()
    tasks = []
    for number, (name, long) in enumerate(asks, 1):
        tasks.append(asyncio.create_task(ask(stand, sid, name, name, long=long)))
        await until_waiting(stand.sessions, sid, number)
    await lose_payloads(stand, sid)
    gate.opened.set()
    assert (await first).status is AskStatus.ANSWERED
    return list(await asyncio.gather(*tasks))


async def test_a_message_whose_text_is_gone_fails_alone(stand: Stand, desk: Desk, sid: str) -> None:
    """Its neighbours in the same turn are answered, and the same execution serves on."""
    run = asked_while_busy(stand, desk, sid, ("a", False), ("lost", True), ("b", False), ("also", True))
    a, lost, b, also = await run
    assert (lost.status, lost.in_thread) == (AskStatus.FAILED, False)
    assert lost.error is not None
    assert lost.error.startswith("PayloadNotFoundError: ")
    assert "m-lost" in lost.error
    assert also.error is not None
    assert "m-also" in also.error
    assert (a.status, b.status) == (AskStatus.ANSWERED, AskStatus.ANSWERED)
    assert a.answer == b.answer
    run_id = (await stand.handle(sid).describe()).run_id
    assert (await ask(stand, sid, "later", "later")).text == "6: later"
    assert (await stand.handle(sid).describe()).run_id == run_id
    assert (await stand.sessions.session(sid).get_status()).turns == 3


async def test_a_message_whose_text_was_gone_can_be_sent_again(stand: Stand, desk: Desk, sid: str) -> None:
    """The same id with the same text: it was never in the thread."""
    (lost,) = await asked_while_busy(stand, desk, sid, ("lost", True))
    assert lost.status is AskStatus.FAILED
    again = await ask(stand, sid, "lost", "lost", long=True)
    assert again.status is AskStatus.ANSWERED
    assert [each[:5] for each in await stand.texts(sid)] == ["first", "1: fi", "lost.", "3: lo"]


async def test_a_message_that_was_sent_and_whose_text_is_gone_is_named(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Nobody waits for it: without a receipt it would be gone without a word."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(ask(stand, sid, "first", "first"))
    await gate.reached.wait()
    await stand.sessions.send(sid, LONG, message_id="m-lost")
    beside = asyncio.create_task(ask(stand, sid, "beside", "beside"))
    await until_waiting(stand.sessions, sid, 2)
    await lose_payloads(stand, sid)
    gate.opened.set()
    await first
    assert (await beside).status is AskStatus.ANSWERED
    (sent,) = (await stand.sessions.session(sid).get_status()).receipts
    assert (sent.name, sent.ok) == ("sent", False)
    assert sent.detail == "refused (PayloadNotFoundError), no turn for 1: m-lost"


async def test_a_lost_result_of_a_tool_fails_its_turn_alone(stand: Stand, desk: Desk, sid: str) -> None:
    """What the turn had in the thread is cut; the next message is answered by the same execution."""

    def script(request: ModelRequest) -> ModelResponse:
        return calls("x", "y")

    async def act(what: str, _: object) -> str:
        if what == "y":
            while not await lost_one(stand, sid):  # noqa: ASYNC110 (the other call's result is written by a worker)
                await asyncio.sleep(0.05)
            return "short"
        return LONG

    await ask(stand, sid, "one", "one")
    desk.scripts[sid], desk.acts[sid] = script, act
    failed = await ask(stand, sid, "two", "two")
    assert (failed.status, failed.in_thread) == (AskStatus.FAILED, False)
    assert failed.error is not None
    assert failed.error.startswith("PayloadNotFoundError: ")
    desk.scripts.pop(sid)
    assert (await ask(stand, sid, "three", "three")).text == "3: three"
    assert await stand.texts(sid) == ["one", "1: one", "three", "3: three"]


async def lost_one(stand: Stand, sid: str) -> bool:
    """Whether there was a payload of the session's thread to lose."""
    tiered = stand.served.plugin.backends.tiered
    assert tiered is not None
    keys = [info.key async for info in tiered.blobs.list(tiered.layout.payload_prefix(sid))]
    for key in keys:
        await tiered.blobs.delete(key)
    return bool(keys)


@pytest.mark.parametrize("at", [1, -1])
async def test_a_hook_that_reads_messages_does_not_want_what_is_answered(
    stand: Stand, desk: Desk, sid: str, at: int
) -> None:
    """After a reset it is asked about messages whose texts are in the thread, and nowhere else."""
    await stand.sessions.ask(sid, "one" + LONG, agent="hooked", message_id="m-one", timeout=40)
    before = await stand.messages(sid)
    await reset(stand, sid, (await task_ends(stand, sid))[at])
    await stand.sessions.ask(sid, "two", agent="hooked", message_id="m-two", timeout=40)
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == 2


async def test_a_text_that_a_hook_did_not_see_is_not_let_in(stand: Stand, desk: Desk, sid: str) -> None:
    """Hooks refuse messages: one whose text is gone when they are asked, and comes back, fails."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "first", agent="hooked", timeout=40))
    await gate.reached.wait()
    lost = asyncio.create_task(stand.sessions.ask(sid, "lost" + LONG, message_id="m-lost", timeout=40))
    await until_waiting(stand.sessions, sid, 1)
    await lose_payloads(stand, sid)
    gate.opened.set()
    assert (await first).status is AskStatus.ANSWERED
    result = await lost
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("PayloadNotFoundError: ")
