"""The behaviours that a tiered thread must show, by their numbers, in memory and on real servers.

Those that need a workflow (11, 12, 15, 17, 18, 24 and the workflow's part of 13, 14, 21 and 23) are tests
of the session workflow.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.coldtier.format import decode_manifest, encode_manifest
from helix_temporal.errors import (
    ArchiveAccessError,
    ArchiveCorruptError,
    ArchiveError,
    FencedError,
    HeadMovedError,
    InvalidRequestError,
    StoreUnavailableError,
    ThreadExistsError,
    UnsupportedFormatError,
)
from helix_temporal.models.stored_messages import Kind, StoredMessage, size_of
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.threads import Create, FlushStatus, FlushThread, ForkThread, Reopen
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import LATER, Author, calls, noise, result
from helix_temporal.testing.contracts._threads_delete import STRANGE_IDS
from helix_temporal.testing.faults import BlobFault
from tests.contracts._stalls import Stalls


class Behaviours:
    """Bound below to two deployments."""

    @pytest.fixture
    def stalls(self) -> Stalls:
        """Both tiers; a deployment overrides this."""
        raise NotImplementedError

    @pytest.fixture
    def threads(self, stalls: Stalls) -> TieredThreads:
        """The store over them."""
        return worker(stalls)

    @pytest.fixture
    async def author(self, threads: TieredThreads) -> Author:
        """Of a thread that was just made."""
        author = Author(threads, "t")
        await author.open()
        return author

    async def test_01_creating_twice_makes_one_system_row(self, threads: TieredThreads) -> None:
        """The create activity is tried again; its first rows are there once."""
        row = a_message("be brief", kind=Kind.OTHER)
        author = Author(threads, "t")
        first = await author.open(create=Create.NEW, messages=(row,))
        assert await author.open(create=Create.NEW, messages=(row,)) == first
        assert await author.everything() == (row,)

    async def test_02_an_append_that_is_retried_is_there_once(self, author: Author) -> None:
        """The worker crashed after the commit; the same for a batch, and for one that overlaps another."""
        batch = author.step(*noise(5), answer=an_answer())
        first = await author.append(batch)
        assert (await author.threads.append(batch)).messages == first.messages
        overlapping = replace(batch, inputs=(*batch.inputs[2:], a_message("more")))
        with pytest.raises(HeadMovedError):
            await author.threads.append(overlapping)
        assert await author.everything() == first.messages

    async def test_03_a_thread_in_use_never_expires(self, stalls: Stalls) -> None:
        """Kept warm for a moment after each flush, it stays readable as long as somebody writes."""
        author = Author(worker(stalls, warm_ttl=1.5), "t")
        await author.open()
        for number in range(3):
            await author.turn(f"{number}")
            await author.flush()
            await author.threads.evict("t", author.epoch)
            await author.turn(f"{number} and on")
            await asyncio.sleep(1.6)
            assert (await author.facts()).hot
        await author.flush()
        assert (await author.facts()).archived == 12

    async def test_04_an_old_archive_never_beats_newer_hot_messages(self, author: Author) -> None:
        """Neither by a hydrate nor by an open."""
        await author.turn("archived")
        await author.flush()
        await author.turn("hot")
        await author.threads.hydrate("t", author.epoch)
        assert "hot" in await author.texts()
        later = author.later()
        await later.open()
        assert "hot" in await later.texts()

    async def test_05_a_message_appended_during_a_flush_is_kept(self, author: Author, stalls: Stalls) -> None:
        """It is readable afterwards, archived by the next flush, and its id is not blocked."""
        await author.turn("one")
        flush = await stalls.start(author.flush(), point=2)
        assert flush is not None
        step = author.step(a_message("two"), answer=an_answer())
        await author.append(step)
        assert await stalls.resume(flush) is None
        await author.threads.evict("t", author.epoch)
        assert await author.texts() == ["one", "hi there", "two", "hi there"]
        assert (await author.threads.append(step)).repeated
        await author.flush()
        assert (await author.facts()).archived == 4

    async def test_06_a_zombie_s_flush_changes_nothing(self, stalls: Stalls) -> None:
        """It stalls anywhere; a second attempt and a whole later session finish; then it wakes up."""
        point, stalled = 0, True
        while stalled:
            author = await fresh(stalls, f"t{point}")
            await author.append(author.step(*noise(80), answer=an_answer()))
            zombie = await stalls.start(replace(author, threads=worker(stalls)).flush(), point=point)
            stalled, point = zombie is not None, point + 1
            if zombie is not None:
                await author.flush()
                later = author.later(owner="run-2")
                await later.open()
                await later.turn("later")
                await later.flush(closes=True)
                before = await later.image()
                ended = await stalls.resume(zombie)
                assert ended is None or isinstance(ended, FencedError)
                assert await later.image() == before
        assert point > 3

    async def test_07_a_zombie_s_hydrate_loses_and_doubles_nothing(self, stalls: Stalls) -> None:
        """It stalls anywhere while the thread becomes hot, grows, and goes cold again."""
        point, stalled = 0, True
        while stalled:
            author = await fresh(stalls, f"t{point}")
            await author.append(author.step(*noise(80), answer=an_answer()))
            await author.go_cold()
            attempt = worker(stalls).hydrate(author.thread_id, author.epoch)
            zombie = await stalls.start(attempt, point=point)
            stalled, point = zombie is not None, point + 1
            if zombie is not None:
                await author.turn("while it slept")
                await author.go_cold()
                wanted = await author.everything()
                await stalls.resume(zombie)
                later = author.later()
                await later.open(reopen=Reopen(author.head, author.head))
                assert await later.everything() == wanted
        assert point > 3

    async def test_08_parallel_hydrates_give_one_copy(self, author: Author, stalls: Stalls) -> None:
        """And read each object no more often than there are callers."""
        await author.append(author.step(*noise(200), answer=an_answer()))
        before = await author.everything()
        await author.go_cold()
        stalls.blobs.forget()
        await asyncio.gather(*(author.threads.hydrate("t", author.epoch) for _ in range(20)))
        assert await author.everything() == before
        assert stalls.blobs.count("get") <= 20 * 4

    async def test_09_parallel_and_retried_forks_give_one_copy(self, author: Author) -> None:
        """Source changes between attempts don't mix, a transform counts once, repeats are known at once."""
        await author.turn("one")

        async def shout(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
            return [r._replace(body=r.body.upper()) for r in messages]

        request = ForkThread("t", "copy", LATER, "forker")
        await asyncio.gather(*(author.threads.fork(request, shout) for _ in range(5)))
        await author.turn("two")
        await author.threads.fork(request, shout)
        copy = Author(author.threads, "copy", LATER + 1, "user")
        await copy.open()
        assert await copy.texts() == ["ONE", "HI THERE"]
        step = copy.step(a_message("three"), answer=an_answer())
        await copy.append(step)
        assert (await copy.threads.append(step)).repeated

    async def test_10_a_thread_that_vanished_leaves_the_archive_as_it_is(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """Somebody deleted it behind our back: no flush writes an empty thread over the archive."""
        await author.turn("one")
        await author.flush()
        await threads.hot.drop("t", LATER)
        receipt = await threads.flush(FlushThread("t", author.epoch))
        assert (receipt.head, receipt.puts) == (author.head, 0)
        assert await author.texts() == ["one", "hi there"]
        await author.turn("two")
        await threads.hot.drop("t", LATER)
        lost = FlushThread("t", author.epoch, mine=author.head)
        with pytest.raises(HeadMovedError):
            await threads.flush(lost)
        assert await author.texts() == ["one", "hi there"]

    async def test_13_an_archive_that_is_down_at_the_end_is_caught_up_later(
        self, stalls: Stalls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The receipt says so, hot data stays, and anybody may archive it under its own epoch."""
        monkeypatch.setattr("helix_temporal.coldtier.archive.TRIES", 2)
        author = Author(worker(stalls, step_seconds=0.1), "t")
        await author.open()
        step = author.step(a_message(), answer=an_answer())
        appended = await author.append(step)
        stalls.blobs.fail(BlobFault.ERROR_BEFORE, times=10_000)
        receipt = await author.threads.archive_step(step, appended)
        assert (receipt.status, receipt.reason != "") == (FlushStatus.UNAVAILABLE, True)
        with pytest.raises(StoreUnavailableError):
            await author.flush(closes=True)
        stalls.blobs._script.clear()
        maintenance = worker(stalls)
        assert await maintenance.evict("t", author.epoch) == "newer"
        header = await stalls.hot.read_header("t")
        assert header is not None
        await maintenance.flush(FlushThread("t", header.epoch, closes=header.closed))
        assert (await maintenance.read_facts("t")).archived == 2

    async def test_14_a_wiped_redis_costs_what_was_not_archived(
        self, author: Author, threads: TieredThreads
    ) -> None:
        """Archived steps are there; a step that is lost is told, and its turn starts where it began."""
        await author.turn("one")
        await author.flush()
        start = author.head
        await author.turn("lost")
        known = author.head
        await threads.hot.drop("t", LATER)
        with pytest.raises(HeadMovedError):
            await author.turn("next")
        later = author.later()
        opened = await later.open(reopen=Reopen(known, start))
        assert opened.header.head == start
        await later.turn("again")
        assert await later.texts() == ["one", "hi there", "again", "hi there"]

    async def test_16_two_sessions_on_one_thread_never_mix(self, author: Author) -> None:
        """The second takes it, the first is told; neither messages nor state are interleaved."""
        second = author.later(owner="run-2")
        await author.turn("first")
        await author.threads.save_slice("t", author.epoch, b"first", 0)
        await second.open()
        with pytest.raises(FencedError):
            await author.turn("late")
        with pytest.raises(FencedError):
            await author.threads.save_slice("t", author.epoch, b"late", 1)
        await second.turn("second")
        assert await second.texts() == ["first", "hi there", "second", "hi there"]
        facts = await second.facts()
        assert (facts.slice, facts.owner) == (b"first", "run-2")

    async def test_19_a_late_result_of_a_superseded_turn_is_refused(self, author: Author) -> None:
        """A tool that was retried has one result; a cancelled one that ends late has none."""
        await author.asks_for_tools()
        step = author.step(a_message(b"x" * 1_000_000, kind=Kind.RESULT), answer=an_answer())
        await author.append(step)
        await author.threads.append(step)
        assert sum(message.kind == Kind.RESULT for message in await author.everything()) == 1
        cancelled = replace(author)
        await cancelled.asks_for_tools("cancelled")
        later = author.later()
        await later.open()
        with pytest.raises(FencedError):
            await cancelled.append(cancelled.step(result(1), answer=an_answer()))
        assert len(await later.everything()) == 4

    async def test_20_call_ids_may_repeat_over_turns(self, author: Author) -> None:
        """Some providers count from one in each turn: both results are stored."""
        body = b'{"role":"tool","tool_call_id":"call_1","content":"%d"}'
        for number in range(2):
            await author.asks_for_tools()
            await author.append(author.step(a_message(body % number, kind=Kind.RESULT), answer=an_answer()))
        results = [r.body for r in await author.everything() if r.kind == Kind.RESULT]
        assert results == [body % 0, body % 1]

    @pytest.mark.parametrize("cold", [False, True], ids=["hot", "flushed"])
    async def test_21_a_reset_to_an_earlier_turn_cuts_nothing(self, author: Author, cold: bool) -> None:
        """The replayed run knows the head of that time, and goes on from what was answered since."""
        await author.turn("one")
        known = author.head
        await author.turn("two")
        await author.turn("three")
        await (author.go_cold() if cold else author.flush())
        reset = author.later()
        await reset.open(reopen=Reopen(known, known))
        assert reset.head == author.head
        step = reset.step(a_message("four"), answer=an_answer())
        await reset.append(step)
        await reset.threads.append(step)
        assert (await reset.texts())[::2] == ["one", "two", "three", "four"]

    @pytest.mark.parametrize(
        ("what", "error"),
        [
            ("truncated segment", ArchiveCorruptError),
            ("flipped bit", ArchiveCorruptError),
            ("missing segment", ArchiveCorruptError),
            ("truncated manifest", ArchiveCorruptError),
            ("another thread's manifest", ArchiveCorruptError),
            ("html", ArchiveCorruptError),
            ("newer format", UnsupportedFormatError),
            ("no access", ArchiveAccessError),
        ],
    )
    async def test_22_damage_is_told_and_nothing_becomes_hot(
        self, author: Author, threads: TieredThreads, stalls: Stalls, what: str, error: type[ArchiveError]
    ) -> None:
        """Each its own permanent error at once; once repaired, the thread is as it was."""
        await author.append(author.step(*noise(100), answer=an_answer()))
        before = await author.everything()
        await author.go_cold()
        repair = await damage(stalls, threads, what)
        with pytest.raises(error) as caught:
            await worker(stalls).hydrate("t", author.epoch)
        assert not caught.value.retryable
        assert await stalls.hot.inner.read_header("t") is None
        await repair()
        await author.threads.hydrate("t", author.epoch)
        assert await author.everything() == before

    async def test_22_another_adapter_is_told(self, threads: TieredThreads) -> None:
        """Bodies of one format are not opened as another's."""
        author = Author(threads, "t")
        await author.open(adapter="one")
        with pytest.raises(InvalidRequestError, match="adapter 'one', not 'two'"):
            await author.later().open(adapter="two")

    async def test_23_a_turn_costs_what_is_new(self, author: Author, stalls: Stalls) -> None:
        """On ten thousand messages as on a hundred: one put and no get, few bytes, one page of context."""
        uploads = []
        for length in (100, 10_000):
            writer = Author(author.threads, f"long-{length}")
            await writer.open(messages=noise(length, size=100))
            await warm_up(writer)
            stalls.blobs.forget()
            for _ in range(20):
                step = writer.step(a_message("x" * 200), answer=an_answer("y" * 200))
                await writer.threads.step_view(
                    writer.thread_id, writer.epoch, writer.head, after=2, limit=50, max_bytes=10_000, ids=50
                )
                await writer.threads.archive_step(step, await writer.append(step))
            new = 20 * size_of((a_message("x" * 200), an_answer("y" * 200)))
            assert stalls.blobs.count("get") == 0
            assert stalls.blobs.count("put") <= 23
            assert stalls.blobs.bytes_up <= 20 * 12 * 1024 + 2 * new
            uploads.append(stalls.blobs.bytes_up)
        assert uploads[1] < uploads[0] * 2 + 50_000

    async def test_25_ids_that_look_alike_are_threads_apart(self, threads: TieredThreads) -> None:
        """In both tiers; creating never overwrites, and a foreign thread is refused."""
        authors = [Author(threads, name) for name in STRANGE_IDS]
        for author in authors:
            await author.open(create=Create.NEW)
            await author.turn(author.thread_id)
            await author.go_cold()
        assert [await author.texts() for author in authors] == [
            [author.thread_id, "hi there"] for author in authors
        ]
        with pytest.raises(ThreadExistsError):
            await authors[0].later().open(create=Create.NEW)
        with pytest.raises(FencedError):
            await Author(threads, STRANGE_IDS[0], owner="a stranger").open()


def worker(stalls: Stalls, **settings: float) -> TieredThreads:
    """A process on these tiers that remembers nothing."""
    return TieredThreads(stalls.hot, stalls.blobs, prefix=stalls.prefix, **settings)  # type: ignore[arg-type]


async def fresh(stalls: Stalls, thread_id: str) -> Author:
    """The author of a thread that was just made."""
    author = Author(worker(stalls), thread_id)
    await author.open()
    return author


async def warm_up(author: Author) -> None:
    """A worker that has archived a step knows the manifest."""
    step = author.step(a_message(), answer=calls(), commits=False)
    await author.threads.archive_step(step, await author.append(step))
    step = author.step(result(0), answer=an_answer())
    await author.threads.archive_step(step, await author.append(step))


async def damage(
    stalls: Stalls, threads: TieredThreads, what: str
) -> Callable[[], Coroutine[object, object, object]]:
    """Break the archive of thread ``t`` in this way; what is returned mends it."""
    bucket, manifest = stalls.blobs.inner, threads.layout.manifest_key("t")
    segments = [
        info.key async for info in bucket.list(threads.layout.thread_prefix("t")) if "/seg/" in info.key
    ]
    key = segments[0] if "segment" in what or what == "flipped bit" else manifest
    found = await bucket.get(key)
    assert found is not None
    data, middle = found.data, len(found.data) // 2
    ways: dict[str, Callable[[], bytes]] = {
        "truncated segment": lambda: data[:middle],
        "flipped bit": lambda: data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
        "truncated manifest": lambda: data[:middle],
        "another thread's manifest": lambda: encode_manifest(
            replace(decode_manifest("t", data), thread_id="other")
        ),
        "html": lambda: b"<html>\n</html>",
        "newer format": lambda: data.replace(b'"format":3', b'"format":4'),
    }
    if what == "no access":
        stalls.blobs.fail(BlobFault.NO_ACCESS, method="get")
    elif what == "missing segment":
        await bucket.delete(key)
    else:
        await bucket.put(key, ways[what]())

    async def repair() -> object:
        return await bucket.put(key, data)

    return repair


class TestInMemory(Behaviours):
    @pytest.fixture
    def stalls(self) -> Stalls:
        """Both tiers in this process."""
        return Stalls(MemoryThreads(), MemoryBlobs())


class TestOnServers(Behaviours):
    @pytest.fixture
    async def stalls(
        self, redis_url: str, redis_prefix: str, bucket: S3Blobs, s3_prefix: str
    ) -> AsyncIterator[Stalls]:
        """A real Redis and a real bucket."""
        redis = RedisBackend(redis_url, prefix=redis_prefix, timeout=60)
        yield Stalls(redis.threads, bucket, s3_prefix)
        await redis.close()
