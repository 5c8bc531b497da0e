"""What ``thread verify`` says while it runs, and where it goes on after it was stopped."""

import asyncio

import pytest

from helix_temporal.cli.outputs import Verification
from helix_temporal.cli.verify import _describe_progress, _verify_all
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.threads.verification import ThreadVerification
from helix_temporal.testing.builders import a_message
from helix_temporal.testing.contracts._threads_base import noise
from helix_temporal.testing.faults import BlobCall, BlobFault
from tests.unit.coldtier._tiers import Tiers


@pytest.fixture
async def tiers() -> Tiers:
    """A hundred cold threads: more than are looked at together."""
    made = Tiers()
    for number in range(100):
        author = await made.author(f"t{number}")
        await author.append(author.step(*noise(3), answer=None))
        await author.go_cold()
    return made


def verification(tiers: Tiers) -> ThreadVerification:
    worker = tiers.worker()
    return ThreadVerification(tiers.hot, worker, worker.upkeep)


def find_place(said: str) -> str:
    """The place that it names."""
    return said.rpartition("go on with --from ")[2].strip()


async def test_a_pass_that_is_interrupted_says_where_it_goes_on(
    tiers: Tiers, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was looked at is not looked at again; nothing between is left out."""
    whole = [each.place async for each in verification(tiers).verify_all()]
    gets = 0

    def plan(call: BlobCall) -> BlobFault | None:
        nonlocal gets
        gets += call.method == "get"
        return BlobFault.DELAYED if gets > 60 else None

    tiers.blobs.plan = plan
    running = asyncio.create_task(_verify_all(verification(tiers), None, shows=False))
    while gets <= 60:  # noqa: ASYNC110 (until it stands still)
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    tiers.blobs.plan = None
    place = find_place(capsys.readouterr().err)
    rest, _ = await _verify_all(verification(tiers), place, shows=False)
    assert whole.index(place) + 1 + rest.seen == len(whole)
    assert 0 < rest.seen < len(whole)


async def test_a_pass_whose_store_goes_away_says_where_it_goes_on(
    tiers: Tiers, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends by the status of a store that is away, and the next one goes on there."""
    whole = [each.place async for each in verification(tiers).verify_all()]
    tiers.blobs.plan = lambda call: (
        BlobFault.ERROR_BEFORE if call.method == "list" and call.key > f"v2/{whole[70]}" else None
    )
    with pytest.raises(StoreUnavailableError):
        await _verify_all(verification(tiers), None, shows=False)
    tiers.blobs.plan = None
    place = find_place(capsys.readouterr().err)
    rest, _ = await _verify_all(verification(tiers), place, shows=False)
    assert whole.index(place) + 1 + rest.seen == len(whole)
    assert 0 < rest.seen < len(whole)


async def test_a_sound_archive_keeps_no_thread_in_memory(tiers: Tiers) -> None:
    """A million threads are counted, not remembered."""
    found, status = await _verify_all(verification(tiers), None, shows=False)
    assert status == 0
    assert found == Verification(seen=100, sound=100, read=100, messages=300, bytes_read=found.bytes_read)


async def test_short_threads_count_as_read() -> None:
    """Messages of a short thread stand in its manifest: of a hundred that were read, none was said to be."""
    made = Tiers()
    for number in range(3):
        author = await made.author(f"t{number}")
        await author.append(author.step(a_message("hi"), answer=None))
        await author.go_cold()
    found, _ = await _verify_all(verification(made), None, shows=False)
    assert (found.read, found.bytes_read) == (3, 0)
    assert _describe_progress(found).endswith("data read of 3")


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (1, "data read of 1 (900 bytes of messages), the structure alone of 15"),
        (16, "data read of 16 (900 bytes of messages)"),
    ],
)
def test_the_sums_say_of_how_many_threads_each_message_was_read(read: int, said: str) -> None:
    """Sound by structure is less than sound in every byte: who reads the line must know which he has."""
    told = _describe_progress(Verification(seen=16, sound=16, read=read, bytes_read=900))
    assert told == f"16 threads, 16 sound, 0 damaged; {said}"
