"""A conversation in a workflow of the OpenAI Agents SDK: by reference, as a list, in external storage.

It runs in that framework's environment (``make test-frameworks NAME=temporalio-openai-agents``), and needs
``types-aiobotocore-s3`` besides, for Temporal's driver::

    eval "$(.venv/bin/python .ci/servers)"
    build/frameworks/temporalio-openai-agents/bin/python -m bench.openai_history --turns 1000

Each turn says 2 KB and is answered with 2 KB.  A workflow that dies of its size is counted up to there.

* ``reference``: `HelixWorkflowSession` on Redis and S3.
* ``list``: the items in the workflow's memory, and all of them in each model call.
* ``external``: the same, with Temporal's external storage of payloads in S3 (`S3StorageDriver`), at a
  threshold of 2 KB and at its default of 256 KB.

S3's bytes are counted on the wire, both ways; processor time is the worker's process, and the server's.
"""

import argparse
import asyncio
import dataclasses
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.service import RPCError
from temporalio.worker import Worker

from helix_temporal import Settings
from helix_temporal.devstack import start_stack
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin, HelixWorkflowSession
from helix_temporal.testing.proxy import FaultProxy

with workflow.unsafe.imports_passed_through():
    import aioboto3
    import psutil
    from temporalio.contrib.aws.s3driver import S3StorageDriver
    from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client

SIZE: Final = 2_000
EVERY: Final = (20, 60, 100, 200, 400, 600, 800, 1000)
THRESHOLDS: Final = {"external 2 KB": 2 * 1024, "external 256 KB": 256 * 1024}
WAYS: Final = ("reference", "list", *THRESHOLDS)
_DIES_AFTER: Final = timedelta(minutes=20)
_QUIET: Final = RunConfig(tracing_disabled=True)


class ListSession:
    """What a workflow has without us: the items in its own memory, and all of them in each model call."""

    session_settings = None

    def __init__(self) -> None:
        self.session_id, self._items = "list", list[Any]()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The newest items."""
        return list(self._items if limit is None else self._items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        """Keep them."""
        self._items += items

    async def pop_item(self) -> Any:
        """The newest item."""
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        """Forget all."""
        self._items.clear()


class LongAnswers(Model):
    """Answers with so many bytes."""

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        """An answer."""
        part = ResponseOutputText(type="output_text", text="a" * SIZE, annotations=[])
        name = f"msg_{uuid.uuid4().hex}"
        message = ResponseOutputMessage(
            id=name, type="message", role="assistant", status="completed", content=[part]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used."""
        raise NotImplementedError


class Provider(ModelProvider):
    """Gives the one model."""

    def get_model(self, model_name: str | None) -> Model:  # noqa: ARG002 — the name in the SDK
        """The model."""
        return LongAnswers()


@workflow.defn
class LongTalk:
    """So many turns in one run."""

    def __init__(self) -> None:
        self.turns = 0

    @workflow.run
    async def run(self, turns: int, by_reference: bool) -> int:
        """How many turns came to their end."""
        session: Any = HelixWorkflowSession("long") if by_reference else ListSession()
        agent: Agent[Any] = Agent(name="clerk", instructions="You help.")
        for _ in range(turns):
            await Runner.run(agent, "q" * SIZE, session=session, run_config=_QUIET)
            self.turns += 1
        return self.turns

    @workflow.query
    def count(self) -> int:
        """Turns that have ended."""
        return self.turns


@dataclass(frozen=True)
class Measured:
    """What it took up to so many turns: bytes, seconds."""

    turns: int
    events: int
    size: int
    passed: float
    sent: int
    received: int
    own_cpu: float
    server_cpu: float

    def __str__(self) -> str:
        count = max(self.turns, 1)
        return (
            f"{self.turns:7}{self.events:9,}{self.size / 1e6:9.2f}{count / self.passed:9.1f}"
            f"{self.sent / 1e6:11.1f}{self.received / 1e6:11.1f}"
            f"{1e3 * self.own_cpu / count:11.1f}{1e3 * self.server_cpu / count:11.1f}"
        )


HEADING: Final = (
    f"{'history':16}{'turns':>7}{'events':>9}{'MB':>9}{'turns/s':>9}{'S3 up, MB':>11}{'down, MB':>11}"
    f"{'ms a turn':>11}{'server, ms':>11}"
)


class Meter:
    """What has been used since it was made."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy, self._server = proxy, find_server()
        self._before = self._read()

    def _read(self) -> tuple[float, ...]:
        server = self._server.cpu_times()
        counts = self._proxy.bytes_up, self._proxy.bytes_down
        return time.monotonic(), *counts, time.process_time(), server.user + server.system

    def measure(self, turns: int, events: int, size: int) -> Measured:
        """Up to now."""
        passed, sent, received, own, server = (
            after - before for after, before in zip(self._read(), self._before, strict=True)
        )
        return Measured(turns, events, size, passed, int(sent), int(received), own, server)


def find_server() -> psutil.Process:
    """Temporal's, which this process has started."""
    return next(each for each in psutil.Process().children(recursive=True) if "temporal" in each.name())


async def measure(handle: WorkflowHandle[Any, Any], turns: int, meter: Meter) -> AsyncIterator[Measured]:
    """What it took at each of the turns of `EVERY`; the history as the server counts it."""
    wanted = [each for each in EVERY if each <= turns]
    ended = asyncio.ensure_future(_wait(handle))
    count = 0
    while wanted:
        is_over = ended.done()
        info = (await handle.describe()).raw_description.workflow_execution_info
        try:
            count = turns if is_over and ended.result() else await handle.query(LongTalk.count)
        except RPCError:
            if not is_over:
                continue  # a worker that has its hands full answers no query in time
        if count >= wanted[0] or is_over:
            yield meter.measure(count, info.history_length, info.history_size_bytes)
            wanted = [each for each in wanted if each > count]
        if is_over:
            break
        await asyncio.sleep(0.2)
    await ended


async def _wait(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether it came to its end."""
    try:
        await handle.result()
    except WorkflowFailureError as error:
        print(f"the run died: {error.cause}")
        return False
    return True


@asynccontextmanager
async def connecting(way: str, address: str, settings: Settings) -> AsyncIterator[Client]:
    """A client whose workers keep conversations in one of the ways."""
    params = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=60))
    plugins: list[Any] = [OpenAIAgentsPlugin(params, Provider(), add_temporal_spans=False)]
    async with AsyncExitStack() as stack:
        converter = DataConverter.default
        if way == "reference":
            plugins.append(HelixOpenAIPlugin(settings))
        elif way in THRESHOLDS:
            s3 = await stack.enter_async_context(open_s3(settings))
            driver = S3StorageDriver(new_aioboto3_client(s3), settings.s3_bucket or "")
            storage = ExternalStorage(drivers=[driver], payload_size_threshold=THRESHOLDS[way])
            converter = dataclasses.replace(converter, external_storage=storage)
        yield await Client.connect(address, plugins=plugins, data_converter=converter)


def open_s3(settings: Settings) -> Any:
    """A client of S3, as the settings say."""
    key, secret = settings.s3_access_key, settings.s3_secret_key
    session = aioboto3.Session(
        aws_access_key_id=None if key is None else key.get_secret_value(),
        aws_secret_access_key=None if secret is None else secret.get_secret_value(),
        region_name=settings.s3_region,
    )
    return session.client("s3", endpoint_url=settings.s3_endpoint)


async def main(turns: int, only: list[str]) -> None:
    """Measure, and print a table."""
    with start_stack(["temporal", "redis", "s3"], environment=dict(os.environ)) as stack:
        variables = dict(stack.get_environment())
        async with FaultProxy.start(variables["HELIX_S3_ENDPOINT"]) as proxy:
            variables |= {
                "HELIX_S3_ENDPOINT": f"http://{proxy.address}",
                "HELIX_REFERENCE_KEY": "a key for measuring",
                "HELIX_ALLOW_PLAINTEXT": "true",
            }
            print(HEADING)
            for way in only or WAYS:
                await run_way(
                    way, turns, variables["HELIX_TEMPORAL_ADDRESS"], Settings.from_env(variables), proxy
                )


async def run_way(way: str, turns: int, address: str, settings: Settings, proxy: FaultProxy) -> None:
    """One conversation."""
    async with (
        connecting(way, address, settings) as client,
        Worker(client, task_queue="bench", workflows=[LongTalk]),
    ):
        meter = Meter(proxy)
        handle = await client.start_workflow(
            LongTalk.run,
            args=[turns, way == "reference"],
            id=uuid.uuid4().hex,
            task_queue="bench",
            execution_timeout=_DIES_AFTER,
        )
        async for each in measure(handle, turns, meter):
            print(f"{way:16}{each}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--only", nargs="*", choices=WAYS)
    given = parser.parse_args()
    asyncio.run(main(given.turns, given.only or []))
