"""A provider's stream breaks off in the middle of a step: what was shown of it is void."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from helix_temporal.adapters.google import GoogleModel
from helix_temporal.adapters.openai_chat import OpenAIChatModel
from helix_temporal.adapters.openai_responses import OpenAIResponsesModel
from helix_temporal.agents import Agent
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import StepDiscarded, TextChunk
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from tests.adapters import _anthropic as claude
from tests.adapters import _google as gemini
from tests.adapters import _langchain as langchain
from tests.adapters import _openai as gpt
from tests.adapters._standin import Reply, StandIn, events

HALF, WHOLE = "Half a wor", "All of it."


@dataclass(frozen=True, slots=True)
class Spoken:
    """A provider: an answer that breaks off after some words, and one that does not."""

    model: Any
    cut: Reply
    whole: Reply


@contextlib.asynccontextmanager
async def _anthropic(standin: StandIn) -> AsyncIterator[Spoken]:
    cut = claude.says(claude.text(HALF), cut=True)
    yield Spoken(claude.model(standin), cut, claude.says(claude.text(WHOLE)))


@contextlib.asynccontextmanager
async def _chat(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gpt.client_of(standin) as client:
        cut = gpt.chat(gpt.chunk(content=HALF), cut=True)
        yield Spoken(OpenAIChatModel("gpt-5", client), cut, gpt.chat_text(WHOLE))


@contextlib.asynccontextmanager
async def _responses(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gpt.client_of(standin) as client:
        cut = events(*gpt.response_events(gpt.text_item(HALF))[:-2], cut=True)
        whole = gpt.responses(gpt.text_item(WHOLE))
        yield Spoken(OpenAIResponsesModel("gpt-5", client), cut, whole)


@contextlib.asynccontextmanager
async def _google(standin: StandIn) -> AsyncIterator[Spoken]:
    async with gemini.client_of(standin) as client:
        cut = gemini.gemini(gemini.piece({"text": HALF}), cut=True)
        yield Spoken(GoogleModel("gemini-3", client), cut, gemini.gemini_text(WHOLE))


@contextlib.asynccontextmanager
async def _langchain(standin: StandIn) -> AsyncIterator[Spoken]:
    cut = gpt.chat(gpt.chunk(content=HALF), cut=True)
    yield Spoken(langchain.gpt(standin), cut, langchain.says(WHOLE))


@pytest.fixture(params=[_anthropic, _chat, _responses, _google, _langchain])
async def spoken(request: pytest.FixtureRequest, standin: StandIn) -> AsyncIterator[Spoken]:
    """Each provider in turn."""
    speaks: Callable[[StandIn], Any] = request.param
    async with speaks(standin) as found:
        yield found


@pytest.fixture
async def served(temporal_address: str, unique: str, spoken: Spoken) -> AsyncIterator[Served]:
    """A worker whose agent has the provider's model; all stores are in memory."""
    settings = Settings(temporal_address=temporal_address, task_queue=unique, allow_plaintext=True)
    agent = Agent(name="main", model=spoken.model)
    async with session_worker(settings, [agent], options=SessionOptions(idle_timeout=60)) as found:
        yield found


async def test_what_was_shown_of_a_stream_that_broke_off_is_void_and_the_next_attempt_counts_once(
    served: Served, standin: StandIn, spoken: Spoken, unique: str
) -> None:
    """Half an answer is not kept, not shown beside the whole one, and not counted."""
    standin.will(spoken.cut, spoken.whole)
    answer = await served.sessions.ask(unique, "go", agent="main", message_id="m1")
    assert (answer.status, answer.text, len(standin.asked)) == (AskStatus.ANSWERED, WHOLE, 2)

    backends = served.plugin.backends
    assert backends.streams is not None
    reader = await backends.streams.create_resumable_reader(unique)
    info = await backends.streams.get_info(unique)
    assert reader is not None
    assert info is not None
    chunks, view = [], StreamView()
    async with contextlib.aclosing(reader):
        async for stored in reader:
            chunks.append(stored.chunk)
            view.feed(stored)
            if stored.sequence == info.last_sequence:
                break
    told = "".join(each.delta for each in chunks if isinstance(each, TextChunk))
    assert told == HALF + WHOLE
    assert sum(isinstance(each, StepDiscarded) for each in chunks) >= 1
    assert (view.text, view.status) == (WHOLE, "completed")
    entries = await backends.usage.get_entries(unique)
    assert len(entries) <= 1
    assert [message.text for message in await served.sessions.session(unique).get_messages()] == ["go", WHOLE]
