"""What comes late: an old copy into Redis, from a worker that was slow to read it; a write to the archive."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from helix_temporal.blobs import BlobStore
from helix_temporal.coldtier import TieredThreads
from helix_temporal.coldtier.archive import Archive, Stored
from helix_temporal.errors import FencedError, HeadMovedError, StoreUnavailableError
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import MergeChanges
from helix_temporal.stores.memory import MemorySessions
from helix_temporal.stores.protocols.hot import HotHeader, HotTier, StepAppend
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread, ReadPage
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.faults import FaultyBlobs
from tests.unit.coldtier._tiers import Tiers

Append = Callable[[RowSessions, str], Awaitable[object]]
Begin = Callable[[RowSessions, Tiers], Awaitable[None]]


def said(name: str) -> Message:
    return Message(id=name, role="user", content=name)


async def append_unnamed(store: RowSessions, name: str) -> None:
    await store.append_messages("s", [said(name)])


async def append_by_operation(store: RowSessions, name: str) -> None:
    await store.append_messages("s", [said(name)], operation_id=f"op-{name}")


async def commit_a_step(store: RowSessions, name: str) -> None:
    state = await store.load_state("s")
    assert state is not None
    await store.save_state_and_promote_staging("s", state, StepCommit(step_id=name), messages=[said(name)])


async def _append_to_old_copy(append: Append, *, beside: bool, goes_on: bool = True) -> list[str]:
    """The ids of what is there, after an append to a copy that the archive has left behind."""
    tiers = Tiers()
    rows = MemorySessions(tiers.hot if beside else None)

    def a_process() -> RowSessions:
        return RowSessions(rows, tiers.worker())

    async def go_cold() -> int:
        threads = tiers.worker()
        epoch = (await threads.read_facts("s")).epoch
        await threads.flush(FlushThread("s", epoch))
        assert await threads.evict("s", epoch) == "dropped"
        return epoch

    first, second = a_process(), a_process()
    await first.create_session("s")
    await first.append_messages("s", [said("one")])
    await tiers.worker().hydrate("s", await go_cold())
    old = tiers.hot.backup()
    await second.append_messages("s", [said("two")])
    await go_cold()
    tiers.hot.restore(old)
    await append(first, "three")
    if goes_on:
        await a_process().append_messages("s", [said("four")])
    page = await a_process().get_messages("s")
    return [message.id for message in page.messages]


@pytest.mark.parametrize("append", [append_unnamed, append_by_operation, commit_a_step])
@pytest.mark.parametrize("beside", [False, True], ids=["apart", "beside"])
async def test_what_is_acknowledged_on_an_old_copy_is_kept(append: Append, beside: bool) -> None:
    """The archive has gone on meanwhile: the append counts behind all of it."""
    assert await _append_to_old_copy(append, beside=beside) == ["one", "two", "three", "four"]


async def test_an_old_copy_is_believed_where_nobody_asks_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test before this one proves nothing."""

    async def believe(*_: Any) -> None:
        return

    monkeypatch.setattr(TieredThreads, "confirm_step", believe)
    found = await _append_to_old_copy(append_unnamed, beside=False, goes_on=False)
    assert found != ["one", "two", "three"]


class _DeafBlobs(FaultyBlobs):
    """The next GET is not answered, where it is told so."""

    is_deaf = False

    async def get(self, key: str, **how: Any) -> Any:
        """As `BlobStore.get`."""
        if self.is_deaf:
            self.is_deaf = False
            raise StoreUnavailableError("no answer")
        return await super().get(key, **how)


@pytest.mark.parametrize("names", [("three",), ("three", "four")], ids=["as long", "longer"])
async def test_what_an_append_left_in_an_old_copy_is_not_found_there(names: tuple[str, ...]) -> None:
    """It was not told whether the copy is an old one, as the archive did not answer, and is repeated."""
    tiers, rows = Tiers(), MemorySessions()
    blobs = _DeafBlobs(tiers.bucket)
    store = RowSessions(rows, TieredThreads(tiers.hot, blobs))
    await store.create_session("s")
    await store.append_messages("s", [said("one")])
    epoch = (await tiers.threads.read_facts("s")).epoch
    await tiers.threads.flush(FlushThread("s", epoch))
    assert await tiers.threads.evict("s", epoch) == "dropped"
    await tiers.worker().hydrate("s", epoch)
    old = tiers.hot.backup()
    await RowSessions(rows, tiers.worker()).append_messages("s", [said("two")])
    await tiers.threads.flush(FlushThread("s", epoch))
    tiers.hot.restore(old)
    blobs.is_deaf = True
    with pytest.raises(StoreUnavailableError):
        await store.append_messages("s", list(map(said, names)))
    await store.append_messages("s", list(map(said, names)))
    page = await RowSessions(rows, tiers.worker()).get_messages("s")
    assert [message.id for message in page.messages] == ["one", "two", *names]


class _SlowBlobs(FaultyBlobs):
    """Requests of one kind arrive once they may."""

    def __init__(self, bucket: BlobStore, kind: str = "put") -> None:
        super().__init__(bucket)
        self._kind = kind
        self.begun, self.arrives = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, data: bytes, **how: Any) -> str:
        """As `BlobStore.put`."""
        await self._wait("put")
        return await super().put(key, data, **how)

    async def get(self, key: str, **how: Any) -> Any:
        """As `BlobStore.get`."""
        await self._wait("get")
        return await super().get(key, **how)

    async def _wait(self, kind: str) -> None:
        if kind == self._kind:
            self.begun.set()
            await self.arrives.wait()


async def append_after_a_change(store: RowSessions, name: str) -> None:
    """What the session is by now is written beside the thread, which then is hot."""
    await store.merge_custom_state("s", MergeChanges(values={"k": name}))
    await store.append_messages("s", [said(name)])


async def begin_by_program(store: RowSessions, _: Tiers) -> None:
    """Nobody else has had the session."""
    await store.append_messages("s", [said("one")])


async def begin_by_workflow(_: RowSessions, tiers: Tiers) -> None:
    """A session workflow had it, and has left it as it was."""
    opened = await tiers.threads.open(OpenThread("s", 1000, "run"))
    row = encode_message(said("one"))
    await tiers.threads.append(StepAppend("s", 1000, opened.header.head, (row,), commits=True))


async def _append_after_a_wipe(append: Append, begin: Begin, slow: str, *, known: bool = True) -> list[str]:
    """The ids of what is there, where what the wipe took comes to the archive late."""
    tiers, rows = Tiers(), MemorySessions()
    store, blobs = RowSessions(rows, tiers.worker()), _SlowBlobs(tiers.bucket, slow)
    await store.create_session("s")
    await begin(store, tiers)
    epoch = (await tiers.threads.read_facts("s")).epoch
    await tiers.threads.flush(FlushThread("s", epoch))
    lost = store if known else RowSessions(rows, tiers.worker())
    await lost.append_messages("s", [said("lost"), said("lost as well")])
    late = asyncio.create_task(TieredThreads(tiers.hot, blobs).flush(FlushThread("s", epoch)))
    await blobs.begun.wait()
    tiers.wipe()
    await append(store, "two")
    blobs.arrives.set()
    with suppress(FencedError):
        await late
    await tiers.worker().evict("s", (await tiers.worker().read_facts("s")).epoch)
    await RowSessions(rows, tiers.worker()).append_messages("s", [said("three")])
    page = await RowSessions(rows, tiers.worker()).get_messages("s")
    return [message.id for message in page.messages]


@pytest.mark.parametrize(
    "append", [append_unnamed, append_by_operation, append_after_a_change, commit_a_step]
)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("begin", [begin_by_program, begin_by_workflow])
@pytest.mark.parametrize("slow", ["put", "get"])
async def test_what_a_wipe_took_does_not_replace_what_was_appended_since(
    append: Append, known: bool, begin: Begin, slow: str
) -> None:
    """It was on its way to the archive as Redis was wiped, and came there late."""
    assert await _append_after_a_wipe(append, begin, slow, known=known) == ["one", "two", "three"]


async def test_it_does_where_the_manifest_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test before this one proves nothing."""

    async def leave(_: Archive, stored: Stored) -> Stored:
        return stored

    monkeypatch.setattr(Archive, "renew_manifest", leave)
    assert "two" not in await _append_after_a_wipe(append_unnamed, begin_by_program, "put")


async def test_a_step_that_a_wipe_took_is_not_archived_in_the_place_of_the_next() -> None:
    """Its worker appends both, and archives the first one last."""
    tiers = Tiers()
    threads = tiers.threads
    opened = await threads.open(OpenThread("t", 1000, "run"))
    one, two, *lost = (encode_message(said(name)) for name in ("one", "two", "lost", "lost as well"))
    first = StepAppend("t", 1000, opened.header.head, (one,), commits=True)
    head = (await threads.append(first)).head
    await threads.flush(FlushThread("t", 1000))
    taken = StepAppend("t", 1000, head, tuple(lost), commits=True)
    appended = await threads.append(taken)
    tiers.wipe()
    step = StepAppend("t", 1000, head, (two,), commits=True)
    await threads.confirm_step(step, await threads.append(step))
    with suppress(HeadMovedError):
        await threads.archive_step(taken, appended)
    await threads.flush(FlushThread("t", 1000))
    page = await tiers.worker().read(ReadPage("t", limit=10))
    assert [message.id for message in page.messages] == ["one", "two"]


async def test_an_open_that_is_repeated_refuses_what_a_wipe_took() -> None:
    """It makes the thread hot again, as its first answer was lost."""
    tiers = Tiers()
    slow = _SlowBlobs(tiers.bucket)
    request = OpenThread("t", 1000, "run")
    opened = await tiers.threads.open(request)
    await tiers.threads.flush(FlushThread("t", 1000))
    lost = tuple(encode_message(said(name)) for name in ("lost", "lost as well"))
    await tiers.threads.append(StepAppend("t", 1000, opened.header.head, lost, commits=True))
    late = asyncio.create_task(TieredThreads(tiers.hot, slow).flush(FlushThread("t", 1000)))
    await slow.begun.wait()
    tiers.wipe()
    again = await tiers.worker().open(request)
    step = StepAppend("t", 1000, again.header.head, (encode_message(said("one")),), commits=True)
    await tiers.threads.confirm_step(step, await tiers.threads.append(step))
    slow.arrives.set()
    await late
    page = await tiers.worker().read(ReadPage("t", limit=10))
    assert [message.id for message in page.messages] == ["one"]


class _AppendsAtOnce:
    """Somebody appends to a hot thread as soon as it is there; then the write arrives that is under way."""

    def __init__(self, hot: HotTier, arrive: Callable[[], Awaitable[object]]) -> None:
        self._hot, self._arrive = hot, arrive
        self.acknowledged = list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hot, name)

    async def install(self, header: HotHeader, messages: Any, *, replace: bool) -> HotHeader:
        """As `HotTier.install`."""
        made = await self._hot.install(header, messages, replace=replace)
        if not self.acknowledged:
            added = encode_message(said("added"))
            with suppress(FencedError):
                await self._hot.append(StepAppend("t", made.epoch, made.head, (added,), commits=True))
                self.acknowledged.append(added.id)
            await self._arrive()
        return made


async def test_an_epoch_that_an_open_has_shut_takes_no_append_where_another_open_makes_it_hot() -> None:
    """The first open's swap is under way, and does not know of what is added meanwhile."""
    tiers = Tiers()
    slow = _SlowBlobs(tiers.bucket)
    await tiers.threads.open(OpenThread("t", 1000, "w"))
    await tiers.threads.flush(FlushThread("t", 1000))
    first = asyncio.create_task(TieredThreads(tiers.hot, slow).open(OpenThread("t", 2000, "w")))
    await slow.begun.wait()
    assert await tiers.worker().evict("t", 1000) == "dropped"

    async def arrive() -> None:
        slow.arrives.set()
        await first

    hot = _AppendsAtOnce(tiers.hot, arrive)
    await TieredThreads(cast("HotTier", hot), tiers.bucket).open(OpenThread("t", 3000, "w"))
    page = await tiers.worker().read(ReadPage("t", limit=10))
    assert [message.id for message in page.messages] == hot.acknowledged
