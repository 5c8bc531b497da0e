"""Sessions of the OpenAI Agents SDK inside workflows, on a real Temporal server and every store."""

import asyncio
import contextlib
import importlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    Worker,
)

from helix_temporal import Agent, Backends, HelixPlugin, ScriptedModel, SessionClient, Settings
from helix_temporal.errors import InvalidConfigError
from helix_temporal.frameworks.openai_agents import HelixOpenAIPlugin, HelixSession
from helix_temporal.frameworks.openai_agents_store import (
    Answer,
    Conversations,
    Step,
    make_row_id,
    thread_of,
)
from helix_temporal.frameworks.openai_agents_workflow import MODEL_ACTIVITIES
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.threads import no_progress
from tests.docs._pages import ROOT, titled
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
        return list(await HelixSession(session_id, self.backends.sessions).get_items())

    async def roles(self, session_id: str) -> list[str]:
        """What each item is."""
        return [item.get("role") or item["type"] for item in await self.items(session_id)]

    @property
    def given(self) -> list[list[str]]:
        """What each item of each model call was."""
        return [
            [item.get("role") or item["type"] for item in call["items"]]
            for call in own.read_calls(self.calls)
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
    address: str,
    settings: Settings,
    queue: str,
    calls: Path,
    *,
    gate: asyncio.Event | None = None,
    **options: Any,
) -> AsyncIterator[Bench]:
    """A worker; its model answers when the gate is open."""
    backends = Backends(settings)
    params = options.pop("params", {})
    plugins = make_plugins(settings, CountingModel(calls, gate), backends, **params)
    client = await Client.connect(address, plugins=plugins)
    async with Worker(
        client, task_queue=queue, workflows=own.WORKFLOWS, activities=own.ACTIVITIES, **options
    ):
        yield Bench(client, settings, backends, calls, queue)
    await backends.close()


@pytest.fixture
async def bench(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> AsyncIterator[Bench]:
    """A worker over stores of one kind."""
    async with serving(temporal_address, settings, unique, tmp_path / "calls") as served:
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


async def test_a_turn_of_many_tools_sends_each_item_once(bench: Bench) -> None:
    """What the run has stored is not in the history again with the next call."""
    text = "look " + "x" * 5_000 + " times 6"
    handle = await bench.start("s", "one", text)
    await handle.result()
    pairs = ["function_call", "function_call_output"] * 6
    assert bench.given[-1] == ["user", "assistant", "user", *pairs]
    assert own.read_calls(bench.calls)[-1]["items"][2]["content"] == text
    assert await bench.roles("s") == ["user", "assistant", "user", *pairs, "assistant"]
    info = (await handle.describe()).raw_description.workflow_execution_info
    assert info.history_size_bytes < 60_000


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
    """The agent of a guardrail is given the items that the reference stands for; its answer is not stored."""
    await bench.run("s", "one", "two", guarded=True)
    judged = [call["items"] for call in own.read_calls(bench.calls) if call["instructions"] == "judge"]
    assert [len(items) for items in judged] == [1, 3]
    assert await bench.roles("s") == ["user", "assistant"] * 2


async def test_what_a_guardrail_stops_is_not_kept(bench: Bench) -> None:
    """The user's message stays, as in any session of the SDK; an answer that was stored already is cut."""
    said = await bench.run("s", "forbidden", "size 5 secret", "one", guarded=True)
    assert said[:2] == ["InputGuardrailTripwireTriggered", "echo"] or said[0].endswith("Triggered")
    assert "secret" not in str([item for item in await bench.items("s") if item.get("role") == "assistant"])
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


@pytest.mark.parametrize("each", [0, 1], ids=["in one run", "over runs"])
async def test_the_newest_items_are_given_as_they_are(bench: Bench, each: int) -> None:
    """For whoever reads the list in the workflow; the model is given each item once."""
    handle = await bench.start("s", "one", "tool look", "two", newest=2, each=each)
    await handle.result()
    (call,) = [
        json.loads(event.activity_task_scheduled_event_attributes.input.payloads[0].data)
        for event in (await handle.fetch_history()).events
        if event.activity_task_scheduled_event_attributes.activity_type.name in MODEL_ACTIVITIES
    ][-1:]
    kinds = [item.get("role") or item["type"] for item in call["input"]]
    assert kinds[-3:] == ["assistant", "user", "item_reference"]
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


async def test_an_approval_waits_over_continue_as_new(bench: Bench) -> None:
    """The call that stands in the thread is not stored again by the run that goes on."""
    said = await bench.client.execute_workflow(
        own.Approver.run, "s", id=f"{bench.queue}-s", task_queue=bench.queue
    )
    assert said.startswith("result paid")
    assert await bench.roles("s") == ["user", "function_call", "function_call_output", "assistant"]


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_cancelled_run_keeps_what_the_user_said(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """And shuts the model's late answer out."""
    calls, gate, ended = tmp_path / "calls", asyncio.Event(), asyncio.Event()

    async def note_end(call: Any) -> Any:
        try:
            return await call()
        finally:
            ended.set()

    around = [AroundModel(note_end)]
    async with serving(temporal_address, settings, unique, calls, gate=gate, interceptors=around) as bench:
        handle = await bench.client.start_workflow(
            own.Cancelled.run, "s", id=f"{unique}-s", task_queue=unique
        )
        while not own.read_calls(calls):  # noqa: ASYNC110 — another process is asked
            await asyncio.sleep(0.05)
        await handle.cancel()
        assert await handle.result() == "cancelled"
        gate.set()
        await asyncio.wait_for(ended.wait(), 30)
        assert await bench.roles("s") == ["user"]


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_workflows_that_are_not_cached_come_to_the_same_end(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """Each workflow task replays all before it."""
    calls = tmp_path / "calls"
    async with serving(temporal_address, settings, unique, calls, max_cached_workflows=0) as bench:
        said = await bench.run("s", "one", "tool look", "tell the secret", "tool pay", guarded=True)
        assert said[2] == "OutputGuardrailTripwireTriggered"
        tools = ["user", "function_call", "function_call_output", "assistant"]
        assert await bench.roles("s") == ["user", "assistant", *tools, "user", *tools]


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_local_activities_store_as_others_do(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """``use_local_activity`` of the other plugin's parameters."""
    calls, params = tmp_path / "calls", {"use_local_activity": True, "streaming_topic": None}
    async with serving(temporal_address, settings, unique, calls, params=params) as bench:
        await bench.run("s", "one", "tool look")
        tools = ["user", "function_call", "function_call_output", "assistant"]
        assert await bench.roles("s") == ["user", "assistant", *tools]
        assert bench.given[-1] == ["user", "assistant", *tools[:3]]


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


async def test_a_worker_goes_on_when_another_of_its_client_ends(
    variables: dict[str, str], temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """Workers of one client share its plugins, and their stores."""
    settings = Settings.from_env(variables).model_copy(update={"reference_key": SecretStr(KEY)})
    plugins = make_plugins(settings, CountingModel(tmp_path / "calls"))
    client = await Client.connect(temporal_address, plugins=plugins)
    kept = Worker(client, task_queue=unique, workflows=own.WORKFLOWS, activities=own.ACTIVITIES)
    ended = Worker(client, task_queue=f"{unique}-2", workflows=own.WORKFLOWS, activities=own.ACTIVITIES)
    async with kept:
        for queue in (f"{unique}-2", unique):
            async with ended if queue != unique else contextlib.nullcontext():
                said = await client.execute_workflow(
                    Conversation.run, Talk("s", ["one"]), id=queue, task_queue=queue
                )
                assert len(said) == 1
        items = await HelixSession("s", plugins[-1].backends.sessions).get_items()
        assert len(items) == 4


async def test_another_execution_takes_the_conversation_over(bench: Bench) -> None:
    """The older one is refused from then on, by a typed error that is not tried again."""
    old = await bench.start("s", "one", waits=True)
    await asyncio.wait_for(_until_answered(old, 1), 20)
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


async def _until_answered(handle: WorkflowHandle[Any, Any], count: int) -> None:
    while await handle.query(Conversation.count) < count:  # noqa: ASYNC110 — another process is asked
        await asyncio.sleep(0.05)


def _types(error: BaseException | None) -> list[str]:
    """Types of an error's chain of causes."""
    found = []
    while error is not None:
        found.append(getattr(error, "type", None) or type(error).__name__)
        error = getattr(error, "cause", None) or error.__cause__
    return found


# ---- what goes wrong ----------------------------------------------------------------------------------


class AroundModel(Interceptor):
    """Stands around everything that a model activity does, ours included."""

    def __init__(self, around: Any) -> None:
        self._around = around

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """As in `Interceptor`."""
        return _Around(next, self._around)


class _Around(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, around: Any) -> None:  # noqa: A002
        super().__init__(next)
        self._around = around

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        if activity.info().activity_type not in MODEL_ACTIVITIES:
            return await self.next.execute_activity(input)
        return await self._around(lambda: self.next.execute_activity(input))


async def _lose_the_first(call: Any) -> Any:
    result = await call()
    if activity.info().attempt == 1:
        raise RuntimeError("the acknowledgement was lost")
    return result


async def _run_twice_at_once(call: Any) -> Any:
    one, two = await asyncio.gather(call(), call())
    assert one == two
    return one


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_was_paid_for_is_not_paid_again(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path, streams: bool
) -> None:
    """The first attempt stores the answer and dies; the second finds it, with all that the response had."""
    calls, lost = tmp_path / "calls", [AroundModel(_lose_the_first)]
    async with serving(temporal_address, settings, unique, calls, interceptors=lost) as bench:
        said = await bench.run("s", "one", "tool look", "think", streams=streams)
        assert len(bench.given) == 4
        items = await bench.items("s")
        answers = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
        assert answers == said
        turn = ["user", "function_call", "function_call_output", "assistant"]
        assert await bench.roles("s") == ["user", "assistant", *turn, "user", "reasoning", "assistant"]


async def test_of_two_attempts_at_once_both_return_the_one_that_is_stored(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """As where an activity has timed out and runs on while its next attempt runs."""
    calls, twice = tmp_path / "calls", [AroundModel(_run_twice_at_once)]
    async with serving(temporal_address, settings, unique, calls, interceptors=twice) as bench:
        said = await bench.run("s", "one", "tool look", "think")
        items = await bench.items("s")
        answers = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
        assert answers == said
        assert len(items) == 9


async def test_of_many_attempts_at_once_one_is_stored(settings: Settings) -> None:
    """From several processes, in the same millisecond."""
    in_memory = Backends(settings)
    backends = [in_memory if settings.state_in == "memory" else Backends(settings) for _ in range(4)]
    writers = [Conversations(each.threads, each.sessions) for each in backends]
    head = await writers[0].open("s", 5, "owner", no_progress)
    for number in range(10):
        step = Step(thread_of("s"), 5, head, ({"role": "user", "content": str(number)},))
        answers = [
            Answer(
                tuple({"type": "message", "content": f"{at}/{part}"} for part in range(1 + at % 3)), str(at)
            )
            for at in range(len(writers))
        ]
        stored = await asyncio.gather(
            *(writer.store_answer(step, each) for writer, each in zip(writers, answers, strict=True))
        )
        assert all(each == stored[0] for each in stored)
        position = head.position + 1 + len(stored[0].items)
        head = Head(position=position, last_id=make_row_id(5, position - 1))
    items = await writers[0].read_items(thread_of("s"), 5, 0, head)
    assert len(items) == head.position
    for each in {id(each): each for each in (*backends, in_memory)}.values():
        await each.close()


async def ask(bench: Bench, workflow_id: str, reference: str, *session: str) -> str:
    """What a workflow is answered whose model call has this reference."""
    items = [{"type": "item_reference", "id": reference}, {"role": "user", "content": "what was said?"}]
    said: str = await bench.client.execute_workflow(
        own.Asker.run, args=[items, *session], id=workflow_id, task_queue=bench.queue
    )
    return said


async def find_reference(bench: Bench, session_id: str) -> str:
    """The newest reference that the history of a conversation's workflow has."""
    handle = bench.client.get_workflow_handle(f"{bench.queue}-{session_id}")
    events = (await handle.fetch_history()).events
    results = [each.activity_task_completed_event_attributes.result.payloads for each in events]
    places = [json.loads(payloads[0].data) for payloads in results if payloads]
    return str(next(place["reference"] for place in reversed(places) if "reference" in place))


@pytest.mark.parametrize(
    ("changed", "elsewhere"),
    [
        (lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"), False),
        (lambda text: text[:-10], False),
        (lambda text: text[: len(text) // 2], False),
        (lambda text: text.replace("/1.", "/1.A", 1), False),
        (lambda _: "helix-thread/1.", False),
        (lambda _: 'helix-step/1.["x",0,""]', False),
        (lambda text: text, True),
    ],
    ids=["changed", "cut", "cut in half", "longer", "empty", "a note", "another workflow's"],
)
@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_reference_that_was_not_signed_for_the_workflow_is_refused(
    bench: Bench, changed: Any, elsewhere: bool
) -> None:
    """By an error that is not tried again, before the model is asked."""
    await bench.run("s", "one")
    reference = await find_reference(bench, "s")
    workflow_id = f"{bench.queue}-{'other' if elsewhere else 's'}"
    with pytest.raises(WorkflowFailureError) as failed:
        await ask(bench, workflow_id, changed(reference))
    assert "InvalidReferenceError" in _types(failed.value)
    assert len(bench.given) == 1


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_reference_holds_as_long_as_its_epoch(bench: Bench) -> None:
    """The workflow's own one is expanded; once another execution has the conversation it is refused."""
    await bench.run("s", "one")
    reference = await find_reference(bench, "s")
    await ask(bench, f"{bench.queue}-s", reference)
    assert bench.given[-1] == ["user", "assistant", "user"]
    talk = Talk("s", ["two"])
    await bench.client.execute_workflow(Conversation.run, talk, id=f"{bench.queue}-o", task_queue=bench.queue)
    with pytest.raises(WorkflowFailureError) as failed:
        await ask(bench, f"{bench.queue}-s", reference)
    assert "FencedError" in _types(failed.value)


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_session_takes_no_reference_to_another_conversation(bench: Bench) -> None:
    """Though it was signed for this very workflow."""
    await bench.run("s", "one")
    reference = await find_reference(bench, "s")
    with pytest.raises(WorkflowFailureError) as failed:
        await ask(bench, f"{bench.queue}-s", reference, "t")
    assert "InvalidReferenceError" in _types(failed.value)
    assert len(bench.given) == 1


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_workers_with_another_key_refuse_references(
    bench: Bench, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """All workers need the same key."""
    await bench.run("s", "one")
    reference = await find_reference(bench, "s")
    other = bench.settings.model_copy(update={"reference_key": SecretStr("another secret of workers")})
    async with serving(temporal_address, other, f"{unique}-2", tmp_path / "others") as second:
        with pytest.raises(WorkflowFailureError) as failed:
            await ask(second, f"{bench.queue}-s", reference)
    assert "InvalidReferenceError" in _types(failed.value)
    assert "secret" not in str(failed.value.cause)


async def test_the_key_is_in_no_history(bench: Bench) -> None:
    """Nor is what was said before the turn."""
    handle = await bench.start("s", "the first line", "two", "three")
    await handle.result()
    history = str(await handle.fetch_history())
    assert KEY not in history
    events = (await handle.fetch_history()).events
    models = [str(each) for each in events if each.activity_task_scheduled_event_attributes.input.payloads]
    asked = [each for each in models if "invoke_model_activity" in each]
    assert ["the first line" in each for each in asked] == [True, False, False]


async def test_a_session_is_used_by_hand(bench: Bench) -> None:
    """Items are added and popped outside of runs, too."""
    await bench.run("s", "one")
    handle = await bench.client.start_workflow(
        own.Keeper.run, "s", id=f"{bench.queue}-keeper", task_queue=bench.queue
    )
    popped, second, said, _ = await handle.result()
    assert popped["role"] == "assistant"
    assert second["content"] == "b"
    assert said.startswith("echo after")
    assert await bench.roles("s") == ["user", "user", "user", "assistant"]


async def test_a_session_is_cleared(bench: Bench) -> None:
    """And goes on under its id."""
    await bench.run("s", "one")
    await bench.client.execute_workflow(
        own.Clearer.run, "s", id=f"{bench.queue}-clearer", task_queue=bench.queue
    )
    assert bench.given[-1] == ["user"]
    assert await bench.roles("s") == ["user", "assistant"]


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_model_call_without_a_session_is_as_without_the_plugin(bench: Bench) -> None:
    """The plugin is a guest."""
    items = [{"role": "user", "content": "one"}]
    handle = await bench.client.start_workflow(
        own.Asker.run, args=[items], id=f"{bench.queue}-plain", task_queue=bench.queue
    )
    assert (await handle.result()).startswith("echo one")
    names = [
        each.activity_task_scheduled_event_attributes.activity_type.name
        for each in (await handle.fetch_history()).events
    ]
    assert set(names) == {"", "invoke_model_activity"}


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_worker_without_the_plugin_says_so(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """Or with it before that of OpenAI: the workflow waits for one that is set up, and is not lost."""
    plugins = make_plugins(settings, CountingModel(tmp_path / "calls"))
    wrong = await Client.connect(temporal_address, plugins=plugins[::-1])
    served: dict[str, Any] = {"workflows": own.WORKFLOWS, "activities": own.ACTIVITIES}
    async with Worker(wrong, task_queue=unique, **served):
        handle = await wrong.start_workflow(
            Conversation.run, Talk("s", ["one"]), id=unique, task_queue=unique
        )
        told = await asyncio.wait_for(_find_failed_task(handle), 60)
    assert "HelixWorkflowSession needs HelixOpenAIPlugin" in told
    right = await Client.connect(temporal_address, plugins=plugins)
    async with Worker(right, task_queue=unique, **served):
        assert len(await asyncio.wait_for(handle.result(), 100)) == 1


async def _find_failed_task(handle: WorkflowHandle[Any, Any]) -> str:
    """What the first workflow task failed with."""
    while True:
        for event in (await handle.fetch_history()).events:
            if event.HasField("workflow_task_failed_event_attributes"):
                return str(event.workflow_task_failed_event_attributes.failure.message)
        await asyncio.sleep(0.1)


def test_a_guest_given_twice_is_refused(settings: Settings) -> None:
    """As `HelixPlugin`: its activities have the same names."""
    plugin = HelixOpenAIPlugin(settings)
    with pytest.raises(InvalidConfigError, match="the worker has two of HelixOpenAIPlugin"):
        plugin.configure_worker({"plugins": [plugin, HelixOpenAIPlugin(settings)]})


@pytest.mark.parametrize("variables", ["sqlite"], indirect=True)
async def test_it_works_beside_our_own_plugin(
    settings: Settings, temporal_address: str, unique: str, tmp_path: Path
) -> None:
    """On one client and worker, behind those of OpenAI; sessions of both kinds."""
    openai, ours = make_plugins(settings, CountingModel(tmp_path / "calls"))
    agent = Agent(name="clerk", model=ScriptedModel(["It is on its way."]))
    helix = HelixPlugin(settings, agents=[agent])
    client = await Client.connect(temporal_address, plugins=[openai, ours, helix])
    async with Worker(client, task_queue=unique, workflows=own.WORKFLOWS, activities=own.ACTIVITIES):
        said = await client.execute_workflow(
            Conversation.run, Talk("s", ["one"]), id=unique, task_queue=unique
        )
        answer = await SessionClient(client, task_queue=unique).ask(unique[:8], "Where is it?", agent="clerk")
        assert (len(said), answer.text) == (1, "It is on its way.")
    await helix.backends.close()


def test_a_plugin_without_a_key_is_refused() -> None:
    """Where it is made."""
    with pytest.raises(InvalidConfigError, match="reference_key is not set"):
        HelixOpenAIPlugin(Settings())


# ---- what the pages show -------------------------------------------------------------------------------


@pytest.mark.parametrize("variables", ["sqlite"], indirect=True)
async def test_the_program_of_the_page_runs_as_it_stands(
    variables: dict[str, str],
    temporal_address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But for its model; a second run goes on with the conversation."""
    program = dict(titled(ROOT / "docs" / "frameworks" / "openai-agents.md", "python"))["support_workflow.py"]
    await asyncio.to_thread(Path(tmp_path, "support_workflow.py").write_text, program)
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in {**variables, "HELIX_TEMPORAL_ADDRESS": temporal_address}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    calls = tmp_path / "calls"
    provider = CountingProvider(CountingModel(calls))
    params = ModelActivityParameters(start_to_close_timeout=timedelta(seconds=20))
    monkeypatch.setattr(
        "temporalio.openai_agents.OpenAIAgentsPlugin", lambda: OpenAIAgentsPlugin(params, provider)
    )
    module = importlib.import_module("support_workflow")
    for _ in range(2):
        await module.main()
    assert [len(call["items"]) for call in own.read_calls(calls)] == [1, 3]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("variables", ["redis and s3"], indirect=True)
async def test_the_example_runs(variables: dict[str, str], temporal_address: str) -> None:
    """As its page says: four calls of the model, though a worker was killed on the way."""
    folder = ROOT / "examples" / "openai_agents_sessions"
    own_environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(folder / "openai_agents_sessions.py"),
        stdout=asyncio.subprocess.PIPE,
        env={**own_environment, **variables, "HELIX_TEMPORAL_ADDRESS": temporal_address},
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0
    lines = printed.decode().splitlines()
    assert "the worker ended with -9" in lines
    assert lines[-3:] == [
        "inside:  Your order is on its way.",
        "inside:  I have read 7 items.",
        "the model was called 4 times, with 1 items, 3 items, 5 items, 7 items",
    ]
