"""Redis alone, without an archive, is wiped under a session that runs: all is gone, and that is said."""

import pytest

from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.sessions import AskStatus
from tests.workflows._shore import shore

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALONE = dict.fromkeys(("s3_endpoint", "s3_bucket", "s3_access_key", "s3_secret_key"), None)


@pytest.mark.parametrize("name", ["m3", "m1"], ids=["a new message", "a lost one"])
async def test_the_next_ask_is_answered_at_once_and_told_what_is_lost(
    temporal_address: str, redis_url: str, s3: S3Endpoint, name: str
) -> None:
    """Neither an error nor a second try; the session serves on, also after that."""
    async with shore(temporal_address, redis_url, s3, **ALONE) as sea:
        session, sessions = sea.names[0], sea.sessions
        for number in (1, 2):
            await sessions.ask(session, f"text {number}", agent="main", message_id=f"m{number}", timeout=20)
        await sea.wipe()
        text = f"text {name[1:]}"
        told = await sessions.ask(session, text, message_id=name, timeout=30)
        assert (told.status, told.text) == (AskStatus.ANSWERED, f"1: {text}")
        assert [each.detail for each in told.receipts if each.name == "lost"] == ["lost: 0..3"]
        again = await sessions.ask(session, "four", timeout=30)
        assert [each.detail for each in again.receipts if each.name == "lost"] == []
        assert await sea.users(session) == [text, "four"]


async def test_a_thread_that_was_deleted_is_not_taken_for_lost(
    temporal_address: str, redis_url: str, s3: S3Endpoint
) -> None:
    """Its mark tells them apart."""
    async with shore(temporal_address, redis_url, s3, **ALONE) as sea:
        session, sessions = sea.names[0], sea.sessions
        await sessions.ask(session, "one", agent="main", timeout=20)
        await sessions.session(session).delete()
        with pytest.raises(SessionNotFoundError):
            await sessions.session(session).get_messages()
