"""What comes late: an old copy into Redis, from a worker that was slow to read it; a write to the archive."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from helix_temporal.blobs import BlobStore
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import FencedError
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.states import MergeChanges
from helix_temporal.stores.memory import MemorySessions
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.faults import FaultyBlobs
from tests.unit.coldtier._tiers import Tiers

Append = Callable[[RowSessions, str], Awaitable[object]]


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


async def _append_to_old_copy(append: Append, *, beside: bool) -> list[str]:
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
    assert "three" not in await _append_to_old_copy(append_unnamed, beside=False)


class _SlowBlobs(FaultyBlobs):
    """Writes arrive once they may."""

    def __init__(self, bucket: BlobStore) -> None:
        super().__init__(bucket)
        self.begun, self.arrives = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, data: bytes, **how: Any) -> str:
        """As `BlobStore.put`."""
        self.begun.set()
        await self.arrives.wait()
        return await super().put(key, data, **how)


async def append_after_a_change(store: RowSessions, name: str) -> None:
    """What the session is by now is written beside the thread, which then is hot."""
    await store.merge_custom_state("s", MergeChanges(values={"k": name}))
    await store.append_messages("s", [said(name)])


@pytest.mark.parametrize("append", [append_unnamed, append_by_operation, append_after_a_change])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
async def test_what_a_wipe_took_does_not_replace_what_was_appended_since(append: Append, known: bool) -> None:
    """It was on its way to the archive as Redis was wiped, and came there late."""
    tiers, rows = Tiers(), MemorySessions()
    store, slow = RowSessions(rows, tiers.worker()), _SlowBlobs(tiers.bucket)
    await store.create_session("s")
    await store.append_messages("s", [said("one")])
    epoch = (await tiers.threads.read_facts("s")).epoch
    await tiers.threads.flush(FlushThread("s", epoch))
    lost = store if not known else RowSessions(rows, tiers.worker())
    await lost.append_messages("s", [said("lost"), said("lost as well")])
    late = asyncio.create_task(TieredThreads(tiers.hot, slow).flush(FlushThread("s", epoch)))
    await slow.begun.wait()
    tiers.wipe()
    await append(store, "two")
    slow.arrives.set()
    with suppress(FencedError):
        await late
    await tiers.worker().evict("s", (await tiers.worker().read_facts("s")).epoch)
    await store.append_messages("s", [said("three")])
    page = await RowSessions(rows, tiers.worker()).get_messages("s")
    assert [message.id for message in page.messages] == ["one", "two", "three"]
