"""Redis is restored from an older copy, or lost: no reader of a stream passes over what comes then."""

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from helix_temporal.agents import ModelRequest, ModelResponse
from helix_temporal.devstack import S3Endpoint, Valkey
from helix_temporal.models.agents import TextDelta
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import StoredChunk
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIECES = 40
"""Of an answer: a turn that comes later has more chunks than a roll-back takes back."""


class Copies:
    """Older copies of one server's data."""

    def __init__(self, valkey: Valkey, directory: Path) -> None:
        self._valkey, self._copy = valkey, directory / "copy"

    async def take(self) -> None:
        """Remember how the server is."""
        await asyncio.to_thread(self._restart, self._valkey.directory, self._copy, kill=False)

    async def restore(self) -> None:
        """Restart it as it was."""
        await asyncio.to_thread(self._restart, self._copy, self._valkey.directory, kill=True)

    async def lose(self) -> None:
        """Everything is gone."""
        await asyncio.to_thread(self._valkey.ask, "FLUSHALL")

    def _restart(self, source: Path, target: Path, *, kill: bool) -> None:
        self._valkey.stop(kill=kill)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        self._valkey.start()


@pytest.fixture
def copies(own_valkey: Valkey, tmp_path: Path) -> Copies:
    return Copies(own_valkey, tmp_path)


async def speak(request: ModelRequest) -> AsyncIterator[Any]:
    """Say the last message, piece by piece, each written by itself."""
    text = request.messages[-1].text
    for number in range(PIECES):
        yield TextDelta(f"{text}{number} ")
        await asyncio.sleep(0.03)
    yield ModelResponse("".join(f"{text}{number} " for number in range(PIECES)))


def said(text: str) -> str:
    return "".join(f"{text}{number} " for number in range(PIECES))


@pytest_asyncio.fixture(loop_scope="session", params=["archived", "alone"])
async def shaky(
    temporal_address: str, own_valkey: Valkey, s3: S3Endpoint, request: pytest.FixtureRequest
) -> AsyncIterator[Stand]:
    """A worker on a Redis of the test's own, with an archive and without."""
    desk, name = Desk(), f"t{uuid.uuid4().hex[:12]}"
    archive = {} if request.param == "archived" else {"s3_endpoint": None, "s3_bucket": None}
    settings = make_settings(temporal_address, own_valkey.url, s3, name, **archive)
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, desk.agents(), options=options, drain=1.0) as served:
        yield Stand(served, desk)


@pytest.fixture
def sid(shaky: Stand) -> str:
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    shaky.desk.streams[session_id] = speak
    return session_id


archived_only = pytest.mark.parametrize("shaky", ["archived"], indirect=True)


async def ask(stand: Stand, sid: str, text: str) -> None:
    result = await stand.sessions.ask(sid, text, agent="streaming", timeout=60)
    assert (result.status, result.text) == (AskStatus.ANSWERED, said(text))


async def last_sequence(stand: Stand, sid: str) -> int:
    streams = stand.served.plugin.backends.streams
    assert streams is not None
    info = await streams.get_info(sid)
    assert info is not None
    last: int = info.last_sequence
    return last


def forget(stand: Stand) -> None:
    """The worker knows nothing of streams, as one that was started since."""
    streams: Any = stand.served.plugin.backends.streams
    streams._reached.clear()


async def read_on(stand: Stand, sid: str, after: int) -> list[StoredChunk]:
    """What a page gets that comes back with the last number it saw; up to the end of the stream as it is."""
    last = await last_sequence(stand, sid)
    found: list[StoredChunk] = []
    async with asyncio.timeout(20):
        async for stored in stand.sessions.stream(sid, after=after, until="closed"):
            found.append(stored)
            if stored.sequence == last:
                break
    return found


def check_nothing_is_passed_over(found: list[StoredChunk], text: str) -> None:
    first = found[0].sequence
    assert found[0].chunk.type == "stream_resync"
    assert [each.sequence for each in found] == [*range(first, first + len(found))]
    view = StreamView()
    for each in found:
        view.feed(each)
    assert (view.text, view.status) == (said(text), "completed")


async def check_goes_on(shaky: Stand, copies: Copies, sid: str, seen: int) -> None:
    """The older copy comes back; who had read up to ``seen`` misses nothing of the next turn."""
    await copies.restore()
    forget(shaky)
    await ask(shaky, sid, "three")
    check_nothing_is_passed_over(await read_on(shaky, sid, seen), "three")


async def test_a_page_that_saw_more_is_told_while_the_session_runs(
    shaky: Stand, copies: Copies, sid: str
) -> None:
    """The numbers of the turn that was lost would be those of the next one."""
    await ask(shaky, sid, "one")
    await copies.take()
    await ask(shaky, sid, "two")
    seen = await last_sequence(shaky, sid)
    await check_goes_on(shaky, copies, sid, seen)


@archived_only
async def test_a_page_is_told_when_the_next_execution_begins(shaky: Stand, copies: Copies, sid: str) -> None:
    """Nobody but the archive remembers that there was more."""
    await ask(shaky, sid, "one")
    await copies.take()
    await ask(shaky, sid, "two")
    seen = await last_sequence(shaky, sid)
    await shaky.finish(sid)
    await check_goes_on(shaky, copies, sid, seen)


@archived_only
async def test_a_page_is_told_where_the_thread_was_cold_in_the_copy(
    shaky: Stand, copies: Copies, sid: str
) -> None:
    """The thread is hydrated as ever, without an open: its stream shows that it was set back."""
    await ask(shaky, sid, "one")
    await shaky.finish(sid)
    await copies.take()
    await ask(shaky, sid, "two")
    seen = await last_sequence(shaky, sid)
    await check_goes_on(shaky, copies, sid, seen)


@archived_only
async def test_a_page_is_told_after_everything_was_lost(shaky: Stand, copies: Copies, sid: str) -> None:
    """The new stream would count from 1, and soon be further than the page."""
    await ask(shaky, sid, "one")
    seen = await last_sequence(shaky, sid)
    await copies.lose()
    forget(shaky)
    await ask(shaky, sid, "two")
    check_nothing_is_passed_over(await read_on(shaky, sid, seen), "two")


@archived_only
async def test_a_page_is_told_of_a_roll_back_within_an_answer(shaky: Stand, copies: Copies, sid: str) -> None:
    """Only pieces were lost, which nothing but the stream had: its writer knows how far it was."""
    begun, gate = Gate(), Gate()

    async def halting(request: ModelRequest) -> AsyncIterator[Any]:
        yield TextDelta("first ")
        await begun.passing()
        for _ in range(10):
            yield TextDelta("lost ")
            await asyncio.sleep(0.03)
        await gate.passing()
        async for each in speak(request):
            yield each

    shaky.desk.streams[sid] = halting
    asked = asyncio.create_task(shaky.sessions.ask(sid, "one", agent="streaming", timeout=60))
    await begun.reached.wait()
    await asyncio.sleep(0.2)
    await copies.take()
    begun.opened.set()
    await gate.reached.wait()
    await asyncio.sleep(0.2)
    seen = await last_sequence(shaky, sid)
    await copies.restore()
    gate.opened.set()
    assert (await asked).status is AskStatus.ANSWERED
    found = await read_on(shaky, sid, seen)
    assert found[0].chunk.type == "stream_resync"
    assert [each.sequence for each in found] == [*range(found[0].sequence, found[-1].sequence + 1)]
    assert found[-1].chunk.type == "run_ended"


@archived_only
async def test_a_stream_that_lost_nothing_is_not_resynced(shaky: Stand, copies: Copies, sid: str) -> None:
    """A thread that comes from the archive, and a server that restarts with all it had, are no loss."""
    await ask(shaky, sid, "one")
    await shaky.finish(sid)
    await ask(shaky, sid, "two")
    await copies.take()
    await ask(shaky, sid, "three")
    found = await read_on(shaky, sid, 0)
    assert [each.sequence for each in found] == [*range(1, len(found) + 1)]
    assert "stream_resync" not in [each.chunk.type for each in found]
