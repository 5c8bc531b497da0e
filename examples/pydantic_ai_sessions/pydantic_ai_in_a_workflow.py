"""One conversation of pydantic-ai: outside of workflows, then in one whose workers are killed."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from order_desk import OrderDesk, agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore

WORKER = Path(__file__).with_name("order_desk_worker.py")
KILLED_AFTER = ("agent__order_desk__model_request", "helix.pydantic_ai.save")


@asynccontextmanager
async def open_store() -> AsyncIterator[HelixConversationStore]:
    """The store of all these processes."""
    backends = Backends(Settings.from_env(os.environ))
    try:
        yield HelixConversationStore(backends.sessions)
    finally:
        await backends.close()


async def ask_outside(customer: str) -> None:
    """A program without workflows begins the conversation."""
    async with open_store() as store:
        result = await agent.run("Good morning.", conversation=Conversation(conversation_id=customer))
        await store.save(result)
        print(f"outside  {result.output}")


async def start_worker(*arguments: str) -> asyncio.subprocess.Process:
    """A worker in a process of its own."""
    return await asyncio.create_subprocess_exec(sys.executable, str(WORKER), *arguments)


async def ask_inside(customer: str) -> None:
    """A workflow goes on with it.  One worker dies after the model's answer, the next one after the save."""
    settings = Settings.from_env(os.environ)
    client = await Client.connect(settings.temporal_address, plugins=[PydanticAIPlugin()])
    name = f"order-desk-{customer}"
    handle = await client.start_workflow(
        OrderDesk.run, customer, id=name, task_queue=name,
        start_signal="send", start_signal_args=["Where is NL-20417?"],
    )  # fmt: skip
    for activity in KILLED_AFTER:
        worker = await start_worker(name, activity)
        print(f"worker   ended with {await worker.wait()} after {activity}")
    worker = await start_worker(name)
    try:
        await handle.signal(OrderDesk.send, "Thank you.")
        await handle.signal(OrderDesk.close)
        for answer in await handle.result():
            print(f"inside   {answer}")
    finally:
        worker.terminate()
        await worker.wait()


def print_calls(noted: str) -> None:
    """What the model and the tool were asked, by all processes."""
    calls = noted.split()
    lengths = [each for each in calls if each != "find_order"]
    print(f"calls    of the model: {len(lengths)}, with {', '.join(lengths)} messages")
    print(f"calls    of find_order: {calls.count('find_order')}")


async def print_conversation(customer: str) -> None:
    """What is stored."""
    async with open_store() as store:
        conversation: Any = await store.load(customer)
        messages, usage = conversation.messages, conversation.usage
        print(f"stored   {len(messages)} messages, usage of {usage.requests} requests")
        for message in messages:
            part = message.parts[-1]
            print(f"stored   {part.part_kind}: {getattr(part, 'content', 'find_order')}")


async def main() -> None:
    """Both, what they cost, and what they left."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ORDER_DESK_CALLS"] = str(Path(folder, "calls"))
        os.environ.setdefault("HELIX_REFERENCE_KEY", "a secret for this example")
        if not any(name in os.environ for name in ("HELIX_REDIS_URL", "HELIX_POSTGRES_DSN")):
            os.environ.setdefault("HELIX_DATA_DIRECTORY", folder)
        customer = uuid4().hex[:8]
        await ask_outside(customer)
        await ask_inside(customer)
        print_calls(await asyncio.to_thread(Path(os.environ["ORDER_DESK_CALLS"]).read_text))
        await print_conversation(customer)


if __name__ == "__main__":
    asyncio.run(main())
