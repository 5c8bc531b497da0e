"""A hot tier that fails as Redis does: lost replies, scripts that run late, memory wiped or rolled back."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    ScannedPage,
    StepAppend,
    StepView,
)
from tests.simulation._log import Log
from tests.simulation._world import World, attempt_of, run_now

Effect = Callable[[], Awaitable[Any]]


class SimHot:
    """`HotTier` over `MemoryThreads`, seen through a bad network."""

    def __init__(self, world: World, inner: MemoryThreads, log: Log) -> None:
        self._world, self.inner, self._log = world, inner, log

    async def _call(self, name: str, effect: Effect, *, writes: bool) -> Any:
        world, rates = self._world, self._world.rates
        await world.boundary()
        luck = 1.0 if world.calm else world.draw()
        if luck < rates.transient:
            raise StoreUnavailableError(f"hot tier: {name} timed out before it was sent")
        luck -= rates.transient
        if writes and luck < rates.late_script:
            world.later(world.between(0.001, 10.0), lambda: self._late(name, effect))
            raise StoreUnavailableError(f"hot tier: {name} timed out")
        luck -= rates.late_script
        lost = luck < rates.reply_lost
        result: Any = None
        result = None
        try:
            result = run_now(effect())
        except HelixError as error:
            if world.trace:
                world.say(f"hot.{name} -> {type(error).__name__}")
            if not lost:
                raise
        else:
            if world.trace:
                world.say(f"hot.{name} -> {_brief(result)}")
        if lost:
            world.note("script, reply lost", name)
            raise StoreUnavailableError(f"hot tier: no reply to {name}")
        await world.boundary()
        return result

    def _late(self, name: str, effect: Effect) -> None:
        self._world.note("late script", name)
        try:
            run_now(effect())
        except HelixError as error:
            self._world.say(f"late {name} refused: {type(error).__name__}")

    # -- reads

    async def read_header(self, thread_id: str) -> HotHeader | None:
        return await self._call("read_header", lambda: self.inner.read_header(thread_id), writes=False)  # type: ignore[no-any-return]

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        return await self._call(  # type: ignore[no-any-return]
            "read_snapshot", lambda: self.inner.read_snapshot(thread_id, since), writes=False
        )

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        return await self._call("read_page", lambda: self.inner.read_page(thread_id, wanted), writes=False)  # type: ignore[no-any-return]

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        return await self._call(  # type: ignore[no-any-return]
            "step_view",
            lambda: self.inner.step_view(
                thread_id, head, after=after, limit=limit, max_bytes=max_bytes, ids=ids
            ),
            writes=False,
        )

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        return await self._call(  # type: ignore[no-any-return]
            "scan_page", lambda: self.inner.scan_page(cursor, count), writes=False
        )

    # -- writes

    async def mark_archived(self, thread_id: str, place: str) -> None:
        await self._call("mark_archived", lambda: self.inner.mark_archived(thread_id, place), writes=True)

    async def append(self, step: StepAppend) -> Appended | None:
        async def effect() -> Appended | None:
            appended = await self.inner.append(step)
            if appended is not None:
                self._log.appended(step, appended)
            return appended

        attempt = attempt_of.get()
        if attempt is not None and attempt.unanswered:
            self._world.note("append tried again")
        try:
            return await self._call("append", effect, writes=True)  # type: ignore[no-any-return]
        except StoreUnavailableError:
            if attempt is not None:
                attempt.unanswered = True
            raise

    async def rebase(self, change: Rebase) -> HotHeader | None:
        return await self._call("rebase", lambda: self.inner.rebase(change), writes=True)  # type: ignore[no-any-return]

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        if header.base.position > 0:
            self._world.seen["hot: newest part only"] += 1

        async def effect() -> HotHeader:
            self._log.before_install(header)
            return await self.inner.install(header, messages, replace=replace)

        return await self._call("install", effect, writes=True)  # type: ignore[no-any-return]

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        async def effect() -> Eviction:
            self._log.before_evict(thread_id)
            outcome = await self.inner.evict(thread_id, epoch, archived, warm_ttl=warm_ttl)
            self._world.seen[f"evict: {outcome}"] += 1
            return outcome

        return await self._call("evict", effect, writes=True)  # type: ignore[no-any-return]

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        async def effect() -> HotHeader | None:
            before = await self.inner.read_header(thread_id)
            header = await self.inner.trim(thread_id, epoch, archived, keep_from)
            if header is not None and header != before:
                self._log.trimmed(header)
            return header

        return await self._call("trim", effect, writes=True)  # type: ignore[no-any-return]

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        await self._call("close_epoch", lambda: self.inner.close_epoch(thread_id, epoch), writes=True)

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        return await self._call(  # type: ignore[no-any-return]
            "save_slice", lambda: self.inner.save_slice(thread_id, epoch, data, expected_version), writes=True
        )

    async def drop(self, thread_id: str, epoch: int) -> None:
        await self._call("drop", lambda: self.inner.drop(thread_id, epoch), writes=True)

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        return await self.inner.drop_damaged(thread_id, archived, slice_)

    async def check(self) -> None:
        """Nothing to refuse."""

    async def close(self) -> None:
        """Nothing to give back."""


def _brief(result: object) -> str:
    header = getattr(result, "header", result)
    if isinstance(header, HotHeader):
        return (
            f"e{header.epoch % 10**9} {header.base.position}..{header.head.position}"
            f"({header.head.last_id}) committed {header.committed} slice {header.slice_version}"
            f"{' closed' if header.closed else ''}"
        )
    return str(result)[:80]
