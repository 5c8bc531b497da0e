"""Passes over all threads: what the sweep and the upkeep of the archive cost, and how that grows."""

import asyncio
import hashlib
import math
import multiprocessing
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from bench._blobs import CountingBlobs
from bench._lab import Lab
from bench._report import Row, told
from bench.append import EPOCH, append_all, open_thread
from helix_temporal._retries import repeat_unanswered
from helix_temporal.backends import Backends
from helix_temporal.coldtier import TieredThreads
from helix_temporal.coldtier.format import Manifest, decode_manifest, encode_manifest
from helix_temporal.models.maintenance import ARCHIVE_PARTS, KeepPartInput, SweepInput
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.stores.threads.keep import keep_part
from helix_temporal.stores.threads.sweep import sweep_threads

_SIDE_BY_SIDE: Final = 64
_VERIFIED: Final = 1_000
"""One of so many threads is made by the store itself; the others are like it."""
_CHANGED: Final = 100
"""One of so many threads has changed since the last upkeep."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass took, in a process of its own."""

    seconds: float
    requests: int
    megabytes: float
    seen: int


async def passes(lab: Lab) -> list[Row]:
    """Both passes at sizes that grow tenfold."""
    return [*await _sweeps(lab), *await _upkeep(lab)]


async def _sweeps(lab: Lab) -> list[Row]:
    settings = lab.own()
    found: dict[int, Pass] = {}
    there = 0
    for count in lab.sizes.threads:
        lab.say(f"passes: {count:,} threads in Redis, all archived")
        await _fill_hot(lab, settings, there, count)
        there = count
        found[count] = await _apart(_sweep, settings)
    largest = max(found)
    # The bar is for this size.
    at_most = 5.0 if largest == 100_000 else None
    return [
        told(
            f"sweep: {largest:,} hot threads, nothing to do",
            "s",
            [found[largest].seconds],
            at_most=at_most,
            note="one activity, so one action and its heartbeats",
        ),
        *_growth("sweep", found),
    ]


async def _upkeep(lab: Lab) -> list[Row]:
    settings = lab.own()
    found: dict[int, Pass] = {}
    there = 0
    for count in lab.sizes.threads:
        lab.say(f"passes: {count:,} threads in S3")
        await _fill_cold(lab, settings, there, count)
        there = count
        # The store dates objects to the second.
        await asyncio.sleep(2)
        since = math.floor(time.time())
        await _change(settings, count)
        found[count] = await _apart(_keep, settings, since)
        changed = len(range(0, count, _CHANGED))
        if found[count].seen < changed:
            raise RuntimeError(f"{changed} threads changed, and {found[count].seen} were looked at")
        lab.say(f"passes: {count:,} threads kept in {found[count].seconds:.1f} s")
    largest = max(found)
    last = found[largest]
    name = f"upkeep: {largest:,} archived threads, 1 % changed"
    note = f"{last.seen:,} looked at; {ARCHIVE_PARTS} actions and their heartbeats"
    return [
        told(name, "s", [last.seconds], at_most=600.0, note=note),
        told(
            f"{name}: requests to S3",
            "requests",
            [float(last.requests)],
            at_most=12_000,
            note="1,000 objects a listing",
        ),
        told(f"{name}: memory", "MB", [last.megabytes], at_most=300, note="largest of the whole process"),
        *_growth("upkeep", found),
    ]


def _growth(name: str, found: dict[int, Pass]) -> list[Row]:
    """The exponent of the time over the number of threads, by least squares of the logarithms."""
    sizes, times = list(found), [found[count].seconds for count in found]
    logs = [math.log(each) for each in sizes], [math.log(each) for each in times]
    slope, intercept = statistics.linear_regression(*logs)
    pairs = list(zip(sizes, times, strict=True))
    off = max(abs(took / math.exp(intercept + slope * math.log(size)) - 1) for size, took in pairs)
    took = ", ".join(f"{size:,}: {took:.2f} s" for size, took in pairs)
    note = f"{took}; off the fit by {off:.0%} at most"
    return [
        told(
            f"{name}: how the time grows with the number of threads",
            "exponent",
            [slope],
            at_most=1.05,
            note=note,
        )
    ]


async def _apart(run: Callable[..., Any], *arguments: Any) -> Pass:
    """In a fresh process: its memory is the pass' own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, run, *arguments)


def _sweep(settings: Settings) -> Pass:
    return asyncio.run(_measure_sweep(settings))


async def _measure_sweep(settings: Settings) -> Pass:
    backends = Backends(settings)
    try:
        began = time.perf_counter()
        found = await sweep_threads(backends.hot, backends.threads, SweepInput())
        took = time.perf_counter() - began
    finally:
        await backends.close()
    if found.clean != found.seen:
        raise RuntimeError(f"{found.seen} threads of which {found.clean} had nothing to do: all expected")
    return Pass(took, 0, _megabytes(), found.seen)


def _keep(settings: Settings, since: float) -> Pass:
    return asyncio.run(_measure_keep(settings, since))


async def _measure_keep(settings: Settings, since: float) -> Pass:
    """As the workflow does it: one part after the other."""
    backends = Backends(settings)
    assert backends.blobs is not None
    blobs = CountingBlobs(backends.blobs)
    upkeep = TieredThreads(backends.hot, blobs, prefix=settings.s3_prefix).upkeep
    seen = 0
    try:
        began = time.perf_counter()
        for part in range(ARCHIVE_PARTS):
            seen += (await keep_part(upkeep, KeepPartInput(part=part, since=since))).seen
        took = time.perf_counter() - began
    finally:
        await backends.close()
    return Pass(took, blobs.requests, _megabytes(), seen)


def _megabytes() -> float:
    """The most memory of this process; ``ru_maxrss`` is handed on by its starter (getrusage(2))."""
    found = re.search("VmHWM:(.*) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def _fill_hot(lab: Lab, settings: Settings, begin: int, end: int) -> None:
    """Threads in Redis of one step each, all of it archived: one of a thousand by the store itself.

    Raises:
        RuntimeError: One that was copied is not read as the one that it was copied from.
    """
    backends, step = Backends(settings), lab.words.steps(1)
    connection = RedisConnection(str(settings.redis_url), prefix=settings.redis_prefix)

    async def make(number: int) -> None:
        thread_id = f"t{number}"
        await open_thread(backends.hot, thread_id)
        await append_all(backends.hot, thread_id, step)
        header = await backends.hot.read_header(thread_id)
        assert header is not None
        await backends.hot.mark_archived(thread_id, header.place)

    async def copy(pattern: int) -> None:
        fields = await connection.send_command("HGETALL", connection.key_of(f"t{pattern}"))
        copies = range(pattern + 1, min(pattern + _VERIFIED, end))
        await connection.send_pipeline([_copy_hot(connection, fields, f"t{each}") for each in copies])
        first, like = [await backends.hot.read_header(f"t{each}") for each in (pattern, *copies[:1])]
        if first is None or like != replace(first, thread_id=f"t{pattern + 1}"):
            raise RuntimeError(f"thread t{pattern + 1}: {first} expected, {like} found")

    try:
        await _in_groups(range(begin, end, _VERIFIED), make)
        for pattern in range(begin, end, _VERIFIED):
            await copy(pattern)
    finally:
        await connection.close()
        await backends.close()


def _copy_hot(connection: RedisConnection, fields: dict[bytes, bytes], thread_id: str) -> list[Any]:
    """The command that writes a thread with another's fields; the checksum is as in `_thread.lua`."""
    header = [fields[bytes([name])] for name in b"encbvzyfguxdrkolpaq"]
    named = thread_id.encode()
    checked = hashlib.sha1(b"\0".join([*header, named])).hexdigest()[:8]
    copied = fields | {b"i": named, b"h": checked.encode()}
    return ["HSET", connection.key_of(thread_id), *chain.from_iterable(copied.items())]


async def _fill_cold(lab: Lab, settings: Settings, begin: int, end: int) -> None:
    """Threads in S3 of two messages each: by our encoder, and one of a thousand by the store itself.

    Raises:
        RuntimeError: One of those is not what it should be.
    """
    backends = Backends(settings)
    threads = backends.tiered
    assert threads is not None
    messages = lab.words.thread(2)
    pattern = await _make_pattern(threads, f"pattern-{begin}", messages)

    async def make(number: int) -> None:
        thread_id = f"t{number}"
        if number % _VERIFIED == 0:
            await _make_real(threads, thread_id, messages)
        else:
            await _put(threads, replace(pattern, thread_id=thread_id))

    async def verify(number: int) -> None:
        found = await threads.upkeep.audit(f"t{number}")
        if found.problems:
            raise RuntimeError(f"thread t{number}: {found.problems}")

    try:
        await _in_groups(range(begin, end), make)
        # Those made by the encoder next to them, too.
        await _in_groups([at + more for at in range(begin, end, _VERIFIED) for more in (0, 1)], verify)
    finally:
        await backends.close()


async def _make_pattern(
    threads: TieredThreads, thread_id: str, messages: tuple[StoredMessage, ...]
) -> Manifest:
    """The manifest of a thread that the store made."""
    await _make_real(threads, thread_id, messages)
    blob = await threads.blobs.get(threads.layout.manifest_key(thread_id))
    assert blob is not None
    manifest = decode_manifest(thread_id, blob.data)
    await threads.delete(thread_id, EPOCH + 1)
    return manifest


async def _make_real(threads: TieredThreads, thread_id: str, messages: tuple[StoredMessage, ...]) -> None:
    await threads.open(OpenThread(thread_id, EPOCH, "bench", messages=messages))
    await threads.hot.drop(thread_id, EPOCH)


async def _change(settings: Settings, count: int) -> None:
    """Write the archive of one thread of a hundred again, as a turn does."""
    backends = Backends(settings)
    threads = backends.tiered
    assert threads is not None

    async def change(number: int) -> None:
        key = threads.layout.manifest_key(f"t{number}")
        blob = await threads.blobs.get(key)
        assert blob is not None
        manifest = decode_manifest(f"t{number}", blob.data)
        await _put(threads, replace(manifest, version=manifest.version + 1))

    try:
        await _in_groups(range(0, count, _CHANGED), change)
    finally:
        await backends.close()


async def _put(threads: TieredThreads, manifest: Manifest) -> None:
    key, data = threads.layout.manifest_key(manifest.thread_id), encode_manifest(manifest)
    await threads.blobs.put(key, data)


async def _in_groups(numbers: Sequence[int], make: Callable[[int], Awaitable[None]]) -> None:
    """Some side by side, each taking the next number."""
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            # A million are put: the server pauses at times.
            await repeat_unanswered(partial(make, number))

    await asyncio.gather(*(work() for _ in range(_SIDE_BY_SIDE)))
