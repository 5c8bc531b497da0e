"""Hooks of agents, as activities: told of what happens, able to change messages, never able to break."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import SessionInterruptedError
from helix_temporal.models.agents import UserMessageDecision
from helix_temporal.models.sessions import AskStatus, Receipt
from tests.workflows._desk import Desk, Gate, calls
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

IN_ORDER = [
    "session_started",
    "before_user_message",
    "after_user_message",
    "turn_completed",
    "session_ended",
]


async def test_each_hook_hears_its_event_once_and_in_order(stand: Stand, desk: Desk, sid: str) -> None:
    """A session's life as an application sees it."""
    await stand.sessions.ask(sid, "hello", agent="hooked", metadata={"tenant": "acme"})
    await stand.finish(sid)
    assert desk.names_heard(sid) == IN_ORDER
    assert {event.metadata["tenant"] for _, event in desk.heard[sid]} == {"acme"}
    assert {event.session_id for _, event in desk.heard[sid]} == {sid}


async def test_events_say_what_happened(stand: Stand, desk: Desk, sid: str) -> None:
    """Enough to keep a table of turns without reading the thread."""
    desk.scripts[sid] = lambda request: calls("x") if len(request.messages) == 1 else "done"
    result = await stand.sessions.ask(sid, "hello", agent="hooked", message_id="m-1")
    await stand.finish(sid)
    heard = dict(desk.heard[sid])
    assert heard["session_started"].mode == "new"
    assert (heard["before_user_message"].text, heard["before_user_message"].message_id) == ("hello", "m-1")
    turn = heard["turn_completed"]
    assert result.answer is not None
    assert (turn.turn, turn.steps, turn.exit_reason, turn.answer_id) == (1, 2, "completed", result.answer.id)
    assert turn.usage.input_tokens == 10
    assert (heard["session_ended"].exit_reason, heard["session_ended"].turns) == ("completed", 1)


async def test_before_user_message_changes_what_enters_the_thread(stand: Stand, desk: Desk, sid: str) -> None:
    """Names are masked before anything is stored or paid for."""
    desk.hooks[sid, "before_user_message"] = lambda event: event.text.replace("Jane", "***")
    result = await stand.sessions.ask(sid, "I am Jane", agent="hooked")
    assert result.text == "1: I am ***"
    assert (await stand.texts(sid))[0] == "I am ***"


async def test_before_user_message_refuses(stand: Stand, desk: Desk, sid: str) -> None:
    """The sender is told why; the thread does not change and no model is asked."""
    desk.hooks[sid, "before_user_message"] = lambda event: UserMessageDecision(refuse="not allowed")
    result = await stand.sessions.ask(sid, "hello", agent="hooked")
    assert (result.status, result.in_thread, result.error) == (AskStatus.REFUSED, False, "not allowed")
    assert await stand.texts(sid) == []
    assert desk.requests[sid] == []


async def test_one_refused_message_does_not_refuse_those_beside_it(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Each message is judged by itself, though they become one turn."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    desk.hooks[sid, "before_user_message"] = lambda event: (
        UserMessageDecision(refuse="no") if event.text == "bad" else None
    )
    held = asyncio.create_task(stand.sessions.ask(sid, "first", agent="hooked"))
    await gate.reached.wait()
    both = [asyncio.create_task(stand.sessions.ask(sid, text)) for text in ("bad", "good")]
    while (await stand.sessions.session(sid).get_status()).waiting < 2:  # noqa: ASYNC110 (another process tells)
        await asyncio.sleep(0.01)
    gate.opened.set()
    await held
    bad, good = [await each for each in both]
    assert (bad.status, good.status) == (AskStatus.REFUSED, AskStatus.ANSWERED)
    assert "bad" not in await stand.texts(sid)


async def test_a_message_that_was_sent_and_is_refused_is_named(stand: Stand, desk: Desk, sid: str) -> None:
    """Nobody waits for it: what became of it is in the session's status, and in its result."""
    desk.hooks[sid, "before_user_message"] = lambda event: (
        UserMessageDecision(refuse="no") if event.text == "bad" else None
    )
    await stand.sessions.ask(sid, "first", agent="hooked")
    await stand.sessions.send(sid, "bad", message_id="m-bad")
    assert (await stand.sessions.ask(sid, "good")).status is AskStatus.ANSWERED
    expected = Receipt(name="sent", ok=False, detail="refused (before_user_message), no turn for 1: m-bad")
    assert (await stand.sessions.session(sid).get_status()).receipts == (expected,)
    refused = await stand.sessions.ask(sid, "bad")
    assert refused.status is AskStatus.REFUSED
    await stand.sessions.session(sid).close()
    assert [
        each for each in (await stand.sessions.session(sid).result()).receipts if each.name == "sent"
    ] == [expected]


async def test_before_user_message_sees_long_texts_too(stand: Stand, desk: Desk, sid: str) -> None:
    """A text that travels by reference must not slip past the filter."""
    desk.hooks[sid, "before_user_message"] = lambda event: (
        UserMessageDecision(refuse="forbidden word") if "forbidden" in event.text else None
    )
    result = await stand.sessions.ask(sid, "x" * 20_000 + "forbidden", agent="hooked")
    assert result.status is AskStatus.REFUSED


async def test_a_long_text_of_a_sender_that_does_not_name_the_thread_is_seen(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """It lies with the session then, where the hook did not look: the message was refused each time."""
    desk.hooks[sid, "before_user_message"] = lambda event: str(len(event.text))
    await stand.sessions.ask(sid, "one", agent="hooked", thread_id=f"{sid}-thread")
    answer = await stand.sessions.ask(sid, "x" * 20_000, timeout=30)
    assert (answer.status, answer.text) == (AskStatus.ANSWERED, "3: 20000")


async def test_a_long_text_may_be_changed_into_another_long_one(stand: Stand, desk: Desk, sid: str) -> None:
    """What a hook makes of a message travels by reference too: histories stay small."""
    desk.hooks[sid, "before_user_message"] = lambda event: event.text.replace("x", "y")
    await stand.sessions.ask(sid, "x" * 100_000, agent="hooked")
    assert (await stand.texts(sid))[0] == "y" * 100_000
    assert sum(event.ByteSize() for event in await stand.events(sid)) < 20_000


@pytest.mark.parametrize("name", ["session_started", "after_user_message", "turn_completed", "session_ended"])
async def test_a_failing_hook_changes_nothing(stand: Stand, desk: Desk, sid: str, name: str) -> None:
    """Somebody's broken notification must not stop the conversation."""

    def fail(event: Any) -> None:
        raise RuntimeError("on purpose")

    desk.hooks[sid, name] = fail
    result = await stand.sessions.ask(sid, "hello", agent="hooked", timeout=30)
    assert result.text == "1: hello"
    await stand.finish(sid)
    assert (await stand.sessions.session(sid).get_status()).status == "completed"
    assert await stand.texts(sid) == ["hello", "1: hello"]


async def test_a_failing_filter_refuses(stand: Stand, desk: Desk, sid: str) -> None:
    """A filter that cannot tell must not let through; the session serves on."""

    def fail(event: Any) -> None:
        if event.text == "bad":
            raise RuntimeError("on purpose")

    desk.hooks[sid, "before_user_message"] = fail
    result = await stand.sessions.ask(sid, "bad", agent="hooked", timeout=30)
    assert result.status is AskStatus.REFUSED
    assert (await stand.sessions.ask(sid, "good")).text == "1: good"


async def test_a_failed_end_hook_is_in_the_receipts(stand: Stand, desk: Desk, sid: str) -> None:
    """Clean-up steps are independent, and the result says which succeeded."""

    def fail(event: Any) -> None:
        raise RuntimeError("on purpose")

    desk.hooks[sid, "session_ended"] = fail
    await stand.sessions.ask(sid, "hello", agent="hooked")
    await stand.finish(sid)
    receipts = {
        receipt.name: receipt.ok for receipt in (await stand.sessions.session(sid).get_status()).receipts
    }
    assert receipts == {"save": True, "evict": True, "session_ended": False}


async def test_the_end_hook_hears_of_a_cancel(stand: Stand, desk: Desk, sid: str) -> None:
    """Also who is cancelled has ended."""
    await stand.sessions.ask(sid, "hello", agent="hooked")
    await stand.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await asyncio.wait_for(stand.sessions.session(sid).result(), 60)
    assert desk.heard[sid][-1][1].exit_reason == "cancelled"


async def test_a_repeated_message_is_told_to_nobody(stand: Stand, desk: Desk, sid: str) -> None:
    """It is not a message, and its answer is not a turn."""
    await stand.sessions.ask(sid, "hello", agent="hooked", message_id="m-1")
    await stand.finish(sid)
    desk.heard[sid].clear()
    await stand.sessions.ask(sid, "hello", agent="hooked", message_id="m-1")
    await stand.finish(sid)
    assert "turn_completed" not in desk.names_heard(sid)
    assert "after_user_message" not in desk.names_heard(sid)
