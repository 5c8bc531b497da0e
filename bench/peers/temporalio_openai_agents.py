"""temporalio-openai-agents: a chat whose transcript is in the workflow, as its documentation has it.

A worker, until its standard input ends.  ``external`` as an argument puts payloads of any size into S3 by
Temporal's external storage.
"""

import asyncio
import dataclasses
import os
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import aioboto3
from _openai_chat import Chat
from temporalio.client import Client
from temporalio.contrib.aws.s3driver import S3StorageDriver
from temporalio.contrib.aws.s3driver.aioboto3 import new_aioboto3_client
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModel, TestModelProvider
from temporalio.worker import Worker


async def main(external: bool) -> None:
    """Serve."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    answer = ResponseBuilders.output_message(os.environ["BENCH_ANSWER"])
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=timedelta(seconds=60)),
        model_provider=TestModelProvider(TestModel(lambda: answer)),
        add_temporal_spans=False,
    )
    async with AsyncExitStack() as stack:
        more: dict[str, Any] = {}
        if external:
            s3 = await stack.enter_async_context(_s3())
            driver = S3StorageDriver(client=new_aioboto3_client(s3), bucket=os.environ["HELIX_S3_BUCKET"])
            storage = ExternalStorage(drivers=[driver], payload_size_threshold=0)
            more["data_converter"] = dataclasses.replace(DataConverter.default, external_storage=storage)
        client = await Client.connect(os.environ["HELIX_TEMPORAL_ADDRESS"], plugins=[plugin], **more)
        # Without the detector of deadlocks: many sessions that begin at once keep two cores busy for longer
        # than it allows, and their worker would end.
        queue = os.environ["HELIX_TASK_QUEUE"]
        await stack.enter_async_context(Worker(client, task_queue=queue, workflows=[Chat], debug_mode=True))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


def _s3() -> Any:
    return aioboto3.Session().client(
        "s3",
        endpoint_url=os.environ["HELIX_S3_ENDPOINT"],
        region_name=os.environ["HELIX_S3_REGION"],
        aws_access_key_id=os.environ["HELIX_S3_ACCESS_KEY"],
        aws_secret_access_key=os.environ["HELIX_S3_SECRET_KEY"],
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] == ["external"]))
