"""A worker in a process of its own, to be killed; its arguments are an address and a task queue."""

import asyncio
import os
import sys

from temporalio.client import Client
from temporalio.google_adk import GoogleAdkPlugin
from temporalio.worker import Worker

from helix_temporal import Settings
from helix_temporal.frameworks.google_adk.worker import HelixGoogleAdkPlugin
from tests.frameworks._google_adk_model import register_model
from tests.frameworks._google_adk_workflows import Conversation


async def main(address: str, queue: str) -> None:
    """Work until it is killed."""
    register_model()
    plugins = [GoogleAdkPlugin(), HelixGoogleAdkPlugin(Settings.from_env(os.environ))]
    client = await Client.connect(address, plugins=plugins)
    async with Worker(client, task_queue=queue, workflows=[Conversation]):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
