"""What models get in real sessions: summaries that follow the thread, and mended results that are told."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.agents import Agent, Compaction, ModelRequest, ModelResponse
from helix_temporal.client import SessionClient, SessionHandle
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.messages import Message, ToolCall, encode_message
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.record import Summary, parse_record
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand, make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Summer:
    """Sums up by saying which messages it was told of."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """As `Model.generate`."""
        text = request.messages[0].text
        told = [line.removeprefix("user: ") for line in text.split("\n\n") if line.startswith("user: ")]
        before = [line for line in text.split("\n\n") if line.startswith("told of ")]
        return ModelResponse(content=" ".join([*before, f"told of {','.join(told)}"]))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """A worker with an agent that sums up all but the newest turn, every second turn."""
    desk = Desk()
    compaction = Compaction(at_messages=4, keep_turns=1, model=Summer())
    agents = [*desk.agents(), Agent(name="short", model=desk, compaction=compaction)]
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, agents, options=options) as served:
        yield Stand(served, desk)


async def talk(handle: SessionHandle, *texts: str) -> None:
    for text in texts:
        asked = await handle.ask(text, message_id=f"m-{text}", timeout=30)
        assert asked.status is AskStatus.ANSWERED


def given(stand: Stand, session_id: str) -> list[str]:
    """What the model was given in the newest call."""
    return [each.text for each in stand.desk.requests[session_id][-1].messages]


async def summary(stand: Stand, session_id: str) -> Summary | None:
    facts = await stand.served.plugin.backends.threads.read_facts(session_id)
    return parse_record(facts.slice).summary


async def test_a_session_is_summed_up_and_its_originals_stay(shop: Stand, sid: str) -> None:
    """In the thread, in the archive, and after the session has come back from there."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two", "three")
    assert [text.split("\n\n")[-1] for text in given(shop, sid)] == ["told of one", "two", "3: two", "three"]
    await shop.finish(sid)
    await talk(handle, "four")
    assert given(shop, sid)[0].endswith("told of one told of two")
    users = [each.text for each in await shop.messages(sid) if each.role == "user"]
    assert users == ["one", "two", "three", "four"]


async def test_a_turn_with_a_summary_is_one_activity_still(shop: Stand, sid: str) -> None:
    """It is made within the step: the history grows as ever."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two")
    before = len(await shop.events(sid))
    await talk(handle, "three")
    names = [
        each.activity_task_scheduled_event_attributes.activity_type.name
        for each in (await shop.events(sid))[before:]
        if each.HasField("activity_task_scheduled_event_attributes")
    ]
    assert names == ["helix.sessions.run_step"]
    assert await summary(shop, sid) is not None


async def test_a_rewind_below_what_was_summed_up_drops_the_summary(shop: Stand, sid: str) -> None:
    """It tells of what was never said, as far as the thread goes."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two", "three")
    assert await summary(shop, sid) is not None
    await handle.rewind_to_turn(1)
    assert (await summary(shop, sid)) is not None
    await handle.rewind_to_turn(0)
    assert await summary(shop, sid) is None
    await talk(handle, "anew")
    assert given(shop, sid) == ["anew"]


async def test_a_fork_takes_the_summary_along_where_it_holds(shop: Stand, sid: str) -> None:
    """A fork from before it has its own past only."""
    handle = shop.sessions.session(sid, agent="short")
    await talk(handle, "one", "two", "three", "four")
    kept = await summary(shop, sid)
    assert kept is not None
    assert kept.upto.position == 4
    await handle.fork(f"{sid}-late")
    await handle.edit("m-two", "TWO", f"{sid}-early")
    assert given(shop, f"{sid}-early") == ["one", "1: one", "TWO"]
    late: SessionClient = shop.sessions
    await late.ask(f"{sid}-late", "five", agent="short")
    assert "told of one" in given(shop, f"{sid}-late")[0]
    assert await summary(shop, f"{sid}-early") is None
    for name in ("late", "early"):
        await shop.sessions.session(f"{sid}-{name}").close()


async def test_results_that_had_to_be_mended_are_told(shop: Stand, sid: str) -> None:
    """A thread that came from elsewhere, with a call that nobody ever answered: the session goes on."""
    threads = shop.served.plugin.backends.threads
    opened = await threads.open(OpenThread(sid, 7, "importer"))
    broken = (
        Message(id="b1", role="user", content="look"),
        Message(id="b2", role="assistant", tool_calls=(ToolCall(id="c", name="act"),)),
        Message(id="b3", role="user", content="hello?"),
        Message(id="b4", role="assistant", content="hi"),
    )
    assert opened.header.head == EMPTY
    await threads.append(
        StepAppend(sid, 7, EMPTY, tuple(encode_message(each) for each in broken), commits=True)
    )
    await threads.flush(FlushThread(sid, 7))
    handle = shop.sessions.session(sid, agent="main")
    await talk(handle, "one")
    roles = [each.role for each in shop.desk.requests[sid][-1].messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "user"]
    assert (await handle.get_status()).repairs == 1
    await shop.finish(sid)
    receipts = {each.name: each for each in (await handle.result()).receipts}
    assert receipts["repair"].detail == "1 results of tool calls were mended for model calls"
    # The thread itself is as it was.
    assert [each.id for each in await shop.messages(sid)][:4] == ["b1", "b2", "b3", "b4"]
