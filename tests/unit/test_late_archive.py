"""An archive that is away when a worker starts: nobody uses it before it has passed the proof."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helix_temporal import startup
from helix_temporal.backends import Backends
from helix_temporal.blobs import Blob
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.errors import ConditionalWritesUnsupportedError, StoreUnavailableError
from helix_temporal.settings import Settings
from helix_temporal.startup import check_later, check_now_or_later
from helix_temporal.stores.protocols.threads import OpenThread

AWAY = StoreUnavailableError("S3 is away", status=None)


class Late(MemoryBlobs):
    """Is away for so many reads, and may then turn out to keep no conditions."""

    def __init__(self, away: int, *, fit: bool = True) -> None:
        super().__init__()
        self.away, self.fit, self.puts = away, fit, 0
        self.answers: asyncio.Event | None = None

    async def get(self, key: str) -> Blob | None:
        """As `BlobStore.get`."""
        self.away -= 1
        if self.answers is not None:
            await self.answers.wait()
        if self.away >= 0:
            raise StoreUnavailableError("S3 is away", status=None)
        return await super().get(key)

    async def put(self, key: str, data: bytes, **conditions: Any) -> str:
        """As `BlobStore.put`."""
        self.puts += 1
        return await super().put(key, data, **conditions)

    async def probe(self, prefix: str) -> None:
        """As `BlobStore.probe`."""
        if not self.fit:
            raise ConditionalWritesUnsupportedError("keeps none", condition="If-Match")


def open_thread(backends: Backends) -> Callable[[], Any]:
    return lambda: backends.threads.open(OpenThread("t", 7, "me"))


async def test_nothing_is_opened_before_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the archive answers again; with the error that it was away with."""
    backends = Backends(Settings(), blobs=(blobs := Late(0)))
    backends.refuse_archive(AWAY)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="S3 is away"):
            await open_thread(backends)()
    assert blobs.puts == 0
    assert await backends.find_unanswered(1.0) == {}
    await backends.check_archive()
    await open_thread(backends)()
    assert blobs.puts > 0


async def test_an_archive_is_used_once_it_is_there() -> None:
    """Whoever waits for it tries again by himself."""
    backends = Backends(Settings(), blobs=Late(2))
    backends.refuse_archive(AWAY)
    await asyncio.wait_for(check_later(backends), 10)
    await open_thread(backends)()


async def test_an_archive_that_does_not_answer_holds_no_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name server is silent, or each of fifty requests takes seconds: sessions that are open go on."""
    monkeypatch.setattr(startup, "ARCHIVE_WITHIN", 0.05)
    backends = Backends(Settings(), blobs=(blobs := Late(0)))
    blobs.answers = asyncio.Event()
    checking = await asyncio.wait_for(check_now_or_later(backends), 5)
    assert checking is not None
    with pytest.raises(StoreUnavailableError, match="has not passed its check within"):
        await open_thread(backends)()
    blobs.answers.set()
    await asyncio.wait_for(checking, 10)
    await open_thread(backends)()


async def test_an_archive_that_turns_out_to_be_unfit_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """Its worker is not ready, and says why; a call that needs it fails for good."""
    backends = Backends(Settings(), blobs=(blobs := Late(1, fit=False)))
    backends.refuse_archive(AWAY)
    await asyncio.wait_for(check_later(backends), 10)
    with pytest.raises(ConditionalWritesUnsupportedError, match="keeps none") as raised:
        await open_thread(backends)()
    assert raised.value.facts == {"condition": "If-Match"}
    assert blobs.puts == 0
    found = await backends.find_unanswered(1.0)
    assert found == {"archive": "ConditionalWritesUnsupportedError: keeps none"}
    assert "start the worker again" in caplog.text
