"""An object store that fails as S3 does: lost replies, late PUTs, 412 to one's own success, outages."""

from collections.abc import AsyncIterator, Callable
from functools import partial

from helix_temporal.blobs import Blob, BlobInfo, ConditionFailedError
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.errors import StoreUnavailableError
from tests.simulation._log import Log
from tests.simulation._loop import settle
from tests.simulation._world import World, run_now


class SimBlobs:
    """`BlobStore` over `MemoryBlobs`, seen through a bad network.

    Args:
        conditional: False makes every PUT unconditional: what compare-and-swap protects from.
    """

    def __init__(self, world: World, inner: MemoryBlobs, log: Log, *, conditional: bool = True) -> None:
        self._world, self.inner, self._log, self.is_conditional = world, inner, log, conditional
        self.down_until = 0.0

    async def _begin(self, name: str) -> None:
        world = self._world
        await world.boundary()
        if world.calm:
            return
        now = world.loop.time()
        if now < self.down_until:
            raise StoreUnavailableError(f"object store: {name}: 503")
        luck = world.draw()
        if luck < world.rates.outage:
            self.down_until = now + world.between(0.01, 30.0)
            world.note("object store down", f"for {self.down_until - now:.2f} s")
            raise StoreUnavailableError(f"object store: {name}: 503")
        if luck < world.rates.outage + world.rates.transient:
            raise StoreUnavailableError(f"object store: {name}: connection refused")
        if luck < world.rates.outage + world.rates.transient + world.rates.slow:
            await self._slow(name)

    async def _slow(self, name: str) -> None:
        self._world.note("slow object store", name)
        wake = self._world.loop.create_future()
        self._world.later(self._world.between(0.01, 4.0), partial(settle, wake))
        await wake

    async def get(self, key: str) -> Blob | None:
        await self._begin("get")
        blob: Blob | None = run_now(self.inner.get(key))
        await self._end("get")
        if not self._world.calm and self._world.chance(self._world.rates.slow):
            await self._slow("get")
        return blob

    async def _end(self, name: str) -> None:
        if not self._world.calm and self._world.chance(self._world.rates.reply_lost):
            raise StoreUnavailableError(f"object store: no reply to {name}")
        await self._world.boundary()

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        await self._begin("put")
        world, rates = self._world, self._world.rates
        if not self.is_conditional and key.endswith("/manifest"):
            create, if_match = False, None
        effect = partial(self._put, key, data, create, if_match)
        luck = 1.0 if world.calm else world.draw()
        what = "manifest" if key.endswith("/manifest") else "object"
        if luck < rates.late_put:
            world.later(world.between(0.001, 10.0), partial(self._late, what, effect))
            raise StoreUnavailableError("object store: put timed out")
        luck -= rates.late_put
        try:
            etag = effect()
        except ConditionFailedError:
            world.note(f"412 on {what}")
            raise
        if luck < rates.false_412 and (create or if_match):
            world.note(f"412 to its own success, {what}")
            raise ConditionFailedError("412 after a re-sent request")
        luck -= rates.false_412
        if luck < rates.reply_lost:
            world.note(f"put of {what}, reply lost")
            raise StoreUnavailableError("object store: no reply to put")
        await world.boundary()
        return etag

    def _put(self, key: str, data: bytes, create: bool, if_match: str | None) -> str:
        etag: str = run_now(self.inner.put(key, data, create=create, if_match=if_match))
        self._log.stored(key, data)
        return etag

    def _late(self, what: str, effect: Callable[[], str]) -> None:
        try:
            effect()
        except ConditionFailedError:
            self._world.note(f"late put of {what}, refused")
        else:
            self._world.note(f"late put of {what}")

    async def copy(self, source: str, target: str) -> None:
        await self._begin("copy")
        run_now(self.inner.copy(source, target))
        self._log.stored(target, b"")
        await self._end("copy")

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        await self._begin("list")
        found = [info async for info in self.inner.list(prefix)]
        await self._end("list")
        for info in found:
            yield info

    async def delete(self, key: str) -> None:
        await self._begin("delete")
        world = self._world
        if not world.calm and world.chance(world.rates.late_put):
            world.later(world.between(0.001, 10.0), partial(self._delete, key))
            raise StoreUnavailableError("object store: delete timed out")
        self._delete(key)
        await self._end("delete")

    def _delete(self, key: str) -> None:
        if key in self.inner._blobs:
            run_now(self.inner.delete(key))
            self._log.deleted(key)

    async def probe(self, prefix: str) -> None:
        """Nothing to prove."""

    async def close(self) -> None:
        """Nothing to give back."""
