"""A bit flips in Redis between two messages: the next ask is answered, or told what is damaged."""

import re

import pytest
import redis.asyncio

from helix_temporal.models.sessions import AskStatus
from tests.unit.stores._damage import DAMAGES
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def damage(redis_url: str, name: str, field: str, how: str) -> None:
    """Change a field beneath everything."""
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        value = await client.hget(name, field)
        assert isinstance(value, bytes)
        await client.hset(name, field, DAMAGES[how](value or b"?"))


@pytest.mark.parametrize("how", ["a bit in the middle", "half cut off"])
@pytest.mark.parametrize("field", ["n", "e", "l", "s", "i", "h", "0", "2"])
async def test_the_next_ask_is_answered(stand: Stand, redis_url: str, sid: str, field: str, how: str) -> None:
    """The archive has every acknowledged turn: nobody notices."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.ask(sid, "two", agent="main")
    prefix = stand.served.plugin.settings.redis_prefix
    await damage(redis_url, f"{prefix}{{{sid}}}", field, how)
    answer = await stand.sessions.ask(sid, "three", agent="main")
    assert (answer.status, answer.text) == (AskStatus.ANSWERED, "5: three")
    assert await stand.texts(sid) == ["one", "1: one", "two", "3: two", "three", "5: three"]
    await stand.finish(sid)


@pytest.mark.parametrize("field", ["s", "v"])
async def test_a_damaged_state_is_told(stand: Stand, redis_url: str, sid: str, field: str) -> None:
    """What only the session store has is not guessed: the turn is not lost, and the place is named."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.finish(sid)
    prefix = stand.served.plugin.settings.redis_prefix
    await damage(redis_url, f"{prefix}{{{sid}}}:session", field, "last bit")
    answer = await stand.sessions.ask(sid, "two", agent="main")
    assert (answer.status, answer.in_thread) == (AskStatus.FAILED, False)
    assert re.search(rf"StoreCorruptError: .*{sid}.*:session.* is damaged", answer.error or "")
    assert await stand.texts(sid) == ["one", "1: one"]
