"""Threads of unusual shape stay readable: what can be written can be read."""

import pytest

from helix_temporal.coldtier.format import Manifest, SegmentRef, decode_index, encode_index
from helix_temporal.coldtier.plan import DIRECT_LIMIT
from helix_temporal.errors import ArchiveCorruptError, TooLargeError
from helix_temporal.models.stored_messages import Head, Kind, size_of
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import Author, noise
from tests.unit.coldtier._tiers import Tiers

MIB = 1 << 20


async def test_messages_that_compress_to_nothing_stay_readable() -> None:
    """Seventy mebibytes of blanks fit the inline part, but not what a reader accepts at once."""
    tiers = Tiers()
    author = await tiers.author()
    for _ in range(9):
        await author.append(author.step(a_message(b" " * 8 * MIB), answer=None, commits=True))
        await author.flush()
    tiers.wipe()
    facts = await tiers.elsewhere(author).facts()
    assert facts.head == author.head
    page = await tiers.worker().read(ReadPage("t", start=8))
    assert size_of(page.messages) > 8 * MIB


async def test_the_inline_part_stays_small_when_unpacked() -> None:
    """A flush packs it anew each time."""
    tiers = Tiers()
    author = await tiers.author()
    for _ in range(60):
        await author.append(author.step(a_message(b"x" * 20_000), answer=None, commits=True))
        await author.flush()
    assert size_of((await tiers.manifest()).inline) <= 256 * 1024


async def test_a_cut_at_the_end_of_the_index_opens() -> None:
    """Nothing is left but the index: the newest message lies in what it lists."""
    tiers = Tiers()
    author, manifest = await long_thread(tiers)
    assert manifest.index is not None
    stop = manifest.index.stop
    last = (await author.threads.read(ReadPage("t", start=stop - 1, limit=1))).messages[0]
    await author.go_cold()
    later = tiers.elsewhere(author).later()
    opened = await later.open(rewind_to=Head(position=stop, last_id=last.id))
    assert opened.header.head.position == stop
    await later.turn("goes on")
    assert (await later.facts()).head.position == stop + 2


async def test_a_cut_inside_the_index_keeps_the_manifest_small() -> None:
    """The listed segments must not all move into the manifest."""
    tiers = Tiers()
    author, manifest = await long_thread(tiers)
    assert manifest.index is not None
    at = manifest.index.stop - 3
    last = (await author.threads.read(ReadPage("t", start=at - 1, limit=1))).messages[0]
    await author.go_cold()
    later = tiers.elsewhere(author).later()
    await later.open(rewind_to=Head(position=at, last_id=last.id))
    assert len((await tiers.manifest()).segments) <= DIRECT_LIMIT
    assert (await later.facts()).head.position == at


async def long_thread(tiers: Tiers) -> tuple[Author, Manifest]:
    """A thread whose oldest segments are listed in an index."""
    author = await tiers.author()
    for number in range(80):
        await author.append(author.step(*noise(70, prefix=f"{number}-"), answer=None, commits=True))
        await author.flush()
    return author, await tiers.manifest()


async def test_a_step_of_large_messages_merges_what_it_may() -> None:
    """Merges that are too large for a step must not keep it from smaller ones."""
    tiers = Tiers()
    author = await tiers.author()
    for number in range(40):
        step = author.step(*noise(2, size=400_000, prefix=f"{number}-"), answer=None, commits=True)
        await author.threads.archive_step(step, await author.append(step))
    manifest = await tiers.manifest()
    refs = await tiers.threads._archive.list_segments(manifest)
    assert len(refs) < 25


async def test_a_slice_that_could_not_be_read_again_is_refused() -> None:
    """Else the thread could never be archived, or never be opened."""
    tiers = Tiers()
    author = await tiers.author()
    with pytest.raises(TooLargeError):
        await author.threads.save_slice("t", author.epoch, b"x" * (64 * MIB + 1), 0)
    assert (await author.facts()).slice_version == 0


async def test_a_slice_of_many_mebibytes_comes_back() -> None:
    """Large state is kept in an object of its own."""
    tiers = Tiers()
    author = await tiers.author()
    await author.threads.save_slice("t", author.epoch, b"x" * 20 * MIB, 0)
    await author.go_cold()
    assert len((await author.facts()).slice) == 20 * MIB


async def test_the_largest_message_comes_back() -> None:
    """It fills a segment by itself."""
    tiers = Tiers()
    author = await tiers.author()
    large = a_message(b"\x00" * 64 * MIB, message_id="é" * 256)
    await author.append(author.step(large, answer=an_answer()))
    await author.go_cold()
    assert (await author.everything())[0] == large


async def test_an_index_of_thousands_of_segments_is_read() -> None:
    """Three thousand turns with large tool results make one entry each before they are merged."""
    refs = [SegmentRef(n, n, 10, 10, "0" * 64, 0) for n in range(20_000)]
    ref, data = encode_index(refs, 0)
    assert decode_index(ref, data) == tuple(refs)


async def test_a_missing_slice_object_is_damage() -> None:
    """After one more look at the manifest."""
    tiers = Tiers()
    author = await tiers.author()
    await author.threads.save_slice("t", author.epoch, noise(1, size=400_000)[0].body, 0)
    await author.go_cold()
    name = next(key for key in await tiers.keys() if key.startswith("state/"))
    await tiers.bucket.delete(tiers.threads.layout.thread_prefix("t") + name)
    with pytest.raises(ArchiveCorruptError, match="missing"):
        await author.facts()
    with pytest.raises(ArchiveCorruptError, match="missing"):
        await author.threads.hydrate("t", author.epoch)
    with pytest.raises(ArchiveCorruptError, match="missing"):
        await author.later().open()


async def test_kinds_survive() -> None:
    """Also the ones that no release of ours wrote."""
    tiers = Tiers()
    author = await tiers.author()
    odd = a_message("odd", kind=Kind.OTHER)
    await author.append(author.step(odd, answer=None))
    await author.go_cold()
    assert await author.everything() == (odd,)
