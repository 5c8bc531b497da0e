"""One conversation of the OpenAI Agents SDK: outside of workflows, then in one whose worker is killed."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Runner
from desk import QUIET, Desk, ScriptedModel
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.openai_agents import HelixSession

WORKER = Path(__file__).with_name("desk_worker.py")


async def ask_outside(customer: str, settings: Settings) -> None:
    """A program without workflows begins the conversation."""
    backends = Backends(settings)
    agent: Agent[Any] = Agent(name="desk", instructions="You help with orders.", model=ScriptedModel())
    session = HelixSession(customer, backends.sessions)
    result = await Runner.run(agent, "Good morning.", session=session, run_config=QUIET)
    print(f"outside: {result.final_output}")
    await backends.close()


async def start_worker(queue: str) -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    return await asyncio.create_subprocess_exec(sys.executable, str(WORKER), queue)


async def ask_inside(customer: str, settings: Settings) -> None:
    """A workflow goes on with it; its worker dies, and the next one finds the answer that was paid for."""
    client = await Client.connect(settings.temporal_address, plugins=[OpenAIAgentsPlugin()])
    queue = f"desk-{customer}"
    handle = await client.start_workflow(
        Desk.run, customer, id=queue, task_queue=queue,
        start_signal="send", start_signal_args=["Where is NL-20417?"],
    )  # fmt: skip
    worker = await start_worker(queue)
    print(f"the worker ended with {await worker.wait()}")
    worker = await start_worker(queue)
    try:
        await handle.signal(Desk.send, "Thank you.")
        await handle.signal(Desk.close)
        for answer in await handle.result():
            print(f"inside:  {answer}")
    finally:
        worker.terminate()
        await worker.wait()


def print_calls(noted: str) -> None:
    """How often the model was paid, and for how much."""
    calls = noted.splitlines()
    print(f"the model was called {len(calls)} times, with {', '.join(calls)}")


async def main() -> None:
    """Both, and what they cost."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["DESK_CALLS"] = str(Path(directory, "calls"))
        os.environ["DESK_DIES"] = str(Path(directory, "killed"))
        os.environ.setdefault("HELIX_REFERENCE_KEY", "a secret for this example")
        settings = Settings.from_env({k: v for k, v in os.environ.items() if k.startswith("HELIX_")})
        customer = uuid4().hex[:8]
        await ask_outside(customer, settings)
        await ask_inside(customer, settings)
        print_calls(await asyncio.to_thread(Path(os.environ["DESK_CALLS"]).read_text))


if __name__ == "__main__":
    asyncio.run(main())
