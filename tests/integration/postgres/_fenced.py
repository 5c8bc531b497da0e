"""A holder whose server process is killed under it: what it writes afterwards, it writes under its token."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from helix_temporal.errors import FencedError, HelixError, LeaseLostError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import a_message, an_answer

TTL_MS: Final = 60

# Two steps: in one WHERE the server may well kill first and look at the name afterwards.
_KILL: Final = """
    WITH victims AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE application_name = $1)
    SELECT count(*) FROM victims WHERE pg_terminate_backend(pid)"""


@dataclass
class Tally:
    """What a campaign saw.

    Attributes:
        killed: Server processes that were terminated.
        lost: Holders that were told their lease was lost.
        refused: Writes of earlier holders that were refused.
        stale: Writes of earlier holders that stand.
    """

    rounds: int = 0
    killed: int = 0
    lost: int = 0
    refused: int = 0
    stale: list[str] = field(default_factory=list)


async def campaign(dsn: str, prefix: str, rounds: int) -> Tally:
    """So many rounds: take, be killed, lose, and write too late."""
    tally = Tally()
    control = await asyncpg.connect(dsn)
    try:
        for number in range(rounds):
            await _round(dsn, prefix, control, f"session-{number}", tally)
    finally:
        await control.close()
    return tally


async def _round(
    dsn: str, prefix: str, control: "asyncpg.Connection[asyncpg.Record]", key: str, tally: Tally
) -> None:
    # By its name its server processes are found.
    named = f"{dsn}?application_name={prefix}{key}"
    old, new = (PostgresBackend(each, table_prefix=prefix, timeout=30) for each in (named, dsn))
    try:
        first = await old.locks.acquire(key, ttl_ms=TTL_MS)
        assert first is not None
        head = await _opened(old, key, first.fencing_token)
        tally.killed += await control.fetchval(_KILL, f"{prefix}{key}")
        # The lease belongs to no connection: until its time is over nobody else gets it.
        second = await new.locks.acquire_wait(key, timeout_ms=30_000)
        assert second is not None
        assert second.fencing_token > first.fencing_token
        writing = [_write(new, key, second.fencing_token, await _opened(new, key, second.fencing_token))]
        late = [_write(old, key, first.fencing_token, head) for _ in range(2)]
        answers = await asyncio.gather(*writing, *late, return_exceptions=True)
        tally.refused += sum(isinstance(each, FencedError) for each in answers[1:])
        tally.lost += not await _until_answered(old, key, first.fencing_token)
        page = await HotThreads(new.threads).read(ReadPage(key))
        tally.stale += [
            f"{key}: {message.body!r}"
            for message in page.messages
            if message.body not in {b"ok", str(second.fencing_token).encode()}
        ]
        tally.rounds += 1
    finally:
        await old.close()
        await new.close()


async def _opened(backend: PostgresBackend, thread_id: str, token: int) -> Head:
    opened = await HotThreads(backend.threads).open(OpenThread(thread_id, token, f"holder-{token}"))
    return opened.header.head


async def _write(backend: PostgresBackend, thread_id: str, token: int, head: Head) -> None:
    """One turn under a token; repeated while the connection is found to be dead."""
    step = StepAppend(thread_id, token, head, (a_message(str(token)),), an_answer("ok"), commits=True)
    for _ in range(5):
        try:
            await HotThreads(backend.threads).append(step)
            return
        except HelixError as error:
            if not error.retryable:
                raise


async def _until_answered(backend: PostgresBackend, key: str, token: int) -> bool:
    for _ in range(5):
        try:
            return await backend.locks.refresh(key, token)
        except HelixError as error:
            if not error.retryable:
                raise
    raise LeaseLostError("the server never answered")
