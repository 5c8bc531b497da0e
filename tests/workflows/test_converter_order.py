"""What was not named stays as it is, whichever converter a client has, and wherever the plugin stands."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client, Plugin
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin

from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.models.states import SessionProperties
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.worker import HelixWorker
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONVERTERS = {"default": DataConverter.default, "pydantic": pydantic_data_converter}
FAR = 2**42
Order = Callable[[HelixPlugin, Plugin], list[Plugin]]
ORDERS: dict[str, Order] = {
    "after": lambda helix, other: [other, helix],
    "before": lambda helix, other: [helix, other],
}


def brings(converter: DataConverter) -> Plugin:
    """A plugin that sets the client's data converter."""
    return SimplePlugin("other", data_converter=converter)


async def check_what_was_not_named(
    first: SessionClient, bare: Callable[[SessionOptions], SessionClient], sid: str
) -> None:
    """Properties are set one at a time, and the session is started by clients that name other options."""
    properties = SessionProperties(user_id="u", expires_at=FAR)
    await first.ask(sid, "one", agent="main", properties=properties)
    tagged = SessionProperties(tags=("a",))
    await bare(SessionOptions()).ask(sid, "two", agent="main", properties=tagged)
    await bare(SessionOptions()).session(sid).set_properties(SessionProperties(tags=("b",)))
    await first.session(sid).close()
    await first.session(sid).result()
    again = bare(SessionOptions(max_steps=7))
    await again.ask(sid, "three", agent="main")
    options = (await again.session(sid).get_status()).options
    assert options is not None
    assert (options.idle_timeout, options.max_steps) == (60, 7)
    state = await again.session(sid).get_state()
    assert state is not None
    assert (state.user_id, state.expires_at, state.tags) == ("u", FAR, ("b",))


@pytest.mark.parametrize("converter", CONVERTERS)
async def test_a_client_without_the_plugin_changes_what_was_named(
    stand: Stand, sid: str, converter: str
) -> None:
    """A web application may have a client of its own, made for something else."""
    settings = stand.served.plugin.settings
    client = await Client.connect(settings.temporal_address, data_converter=CONVERTERS[converter])

    def bare(options: SessionOptions) -> SessionClient:
        return SessionClient(client, task_queue=settings.task_queue, options=options)

    await check_what_was_not_named(stand.sessions, bare, sid)


@asynccontextmanager
async def served(address: str, order: Order, other: Plugin, directory: Path) -> AsyncIterator[Client]:
    """A worker whose client has both plugins."""
    queue = f"q-{uuid.uuid4().hex[:8]}"
    plugin = HelixPlugin(Settings(task_queue=queue, cold_directory=directory), agents=Desk().agents())
    client = await Client.connect(address, plugins=order(plugin, other))
    async with HelixWorker(client, plugin, drain=1.0):
        yield client


@pytest.mark.parametrize("order", ORDERS)
async def test_a_worker_beside_a_plugin_with_pydantics_converter(
    temporal_address: str, tmp_path: Path, unique: str, order: str
) -> None:
    """Its clients and its workflows mean the same, whichever plugin comes first."""
    other = brings(pydantic_data_converter)
    async with served(temporal_address, ORDERS[order], other, tmp_path) as client:

        def bare(options: SessionOptions) -> SessionClient:
            return SessionClient(client, options=options)

        await check_what_was_not_named(bare(SessionOptions(idle_timeout=60)), bare, f"s-{unique}")


async def test_a_worker_whose_converter_carries_no_models_is_refused(
    temporal_address: str, tmp_path: Path
) -> None:
    """The SDK's default converter writes pydantic models by what pydantic no longer supports."""
    other = brings(DataConverter.default)
    with pytest.raises(
        InvalidConfigError, match=r"DefaultPayloadConverter.*HelixPlugin.*after the plugin that brings"
    ):
        async with served(temporal_address, ORDERS["before"], other, tmp_path):
            pass
    async with served(temporal_address, ORDERS["after"], other, tmp_path) as client:
        await SessionClient(client).ask(f"s-{uuid.uuid4().hex}", "one", agent="main")
