"""A process proves a bucket once an hour, and asks whether it answers at each start of a worker."""

import pytest

from helix_temporal.backends import Backends
from helix_temporal.blobs import probe
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.probe import ProvedPlace, prove_once
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    StoreUnavailableError,
)
from helix_temporal.settings import Settings
from tests.unit.blobs.conftest import StubS3
from tests.unit.blobs.test_probe import all_ignored, all_kept, server


@pytest.fixture(autouse=True)
def nothing_is_proved() -> None:
    """Ports of other tests' servers are used again."""
    probe._proved.clear()


async def start(stub: StubS3, **settings: str) -> int:
    """Check as a worker does that starts; how many requests that took."""
    before = len(stub.requests)
    named = {"s3_bucket": "bucket", "s3_access_key": "AK", "s3_secret_key": "secret", **settings}
    backends = Backends(Settings.model_validate({"s3_endpoint": stub.url, "allow_plaintext": True, **named}))
    try:
        await backends.check()
    finally:
        await backends.close()
    return len(stub.requests) - before


async def test_a_bucket_is_proved_once_and_asked_at_each_further_start(stub: StubS3) -> None:
    """Most of a start in a process that has started others would be waits of the server."""
    stub.handler, _ = server(all_kept)
    assert await start(stub) > 20
    assert await start(stub) == 1
    assert await start(stub) == 1


@pytest.mark.parametrize(
    "other",
    [{"s3_bucket": "other"}, {"s3_region": "x"}, {"s3_access_key": "other"}, {"s3_prefix": "other"}],
)
async def test_another_place_is_proved_by_itself(stub: StubS3, other: dict[str, str]) -> None:
    """Another account may have no access; another bucket may be of another server behind one address."""
    stub.handler, _ = server(all_kept)
    await start(stub)
    assert await start(stub, **other) > 20


async def test_nothing_is_asked_for_outside_the_prefix(stub: StubS3) -> None:
    """Whoever gives the rights that the documentation lists has given enough."""
    stub.handler, _ = server(all_kept)
    await start(stub, s3_prefix="own/place")
    outside = [path for _, path in stub.requests if not path.startswith("/bucket/own/place/")]
    assert (len(stub.requests) > 20, outside) == (True, [])


async def test_what_failed_is_proved_again(stub: StubS3) -> None:
    """A server that was refused is not let through by the next worker of the process."""
    stub.handler, _ = server(all_ignored)
    for _ in range(2):
        with pytest.raises(ConditionalWritesUnsupportedError):
            await start(stub)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(503, "SlowDown", StoreUnavailableError), (403, "AccessDenied", ArchiveAccessError)],
)
async def test_a_start_is_told_what_became_of_a_proved_place(
    stub: StubS3, monkeypatch: pytest.MonkeyPatch, status: int, code: str, error: type[Exception]
) -> None:
    """The proof is of the server's kind, not of its health."""
    monkeypatch.setattr(probe, "_SECONDS", 0.5)
    stub.handler, _ = server(all_kept)
    await start(stub)
    stub.handler = stub.refuse(status, code)
    with pytest.raises(error):
        await start(stub)


async def test_a_proof_ends(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server may stand behind the address by then."""
    stub.handler, _ = server(all_kept)
    monkeypatch.setattr(probe, "_PROVED_SECONDS", 0.0)
    await start(stub)
    assert await start(stub) > 20


async def test_few_places_are_remembered() -> None:
    """A process that meets ever new buckets does not grow by it: the oldest are forgotten."""
    places = [ProvedPlace(None, "r", f"b{number}", "probe", None) for number in range(100)]
    for place in places:
        await prove_once(MemoryBlobs(), "probe", place)
    assert list(probe._proved) == places[-64:]


async def test_a_store_that_was_given_is_proved_each_time() -> None:
    """Nobody knows which place it is."""
    proofs = []

    class Counted(MemoryBlobs):
        async def probe(self, prefix: str) -> None:
            proofs.append(self)

    backends = Backends(Settings(), blobs=Counted())
    await backends.check()
    await backends.check()
    assert len(proofs) == 2
