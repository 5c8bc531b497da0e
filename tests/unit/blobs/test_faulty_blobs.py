"""Injected faults do what their names say, and all calls are recorded."""

import asyncio

import pytest

from helix_temporal.blobs import BlobStore, ConditionFailedError
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.errors import ArchiveAccessError, StoreUnavailableError
from helix_temporal.testing.contracts.blobs import BlobStoreContract
from helix_temporal.testing.faults import BlobCall, BlobFault, FaultyBlobs


class TestFaultyBlobsWithoutFaults(BlobStoreContract):
    """Around a store it is that store."""

    @pytest.fixture
    async def store(self) -> BlobStore:
        """Nothing scripted."""
        return FaultyBlobs(MemoryBlobs())


@pytest.fixture
def blobs() -> FaultyBlobs:
    """A store to break."""
    return FaultyBlobs(MemoryBlobs())


async def stored(blobs: FaultyBlobs, key: str) -> bytes | None:
    """What is really there."""
    found = await blobs.inner.get(key)
    return found.data if found else None


@pytest.mark.parametrize(
    ("fault", "error", "effect"),
    [
        (BlobFault.ERROR_BEFORE, StoreUnavailableError, None),
        (BlobFault.THROTTLED, StoreUnavailableError, None),
        (BlobFault.NO_ACCESS, ArchiveAccessError, None),
        (BlobFault.ANSWER_LOST, StoreUnavailableError, b"data"),
        (BlobFault.FALSE_REFUSAL, ConditionFailedError, b"data"),
        (BlobFault.LATE, StoreUnavailableError, None),
    ],
)
async def test_a_fault_has_its_error_and_its_effect(
    blobs: FaultyBlobs, fault: BlobFault, error: type[Exception], effect: bytes | None
) -> None:
    """What a caller is told and what happened are two things."""
    blobs.fail(fault)
    with pytest.raises(error):
        await blobs.put("key", b"data", create=True)
    assert await stored(blobs, "key") == effect


async def test_a_late_put_lands_when_released(blobs: FaultyBlobs) -> None:
    """A PUT that its caller gave up long ago."""
    blobs.fail(BlobFault.LATE)
    with pytest.raises(StoreUnavailableError):
        await blobs.put("key", b"late")
    await blobs.put("key", b"meanwhile")
    assert await blobs.release() == 1
    assert await stored(blobs, "key") == b"late"
    assert blobs.late_outcomes == ["ok"]


async def test_the_condition_of_a_late_put_is_judged_when_it_lands(blobs: FaultyBlobs) -> None:
    """That is what makes compare-and-swap safe."""
    blobs.fail(BlobFault.LATE)
    with pytest.raises(StoreUnavailableError):
        await blobs.put("key", b"late", create=True)
    await blobs.put("key", b"meanwhile", create=True)
    await blobs.release()
    assert await stored(blobs, "key") == b"meanwhile"
    assert blobs.late_outcomes == ["ConditionFailedError"]


async def test_a_delayed_call_goes_on_when_released(blobs: FaultyBlobs) -> None:
    """For two calls that overlap in a chosen order."""
    blobs.fail(BlobFault.DELAYED, method="put")
    putting = asyncio.create_task(blobs.put("key", b"data"))
    await asyncio.sleep(0)
    assert [call.outcome for call in blobs.calls] == ["pending"]
    assert await stored(blobs, "key") is None
    await blobs.release()
    await putting
    assert await stored(blobs, "key") == b"data"


async def test_a_fault_can_wait_for_its_call(blobs: FaultyBlobs) -> None:
    """By method, by part of the key, after so many, so often."""
    blobs.fail(BlobFault.ERROR_BEFORE, method="put", key_has="/seg/", skip=1, times=1)
    await blobs.put("t/manifest", b"")
    await blobs.put("t/seg/0", b"")
    with pytest.raises(StoreUnavailableError):
        await blobs.put("t/seg/1", b"")
    await blobs.put("t/seg/2", b"")


async def test_a_plan_decides_by_the_call() -> None:
    """Seeded simulators draw their faults."""

    def plan(call: BlobCall) -> BlobFault | None:
        return BlobFault.THROTTLED if call.condition and call.bytes_up > 3 else None

    blobs = FaultyBlobs(MemoryBlobs(), plan)
    await blobs.put("key", b"four")
    with pytest.raises(StoreUnavailableError):
        await blobs.put("other", b"four", create=True)


async def test_calls_and_bytes_are_counted(blobs: FaultyBlobs) -> None:
    """Budgets are stated in requests and bytes."""
    await blobs.put("key", b"12345")
    await blobs.get("key")
    await blobs.get("missing")
    with pytest.raises(ConditionFailedError):
        await blobs.put("key", b"123", create=True)
    assert blobs.counts == {"put": 2, "get": 2}
    assert (blobs.bytes_up, blobs.bytes_down) == (8, 5)
    assert blobs.count("put", outcome="ConditionFailedError") == 1
    assert blobs.calls[3] == BlobCall(3, "put", "key", 3, True, 0, None, "ConditionFailedError")
    blobs.forget()
    assert blobs.calls == ()
