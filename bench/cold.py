"""The cold tier: hydrate whole and by its tail, and flush after one new turn."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench._bare_stores import redis_client, s3_client
from bench._blobs import CountingBlobs
from bench._lab import Lab, in_turns, per
from bench._report import Row, compared, told
from bench.append import EPOCH
from helix_temporal.backends import Backends
from helix_temporal.coldtier import TieredThreads
from helix_temporal.models.stored_messages import Head, StoredMessage, pack_messages, size_of
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus, OpenThread

_FIELD_MESSAGES = 32
"""Messages in one field of the bare write: as many bytes as ours has in one."""


@dataclass(slots=True)
class Tier:
    """The two tiers of one benchmark, and what passes between them."""

    settings: Settings
    backends: Backends
    threads: TieredThreads
    blobs: CountingBlobs

    def key(self, thread_id: str) -> str:
        """The thread's key in Redis."""
        return f"{self.settings.redis_prefix}{{{thread_id}}}"

    async def fill(self, thread_id: str, messages: Sequence[StoredMessage]) -> Head:
        """A thread of so many messages, all archived; hot are the newest."""
        request = OpenThread(thread_id, EPOCH, "bench", messages=tuple(messages))
        return (await self.threads.open(request)).header.head


@contextlib.asynccontextmanager
async def tier(lab: Lab) -> AsyncIterator[Tier]:
    """Both tiers under names of their own; every blob operation is counted."""
    settings = lab.own()
    backends = Backends(settings)
    assert backends.blobs is not None
    blobs = CountingBlobs(backends.blobs)
    try:
        yield Tier(settings, backends, TieredThreads(backends.hot, blobs, prefix=settings.s3_prefix), blobs)
    finally:
        await backends.close()


async def hydrate(lab: Lab) -> list[Row]:
    """Every message of a thread from S3 into Redis, against the bare GETs and one bulk write."""
    messages = lab.words.thread(lab.sizes.hydrated)
    async with tier(lab) as ours, s3_client(ours.settings) as s3:
        redis = redis_client(ours.settings)
        await ours.fill("whole", messages)
        names = [info.key async for info in ours.backends.blobs.list(ours.settings.s3_prefix)]  # type: ignore[union-attr]
        fields, write = _fields(messages), _untyped(redis.hset)

        async def helix() -> float:
            spent = 0.0
            for _ in range(lab.sizes.hydrates):
                await redis.unlink(ours.key("whole"))
                started = time.perf_counter()
                await ours.threads.hydrate_whole("whole", EPOCH)
                spent += time.perf_counter() - started
            return spent / lab.sizes.hydrates

        async def bare() -> float:
            spent, key = 0.0, f"{ours.settings.redis_prefix}bare"
            for _ in range(lab.sizes.hydrates):
                await redis.unlink(key)
                started = time.perf_counter()
                await asyncio.gather(*(_get(s3, ours.settings, name) for name in names))
                await write(key, mapping=fields)
                spent += time.perf_counter() - started
            return spent / lab.sizes.hydrates

        try:
            found = await in_turns(lab, "hydrate", {"ours": helix, "floor": bare})
        finally:
            await redis.unlink(ours.key("whole"), f"{ours.settings.redis_prefix}bare")
            await redis.aclose()
    name = f"hydrate {lab.sizes.hydrated:,} messages"
    note = f"{len(names)} objects"
    return [compared(name, "ms", per(found["ours"], 1e3), per(found["floor"], 1e3), at_most=1.6, note=note)]


def _untyped(method: Any) -> Any:
    """The driver's stubs are wrong about what is awaited."""
    return method


def _fields(messages: Sequence[StoredMessage]) -> dict[str, bytes]:
    starts = range(0, len(messages), _FIELD_MESSAGES)
    return {str(at): pack_messages(messages[at : at + _FIELD_MESSAGES]) for at in starts}


async def _get(client: Any, settings: Settings, name: str) -> bytes:
    answer = await client.get_object(Bucket=settings.s3_bucket, Key=name)
    data: bytes = await answer["Body"].read()
    return data


async def tail(lab: Lab) -> list[Row]:
    """Opening a long thread reads its newest part only."""
    short, long = lab.sizes.tails
    async with tier(lab) as ours:
        redis = redis_client(ours.settings)
        for count in (short, long):
            lab.say(f"tail: a thread of {count:,} messages")
            await ours.fill(f"tail-{count}", lab.words.thread(count))

        async def one(thread_id: str) -> float:
            times = []
            for _ in range(lab.sizes.tail_hydrates):
                await redis.unlink(ours.key(thread_id))
                started = time.perf_counter()
                await ours.threads.hydrate(thread_id, EPOCH)
                times.append(time.perf_counter() - started)
            return statistics.median(times)

        try:
            contestants = {"long": lambda: one(f"tail-{long}"), "short": lambda: one(f"tail-{short}")}
            found = await in_turns(lab, "tail", contestants)
        finally:
            await redis.aclose()
    name = f"tail hydrate of {long:,} messages, against {short:,}"
    return [compared(name, "ms", per(found["long"], 1e3), per(found["short"], 1e3), at_most=2.0)]


async def flush(lab: Lab) -> list[Row]:
    """Archiving one new turn costs the same however long the thread is."""
    sizes = lab.sizes.flushed
    async with tier(lab) as ours:
        heads = {}
        for count in sizes:
            lab.say(f"flush: a thread of {count:,} messages")
            heads[count] = await ours.fill(f"flush-{count}", lab.words.thread(count))
        times = await _flush_rounds(lab, ours, heads)
        rows = [told(f"flush after a turn at {sizes[0]:,} messages", "ms", times[sizes[0]])]
        rows += [
            compared(f"flush after a turn at {count:,}", "ms", times[count], times[sizes[0]], at_most=1.5)
            for count in sizes[1:]
        ]
        middle = sizes[len(sizes) // 2]
        return [*rows, *await _long_run(lab, ours, f"flush-{middle}", heads[middle])]


async def _flush_rounds(lab: Lab, ours: Tier, heads: dict[int, Head]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {count: [] for count in heads}
    for number in range(lab.sizes.rounds + 1):
        lab.say(f"flush: {'warm-up' if number == 0 else f'round {number} of {lab.sizes.rounds}'}")
        times: dict[int, list[float]] = {count: [] for count in heads}
        for user, answer in lab.words.steps(lab.sizes.flushes):
            for count, head in heads.items():
                step = StepAppend(f"flush-{count}", EPOCH, head, (user,), answer, commits=True)
                heads[count], spent, _ = await _turn(ours, step)
                times[count].append(spent * 1e3)
        if number:
            for count, each in times.items():
                found[count].append(statistics.median(each))
    return found


async def _turn(ours: Tier, step: StepAppend) -> tuple[Head, float, FlushReceipt]:
    """Append, then flush; only the flush is timed."""
    appended = await ours.threads.append(step)
    started = time.perf_counter()
    receipt = await ours.threads.archive_step(step, appended)
    spent = time.perf_counter() - started
    assert receipt.status is FlushStatus.ARCHIVED, receipt.reason
    return appended.head, spent, receipt


async def _long_run(lab: Lab, ours: Tier, thread_id: str, head: Head) -> list[Row]:
    count = lab.sizes.long_run
    lab.say(f"flush: {count:,} in a row")
    ours.blobs.reset()
    receipts, new = [], 0
    for user, answer in lab.words.steps(count):
        step = StepAppend(thread_id, EPOCH, head, (user,), answer, commits=True)
        head, _, receipt = await _turn(ours, step)
        receipts.append(receipt)
        new += size_of((user, answer))
    uploaded = sum(receipt.uploaded for receipt in receipts) / count
    puts = sum(receipt.puts for receipt in receipts) / count
    gets = sum(receipt.gets for receipt in receipts) / count
    by, traffic = f"mean of {count:,}", ours.blobs
    limit = 2 * new / count + 12 * 1024
    return [
        told("flush: bytes uploaded", "B", [uploaded], floor=new / count, at_most=round(limit), note=by),
        told("flush: PUTs", "PUT", [puts], at_most=1.15, note=by),
        told("flush: GETs", "GET", [gets], at_most=0, note=by),
        told("compaction: bytes uploaded a flush", "B", [traffic.uploaded / count - uploaded], note=by),
        told("compaction: PUTs a flush", "PUT", [traffic.puts / count - puts], note=by),
        told("compaction: GETs a flush", "GET", [traffic.gets / count - gets], note=by),
    ]
