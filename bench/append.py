"""Appending a step, and what a message costs in Redis."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench._bare_stores import PUSH, redis_client
from bench._lab import Lab, in_turns, per
from bench._report import Row, compared, told
from helix_temporal.backends import Backends
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, pack_messages
from helix_temporal.stores.protocols.hot import HotHeader, HotTier, Rebase, StepAppend

EPOCH = 1_800_000_000_000_000
Steps = Sequence[tuple[StoredMessage, StoredMessage]]


async def open_thread(hot: HotTier, thread_id: str) -> None:
    """An empty thread."""
    header = HotHeader(thread_id, EPOCH, "bench", born=EPOCH)
    assert await hot.rebase(Rebase(None, header, keep=0)) is not None


async def append_all(hot: HotTier, thread_id: str, steps: Steps, head: Head = EMPTY) -> Head:
    """Append each step at the head that the one before left."""
    for user, answer in steps:
        step = StepAppend(thread_id, EPOCH, head, (user,), answer, commits=True)
        appended = await hot.append(step)
        assert appended is not None
        head = appended.head
    return head


async def append(lab: Lab) -> list[Row]:
    """RedisThreads.append of a step of two messages of 1 KB, against one EVALSHA that pushes their bytes."""
    settings = lab.own()
    backends, client = Backends(settings), redis_client(settings)
    steps = lab.words.steps(lab.sizes.appends)
    packed = [pack_messages(step) for step in steps]
    sha: Any = await client.script_load(PUSH)
    counter = iter(range(1_000_000))

    async def ours() -> float:
        thread_id = f"append-{next(counter)}"
        await open_thread(backends.hot, thread_id)
        started = time.perf_counter()
        await append_all(backends.hot, thread_id, steps)
        spent = time.perf_counter() - started
        await client.delete(f"{settings.redis_prefix}{{{thread_id}}}")
        return spent / len(steps)

    async def floor() -> float:
        key = f"{settings.redis_prefix}floor-{next(counter)}"
        evalsha: Any = client.evalsha
        started = time.perf_counter()
        for at, data in enumerate(packed):
            await evalsha(sha, 1, key, str(2 * at), data)
        spent = time.perf_counter() - started
        await client.delete(key)
        return spent / len(packed)

    try:
        found = await in_turns(lab, "append", {"ours": ours, "floor": floor})
    finally:
        await asyncio.gather(backends.close(), client.aclose())
    return [
        compared(
            "append a step of 2 × 1 KB", "ms", per(found["ours"], 1e3), per(found["floor"], 1e3), at_most=2
        )
    ]


async def memory(lab: Lab) -> list[Row]:
    """Bytes that Redis takes for a message above its id and its body."""
    settings, count = lab.own(), lab.sizes.stored
    backends, client = Backends(settings), redis_client(settings)
    steps = lab.words.steps(count // 2)
    content = sum(len(message.id) + len(message.body) for step in steps for message in step)
    key = f"{settings.redis_prefix}{{memory}}"
    try:
        lab.say(f"memory: {count:,} messages of 1 KB")
        await open_thread(backends.hot, "memory")
        await append_all(backends.hot, "memory", steps)
        used: Any = await client.memory_usage(key, samples=0)
        await client.delete(key)
    finally:
        await asyncio.gather(backends.close(), client.aclose())
    over = (used - content) / count
    note = f"{count:,} messages appended in steps of 2"
    return [told("Redis: bytes a message above id and body", "B", [over], at_most=64, note=note)]
