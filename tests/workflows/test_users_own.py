"""A user's own workflows on a client with the plugin: as without it, payload by payload."""

import dataclasses
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.protobuf.message import Message as Proto
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from tests.workflows import _users_own as own

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARCEL = own.Parcel("a", inner=own.Parcel("ä", weight=1))
PLAIN = [PARCEL, b"\xff\x00", own.Level.HIGH]
# Pydantic writes bytes within a dataclass as text.
TEXT = [own.Parcel("a", raw=b"text"), b"\xff", own.Level.LOW]

CONVERTERS = {
    "default": DataConverter.default,
    "codec": dataclasses.replace(DataConverter.default, payload_codec=own.Zip()),
    "own converter": DataConverter(payload_converter_class=own.OwnConverter),
    "own failure converter": DataConverter(failure_converter_class=own.Shouting),
    "all": DataConverter(own.OwnConverter, own.Zip(), own.Shouting),
}


@asynccontextmanager
async def served(
    address: str, converter: DataConverter, queue: str, *, plugin: bool, **options: Any
) -> AsyncIterator[Client]:
    """A worker of the user's, whose client has the plugin or has not."""
    agent = Agent(name="a", model=ScriptedModel(["hello"] * 9))
    plugins = [HelixPlugin(Settings(task_queue=queue), agents=[agent])] if plugin else []
    client = await Client.connect(address, data_converter=converter, plugins=plugins)
    workflows = [own.CarryModels, own.CarryPlain]
    async with Worker(client, task_queue=queue, workflows=workflows, activities=own.ACTIVITIES, **options):
        yield client


def payloads(message: Proto, where: str = "") -> Iterator[tuple[str, Payload]]:
    """All payloads of a history, in order, with where they stand."""
    for descriptor, value in message.ListFields():
        path = f"{where}.{descriptor.name}"
        many = value if hasattr(value, "append") else [value]
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for each in many:
            if isinstance(each, Payload):
                yield path, each
            else:
                yield from payloads(each, path)


async def carried(client: Client, run: Any, args: list[Any], queue: str) -> tuple[Any, list[Any]]:
    """What a workflow returns, and the payloads of its history."""
    handle = await client.start_workflow(run, args=args, id=f"w-{uuid.uuid4().hex}", task_queue=queue)
    result = await handle.result()
    history = await handle.fetch_history()
    replayer = Replayer(
        workflows=[own.CarryModels, own.CarryPlain],
        data_converter=client.data_converter,
        workflow_runner=SandboxedWorkflowRunner(),
    )
    await replayer.replay_workflow(history)
    return result, [found for event in history.events for found in payloads(event)]


async def both(
    address: str, converter: DataConverter, run: Any, args: list[Any]
) -> tuple[tuple[Any, list[Any]], tuple[Any, list[Any]]]:
    """Without the plugin, and with it."""
    found = []
    for plugin in (False, True):
        queue = f"q-{uuid.uuid4().hex}"
        async with served(address, converter, queue, plugin=plugin) as client:
            found.append(await carried(client, run, args, queue))
    return found[0], found[1]


def an_order() -> own.Order:
    """Much of it not set, and a message of the pack in it."""
    return own.Order(note=None, talk=[own.a_message()])


async def test_pydantic_models_are_carried_as_without_the_plugin(temporal_address: str) -> None:
    """A field that nobody set is made once, not anew wherever the model arrives."""
    args = [an_order(), own.Dog(), own.OwnMessage(id="m", role="user", content="x")]
    without, having = await both(temporal_address, pydantic_data_converter, own.CarryModels.run, args)
    assert having == without
    order, names, pet, message = having[0]
    assert [order, pet, message] == args
    assert names == sorted(own.Order.model_fields)


async def test_pydantic_models_keep_their_values_where_the_client_has_no_converter_of_its_own(
    temporal_address: str,
) -> None:
    """The SDK's default converter writes them by a deprecated method; here they are written by pydantic."""
    args = [an_order(), own.Cat(), own.OwnMessage(id="m", role="user", content="x")]
    queue = f"q-{uuid.uuid4().hex}"
    async with served(temporal_address, DataConverter.default, queue, plugin=True) as client:
        order, names, pet, message = (await carried(client, own.CarryModels.run, args, queue))[0]
    assert [order, pet, message] == args
    assert names == sorted(own.Order.model_fields)


@pytest.mark.parametrize("name", CONVERTERS)
async def test_other_values_are_carried_as_without_the_plugin(temporal_address: str, name: str) -> None:
    """Payload by payload: dataclasses, enums, unions, bytes, None, details of failures."""
    without, having = await both(temporal_address, CONVERTERS[name], own.CarryPlain.run, PLAIN)
    assert having == without
    assert having[0] == [PARCEL]


async def test_pydantic_converter_carries_plain_values_as_without_the_plugin(temporal_address: str) -> None:
    """It changes what the SDK's default one makes of them, and that is the user's choice."""
    without, having = await both(temporal_address, pydantic_data_converter, own.CarryPlain.run, TEXT)
    assert having == without
    assert having[0] == TEXT[:1]


@pytest.mark.parametrize("name", [*CONVERTERS, "pydantic"])
async def test_sessions_are_served_beside_the_users_workflows(temporal_address: str, name: str) -> None:
    """On one client and one worker, with the converter, codec and failure converter of the user."""
    converter = (CONVERTERS | {"pydantic": pydantic_data_converter})[name]
    queue = f"q-{uuid.uuid4().hex}"
    async with served(temporal_address, converter, queue, plugin=True) as client:
        sessions = SessionClient(client, task_queue=queue)
        sid = f"s-{uuid.uuid4().hex[:8]}"
        assert (await sessions.ask(sid, "hi", agent="a", timeout=60)).text == "hello"
        assert [each.text for each in await sessions.session(sid).get_messages()] == ["hi", "hello"]
        await sessions.session(sid).close()
        await sessions.session(sid).result()
        assert (await carried(client, own.CarryPlain.run, TEXT, queue))[0] == TEXT[:1]
