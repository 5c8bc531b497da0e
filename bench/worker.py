"""A worker process of a benchmark: ``python -m bench.worker helix|bare``, until its standard input ends."""

import asyncio
import os
import random
import sys
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from bench._bare_stores import PUSH, READ, redis_client, s3_client
from bench._bare_workflow import BareWorkflow, Said, Turn
from bench._lab import SEED, Words
from helix_temporal.agents import Agent, ModelRequest, ModelResponse, tool
from helix_temporal.models.messages import ToolCall
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker, connect

ANSWER_BYTES = 1024
INLINE_BYTES = 16 * 1024
ANSWER = Words(SEED + 1).text(ANSWER_BYTES)
_TOOL_BYTES = int(os.environ.get("BENCH_TOOL_BYTES", "1000000"))


class Plain:
    """A model that answers at once, always the same."""

    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 (always the same)
        """See `helix_temporal.agents.Model`."""
        return ModelResponse(content=ANSWER)


class Waiting:
    """A model that takes its time."""

    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 (always the same)
        """See `helix_temporal.agents.Model`."""
        await asyncio.sleep(300)
        return ModelResponse(content=ANSWER)


class Fetching:
    """A model that asks for a large tool result, then answers."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """See `helix_temporal.agents.Model`."""
        if request.messages[-1].role == "tool":
            return ModelResponse(content=f"{len(request.messages[-1].text)} bytes read")
        return ModelResponse(tool_calls=(ToolCall(id="call", name="fetch", arguments={}),))


@tool
def fetch() -> str:
    """Give a large text, another one each time."""
    corpus = _corpus()
    start = random.randrange(len(corpus))
    return (corpus[start:] + corpus)[:_TOOL_BYTES]


def _corpus(found: list[str] = []) -> str:  # noqa: B006 — made once, where it is needed
    if not found:
        found.append(Words(SEED + 2).text(4 * _TOOL_BYTES))
    return found[0]


class BareActivities:
    """A turn's activity: an empty one, and one that does the least that stores ask for."""

    def __init__(self, redis: Any, s3: Any, settings: Settings) -> None:
        self._redis, self._s3, self._settings = redis, s3, settings
        self._read = self._push = ""
        self._etags: dict[str, str] = {}
        self._noise = random.Random(SEED).randbytes(INLINE_BYTES + 2048)

    async def load(self) -> None:
        """Load the scripts."""
        self._read = await self._redis.script_load(READ)
        self._push = await self._redis.script_load(PUSH)

    @activity.defn(name="bench.empty")
    async def empty(self, turn: Turn) -> Said:
        """Answer."""
        return Said(id=turn.said.id, text=ANSWER)

    @activity.defn(name="bench.stores")
    async def stores(self, turn: Turn) -> Said:
        """Two EVALSHA (read what is there, push a step) and one conditional PUT, then answer."""
        key = f"{self._settings.redis_prefix}{turn.session_id}"
        await self._redis.evalsha(self._read, 1, key)
        await self._redis.evalsha(self._push, 1, key, str(turn.number), turn.said.text + ANSWER)
        # As many bytes as an archive of this length has inline, compressed to two fifths.
        size = 1024 + turn.number * 2 * ANSWER_BYTES * 2 // 5 % INLINE_BYTES
        await self._put(f"{self._settings.s3_prefix}/{turn.session_id}", turn.number, self._noise[:size])
        return Said(id=turn.said.id, text=ANSWER)

    async def _put(self, key: str, number: int, data: bytes) -> None:
        etag = self._etags.get(key)
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        body = number.to_bytes(8, "big") + data
        answer = await self._s3.put_object(Bucket=self._settings.s3_bucket, Key=key, Body=body, **condition)
        self._etags[key] = answer["ETag"].strip('"')


async def serve_helix(settings: Settings, ended: asyncio.Event) -> None:
    """Sessions."""
    agents = [
        Agent(name="plain", model=Plain()),
        Agent(name="waiting", model=Waiting()),
        Agent(name="fetching", model=Fetching(), tools=[fetch]),
    ]
    client, plugin = await connect(settings, agents)
    async with HelixWorker(client, plugin, drain=1.0):
        _ready()
        await ended.wait()


async def serve_bare(settings: Settings, ended: asyncio.Event) -> None:
    """Bare workflows."""
    client = await Client.connect(settings.temporal_address, data_converter=pydantic_data_converter)
    redis = redis_client(settings)
    async with s3_client(settings) as s3:
        bare = BareActivities(redis, s3, settings)
        await bare.load()
        activities = [bare.empty, bare.stores]
        queue = settings.task_queue
        async with Worker(client, task_queue=queue, workflows=[BareWorkflow], activities=activities):
            _ready()
            await ended.wait()
    await redis.aclose()


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def main(role: str) -> None:
    """Serve until whoever started us closes our standard input, or is gone."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    settings = Settings.from_env(os.environ)
    await (serve_helix if role == "helix" else serve_bare)(settings, ended)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
