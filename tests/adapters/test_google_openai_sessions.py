"""OpenAI and Gemini in real sessions: a turn with tools that meets a rate limit, slips, and goes on later."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from helix_temporal.adapters.google import GoogleModel
from helix_temporal.adapters.openai_chat import OpenAIChatModel
from helix_temporal.adapters.openai_responses import OpenAIResponsesModel
from helix_temporal.agents import Agent, tool
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from tests.adapters import _google as gemini
from tests.adapters import _openai as gpt
from tests.adapters._standin import Reply, StandIn, plain


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"sunny in {city}"


@dataclass
class Spoken:
    """A provider, as a test of any needs it.

    Attributes:
        limited: It asks to slow down.
        calls: It asks for the weather of Bern and Rome at once.
        broken: It asks for something that can't be read.
        text: It says this.
        sent: What it was sent in a request, as its own words have it.
    """

    model: Any
    limited: Reply
    calls: Reply
    broken: Reply
    text: Any
    sent: str


@contextlib.asynccontextmanager
async def _chat(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gpt.client_of(standin) as client:
        pieces = [*gpt.call_chunks(0, "c1", "weather", '{"city": "Bern"}')]
        pieces += gpt.call_chunks(1, "c2", "weather", '{"city": "Rome"}')
        yield Spoken(
            OpenAIChatModel("gpt-5", client),
            plain({"error": {"type": "tokens"}}, status=429, retry_after_ms="30"),
            gpt.chat(*pieces, gpt.chunk("tool_calls")),
            gpt.chat(*gpt.call_chunks(0, "c3", "weather", '{"city": '), gpt.chunk("tool_calls")),
            gpt.chat_text,
            "messages",
        )


@contextlib.asynccontextmanager
async def _responses(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gpt.client_of(standin) as client:
        items = [
            gpt.call_item(f"c{at}", "weather", f'{{"city": "{city}"}}') for at, city in enumerate(CITIES)
        ]
        yield Spoken(
            OpenAIResponsesModel("gpt-5", client),
            plain({"error": {"type": "tokens"}}, status=429, retry_after_ms="30"),
            gpt.responses(gpt.reasoning_item("Two."), *items),
            gpt.responses(gpt.call_item("c3", "weather", '{"city": ')),
            lambda text: gpt.responses(gpt.text_item(text)),
            "input",
        )


@contextlib.asynccontextmanager
async def _google(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gemini.client_of(standin) as client:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.03s"}
        signed = {"thoughtSignature": gemini.signature(b"x")}
        calls = [gemini.call("weather", {"city": city}) for city in CITIES]
        yield Spoken(
            GoogleModel("gemini-3", client),
            plain({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [info]}}, status=429),
            gemini.gemini(gemini.piece(calls[0] | signed, *calls[1:], finish="STOP")),
            gemini.gemini(gemini.piece(finish="MALFORMED_FUNCTION_CALL")),
            gemini.gemini_text,
            "contents",
        )


CITIES = ("Bern", "Rome")


@pytest.fixture(params=[_chat, _responses, _google])
async def spoken(request: pytest.FixtureRequest, standin: StandIn) -> AsyncIterator[Spoken]:
    """Each provider in turn."""
    async with request.param(standin) as found:
        yield found


@pytest.fixture
async def served(temporal_address: str, unique: str, spoken: Spoken) -> AsyncIterator[Served]:
    """A worker whose agent has the provider's model and a tool; threads are in memory."""
    settings = Settings(temporal_address=temporal_address, task_queue=unique, allow_plaintext=True)
    agent = Agent(name="main", model=spoken.model, instructions="Be kind.", tools=[weather])
    async with session_worker(settings, [agent], options=SessionOptions(idle_timeout=60)) as found:
        yield found


async def test_a_turn_with_tools_meets_a_rate_limit_and_ends(
    served: Served, standin: StandIn, spoken: Spoken, unique: str
) -> None:
    """Temporal comes again when the provider says; tools run once; nothing is lost on the way back."""
    standin.will(spoken.limited, spoken.calls, spoken.text("Sunny in both."), spoken.text("Yes."))

    first = await served.sessions.ask(unique, "Bern and Rome?", agent="main")
    second = await served.sessions.ask(unique, "Sure?", agent="main")

    assert (first.status, first.text, second.text) == (AskStatus.ANSWERED, "Sunny in both.", "Yes.")
    limited, again, results, later = (body[spoken.sent] for body in standin.bodies)
    assert limited == again
    assert str(results).index("sunny in Bern") < str(results).index("sunny in Rome")
    # What has been sent stays as it was, for the provider's cache of prompts.
    assert later[: len(results)] == results
    adapter = (await served.plugin.backends.threads.read_facts(unique)).adapter
    assert adapter == spoken.model.adapter


async def test_a_call_that_cannot_be_read_is_told_to_the_model(
    served: Served, standin: StandIn, spoken: Spoken, unique: str
) -> None:
    """The tool is not run; the model mends its call, or says sorry, and the turn goes on."""
    standin.will(spoken.broken, spoken.text("Sorry."))

    answer = await served.sessions.ask(unique, "Bern?", agent="main")

    assert (answer.status, answer.text) == (AskStatus.ANSWERED, "Sorry.")
    assert "not valid JSON" in str(standin.bodies[1][spoken.sent])
    assert "sunny" not in str(standin.bodies[1][spoken.sent])
