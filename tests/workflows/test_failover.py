"""Redis Sentinel fails over while sessions talk: nothing that was acknowledged is lost, and all go on."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint, Valkey
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.testing.serving import session_worker
from tests._sentinel import Watched, watched
from tests.workflows._desk import Desk
from tests.workflows.conftest import make_settings

TALKERS, MESSAGES = 8, 12


@pytest.fixture
def servers() -> Iterator[Watched]:
    """A primary, a replica and three sentinels."""
    with watched() as servers:
        yield servers


def take_away(server: Valkey, how: str) -> None:
    """Kill the primary, or freeze it, so that its connections stay open and nobody answers."""
    if how == "kill":
        server.stop(kill=True)
    else:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)


def give_back(server: Valkey, how: str) -> None:
    """It comes back and takes itself for the primary until a sentinel comes by."""
    if how == "kill":
        server.start()
    else:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGCONT)


async def talk(sessions: SessionClient, session_id: str, halfway: asyncio.Event) -> list[str]:
    """Ask one question after the other; what was answered."""
    told = []
    for number in range(MESSAGES):
        answer = await sessions.ask(session_id, f"q{number}", agent="main")
        assert answer.status is AskStatus.ANSWERED, answer
        told += [f"q{number}", answer.text or ""]
        if number == MESSAGES // 3:
            halfway.set()
    return told


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_failover_under_load_loses_nothing(
    temporal_address: str, s3: S3Endpoint, servers: Watched, unique: str, how: str
) -> None:
    """Each acknowledged turn is in the archive, whatever the replica had not heard of."""
    settings = make_settings(temporal_address, servers.url, s3, unique)
    options = SessionOptions(idle_timeout=60)
    ids = [f"{unique}-{number}" for number in range(TALKERS)]
    halfway, primary = asyncio.Event(), servers.primary
    async with session_worker(settings, Desk().agents(), options=options) as served:
        talks = [asyncio.create_task(talk(served.sessions, each, halfway)) for each in ids]
        await halfway.wait()
        take_away(primary, how)
        await asyncio.to_thread(servers.wait_for_another, primary)
        give_back(primary, how)
        told = await asyncio.gather(*talks)
        kept = [
            [each.text for each in await served.sessions.session(session_id).get_messages()]
            for session_id in ids
        ]
        for session_id in ids:
            await served.sessions.session(session_id).close()
            await served.sessions.session(session_id).result()
    assert kept == told
