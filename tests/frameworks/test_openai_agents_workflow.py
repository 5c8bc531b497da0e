"""Sessions of the OpenAI Agents SDK inside workflows, on a real Temporal server and every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import Replayer, Worker

from helix_temporal import Backends, Settings
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin, HelixSession
from tests.frameworks import _openai_workflows as own
from tests.frameworks._openai_workflows import Conversation, CountingModel, CountingProvider, Talk

KEY = "a secret of the workers"


@dataclass
class Bench:
    """A worker with both plugins, and what its model was asked."""

    client: Client
    settings: Settings
    backends: Backends
    calls: Path
    queue: str

    async def start(self, session_id: str, *lines: str, **fields: Any) -> WorkflowHandle[Any, Any]:
        """A conversation that has begun."""
        talk = Talk(session_id, list(lines), **fields)
        return await self.client.start_workflow(
            Conversation.run, talk, id=f"{self.queue}-{session_id}", task_queue=self.queue
        )

    async def run(self, session_id: str, *lines: str, **fields: Any) -> list[str]:
        """What a conversation answered."""
        handle = await self.start(session_id, *lines, **fields)
        said: list[str] = await handle.result()
        return said

    async def items(self, session_id: str) -> list[Any]:
        """The items as the session outside of workflows has them."""
        assert self.backends.sessions is not None
        return list(await HelixSession(session_id, self.backends.sessions).get_items())

    async def roles(self, session_id: str) -> list[str]:
        """What each item is."""
        return [item.get("role") or item["type"] for item in await self.items(session_id)]

    @property
    def given(self) -> list[list[str]]:
        """What each item of each model call was."""
        return [
            [item.get("role") or item["type"] for item in call["items"]] for call in own.read_calls(self.calls)
        ]


def make_plugins(settings: Settings, model: Any, backends: Any = None, **params: Any) -> list[Any]:
    """Both plugins, in their order."""
    parameters = ModelActivityParameters(
        **{
            "start_to_close_timeout": timedelta(seconds=20),
            "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=4),
            "streaming_topic": "events",
            **params,
        }
    )
    return [
        OpenAIAgentsPlugin(parameters, CountingProvider(model), add_temporal_spans=False),
        HelixOpenAIPlugin(settings, backends=backends),
    ]


@asynccontextmanager
async def serving(
    address: str, settings: Settings, queue: str, calls: Path, *, pause: float = 0.0, **options: Any
) -> AsyncIterator[Bench]:
    """A worker."""
    backends = Backends(settings)
    params = options.pop("params", {})
    plugins = make_plugins(settings, CountingModel(calls, pause), backends, **params)
    client = await Client.connect(address, plugins=plugins)
    async with Worker(
        client, task_queue=queue, workflows=own.WORKFLOWS, activities=own.ACTIVITIES, **options
    ):
        yield Bench(client, settings, backends, calls, queue)
    await backends.close()


@pytest.fixture
async def bench(
    stores: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    """A worker over stores of one kind."""
    async with serving(temporal_address, stores, unique, tmp_path / "calls") as served:
        yield served


async def test_a_conversation_goes_on_by_reference(bench: Bench) -> None:
    """The model is given all that was said, and the thread has what a session of the SDK would have."""
    said = await bench.run("s", "one", "two", "three")
    assert [text.split()[1] for text in said] == ["one", "two", "three"]
    assert bench.given == [
        ["user"],
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant", "user"],
    ]
    assert await bench.roles("s") == ["user", "assistant"] * 3


async def test_tools_and_their_results_are_stored_once(bench: Bench) -> None:
    """The call is stored by the model's activity, the result with the next call; each model call sees all."""
    said = await bench.run("s", "tool look", "and now?")
    assert said[0].startswith("result seen")
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert bench.given == [["user"], turn[:3], [*turn, "user"]]
    assert await bench.roles("s") == [*turn, "user", "assistant"]


async def test_reasoning_stays_before_its_message(bench: Bench) -> None:
    """An answer of several items is stored whole."""
    await bench.run("s", "think", "and now?")
    assert bench.given[1] == ["user", "reasoning", "assistant", "user"]


async def test_a_handoff_is_stored(bench: Bench) -> None:
    """The colleague is given what was said before, and its answer is stored."""
    await bench.run("s", "hand over", "thanks")
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert await bench.roles("s") == [*turn, "user", "assistant"]
    calls = own.read_calls(bench.calls)
    assert [call["instructions"] for call in calls] == ["clerk", "colleague", "clerk"]
    assert bench.given[1] == turn[:3]


async def test_streams_are_stored_as_answers_are(bench: Bench) -> None:
    """With tools, and over several runs."""
    said = await bench.run("s", "one", "tool look", "two", streams=True)
    assert said[0].startswith("echo one")
    tools = ["user", "function_call", "function_call_output", "assistant"]
    assert await bench.roles("s") == ["user", "assistant", *tools, "user", "assistant"]
    assert bench.given[-1] == ["user", "assistant", *tools, "user"]


async def test_a_guardrail_sees_the_list_and_leaves_nothing(bench: Bench) -> None:
    """The run of an agent in a guardrail is given the items that the reference stands for, and stores nothing."""
    await bench.run("s", "one", "two", guarded=True)
    judged = [call["items"] for call in own.read_calls(bench.calls) if call["instructions"] == "judge"]
    assert [len(items) for items in judged] == [1, 3]
    assert await bench.roles("s") == ["user", "assistant"] * 2


async def test_what_a_guardrail_stops_is_not_kept(bench: Bench) -> None:
    """The user's message stays, as in any session of the SDK; an answer that was stored already is cut."""
    said = await bench.run("s", "forbidden", "size 5 secret", "one", guarded=True)
    assert said[:2] == ["InputGuardrailTripwireTriggered", "echo"] or said[0].endswith("Triggered")
    assert "secret" not in str(
        [item for item in await bench.items("s") if item.get("role") == "assistant"]
    )
    assert await bench.roles("s") in (
        ["user", "user", "assistant", "user", "assistant"],
        ["user", "user", "user", "assistant"],
    )


async def test_an_answer_that_a_guardrail_refuses_is_cut(bench: Bench) -> None:
    """It was stored before it could be judged; no later call is given it."""
    said = await bench.run("s", "tell the secret", "one", guarded=True)
    assert said[0] == "OutputGuardrailTripwireTriggered"
    assert await bench.roles("s") == ["user", "user", "assistant"]
    asked = [call["items"] for call in own.read_calls(bench.calls) if call["instructions"] == "clerk"]
    assert [len(items) for items in asked] == [1, 2]


async def test_a_failed_run_leaves_the_users_message(bench: Bench) -> None:
    """A tool raised: the call is taken back, as the SDK has not added it, and the next run goes well."""
    said = await bench.run("s", "tool explode caught", "one")
    assert said[0] != "ok"
    assert await bench.roles("s") == ["user", "user", "assistant"]


async def test_an_approval_waits_in_the_thread(bench: Bench) -> None:
    """The call stands there without a result until it is approved; then it is not stored twice."""
    said = await bench.run("s", "one", "tool pay", "two")
    assert said[1].startswith("result paid")
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert await bench.roles("s") == ["user", "assistant", *turn, "user", "assistant"]
    assert bench.given[2] == ["user", "assistant", *turn[:3]]


async def test_the_newest_items_are_given_as_they_are(bench: Bench) -> None:
    """For whoever reads the list in the workflow; the model is given each item once."""
    await bench.run("s", "one", "tool look", "two", newest=2)
    tools = ["user", "function_call", "function_call_output", "assistant"]
    assert bench.given[-1] == ["user", "assistant", *tools, "user"]


async def test_a_limit_holds(bench: Bench) -> None:
    """Of the settings that every session of the SDK has."""
    await bench.run("s", "one", "two", "three", limit=2)
    assert bench.given[-1] == ["user", "assistant", "user"]
    assert own.read_calls(bench.calls)[-1]["items"][0]["content"] == "two"


async def test_continue_as_new_carries_a_reference_alone(bench: Bench) -> None:
    """The conversation goes on with the same epoch, and each run's history is short."""
    lines = [f"size 2000 {n}" + "y" * 2000 for n in range(9)]
    handle = await bench.start("s", *lines, each=3)
    assert len(await handle.result()) == 9
    assert await bench.roles("s") == ["user", "assistant"] * 9
    newest = await handle.fetch_history()
    assert sum(each.activity_task_scheduled_event_attributes.activity_type.name == "helix.openai_agents.open"
               for each in newest.events) == 0  # fmt: skip


async def test_histories_replay(bench: Bench) -> None:
    """With tools, an approval, a guardrail that stops, and streams."""
    handle = await bench.start("s", "one", "tool look", "tool pay", "tell the secret", "two", guarded=True)
    await handle.result()
    streamed = await bench.start("t", "one", "tool look", streams=True)
    await streamed.result()
    plugins = make_plugins(bench.settings, CountingModel(bench.calls), bench.backends)
    replayer = Replayer(workflows=own.WORKFLOWS, plugins=plugins)
    for each in (handle, streamed):
        await replayer.replay_workflow(await each.fetch_history())


async def test_another_execution_takes_the_conversation_over(bench: Bench) -> None:
    """The older one is refused from then on, by a typed error that is not tried again."""
    old = await bench.start("s", "one", waits=True)
    await asyncio.wait_for(_until(lambda: len(own.read_calls(bench.calls)) == 1), 20)
    talk = Talk("s", ["two"])
    said = await bench.client.execute_workflow(
        Conversation.run, talk, id=f"{bench.queue}-other", task_queue=bench.queue
    )
    assert said[0].startswith("echo two")
    assert bench.given[-1] == ["user", "assistant", "user"]
    await old.signal(Conversation.say, "three")
    with pytest.raises(WorkflowFailureError) as failed:
        await old.result()
    assert "FencedError" in _types(failed.value)
    assert await bench.roles("s") == ["user", "assistant"] * 2


async def _until(done: Any) -> None:
    while not done():
        await asyncio.sleep(0.05)


def _types(error: BaseException | None) -> list[str]:
    """Types of an error's chain of causes."""
    found = []
    while error is not None:
        found.append(getattr(error, "type", None) or type(error).__name__)
        error = getattr(error, "cause", None) or error.__cause__
    return found
