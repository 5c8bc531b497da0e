"""The plugin: one object that makes clients, workers and replayers know the pack."""

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    PayloadCodec,
)
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from helix_temporal.agents import Agent, ScriptedModel, agent_tool, tool
from helix_temporal.errors import AgentNotServedError, InvalidConfigError
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.worker import HelixWorker, connect
from helix_temporal.workflows import WORKFLOWS

INTERVALS = ("max_heartbeat_throttle_interval", "sticky_queue_schedule_to_start_timeout")


def converted(present: DataConverter | None) -> DataConverter:
    """What a client's data converter becomes."""
    config = {} if present is None else {"data_converter": present}
    return HelixPlugin().configure_client(config)["data_converter"]  # type: ignore[arg-type]


def worker_config(settings: Settings | None = None) -> dict[str, object]:
    agent = Agent(name="a", model=ScriptedModel(["hi"]))
    config = {"activities": [], "workflows": [], "workflow_runner": SandboxedWorkflowRunner()}
    # As the SDK gives them to a plugin where nobody has set them.
    config |= {name: inspect.signature(Worker).parameters[name].default for name in INTERVALS}
    plugin = HelixPlugin(settings or Settings(), agents=[agent])
    return dict(plugin.configure_worker(config))  # type: ignore[arg-type]


class Plain(PayloadCodec):
    """A codec, so that there is one to keep."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """As they are."""
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """As they are."""
        return list(payloads)


class Own(CompositePayloadConverter):
    """A converter that knows nothing of pydantic."""

    def __init__(self) -> None:
        super().__init__(*list[EncodingPayloadConverter]())


async def test_a_second_plugin_on_a_client_is_refused_with_what_to_do() -> None:
    """Each has settings of its own, and a worker would have all activities twice."""
    with pytest.raises(
        InvalidConfigError, match=r"the client has two of HelixPlugin; give one, with all agents"
    ):
        await Client.connect("127.0.0.1:1", plugins=[HelixPlugin(), HelixPlugin()], lazy=True)


def test_a_second_plugin_on_a_worker_is_refused_with_what_to_do() -> None:
    """The client has one already, which the worker takes over."""
    config = HelixPlugin().configure_worker({"activities": []})
    with pytest.raises(InvalidConfigError, match=r"the worker has the activities.*its workers use it"):
        HelixPlugin().configure_worker(config)


def test_the_codec_of_the_user_stays() -> None:
    """Encryption must not get lost by adding a plugin."""
    codec = Plain()
    found = converted(dataclasses.replace(DataConverter.default, payload_codec=codec))
    assert found.payload_codec is codec


def test_a_client_that_has_our_converter_is_left_alone() -> None:
    """A replayer is given the converter of the client, which knows the plugin already."""
    found = converted(pydantic_data_converter)
    assert converted(found) is found


def test_a_converter_without_plain_values_is_refused_with_what_to_do() -> None:
    """Otherwise the first session would fail with something obscure."""
    with pytest.raises(
        InvalidConfigError, match=r"Own.*must carry None and JSON objects.*no known converter"
    ):
        converted(DataConverter(payload_converter_class=Own))


def test_a_client_opens_no_store() -> None:
    """A web application needs Temporal's address and nothing else."""
    plugin = HelixPlugin()
    plugin.configure_client({})  # type: ignore[typeddict-item]
    assert plugin._backends is None


def test_a_client_loads_no_driver() -> None:
    """Nor their import time."""
    code = (
        "import sys\n"
        "from helix_temporal.client import SessionClient\n"
        "from helix_temporal.plugin import HelixPlugin\n"
        "HelixPlugin().configure_client({})\n"
        "found = {'redis', 'aioboto3', 'botocore', 'asyncpg', 'aiohttp'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_worker_gets_activities_workflows_and_pass_through() -> None:
    """All that sessions need, and the agent's own."""
    config = worker_config()
    assert set(config["workflows"]) == set(WORKFLOWS)  # type: ignore[call-overload]
    runner = config["workflow_runner"]
    assert isinstance(runner, SandboxedWorkflowRunner)
    assert {"helix_temporal", "redis"} <= runner.restrictions.passthrough_modules
    names = {each.__temporal_activity_definition.name for each in config["activities"]}  # type: ignore[attr-defined]
    assert {"helix.sessions.run_step", "helix.threads.append", "helix.maintenance.sweep"} <= names


def test_a_worker_gets_the_intervals_of_the_settings() -> None:
    """They decide how soon a lost worker and a cancel are noticed."""
    timeouts = Timeouts()
    config = worker_config(Settings(timeouts=timeouts))
    assert config["max_heartbeat_throttle_interval"] == timeouts.max_heartbeat_throttle_interval
    assert config["sticky_queue_schedule_to_start_timeout"] == timeouts.sticky_queue_schedule_to_start_timeout


def test_a_worker_keeps_the_intervals_that_its_maker_has_set() -> None:
    """The worker is the user's, and so are his workflows and activities on it."""
    config = {"activities": [], "max_heartbeat_throttle_interval": timedelta(seconds=50)}
    found = HelixPlugin().configure_worker(config)  # type: ignore[arg-type]
    assert [found.get(name) for name in INTERVALS] == [timedelta(seconds=50), timedelta(seconds=2)]


def test_the_plugin_has_a_name_that_servers_show() -> None:
    """Names of plugins are reported, so this one is permanent."""
    assert HelixPlugin().name() == "helix.HelixPlugin"


def caller(**options: str) -> Agent:
    """Calls an agent ``helper``."""
    return Agent(
        name="caller",
        model=ScriptedModel(["hi"]),
        tools=[agent_tool("ask", agent="helper", **options)],  # type: ignore[arg-type]
    )


def test_an_agent_whose_sub_agent_nobody_serves_is_refused() -> None:
    """Before the first user asks: a call would find out in the middle of a turn."""
    helper = Agent(name="helper", model=ScriptedModel(["hi"]))
    with pytest.raises(AgentNotServedError, match="its tool 'ask' is agent 'helper'"):
        HelixPlugin(agents=[caller()])
    HelixPlugin(agents=[caller(), helper])
    HelixPlugin(agents=[caller(task_queue="elsewhere")])


def test_a_worker_is_refused_whose_own_queue_is_to_serve_a_sub_agent_that_it_has_not() -> None:
    """Which queue a worker serves is known when it is made."""
    plugin = HelixPlugin(agents=[caller(task_queue="here")])
    config = {"activities": [], "workflows": [], "workflow_runner": SandboxedWorkflowRunner()}
    with pytest.raises(AgentNotServedError, match="served: caller"):
        plugin.configure_worker({**config, "task_queue": "here"})  # type: ignore[typeddict-item]
    plugin.configure_worker({**config, "task_queue": "there"})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        (Agent(name="a", model=ScriptedModel(["b"])), "agents: a list expected, got Agent"),
        (["a"], "agents: 'a' is no Agent"),
    ],
)
def test_agents_that_are_no_list_of_agents_are_refused(agents: Any, said: str) -> None:
    """The brackets were forgotten, or names given."""
    with pytest.raises(InvalidConfigError, match=said):
        HelixPlugin(agents=agents)


async def test_settings_that_are_none_are_refused() -> None:
    """A dictionary of them, as for other libraries."""
    given: Any = {"temporal_address": "127.0.0.1:1"}
    with pytest.raises(InvalidConfigError, match="settings: Settings expected, got dict"):
        HelixPlugin(given)
    with pytest.raises(InvalidConfigError, match="settings: Settings expected, got dict"):
        await connect(given)


async def test_a_worker_of_a_client_without_the_plugin_is_refused_with_what_to_do() -> None:
    """It would serve nothing, and Temporal's own error says that activities are missing."""
    plain = await Client.connect("127.0.0.1:1", lazy=True)
    with pytest.raises(InvalidConfigError, match=r"no HelixPlugin: give it to Client.connect \(plugins="):
        HelixWorker(plain)
    with pytest.raises(InvalidConfigError, match="not the HelixPlugin that the worker is given"):
        HelixWorker(plain, HelixPlugin())
    with pytest.raises(InvalidConfigError, match="client: Client expected, got HelixPlugin"):
        HelixWorker(HelixPlugin())  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="plugin: HelixPlugin expected, got Settings"):
        HelixWorker(plain, Settings())  # type: ignore[arg-type]


def test_a_worker_does_not_drain_for_as_long_as_a_sub_agent_may_take() -> None:
    """Its session is a workflow, and goes on elsewhere; Kubernetes does not wait for an hour."""

    @tool(timeout=1200)
    def look_up(what: str) -> str:
        """Take long."""
        return what

    helper = Agent(name="helper", model=ScriptedModel(["done"]))
    asks = Agent(
        name="asks",
        model=ScriptedModel(["done"]),
        tools=[agent_tool("ask", agent=helper, timeout=3 * 86_400)],
    )
    slow = Agent(name="slow", model=ScriptedModel(["done"]), tools=[look_up])
    assert HelixPlugin(Settings(), agents=[asks, helper]).longest_step == timedelta(minutes=10)
    assert HelixPlugin(Settings(), agents=[asks, helper, slow]).longest_step == timedelta(minutes=20)
