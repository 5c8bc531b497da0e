"""Three threads of one worker: the archive is in trouble for one of them, then for all, then well again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.blobs import Blob, BlobInfo
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import FlushStatus, OpenThread, ReadPage
from helix_temporal.testing.builders import a_message, an_answer
from tests.simulation._run import Verdict, run_seed
from tests.simulation._world import Trace, World, run_now

NAMES = ("troubled", "well", "fine")
STEP_SECONDS = 0.5
AWAY, BACK, SETTLED, OVER = 5.0, 10.0, 13.0, 15.0
"""When the archive goes away for all, when it is back, when all must be archived again, and the end."""
OPENED = AWAY + 1.5
"""All three have failed by then."""
MOST_TRIES = 5
"""Steps that may try an archive that is away, between `OPENED` and `BACK`: one a second."""


@dataclass
class _Step:
    thread_id: str
    began: float
    ids: tuple[str, str]
    archived: bool
    tried: bool


@dataclass
class _Blobs:
    """`BlobStore` that keeps the PUTs and GETs of some threads waiting, or refuses them."""

    world: World
    inner: MemoryBlobs
    begun: float
    tries: dict[str, int] = field(default_factory=dict)

    async def _meet(self, key: str) -> None:
        world, now = self.world, self.world.loop.time() - self.begun
        name = next(each for each in NAMES if f"/{each}/" in key)
        self.tries[name] = self.tries.get(name, 0) + 1
        is_away = AWAY <= now < BACK
        if is_away or (name == NAMES[0] and now < AWAY and world.chance(0.7)):
            world.note("archive away for all" if is_away else "archive in trouble for one")
            if world.chance(0.5):
                raise StoreUnavailableError(f"object store: {name}: 503")
            await asyncio.sleep(world.between(0.6, 4.0))
        await world.boundary()

    async def get(self, key: str) -> Blob | None:
        await self._meet(key)
        blob: Blob | None = run_now(self.inner.get(key))
        return blob

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        await self._meet(key)
        etag: str = run_now(self.inner.put(key, data, create=create, if_match=if_match))
        return etag

    async def copy(self, source: str, target: str) -> None:
        run_now(self.inner.copy(source, target))

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        async for info in self.inner.list(prefix):
            yield info

    async def delete(self, key: str) -> None:
        run_now(self.inner.delete(key))

    async def probe(self, prefix: str) -> None:
        """Nothing to prove."""

    async def close(self) -> None:
        """Nothing to give back."""


class _Neighbours:
    """The threads' lives, and the judgement."""

    def __init__(self, world: World) -> None:
        self._world, self._steps = world, list[_Step]()
        self._hot = MemoryThreads(clock=world.loop.time)
        self._inner, self._begun = MemoryBlobs(world.loop.time), world.loop.time()
        self._blobs = _Blobs(world, self._inner, self._begun)
        self._threads = self._worker(self._blobs)

    def _worker(self, blobs: Any) -> TieredThreads:
        clock = self._world.loop.time
        return TieredThreads(self._hot, blobs, clock=clock, step_seconds=STEP_SECONDS)

    async def run(self) -> None:
        """From the first open to the judgement."""
        await asyncio.gather(*(self._live(name) for name in NAMES))
        self._hot.wipe()
        self._judge_tries()
        await self._judge_archive()

    def _now(self) -> float:
        return self._world.loop.time() - self._begun

    async def _live(self, name: str) -> None:
        epoch = self._world.epoch()
        quiet = self._worker(self._inner)
        head = (await quiet.open(OpenThread(name, epoch, "exec"))).header.head
        while self._now() < OVER:
            await asyncio.sleep(self._world.between(0.3, 0.9))
            head = await self._step(name, epoch, head)

    async def _step(self, name: str, epoch: int, head: Head) -> Head:
        inputs, answer = (
            (a_message(message_id=f"{name}{head.position}"),),
            an_answer(message_id=f"{name}{head.position + 1}"),
        )
        step = StepAppend(name, epoch, head, inputs, answer, commits=True)
        appended = await self._threads.append(step)
        began, before = self._now(), self._blobs.tries.get(name, 0)
        receipt = await self._threads.archive_step(step, appended)
        archived = receipt.status is FlushStatus.ARCHIVED
        tried = self._blobs.tries.get(name, 0) > before
        ids = (inputs[0].id, answer.id)
        self._steps.append(_Step(name, began, ids, archived, tried))
        self._world.say(f"{name} at {began:.2f}: {receipt.status} {receipt.reason}")
        self._judge_step(self._steps[-1])
        return appended.head

    def _judge_step(self, step: _Step) -> None:
        is_apart = step.thread_id != NAMES[0] and step.began < AWAY - STEP_SECONDS
        if not step.archived and is_apart:
            self._world.fail(f"{step.thread_id} is not archived, since {NAMES[0]} is in trouble")
        if not step.archived and step.began > SETTLED:
            self._world.fail(f"{step.thread_id} is not archived, and the archive has long been well")

    def _judge_tries(self) -> None:
        tries = [each for each in self._steps if each.tried and OPENED < each.began < BACK]
        if len(tries) > MOST_TRIES:
            self._world.fail(f"{len(tries)} steps waited for an archive that answers nobody")

    async def _judge_archive(self) -> None:
        """A new worker reads what was said to be archived, without Redis."""
        reader = self._worker(self._inner)
        for name in NAMES:
            page = await reader.read(ReadPage(name, limit=1000))
            told = [each for step in self._steps if step.thread_id == name for each in step.ids]
            last = max((at for at, step in enumerate(self._of(name)) if step.archived), default=-1)
            found = [message.id for message in page.messages]
            if found[: 2 * (last + 1)] != told[: 2 * (last + 1)]:
                self._world.fail(f"{name}: {found} is archived, {told} was answered")

    def _of(self, name: str) -> list[_Step]:
        return [each for each in self._steps if each.thread_id == name]


def simulate_neighbours(
    seed: int, *, trace: Trace | None = None, broken: AbstractContextManager[Any] | None = None
) -> Verdict:
    """Run one seed; ``broken`` removes a guard of the code under test while it runs."""
    return run_seed(World(seed, trace=trace), lambda world: _Neighbours(world).run(), broken)
