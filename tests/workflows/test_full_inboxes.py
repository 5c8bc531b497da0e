"""Inboxes that are full: what waits is more than one payload of Temporal's may have (2 MB)."""

import asyncio

import pytest

from helix_temporal.errors import TooLargeError
from helix_temporal.models.sessions import Status
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

ESCAPED = "\x01" * 8_000
"""In JSON each character takes six bytes."""


async def send_while_busy(stand: Stand, desk: Desk, sid: str, text: str, count: int, **options: int) -> None:
    """A turn is under way; so many messages wait behind it; then it ends."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    client = stand.client(**options)
    first = asyncio.create_task(client.ask(sid, "first", agent="main", timeout=60))
    await gate.reached.wait()
    for number in range(count):
        await client.send(sid, text, message_id=f"m-{number}")
    gate.opened.set()
    assert (await first).text == "1: first"


async def until_served(stand: Stand, sid: str, count: int) -> None:
    """Wait until all of them are in the thread."""
    async with asyncio.timeout(60):
        while True:
            seen = await stand.sessions.session(sid).get_status()
            assert seen.status is not Status.FAILED
            users = [each for each in await stand.messages(sid) if each.role == "user"]
            if len(users) == count + 1:
                return
            await asyncio.sleep(0.2)


async def test_texts_that_are_longer_in_json_are_served(stand: Stand, desk: Desk, sid: str) -> None:
    """Together they fit by their bytes, and not as the input of one step."""
    await send_while_busy(stand, desk, sid, ESCAPED, 60)
    await until_served(stand, sid, 60)


async def test_messages_that_wait_are_carried_into_the_next_execution(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """However many they are: continue-as-new has one input."""
    await send_while_busy(stand, desk, sid, "x" * 8_000, 300, max_turns_per_run=1)
    await until_served(stand, sid, 300)


async def test_a_text_too_large_in_json_is_told_before_it_is_sent(stand: Stand, sid: str) -> None:
    """Of control characters the server would say no more than that "blob data size exceeds limit"."""
    with pytest.raises(TooLargeError, match="text, as JSON: 2400002 > 2000000 bytes"):
        await stand.sessions.ask(sid, "\x01" * 400_000, agent="main")
