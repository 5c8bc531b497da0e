"""A graph in a workflow, two of whose workers are killed; a program outside then reads the thread.

It needs ``temporalio-langgraph`` and a Temporal server at HELIX_TEMPORAL_ADDRESS, and no key.  With
HELIX_POSTGRES_DSN, HELIX_REDIS_URL or HELIX_DATA_DIRECTORY the threads are there instead of in a directory
that the example makes.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

from order_graph import OrderDesk, builder
from temporalio.client import Client

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.langgraph import HelixSaver

WORKER = Path(__file__).with_name("graph_worker.py")
QUESTIONS = ["Where is NL-20417?", "And NL-20433?"]


async def start_worker(queue: str, *dies_after: str) -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    return await asyncio.create_subprocess_exec(sys.executable, str(WORKER), queue, *dies_after)


async def run_workflow(thread_id: str, settings: Settings) -> None:
    """The first worker dies after the model has answered, the second one after the turn is stored."""
    client = await Client.connect(settings.temporal_address)
    queue = f"orders-{thread_id}"
    handle = await client.start_workflow(
        OrderDesk.run, args=[thread_id, QUESTIONS], id=queue, task_queue=queue
    )
    for activity in ("orders.answer", "helix.langgraph.save"):
        worker = await start_worker(queue, activity)
        print(f"a worker: ended with {await worker.wait()} after {activity}")
    worker = await start_worker(queue)
    try:
        await handle.result()
    finally:
        worker.terminate()
        await worker.wait()


async def read_thread(thread_id: str, settings: Settings) -> None:
    """A program without workflows reads the thread."""
    backends = Backends(settings)
    graph = builder.compile(checkpointer=HelixSaver(backends.records, backends.sessions))
    config: Any = {"configurable": {"thread_id": thread_id}}
    for message in (await graph.aget_state(config)).values["messages"]:
        print(f"thread:   {message}")
    history = [each async for each in graph.aget_state_history(config)]
    print(f"stored:   {len(history)} checkpoints for {len(QUESTIONS)} questions")
    await backends.close()


def print_work(noted: str) -> None:
    """How often each activity has done its work, known to Temporal or not."""
    counted = Counter(noted.splitlines())
    print("ran:     ", ", ".join(f"{times} {name}" for name, times in counted.items()))


async def main() -> None:
    """The workflow, the thread that it leaves, and what ran for it."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["ORDER_WORK"] = str(Path(directory, "work"))
        if not {"HELIX_POSTGRES_DSN", "HELIX_REDIS_URL", "HELIX_DATA_DIRECTORY"} & os.environ.keys():
            os.environ["HELIX_DATA_DIRECTORY"] = directory
        settings = Settings.from_env({k: v for k, v in os.environ.items() if k.startswith("HELIX_")})
        thread_id = uuid4().hex[:8]
        await run_workflow(thread_id, settings)
        await read_thread(thread_id, settings)
        print_work(await asyncio.to_thread(Path(os.environ["ORDER_WORK"]).read_text))


if __name__ == "__main__":
    asyncio.run(main())
