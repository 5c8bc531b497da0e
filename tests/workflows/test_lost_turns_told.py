"""Turns that are lost are told before any turn is counted back from the newest one that is left."""

import asyncio

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.errors import HeadMovedError
from helix_temporal.models.sessions import AskResult
from helix_temporal.settings import Settings
from tests.workflows._backups import RedisBackup
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_states import place, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

AT_EXIT = pytest.mark.parametrize("place", ["redis and postgres, flushed at exit"], indirect=True)


async def lose_turns(stand: Stand, sid: str, backup: RedisBackup) -> SessionClient:
    """A session of one turn whose second and third one Redis has lost, as its execution was terminated."""
    sessions = stand.sessions
    await sessions.ask(sid, "one", agent="main")
    await backup.take()
    for text in ("two", "three"):
        await sessions.ask(sid, text, agent="main")
    await stand.handle(sid).terminate()
    await backup.put_back()
    return sessions


def told(result: AskResult) -> list[str]:
    return [each.name for each in result.receipts if not each.ok]


@AT_EXIT
async def test_the_next_execution_counts_no_turn_back_before_it_has_told(place: Settings, sid: str) -> None:
    """The state was at the lost turns: whoever takes back the newest one means those."""
    async with served(place, Desk()) as stand:
        sessions = await lose_turns(stand, sid, RedisBackup(place))
        handle = sessions.session(sid, agent="main")
        with pytest.raises(HeadMovedError, match="the state was at 6, the thread holds 2"):
            await handle.rewind_to_turn(-1)
        assert await stand.texts(sid) == ["one", "1: one"]
        await handle.rewind_to_turn(-1)
        assert await stand.texts(sid) == []
        await stand.finish(sid)


@AT_EXIT
async def test_the_next_answer_tells_what_is_lost(place: Settings, sid: str) -> None:
    """Once: it was in the status alone."""
    async with served(place, Desk()) as stand:
        sessions = await lose_turns(stand, sid, RedisBackup(place))
        assert told(await sessions.ask(sid, "four", agent="main")) == ["state"]
        assert told(await sessions.ask(sid, "five", agent="main")) == []
        await stand.finish(sid)


@AT_EXIT
async def test_a_turn_that_nobody_waits_for_tells_nobody(place: Settings, sid: str) -> None:
    """It was sent; the first one who asks is told, and so is who counts back."""
    async with served(place, Desk()) as stand:
        sessions = await lose_turns(stand, sid, RedisBackup(place))
        await sessions.session(sid, agent="main").send("four")
        async with asyncio.timeout(30):
            while len(await stand.texts(sid)) < 4:  # noqa: ASYNC110 (another process's turn)
                await asyncio.sleep(0.05)
        with pytest.raises(HeadMovedError, match="were lost"):
            await sessions.session(sid).rewind_to_turn(-1)
        assert told(await sessions.ask(sid, "five", agent="main")) == []
        await stand.finish(sid)
