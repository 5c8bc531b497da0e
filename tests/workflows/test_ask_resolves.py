"""Every ask comes to an end, and no message is lost or counted twice, whatever ends the runs."""

import asyncio
import os
import uuid
from collections import Counter

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidConfigError, SessionTerminatedError
from helix_temporal.models.sessions import AskResult, AskStatus
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

RACES = int(os.environ.get("HELIX_TEST_RACES", "100"))
"""Asks that race the idle end; 1,000 in the long form."""


async def check_thread(stand: Stand, session_id: str, sent: list[str]) -> None:
    """Each message that was sent is in the thread once, and each turn has an answer."""
    messages = await stand.messages(session_id)
    users = Counter(message.text for message in messages if message.role == "user")
    assert users == Counter(sent)
    assert messages[-1].role == "assistant"
    assert len({message.id for message in messages}) == len(messages)


async def test_100_asks_over_many_continue_as_news_all_resolve(stand: Stand, sid: str) -> None:
    """A run ends every five turns under the askers; nobody notices."""
    client = stand.client(max_turns_per_run=5)
    texts = [f"q{number}" for number in range(100)]

    async def asker(mine: list[str]) -> list[AskResult]:
        return [await client.ask(sid, text, agent="main", timeout=60) for text in mine]

    results = await asyncio.gather(*(asker(texts[start::5]) for start in range(5)))
    assert {result.status for each in results for result in each} == {AskStatus.ANSWERED}
    await check_thread(stand, sid, texts)


async def test_asks_at_once_over_continue_as_new_all_resolve(stand: Stand, sid: str) -> None:
    """More than the server's ten updates in flight, on runs that end after each turn."""
    client = stand.client(max_turns_per_run=1)
    texts = [f"q{number}" for number in range(40)]
    results = await asyncio.gather(*(client.ask(sid, text, agent="main", timeout=60) for text in texts))
    assert {result.status for result in results} == {AskStatus.ANSWERED}
    await check_thread(stand, sid, texts)


async def test_asks_that_race_the_idle_end_all_resolve(stand: Stand) -> None:
    """By update-with-start at the very moment when sessions end; none lost, none doubled."""
    client = stand.client(idle_timeout=0.05)
    sessions = [f"race-{uuid.uuid4().hex[:8]}" for _ in range(10)]
    each = RACES // len(sessions)

    async def race(session_id: str, offset: int) -> Counter[AskStatus]:
        found: Counter[AskStatus] = Counter()
        for number in range(each):
            # From well before the idle end to well after it.
            await asyncio.sleep(0.02 + ((number * 7 + offset) % 20) * 0.004)
            result = await client.ask(session_id, f"q{number}", agent="main", timeout=60)
            found[result.status] += 1
        return found

    found = await asyncio.gather(*(race(session_id, at) for at, session_id in enumerate(sessions)))
    assert sum(found, Counter()) == {AskStatus.ANSWERED: each * len(sessions)}
    for session_id in sessions:
        await check_thread(stand, session_id, [f"q{number}" for number in range(each)])


async def test_an_ask_ends_at_its_deadline_and_its_answer_is_found_later(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """A deadline is the asker's: the session answers all the same."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    with pytest.raises(TimeoutError):
        await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1", timeout=1)
    gate.opened.set()
    # By its agent: on a busy machine the first one may have come to nothing within its second.
    result = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    assert result.text == "1: hello"
    assert len(desk.requests[sid]) == 1


async def test_an_ask_without_a_worker_ends_at_its_deadline(stand: Stand, sid: str) -> None:
    """Nobody listens on that queue; the message waits in the session's history."""
    from helix_temporal.client import SessionClient

    client = SessionClient(stand.served.client, task_queue=f"nobody-{sid}")
    with pytest.raises(TimeoutError):
        await client.ask(sid, "hello", agent="main", timeout=1)


async def test_an_ask_can_be_cancelled(stand: Stand, desk: Desk, sid: str) -> None:
    """The SDK turns a cancel into an error of its own, which must not look like a passing fault."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    await stand.sessions.ask(f"{sid}-warm", "hello", agent="main")
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main", timeout=60))
    await gate.reached.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(asked), 20)
    gate.opened.set()


async def test_an_ask_within_a_time_limit_ends_with_it(stand: Stand, desk: Desk, sid: str) -> None:
    """``asyncio.timeout`` around an ask is how applications set deadlines."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(asyncio.wait_for(stand.sessions.ask(sid, "hello", agent="main"), 1))
    done, _ = await asyncio.wait({asked}, timeout=20)
    assert done
    with pytest.raises(TimeoutError):
        await asked
    gate.opened.set()


async def test_an_ask_learns_that_its_session_was_terminated(stand: Stand, desk: Desk, sid: str) -> None:
    """Somebody stopped it on purpose: starting it again is the asker's decision."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main", timeout=30))
    await gate.reached.wait()
    await stand.handle(sid).terminate("on purpose")
    with pytest.raises(SessionTerminatedError):
        await asked
    gate.opened.set()


async def test_a_terminated_session_starts_again_with_the_same_message(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """What was acknowledged is there; the unfinished turn is cut and answered anew."""
    await stand.sessions.ask(sid, "one", agent="main")
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "two", message_id="m-2", timeout=30))
    await gate.reached.wait()
    await stand.handle(sid).terminate("on purpose")
    with pytest.raises(SessionTerminatedError):
        await asked
    gate.opened.set()
    desk.scripts.pop(sid)
    result = await stand.sessions.ask(sid, "two", agent="main", message_id="m-2", timeout=30)
    assert result.status is AskStatus.ANSWERED
    await check_thread(stand, sid, ["one", "two"])


async def test_terminate_and_restart_in_the_middle_of_asks_loses_nothing(stand: Stand, sid: str) -> None:
    """Everything that was answered is in the thread once, whatever was terminated when."""
    answered: list[str] = []
    stop = asyncio.Event()

    async def killer() -> None:
        pause, before = 0.15, 0
        while not stop.is_set():
            # On a busy machine no turn would end in time, and nothing be shown.
            pause, before = (0.15, len(answered)) if len(answered) > before else (1.2 * pause, before)
            await asyncio.sleep(pause)
            try:
                await stand.handle(sid).terminate("on purpose")
            except RPCError:
                continue

    async def ask(text: str) -> None:
        while True:
            try:
                await stand.sessions.ask(sid, text, agent="main", message_id=f"m-{text}", timeout=30)
            except SessionTerminatedError:
                continue
            answered.append(text)
            return

    killing = asyncio.create_task(killer())
    for number in range(30):
        await ask(f"q{number}")
    stop.set()
    await killing
    await check_thread(stand, sid, answered)


async def test_nothing_is_left_unread_behind_the_client(
    stand: Stand, sid: str, temporal_address: str, recwarn: pytest.WarningsRecorder
) -> None:
    """The outcome of a start that nobody read is reported by the interpreter at some later time."""
    import gc

    gc.collect()
    recwarn.clear()  # what earlier tests had left is theirs
    complaints: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        for number in range(3):
            await stand.client(persistent=False).ask(f"{sid}-{number}", "hello", agent="main")
        with pytest.raises(TimeoutError):
            await stand.sessions.ask(f"{sid}-x", "hello", agent="main", timeout=0.001)
        nowhere = await Client.connect(temporal_address, namespace=f"no-{sid}")
        with pytest.raises(InvalidConfigError, match="namespace"):
            await SessionClient(nowhere).ask(sid, "hello", agent="main", timeout=30)
        await asyncio.sleep(0.1)
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert complaints == []
    assert not recwarn.list
