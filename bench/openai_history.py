"""What a conversation in a workflow of the OpenAI Agents SDK costs in history: by reference, and as a list.

It runs in that framework's environment, which ``make test-frameworks NAME=temporalio-openai-agents`` makes::

    eval "$(.venv/bin/python .ci/servers)"
    build/frameworks/temporalio-openai-agents/bin/python -m bench.openai_history --turns 1000 --only reference

Each turn says 2 KB and is answered with 2 KB.  A workflow that dies of its size is counted up to there.
"""

import argparse
import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from agents import Agent, Model, ModelProvider, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic import SecretStr
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.service import RPCError
from temporalio.worker import Worker

from helix_temporal import Settings
from helix_temporal.devstack import start_stack
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin, HelixWorkflowSession

SIZE: Final = 2_000
EVERY: Final = (20, 60, 100, 200, 400, 600, 800, 1000)
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
    """A history after so many turns."""

    turns: int
    events: int
    size: int

    def __str__(self) -> str:
        count = max(self.turns, 1)
        return (
            f"{self.turns:8}{self.events:10,}{self.size / 1e6:10.2f}"
            f"{self.events / count:16.1f}{self.size / 1e3 / count:12.1f}"
        )


async def measure(handle: WorkflowHandle[Any, Any], turns: int) -> AsyncIterator[Measured]:
    """The history at each of the turns of `EVERY`, as the server counts it."""
    wanted = [each for each in EVERY if each <= turns]
    ended = asyncio.ensure_future(_wait(handle))
    while wanted:
        is_over = ended.done()
        info = (await handle.describe()).raw_description.workflow_execution_info
        try:
            count = turns if is_over and ended.result() else await handle.query(LongTalk.count)
        except RPCError:
            continue  # a worker that has its hands full answers no query in time
        if count >= wanted[0] or is_over:
            yield Measured(count, info.history_length, info.history_size_bytes)
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


async def main(turns: int, only: str) -> None:
    """Measure, and print a table."""
    settings = Settings(reference_key=SecretStr("a key for measuring"), allow_plaintext=True)
    params = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=60))
    plugins = [
        OpenAIAgentsPlugin(params, Provider(), add_temporal_spans=False),
        HelixOpenAIPlugin(settings),
    ]
    with start_stack(["temporal"], environment=dict(os.environ)) as stack:
        address = stack.get_environment("temporal")["HELIX_TEMPORAL_ADDRESS"]
        client = await Client.connect(address, plugins=plugins)
        async with Worker(client, task_queue="bench", workflows=[LongTalk]):
            print(f"{'history':12}{'turns':>8}{'events':>10}{'MB':>10}{'events a turn':>16}{'KB a turn':>12}")
            for name in [each for each in ("reference", "list") if only in {each, "both"}]:
                handle = await client.start_workflow(
                    LongTalk.run, args=[turns, name == "reference"], id=uuid.uuid4().hex, task_queue="bench"
                )
                async for each in measure(handle, turns):
                    print(f"{name:12}{each}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--only", choices=("reference", "list", "both"), default="both")
    given = parser.parse_args()
    asyncio.run(main(given.turns, given.only))
