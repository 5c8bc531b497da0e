"""An archive that fails, answers late, or refuses its own success: nothing is lost and nothing doubled."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.coldtier import Backlog, TieredThreads
from helix_temporal.coldtier.archive import UNANSWERED_WRITES, UnansweredWriteError, retry_on_change
from helix_temporal.errors import (
    ArchiveAccessError,
    ArchiveCorruptError,
    ColdTierBehindError,
    StoreUnavailableError,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus, ForkThread, ReadPage
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import LATER, Author, noise
from helix_temporal.testing.faults import BlobCall, BlobFault, FaultyBlobs
from tests.unit.coldtier._interleave import ids, sound
from tests.unit.coldtier._tiers import Tiers

PASSING = [
    BlobFault.ERROR_BEFORE,
    BlobFault.THROTTLED,
    BlobFault.ANSWER_LOST,
    BlobFault.FALSE_REFUSAL,
    BlobFault.LATE,
]
OPERATIONS = ["flush", "open", "rewind", "fork", "compact", "collect", "delete"]


@dataclass
class Trial:
    """A thread of several segments with something hot, and one operation to be disturbed."""

    tiers: Tiers
    author: Author
    expected: list[str]

    async def run(self, operation: str) -> None:
        """As an activity does: again, while the error says that it may help."""
        worker = self.tiers.worker()
        for _ in range(6):
            try:
                return await self._once(operation, worker)
            except StoreUnavailableError:
                continue
        raise AssertionError(f"{operation} never came through")

    async def _once(self, operation: str, worker: TieredThreads) -> None:
        later = replace(self.author.later(), threads=worker)
        acts: dict[str, Callable[[], Awaitable[object]]] = {
            "flush": replace(self.author, threads=worker).flush,
            "open": later.open,
            "rewind": lambda: later.open(rewind_to=Head(position=90, last_id=self.expected[89])),
            "fork": lambda: worker.fork(ForkThread("t", "copy", LATER, "forker")),
            "compact": lambda: worker.upkeep.compact("t"),
            "collect": lambda: worker.upkeep.collect_garbage("t"),
            "delete": lambda: worker.delete("t", self.author.epoch),
        }
        await acts[operation]()

    async def outcome(self, operation: str) -> object:
        """What is there afterwards, as somebody sees it who has only the archive."""
        if operation == "flush":
            self.tiers.wipe()
        if operation == "delete":
            return [key for key in await self.tiers.keys() if "manifest" in key]
        thread_id = "copy" if operation == "fork" else "t"
        await sound(self.tiers, thread_id)
        return await ids(Author(self.tiers.worker(), thread_id))

    def wanted(self, operation: str) -> object:
        """What should be."""
        special = {"rewind": self.expected[:90], "delete": ["manifest"]}
        return special.get(operation, self.expected)


async def trial() -> Trial:
    """Old enough segments that some can be merged, and garbage."""
    tiers = Tiers()
    author = await tiers.author()
    for number in range(12):
        await author.append(author.step(*noise(60, prefix=f"{number}-"), answer=None, commits=True))
        await author.flush()
    await tiers.bucket.put(tiers.threads.layout.thread_prefix("t") + "seg/orphan", b"x")
    await author.append(author.step(*noise(60, prefix="hot"), answer=None, commits=True))
    return Trial(tiers, author, await ids(author))


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_fault_at_any_call(operation: str, fault: BlobFault) -> None:
    """Each call of each operation fails once in each way, and what was late lands afterwards."""
    wrong, number = [], 0
    for number in range(40):
        made = await trial()
        disturbed = disturb(made.tiers.blobs, number, fault)
        await made.run(operation)
        await made.tiers.blobs.release()
        if not disturbed:
            break
        if await made.outcome(operation) != made.wanted(operation):
            wrong.append((number, disturbed))
    assert wrong == []
    assert number > 1


def disturb(blobs: FaultyBlobs, number: int, fault: BlobFault) -> list[BlobCall]:
    """Let the call of that number fail; the list tells whether it came to that."""
    seen: list[BlobCall] = []
    hit: list[BlobCall] = []

    def plan(call: BlobCall) -> BlobFault | None:
        seen.append(call)
        if len(seen) != number + 1:
            return None
        hit.append(call)
        conditional = call.method in {"put", "copy"}
        return fault if conditional or fault is not BlobFault.FALSE_REFUSAL else None

    blobs.plan = plan
    return hit


class TestUnclearOutcomes:
    """A 412 is often one's own success."""

    @pytest.mark.parametrize("fault", [BlobFault.FALSE_REFUSAL, BlobFault.ANSWER_LOST, BlobFault.LATE])
    async def test_a_flush_reads_back(self, fault: BlobFault) -> None:
        """Success is that the manifest holds my last message at my position."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        tiers.blobs.fail(fault, method="put")
        await author.flush()
        await tiers.blobs.release()
        manifest = await tiers.manifest()
        assert (manifest.head, manifest.version) == (author.head, 2)

    async def test_a_flush_succeeds_though_somebody_committed_on_top(self) -> None:
        """The current manifest isn't mine, but holds what is mine."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn("one")
        tiers.blobs.fail(BlobFault.DELAYED, method="put")
        slow = asyncio.create_task(author.flush())
        while not any(call.outcome == "pending" for call in tiers.blobs.calls):  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0)
        other = tiers.elsewhere(author)
        await other.turn("two")
        await other.flush()
        await tiers.blobs.release()
        await slow
        assert (await tiers.manifest()).head == other.head

    async def test_a_put_that_lands_late_replaces_nothing(self) -> None:
        """It was made against an etag that is gone."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        tiers.blobs.fail(BlobFault.LATE, method="put")
        await author.flush()
        later = author.later()
        await later.open()
        await later.turn()
        await later.flush()
        before = await tiers.manifest()
        await tiers.blobs.release()
        assert tiers.blobs.late_outcomes == ["ConditionFailedError"]
        assert await tiers.manifest() == before

    async def test_conflicts_without_end_are_a_passing_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The activity is tried again later rather than for ever."""
        monkeypatch.setattr("helix_temporal.coldtier.archive.TRIES", 4)
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        tiers.blobs.fail(BlobFault.ERROR_BEFORE, method="put", times=100)
        with pytest.raises(StoreUnavailableError, match="not archived in 4 tries"):
            await author.flush()


class TestUnansweredWrites:
    """An archive that answers reads and takes nothing: its disk is full, or it has no quorum."""

    @pytest.fixture(autouse=True)
    def no_pauses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is asked again at once."""
        monkeypatch.setattr("helix_temporal.coldtier.archive.retry_pause", lambda *_, **__: 0.0)

    async def test_some_in_a_row_end_a_flush(self) -> None:
        """Whoever flushes learns it after seconds, and of what S3 said."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        tiers.blobs.forget()
        tiers.blobs.fail(BlobFault.ERROR_BEFORE, method="put", times=100)
        told = rf"not archived: {UNANSWERED_WRITES} writes had no success: injected fault: put"
        with pytest.raises(StoreUnavailableError, match=told):
            await tiers.elsewhere(author).flush()
        assert tiers.blobs.count("put") == UNANSWERED_WRITES

    async def test_what_the_store_said_is_among_the_facts(self) -> None:
        """Others are told of it without the thread's name."""

        async def refuse() -> None:
            raise UnansweredWriteError(StoreUnavailableError("507", status=507))

        with pytest.raises(StoreUnavailableError) as told:
            await retry_on_change("t", refuse, failed="not archived")
        assert told.value.facts == {"status": 507}

    async def test_one_that_lost_against_another_writer_is_an_answer(self) -> None:
        """The store takes writes: only those in a row count."""
        refusals: list[Exception | None] = [
            UnansweredWriteError(StoreUnavailableError("507")) for _ in range(UNANSWERED_WRITES - 1)
        ]
        outcomes = iter([*refusals, None, *refusals, ConditionFailedError("412"), *refusals])

        async def attempt() -> str | None:
            outcome = next(outcomes, "done")
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        assert await retry_on_change("t", attempt, failed="not archived") == "done"

    async def test_a_hydrate_takes_what_another_one_made_hot(self) -> None:
        """Reads are enough for it then."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        hot = tiers.hot.backup()
        await author.go_cold()

        def refuse(call: BlobCall) -> BlobFault | None:
            if call.method != "put":
                return None
            tiers.hot.restore(hot)
            return BlobFault.ERROR_BEFORE

        tiers.blobs.plan = refuse
        hydrated = await tiers.worker().hydrate("t", author.epoch)
        assert hydrated is not None
        assert hydrated.head == author.head


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.now


class TestArchiveDown:
    """An open session goes on while the archive is away, up to a limit."""

    @pytest.fixture
    def clock(self) -> Clock:
        """Both tiers go by it."""
        return Clock()

    @pytest.fixture
    async def author(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Author:
        """Whose archive goes down when ``down`` is called."""
        monkeypatch.setattr("helix_temporal.coldtier.flush.BACKLOG_SECONDS", 0.05, raising=False)
        tiers = Tiers()
        tiers.hot._clock = clock
        backlog = Backlog(max_bytes=10_000, max_seconds=3600)
        tiers.threads = tiers.worker(clock=clock, backlog=backlog, step_seconds=0.05)
        author = await tiers.author()
        await step(author)
        return author

    async def test_a_step_is_a_receipt(self, author: Author) -> None:
        """The turn is answered, and says that it is not archived."""
        down(author)
        receipt = await step(author)
        assert receipt.status is FlushStatus.UNAVAILABLE
        assert (receipt.pending_bytes > 0, receipt.reason.partition(":")[0]) == (
            True,
            "StoreUnavailableError",
        )

    async def test_one_thread_alone_goes_on_trying(self, author: Author) -> None:
        """Its trouble may be its own; the archive of the others tells more."""
        blobs = down(author)
        for _ in range(4):
            await step(author)
        blobs.plan = None
        assert (await step(author)).status is FlushStatus.ARCHIVED

    async def test_while_the_breaker_is_open_one_step_a_second_tries(
        self, author: Author, clock: Clock
    ) -> None:
        """Each turn would else wait for two seconds."""
        others = [Author(author.threads, name) for name in ("other", "third")]
        for each in others:
            await each.open()
        blobs = down(author)
        for each in (author, *others):
            await step(each)
        blobs.forget()
        receipt = await step(author)
        assert (receipt.status, len(blobs.calls)) == (FlushStatus.UNAVAILABLE, 0)
        clock.now += 1
        await step(author)
        assert len(blobs.calls) > 0

    async def test_what_one_thread_failed_by_is_told_to_others_without_its_name(self, author: Author) -> None:
        """It goes into their status and history, where no deletion of that thread finds it."""
        others = [Author(author.threads, name) for name in ("alice@x", "third")]
        for each in others:
            await each.open()
        down(author)
        receipts = [await step(each) for each in (author, others[1], others[0], author)]
        assert "alice" in receipts[2].reason
        assert receipts[3].reason.endswith("the last: StoreUnavailableError: the archive did not answer")

    async def test_a_slow_archive_is_told_with_the_time_that_was_over(
        self, author: Author, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever reads it raises the setting; nobody looks for an outage."""
        others = [Author(author.threads, name) for name in ("other", "third")]
        for each in others:
            await each.open()
        monkeypatch.setattr(FaultyBlobs, "put", for_long)
        receipts = [await step(each) for each in (author, *others, author)]
        told = "within 0.05 s (HELIX_TIMEOUT_FLUSH_ATTEMPT)"
        assert [told in each.reason for each in receipts] == [True] * 4
        assert [each.tried for each in receipts] == [True, True, True, False]

    async def test_all_is_archived_when_it_comes_back(self, author: Author, clock: Clock) -> None:
        """By the next step, without anybody's help."""
        blobs = down(author)
        for _ in range(3):
            await step(author)
        blobs.plan = None
        clock.now += 11
        receipt = await step(author)
        assert (receipt.status, receipt.head, receipt.pending_bytes) == (FlushStatus.ARCHIVED, author.head, 0)

    async def test_turns_are_refused_past_the_bytes(self, author: Author) -> None:
        """A lost Redis must not cost more than was agreed."""
        down(author)
        await step(author, size=11_000)
        with pytest.raises(ColdTierBehindError, match="at most 10000 bytes or 3600 s"):
            await view(author)

    async def test_turns_are_refused_past_the_time(self, author: Author, clock: Clock) -> None:
        """However little it is."""
        down(author)
        await step(author)
        await view(author)
        clock.now += 3601
        with pytest.raises(ColdTierBehindError):
            await view(author)

    async def test_an_idle_thread_that_is_archived_is_not_behind(self, author: Author, clock: Clock) -> None:
        """What the hot tier knows of the archive lags by a step; the manifest decides."""
        await step(author)
        clock.now += 100_000
        await view(author)

    async def test_what_waited_too_long_is_archived_rather_than_refused(
        self, author: Author, clock: Clock
    ) -> None:
        """With ``flush="exit"`` nothing else archives a session that stays open for days."""
        await author.turn()
        clock.now += 3601
        await view(author)
        assert (await author.threads.read_facts(author.thread_id)).archived == author.head.position

    async def test_a_turn_under_way_is_let_to_its_end(self, author: Author, clock: Clock) -> None:
        """Tools have run already."""
        down(author)
        await step(author)
        clock.now += 3601
        await view(author, ids=0)

    async def test_turns_go_on_after_a_flush(self, author: Author, clock: Clock) -> None:
        """The limit is on what is not archived, not on the past."""
        blobs = down(author)
        await step(author, size=11_000)
        blobs.plan = None
        await author.flush()
        await view(author)

    async def test_a_flush_says_that_the_archive_is_away(
        self, author: Author, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is a passing error: the activity is tried again."""
        monkeypatch.setattr("helix_temporal.coldtier.archive.TRIES", 2)
        await author.turn()
        down(author)
        with pytest.raises(StoreUnavailableError):
            await author.flush()

    async def test_reads_of_a_hot_thread_go_on(self, author: Author) -> None:
        """They don't need the archive."""
        down(author)
        assert len(await author.everything()) == 2


async def for_long(*_args: object, **_options: object) -> None:
    """A PUT that takes its time."""
    await asyncio.sleep(1)


def down(author: Author) -> FaultyBlobs:
    """The object store is away until its plan is taken back."""
    assert isinstance(author.threads, TieredThreads)
    blobs = author.threads.blobs
    assert isinstance(blobs, FaultyBlobs)
    blobs.plan = lambda _: BlobFault.ERROR_BEFORE
    return blobs


async def step(author: Author, size: int = 5) -> FlushReceipt:
    """One turn with the flush that follows it."""
    request = author.step(a_message("x" * size), answer=an_answer())
    return await author.threads.archive_step(request, await author.append(request))


async def view(author: Author, ids: int = 10) -> StepView:
    """What the next step does first."""
    return await author.threads.step_view(
        author.thread_id, author.epoch, author.head, after=2, limit=10, max_bytes=10_000, ids=ids
    )


class TestNoAccess:
    """403 and a missing bucket are told at once, and nothing is concluded from them."""

    async def test_an_open_makes_no_new_thread(self) -> None:
        """A refused read is not an empty archive."""
        tiers = Tiers()
        tiers.blobs.fail(BlobFault.NO_ACCESS, method="get")
        with pytest.raises(ArchiveAccessError):
            await tiers.author()
        assert (await tiers.hot.read_header("t"), await tiers.keys()) == (None, [])

    @pytest.mark.parametrize("method", ["get", "put"])
    async def test_a_flush_is_refused_once(self, method: str) -> None:
        """A permanent error is no receipt and is not tried again."""
        tiers = Tiers()
        author = await tiers.author()
        await author.turn()
        tiers.blobs.forget()
        tiers.blobs.fail(BlobFault.NO_ACCESS, method=method, times=100)
        with pytest.raises(ArchiveAccessError):
            await tiers.elsewhere(author).flush()
        assert tiers.blobs.count(method) == 1
        assert len(await author.everything()) == 2

    async def test_a_hydrate_makes_nothing_hot(self) -> None:
        """Half a thread is none."""
        tiers = Tiers()
        author = await tiers.author()
        await author.append(author.step(*noise(200), answer=None))
        await author.go_cold()
        tiers.blobs.fail(BlobFault.NO_ACCESS, method="get", key_has="/seg/")
        with pytest.raises(ArchiveAccessError):
            await author.threads.hydrate("t", author.epoch)
        assert await tiers.hot.read_header("t") is None


class TestMissingObjects:
    """What the manifest names and the bucket lacks is damage, found after one more look."""

    @pytest.fixture
    async def tiers(self) -> Tiers:
        """A cold thread that lacks its oldest segment."""
        tiers = Tiers()
        author = await tiers.author()
        for number in range(4):
            await author.append(author.step(*noise(60, prefix=f"{number}-"), answer=None, commits=True))
            await author.flush()
        await author.go_cold()
        first = next(key for key in await tiers.keys() if key.startswith("seg/"))
        await tiers.bucket.delete(tiers.threads.layout.thread_prefix("t") + first)
        tiers.blobs.forget()
        return tiers

    async def test_a_reader_is_told(self, tiers: Tiers) -> None:
        """And has looked at the manifest twice."""
        with pytest.raises(ArchiveCorruptError, match="named by the manifest and missing"):
            await tiers.worker().read(ReadPage("t"))
        manifests = [call for call in tiers.blobs.calls if call.key.endswith("manifest")]
        assert len(manifests) == 2

    async def test_a_hydrate_is_told(self, tiers: Tiers) -> None:
        """Nothing becomes hot."""
        with pytest.raises(ArchiveCorruptError, match="missing"):
            await tiers.worker().hydrate_whole("t", Author(tiers.threads, "t").epoch)
        assert await tiers.hot.read_header("t") is None

    async def test_a_fork_is_told(self, tiers: Tiers) -> None:
        """No thread is made."""
        with pytest.raises(ArchiveCorruptError, match="missing"):
            await tiers.worker().fork(ForkThread("t", "copy", LATER, "forker"))
        assert "manifest" not in await tiers.keys("copy")

    async def test_a_rewind_into_it_is_told(self, tiers: Tiers) -> None:
        """The manifest stays as it is."""
        before = await tiers.manifest()
        with pytest.raises(ArchiveCorruptError, match="missing"):
            await Author(tiers.worker(), "t", LATER).open(rewind_to=Head(position=30, last_id="0-29"))
        assert await tiers.manifest() == before

    async def test_an_audit_writes_it_down(self, tiers: Tiers) -> None:
        """Damage is a line in a report there."""
        audit = await tiers.worker().upkeep.audit("t")
        assert len(audit.problems) == 1
        assert "missing" in audit.problems[0]

    async def test_what_does_not_need_it_goes_on(self, tiers: Tiers) -> None:
        """The newer messages are read."""
        page = await tiers.worker().read(ReadPage("t", start=100))
        assert len(page.messages) == 100


async def test_a_damaged_segment_is_told_and_not_used() -> None:
    """A flipped bit in the bucket."""
    tiers = Tiers()
    author = await tiers.author()
    await author.append(author.step(*noise(200), answer=None))
    await author.go_cold()
    name = tiers.threads.layout.thread_prefix("t") + next(
        k for k in await tiers.keys() if k.startswith("seg/")
    )
    blob = await tiers.bucket.get(name)
    assert blob is not None
    await tiers.bucket.put(name, blob.data[:-1] + bytes([blob.data[-1] ^ 1]))
    with pytest.raises(ArchiveCorruptError, match="checksum"):
        await author.threads.hydrate("t", author.epoch)
    assert await tiers.hot.read_header("t") is None


async def test_a_store_that_refuses_a_write_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """An open tries again for a minute: without this nobody would know what it waits for."""
    tiers = Tiers()
    tiers.blobs.fail(BlobFault.ERROR_BEFORE, method="put")
    await tiers.author()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "thread 't': not known whether it was archived: " in caplog.text
