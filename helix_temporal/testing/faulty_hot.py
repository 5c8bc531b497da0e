"""A hot tier that fails as told: before a call, after its effect, or with the effect coming late.

::

    memory = MemoryThreads()
    hot = FaultyHot(memory, fails(at=3, fault=Fault.ANSWER_LOST))
    ...
    memory.wipe()                       # a restart without a disk
    memory.restore(memory.backup())     # a failover to a replica that lags
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    HotTier,
    PageRange,
    Rebase,
    ScannedPage,
    StepAppend,
    StepView,
)

T = TypeVar("T")


class Fault(StrEnum):
    """What goes wrong with one call; to the caller all look the same."""

    ERROR_BEFORE = "error_before"
    """Nothing happens."""
    ANSWER_LOST = "answer_lost"
    """It happens, and the caller does not learn of it."""
    LATE = "late"
    """The caller gives up; it happens when `FaultyHot.land_late` is called."""


@dataclass(frozen=True, slots=True)
class HotCall:
    """One call: its number from 1 on, the method, and the thread (empty where it concerns none)."""

    number: int
    method: str
    thread_id: str


Plan = Callable[[HotCall], Fault | None]
"""Which fault hits a call, if any."""

Pause = Callable[[HotCall], Awaitable[None]]
"""What happens around a call, twice: a yield, a delay, mischief of a simulation."""


def fails(*, at: int, fault: Fault, method: str | None = None) -> Plan:
    """A plan with one fault: at the ``at``-th call, counting only those of ``method`` if given."""
    count = 0

    def plan(call: HotCall) -> Fault | None:
        nonlocal count
        count += method is None or call.method == method
        return fault if count == at and method in {None, call.method} else None

    return plan


async def a_yield(_call: HotCall) -> None:
    """Let other tasks run."""
    await asyncio.sleep(0)


class FaultyHot:
    """`HotTier` around another one.

    Args:
        inner: The one that does the work.
        plan: Asked once for each call; nothing fails without it.
        pause: Awaited before and after each call.

    Attributes:
        calls: All calls so far.
    """

    def __init__(self, inner: HotTier, plan: Plan | None = None, *, pause: Pause = a_yield) -> None:
        self.inner = inner
        self.calls: list[HotCall] = []
        self._plan = plan
        self._pause = pause
        self._late: list[Callable[[], Awaitable[object]]] = []

    async def land_late(self) -> int:
        """Let the effects of all late calls happen, in order; their answers are nobody's.  How many."""
        late, self._late = self._late, []
        for operation in late:
            try:
                await operation()
            except HelixError:
                continue  # a refusal is an answer, and nobody waits for it
        return len(late)

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        return await self._call("read_header", thread_id, lambda: self.inner.read_header(thread_id))

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        return await self._call(
            "read_snapshot", thread_id, lambda: self.inner.read_snapshot(thread_id, since)
        )

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        return await self._call("read_page", thread_id, lambda: self.inner.read_page(thread_id, wanted))

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        return await self._call(
            "step_view",
            thread_id,
            lambda: self.inner.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            ),
        )

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        return await self._call("append", step.thread_id, lambda: self.inner.append(step))

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        return await self._call("rebase", change.header.thread_id, lambda: self.inner.rebase(change))

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        return await self._call(
            "install", header.thread_id, lambda: self.inner.install(header, messages, replace=replace)
        )

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        return await self._call(
            "evict", thread_id, lambda: self.inner.evict(thread_id, epoch, archived, warm_ttl=warm_ttl)
        )

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        return await self._call(
            "trim", thread_id, lambda: self.inner.trim(thread_id, epoch, archived, keep_from)
        )

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._call("close_epoch", thread_id, lambda: self.inner.close_epoch(thread_id, epoch))

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        return await self._call(
            "save_slice",
            thread_id,
            lambda: self.inner.save_slice(thread_id, epoch, data, expected_version),
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        await self._call("drop", thread_id, lambda: self.inner.drop(thread_id, epoch))

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        return await self._call(
            "drop_damaged", thread_id, lambda: self.inner.drop_damaged(thread_id, archived, slice_)
        )

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`."""
        return await self._call("scan_page", "", lambda: self.inner.scan_page(cursor, count))

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        await self._call("mark_archived", thread_id, lambda: self.inner.mark_archived(thread_id, place))

    async def check(self) -> None:
        """See `HotTier.check`."""
        await self._call("check", "", self.inner.check)

    async def close(self) -> None:
        """See `HotTier.close`; never fails."""
        await self.inner.close()

    async def _call(self, method: str, thread_id: str, operation: Callable[[], Awaitable[T]]) -> T:
        call = HotCall(len(self.calls) + 1, method, thread_id)
        self.calls.append(call)
        fault = self._plan(call) if self._plan else None
        await self._pause(call)
        if fault is Fault.LATE:
            self._late.append(operation)
        if fault in {Fault.ERROR_BEFORE, Fault.LATE}:
            raise _unavailable(call)
        result = await operation()
        await self._pause(call)
        if fault is Fault.ANSWER_LOST:
            raise _unavailable(call)
        return result


def _unavailable(call: HotCall) -> StoreUnavailableError:
    return StoreUnavailableError(f"hot tier: call {call.number} ({call.method}) got no answer; repeat it")
