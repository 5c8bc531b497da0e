"""What a page shows of a step in real sessions: what its model was given, wherever the session went since."""

import uuid
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from helix_temporal.agents import Agent, Compaction, ContextPolicy, ModelRequest, ModelResponse
from helix_temporal.client import SessionHandle
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.streams import RunStarted
from helix_temporal.testing.serving import session_worker
from helix_temporal.views.context import describe_message, read_context
from helix_temporal.views.models import ModelContext
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

INSTRUCTIONS: Final = "Answer what you are asked."


class Summer:
    """Sums up, each time in other words."""

    def __init__(self) -> None:
        self.calls = 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """As `Model.generate`."""
        self.calls += 1
        return ModelResponse(f"summary {self.calls} of {request.session_id}")


class Shop(Stand):
    """A stand whose agent ``short`` is looked at."""

    agent: Agent

    async def context(self, session_id: str, position: int) -> ModelContext:
        """What a page shows."""
        backends = self.served.plugin.backends
        return await read_context(backends, {"short": self.agent}, session_id, session_id, position)

    async def answers(self, session_id: str) -> list[int]:
        """Positions of the answers in the thread."""
        messages = await self.messages(session_id)
        return [at for at, message in enumerate(messages) if message.role == "assistant"]

    async def contexts(self, session_id: str) -> list[ModelContext]:
        """Of all answers in the thread."""
        return [await self.context(session_id, each) for each in await self.answers(session_id)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shop]:
    """A worker whose agent has a window of six messages, and sums up what falls out of it."""
    desk = Desk()
    main = next(each for each in desk.agents() if each.name == "main")
    agent = Agent(
        name="short",
        model=desk,
        instructions=INSTRUCTIONS,
        tools=main.tools,
        context=ContextPolicy(max_messages=6),
        compaction=Compaction(at_messages=8, keep_turns=1, model=Summer()),
    )
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with session_worker(settings, [agent], options=SessionOptions(idle_timeout=60)) as served:
        found = Shop(served, desk)
        found.agent = agent
        yield found


async def talk(handle: SessionHandle, *texts: str) -> None:
    for text in texts:
        asked = await handle.ask(text, message_id=f"m-{text}", timeout=30)
        assert asked.status is AskStatus.ANSWERED


def shown(context: ModelContext) -> list[tuple[str, str]]:
    kinds = {"summary", "message", "input"}
    return [(part.role, part.text) for part in context.parts if part.kind in kinds]


def given(request: ModelRequest) -> list[tuple[str, str]]:
    return [(each.role, describe_message(each)) for each in request.messages]


async def test_a_session_with_tools_and_summaries(shop: Shop, sid: str) -> None:
    """Each step, message by message, while the thread is hot and from its archive."""
    shop.desk.scripts[sid] = first_tools_then("done", "a", "b")
    await talk(shop.sessions.session(sid, agent="short"), "one", "two", "three", "four")
    hot = await shop.contexts(sid)
    assert [shown(each) for each in hot] == [given(each) for each in shop.desk.requests[sid]]
    assert {(each.recorded, each.instructions_changed) for each in hot} == {(True, False)}
    assert [each.step for each in hot] == [1, 2] * 4
    assert any("summary" in each.parts[-4].kind or each.left_out for each in hot)
    await shop.finish(sid)
    assert await shop.contexts(sid) == hot


async def test_a_summary_that_outlives_the_answer_that_had_its_text(shop: Shop, sid: str) -> None:
    """A rewind cuts that answer, and the summary still holds: the next answer has the text again."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two", "three", "four", "five")
    told = [message.given for message in await shop.messages(sid) if message.given is not None]
    keeper = next(at for at, each in enumerate(told) if each.summary is not None and each.summary.text)
    await handle.rewind_to_turn(keeper)
    await talk(handle, "anew")
    newest = (await shop.contexts(sid))[-1]
    assert shown(newest) == given(shop.desk.requests[sid][-1])
    assert newest.parts[[part.kind for part in newest.parts].index("summary")].text.endswith(f"of {sid}")


async def test_a_fork_shows_of_its_past_what_its_source_shows(shop: Shop, sid: str) -> None:
    """The model of the source was given it; the fork's own steps go on from there."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two", "three", "four", "five")
    await handle.fork(f"{sid}-f")
    await shop.sessions.ask(f"{sid}-f", "six", agent="short")
    source, fork = await shop.contexts(sid), await shop.contexts(f"{sid}-f")
    assert [each.parts for each in fork[:5]] == [each.parts for each in source]
    assert shown(fork[-1]) == given(shop.desk.requests[f"{sid}-f"][-1])
    await shop.sessions.session(f"{sid}-f").close()


async def test_an_attempt_that_failed_leaves_nothing(shop: Shop, sid: str) -> None:
    """The step tells of the call that gave its answer."""
    failures = iter([ConnectionError("away")])

    def script(_request: ModelRequest) -> str:
        for failure in failures:
            raise failure
        return "hi"

    shop.desk.scripts[sid] = script
    await talk(shop.sessions.session(sid, agent="short"), "one")
    assert len(shop.desk.requests[sid]) == 2
    assert [shown(each) for each in await shop.contexts(sid)] == [given(shop.desk.requests[sid][-1])]


async def test_a_run_and_its_stream_name_what_people_look_for(shop: Shop, sid: str) -> None:
    """The execution in Temporal, and the question before the thread has it."""
    live = shop.sessions.session(sid, agent="short").stream_ask("one", message_id="m-one")
    chunks = [stored.chunk async for stored in live]
    begun = chunks[0]
    assert isinstance(begun, RunStarted)
    assert (begun.message_ids, begun.texts) == (("m-one",), ("one",))
    store = shop.served.plugin.backends.sessions
    assert store is not None
    run = (await store.list_runs(sid)).items[0]
    described = await shop.handle(sid).describe()
    assert (run.workflow_id, run.workflow_run_id) == (workflow_id(sid), described.run_id)
