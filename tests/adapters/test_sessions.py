"""Adapters in real sessions: a turn with a tool, rate limits, slips of the model, and other providers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.api.failure.v1 import ApplicationFailureInfo

from helix_temporal.agents import Agent, ModelEvent, ModelRequest, StreamingModel, tool
from helix_temporal.client import workflow_id
from helix_temporal.models.messages import Finish
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from tests.adapters import _anthropic as claude_wire
from tests.adapters import _langchain as gpt_wire
from tests.adapters._standin import StandIn, plain


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"sunny in {city}"


class Current:
    """Whichever model the test has put there, as after a deployment with another one."""

    adapter = "anthropic"

    def __init__(self) -> None:
        self.model: StreamingModel

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """What that one yields."""
        async for event in self.model.stream(request):
            yield event


@pytest.fixture
def current() -> Current:
    """The model of the agent ``main``."""
    return Current()


@pytest.fixture
async def served(temporal_address: str, unique: str, current: Current) -> AsyncIterator[Served]:
    """A worker whose agent has the current model and a tool; threads are in memory."""
    settings = Settings(temporal_address=temporal_address, task_queue=unique, allow_plaintext=True)
    agent = Agent(name="main", model=current, instructions="Be kind.", tools=[weather])
    async with session_worker(settings, [agent], options=SessionOptions(idle_timeout=60)) as found:
        yield found


async def last_failures(served: Served, session_id: str) -> list[ApplicationFailureInfo]:
    """Why activities were tried again."""
    handle = served.client.get_workflow_handle(workflow_id(session_id))
    started = [
        event.activity_task_started_event_attributes for event in (await handle.fetch_history()).events
    ]
    return [each.last_failure.application_failure_info for each in started if each.attempt > 1]


async def test_a_turn_with_a_tool_meets_a_rate_limit_and_ends(
    served: Served, standin: StandIn, current: Current, unique: str
) -> None:
    """The provider says when to come again, Temporal comes then, and nothing is asked or run twice."""
    current.model = claude_wire.model(standin, cache="auto")
    limit = {"type": "error", "error": {"type": "rate_limit_error", "message": "no"}}
    call = [claude_wire.thinking("Hm."), claude_wire.use("toolu_1", city="Bern")]
    standin.will(
        plain(limit, status=429, retry_after_ms="30"),
        claude_wire.says(*call),
        claude_wire.says(claude_wire.text("It is sunny in Bern.")),
    )
    answer = await served.sessions.ask(unique, "How is the weather in Bern?", agent="main")
    assert (answer.status, answer.text) == (AskStatus.ANSWERED, "It is sunny in Bern.")
    assert len(standin.asked) == 3
    assert standin.bodies[0] == standin.bodies[1]
    first, second, third = standin.bodies[2]["messages"]
    assert first["content"][0]["text"] == "How is the weather in Bern?"
    assert json.dumps(second["content"]) == json.dumps(call)
    assert third["content"][0]["content"][0]["text"] == "sunny in Bern"
    (failure,) = await last_failures(served, unique)
    assert failure.type == "ModelRateLimitedError"
    assert failure.next_retry_delay.ToMilliseconds() == 30


async def test_a_tool_whose_arguments_could_not_be_read_is_not_run(
    served: Served, standin: StandIn, current: Current, unique: str
) -> None:
    """The model is told, and mends it; the turn goes on."""
    current.model = claude_wire.model(standin)
    broken = claude_wire.block_from(
        0, claude_wire.use("toolu_1"), *claude_wire.pieces_of_input('{"city": "' + "x" * 5000)
    )
    standin.will(
        claude_wire.stream(claude_wire.begins(), *broken, *claude_wire.ends("tool_use")),
        claude_wire.says(claude_wire.text("Sorry.")),
    )
    answer = await served.sessions.ask(unique, "go", agent="main")
    assert answer.text == "Sorry."
    (told,) = standin.bodies[1]["messages"][2]["content"]
    assert told["is_error"] is True
    assert "not valid JSON" in told["content"][0]["text"]


@pytest.mark.parametrize(("stop", "finish"), [("max_tokens", Finish.LENGTH), ("refusal", Finish.REFUSAL)])
async def test_how_the_answer_ended_reaches_the_caller(
    served: Served, standin: StandIn, current: Current, unique: str, stop: str, finish: Finish
) -> None:
    """Who shows it must know that it is cut, or none."""
    current.model = claude_wire.model(standin)
    standin.will(claude_wire.says(claude_wire.text("It is"), stop=stop))
    assert (await served.sessions.ask(unique, "go", agent="main")).finish is finish


async def test_a_thread_goes_on_with_another_provider_and_comes_back(
    served: Served, standin: StandIn, current: Current, unique: str
) -> None:
    """Each gets its own words as they were, and the other's in a form that it takes."""
    ask, thought = served.sessions.ask, claude_wire.thinking("Bern, then.")
    claude, gpt = claude_wire.model(standin), gpt_wire.gpt(standin)
    current.model = claude
    standin.will(
        claude_wire.says(thought, claude_wire.use("toolu_1", city="Bern")),
        claude_wire.says(claude_wire.text("Sunny.")),
    )
    await ask(unique, "Bern?", agent="main")
    current.model = gpt
    call = {"id": "call/Ä", "name": "weather", "arguments": '{"city": "Biel"}'}
    standin.will(gpt_wire.says("", call), gpt_wire.says("Sunny, too."))
    await ask(unique, "Biel?", agent="main")
    current.model = claude
    standin.will(claude_wire.says(claude_wire.text("Both.")))
    await ask(unique, "Which?", agent="main")

    to_gpt: list[dict[str, Any]] = standin.bodies[2]["messages"]
    assert [each["role"] for each in to_gpt] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert to_gpt[2]["tool_calls"][0]["id"] == to_gpt[3]["tool_call_id"] == "toolu_1"
    assert standin.bodies[3]["messages"][6]["tool_calls"][0]["id"] == "call/Ä"
    back = standin.bodies[4]["messages"]
    assert back[1]["content"] == [thought, claude_wire.use("toolu_1", city="Bern")]
    mapped = back[5]["content"][0]["id"]
    assert mapped.startswith("call_")
    assert back[6]["content"][0]["tool_use_id"] == mapped
    makers = [
        list(each.provider) for each in await served.sessions.session(unique).get_messages() if each.provider
    ]
    assert makers == [["anthropic"], ["anthropic"], *[["langchain/openai-chat"]] * 2, ["anthropic"]]


async def test_a_thread_remembers_the_adapter_that_it_began_with(
    served: Served, standin: StandIn, current: Current, unique: str
) -> None:
    """An archive says which provider's answers to expect in it."""
    current.model = claude_wire.model(standin)
    standin.will(claude_wire.says(claude_wire.text("Hi.")))
    await served.sessions.ask(unique, "go", agent="main")
    assert (await served.plugin.backends.threads.read_facts(unique)).adapter == "anthropic"
