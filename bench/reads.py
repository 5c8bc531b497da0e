"""Reading a whole thread: from the stores, and by workflows."""

import asyncio
import time

from bench._lab import Lab, in_turns
from bench._report import Row, compared, told
from bench.append import EPOCH
from helix_temporal.agents import Agent, ModelRequest, ModelResponse
from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.coldtier.archive import Archive
from helix_temporal.coldtier.format import decode_segment
from helix_temporal.models.messages import decode_message
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.testing.serving import session_worker

_THREAD = "whole"
_BYTES = 100


class _Mute:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Nobody asks it."""
        raise AssertionError(request)


async def reads(lab: Lab) -> list[Row]:
    """All messages of a cold thread, against bare GETs of its objects, inflated and parsed."""
    count = lab.sizes.read
    messages = tuple(lab.words.record("assistant" if at % 2 else "user", _BYTES) for at in range(count))
    async with session_worker(lab.own(), [Agent(name="mute", model=_Mute())]) as served:
        backends, queue = served.plugin.backends, served.plugin.settings.task_queue
        await backends.threads.open(OpenThread(_THREAD, EPOCH, "bench", messages=messages))
        await backends.hot.drop(_THREAD, 2**62)
        direct = SessionClient(served.client, task_queue=queue, stores=backends)

        async def by(client: SessionClient) -> float:
            started = time.perf_counter()
            assert len(await client.session(_THREAD).get_messages()) == count
            return time.perf_counter() - started

        async def bare() -> float:
            started = time.perf_counter()
            assert await _bare(backends) == count
            return time.perf_counter() - started

        contestants = {
            "stores": lambda: by(direct), "workflow": lambda: by(served.sessions), "floor": bare
        }  # fmt: skip
        found = await in_turns(lab, "reads", contestants)
    name, note = f"read {count:,} messages of {_BYTES} B", "floor: GETs, inflated and parsed"
    return [
        compared(f"{name}, stores given", "s", found["stores"], found["floor"], at_most=2.0, note=note),
        compared(f"{name}, by workflows, beside that", "s", found["workflow"], found["floor"], note=note),
        told(f"{name}, by workflows", "s", found["workflow"], at_most=2.0),
    ]


async def _bare(backends: Backends) -> int:
    assert backends.tiered is not None
    blobs = backends.tiered.blobs
    archive = Archive(blobs, backends.tiered.layout)
    manifest = (await archive.read_manifest(_THREAD)).manifest
    refs = await archive.list_segments(manifest)
    objects = await asyncio.gather(*(blobs.get(archive.layout.segment_key(_THREAD, ref)) for ref in refs))
    found = [
        decode_message(message)
        for ref, each in zip(refs, objects, strict=True)
        if each is not None
        for message in decode_segment(ref, each.data)
    ]
    return len(found) + len([decode_message(message) for message in manifest.inline])
