"""Reading a whole thread, from the stores and at workers; a short read by either way to a worker."""

import asyncio
import time
from typing import Any

from temporalio.client import (
    ActivityHandle,
    Client,
    Interceptor,
    OutboundInterceptor,
    StartActivityInput,
)
from temporalio.service import RPCError, RPCStatusCode

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
_SHORT = 40
"""Short reads a round."""


class _Mute:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Nobody asks it."""
        raise AssertionError(request)


class _WithoutActivities(Interceptor):
    """A client of a server that lacks standalone activities."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Refuse them."""

        class Refusing(OutboundInterceptor):
            async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
                raise RPCError(f"{input.id}: none here", RPCStatusCode.UNIMPLEMENTED, b"")

        return Refusing(next)


async def reads(lab: Lab) -> list[Row]:
    """All messages of a cold thread, against bare GETs of its objects, inflated and parsed.

    And where the thread stands, by standalone activities against short workflows.
    """
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
            "stores": lambda: by(direct), "worker": lambda: by(served.sessions), "floor": bare
        }  # fmt: skip
        found = await in_turns(lab, "reads", contestants)

        config = served.client.config()
        config["interceptors"] = [*config["interceptors"], _WithoutActivities()]
        older = SessionClient(Client(**config), task_queue=queue)

        async def short(client: SessionClient) -> float:
            started = time.perf_counter()
            for _ in range(_SHORT):
                await client.session(_THREAD).describe_thread()
            return 1000 * (time.perf_counter() - started) / _SHORT

        ways = {"activity": lambda: short(served.sessions), "workflow": lambda: short(older)}
        found |= await in_turns(lab, "short reads", ways)
    name, note = f"read {count:,} messages of {_BYTES} B", "floor: GETs, inflated and parsed"
    return [
        compared(f"{name}, stores given", "s", found["stores"], found["floor"], at_most=2.0, note=note),
        compared(f"{name}, at workers, beside that", "s", found["worker"], found["floor"], note=note),
        told(f"{name}, at workers", "s", found["worker"], at_most=2.0),
        compared(
            "short read by a standalone activity",
            "ms",
            found["activity"],
            found["workflow"],
            at_most=0.8,
            note="floor: by a short workflow",
        ),
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
