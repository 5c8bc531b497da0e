"""S3 away while a session is open: the conversation goes on, and the archive catches up by itself."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowFailureError

from helix_temporal.agents import ToolContext
from helix_temporal.devstack import S3Endpoint
from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.sessions import AskStatus, SessionInfo, SessionOptions
from helix_temporal.settings import Limits
from helix_temporal.testing.proxy import FaultProxy
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows._metered import fetch
from tests.workflows._shore import shore as own_shore
from tests.workflows.conftest import TIMEOUTS, Stand, make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@dataclass(frozen=True)
class Shore:
    """A stand whose S3 is behind a proxy, and where its metrics are."""

    stand: Stand
    proxy: FaultProxy
    metrics: str

    def count_refused(self) -> float:
        """Turns that were counted as refused."""
        turns = [each for each in fetch(self.metrics) if each.name == "helix_turns_total"]
        return sum(each.value for each in turns if each.labels["outcome"] == "refused")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shore(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shore]:
    desk, metrics = Desk(), f"127.0.0.1:{free_port()}"
    async with FaultProxy.start(s3.endpoint) as proxy:
        settings = make_settings(
            temporal_address,
            redis_url,
            s3,
            f"t{uuid.uuid4().hex[:12]}",
            s3_endpoint=f"http://{proxy.address}",
            limits=Limits(unarchived_bytes=1024 * 1024),
            metrics_prometheus=metrics,
        )
        options = SessionOptions(idle_timeout=60)
        async with session_worker(settings, desk.agents(), options=options, drain=1.0) as served:
            yield Shore(Stand(served, desk), proxy, metrics)
            proxy.refuse(False)


@pytest_asyncio.fixture(loop_scope="session")
async def sid(shore: Shore) -> AsyncIterator[str]:
    """A session id of the test's own; S3 is back and the session ended afterwards."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    yield session_id
    shore.proxy.refuse(False)
    await shore.stand.sessions.session(session_id).close()


async def until_archived(shore: Shore, session_id: str) -> SessionInfo:
    for _ in range(400):
        status = await shore.stand.sessions.session(session_id).get_status()
        if status.archived:
            return status
        await asyncio.sleep(0.05)
    raise AssertionError("the archive did not catch up")


async def test_chat_goes_on_without_the_archive_and_says_so(shore: Shore, sid: str) -> None:
    """An open session needs Redis alone; its status says what is not archived."""
    sessions = shore.stand.sessions
    await sessions.ask(sid, "one", agent="main")
    await until_archived(shore, sid)
    shore.proxy.refuse()
    for text in ("two", "three"):
        assert (await sessions.ask(sid, text, timeout=20)).status is AskStatus.ANSWERED
    assert not (await sessions.session(sid).get_status()).archived


async def test_the_archive_catches_up_by_itself_when_it_is_back(shore: Shore, sid: str) -> None:
    """Nobody has to send a message for what is hot to become safe."""
    sessions = shore.stand.sessions
    await sessions.ask(sid, "one", agent="main")
    shore.proxy.refuse()
    await sessions.ask(sid, "two", timeout=20)
    shore.proxy.refuse(False)
    await until_archived(shore, sid)
    assert (await sessions.session(sid).describe_thread()).archived == 4


async def test_a_tool_that_has_run_is_not_run_again_for_a_store_that_is_away(shore: Shore, sid: str) -> None:
    """One refused PUT of a large result had counted as a failure of the tool: it paid again."""
    desk = shore.stand.desk

    def act(what: str, context: ToolContext) -> str:
        shore.proxy.refuse()
        asyncio.get_running_loop().call_later(1.5, shore.proxy.refuse, False)
        return what * 3000

    desk.acts[sid], desk.scripts[sid] = act, first_tools_then("done", "x")
    assert (await shore.stand.sessions.ask(sid, "one", agent="main", timeout=30)).text == "done"
    assert [each.attempt for each in desk.contexts[sid]] == [1]
    assert desk.requests[sid][-1].messages[-1].text == "x" * 3000


async def test_a_session_that_ends_without_the_archive_says_so_and_keeps_what_is_hot(
    shore: Shore, sid: str
) -> None:
    """The receipt names what failed; what is not archived is not dropped."""
    sessions = shore.stand.sessions
    await sessions.ask(sid, "one", agent="main")
    shore.proxy.refuse()
    await sessions.ask(sid, "two", timeout=20)
    await sessions.session(sid).close()
    ended = await asyncio.wait_for(sessions.session(sid).result(), 30)
    receipts = {receipt.name: receipt for receipt in ended.receipts}
    assert not receipts["flush"].ok
    assert receipts["flush"].detail
    header = await shore.stand.served.plugin.backends.hot.read_header(sid)
    assert header is not None
    assert header.head.position == 4


async def test_a_session_that_ended_without_the_archive_goes_on_when_it_is_back(
    shore: Shore, sid: str
) -> None:
    """Opening continues the hot thread, and archives it."""
    sessions = shore.stand.sessions
    await sessions.ask(sid, "one", agent="main")
    shore.proxy.refuse()
    await sessions.ask(sid, "two", timeout=20)
    await sessions.session(sid).close()
    await asyncio.wait_for(sessions.session(sid).result(), 30)
    shore.proxy.refuse(False)
    assert (await sessions.ask(sid, "three", agent="main", timeout=30)).text == "5: three"


@pytest.mark.parametrize("ended", [False, True], ids=["new", "ended"])
async def test_who_asks_a_session_that_cannot_be_opened_is_told_why(
    shore: Shore, sid: str, ended: bool
) -> None:
    """Within half a minute, not after ten; the message waits, and counts once."""
    sessions = shore.stand.sessions
    if ended:
        await sessions.ask(sid, "before", agent="main")
        await sessions.session(sid).close()
        await asyncio.wait_for(sessions.session(sid).result(), 30)
    shore.proxy.refuse()
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=r"cannot be opened now: .*S3.* bucket ") as told:
        await sessions.ask(sid, "one", agent="main", message_id="m-1")
    assert 10 < time.monotonic() - began < 30
    assert told.value.facts == {"message_id": "m-1"}
    shore.proxy.refuse(False)
    answer = await sessions.ask(sid, "one", agent="main", message_id="m-1", timeout=30)
    assert answer.text == ("3: one" if ended else "1: one")
    assert len(shore.stand.desk.requests[sid]) == (2 if ended else 1)


async def test_too_much_that_is_not_archived_refuses_a_turn_and_the_session_serves_on(
    shore: Shore, sid: str
) -> None:
    """Redis is not an archive: past a limit new turns are refused until the archive is back."""
    sessions = shore.stand.sessions
    shore.stand.desk.scripts[sid] = lambda request: "x" * 700_000
    await sessions.ask(sid, "one", agent="main")
    shore.proxy.refuse()
    for text in ("two", "three"):
        await sessions.ask(sid, text, timeout=20)
    counted = shore.count_refused()
    refused = await sessions.ask(sid, "four", timeout=20)
    assert (refused.status, refused.in_thread) == (AskStatus.FAILED, False)
    assert refused.error is not None
    assert refused.error.startswith("ColdTierBehindError")
    assert shore.count_refused() == counted + 1
    shore.proxy.refuse(False)
    await until_archived(shore, sid)
    assert (await sessions.ask(sid, "four", timeout=20)).status is AskStatus.ANSWERED


async def test_messages_that_were_sent_wait_until_the_archive_is_back(shore: Shore, sid: str) -> None:
    """They were accepted, and nobody waits for them who could send them again; those who ask are told."""
    sessions = shore.stand.sessions
    await far_behind(shore, sid)
    await sessions.send(sid, "four", message_id="m-four")
    await until_refused(shore, sid, 1)
    await sessions.send(sid, "five", message_id="m-five")
    await until_refused(shore, sid, 2)
    asked = await sessions.ask(sid, "six", timeout=20)
    assert (asked.status, asked.in_thread) == (AskStatus.FAILED, False)
    again = await sessions.ask(sid, "four", message_id="m-four", timeout=20)
    assert (again.status, again.in_thread) == (AskStatus.FAILED, False)
    await asyncio.sleep(3)
    # Not tried again and again: as often as somebody came.
    assert await refusals(shore, sid) == 4
    assert (await sessions.session(sid).get_status()).waiting == 2
    shore.proxy.refuse(False)
    await until_none_waits(shore, sid)
    answered = await sessions.ask(sid, "five", message_id="m-five", timeout=20)
    assert answered.status is AskStatus.ANSWERED
    assert [text for text in await shore.stand.texts(sid) if len(text) < 10] == [
        "one",
        "two",
        "three",
        "four",
        "five",
    ]
    assert "sent" not in [each.name for each in (await sessions.session(sid).get_status()).receipts]


async def test_a_session_that_is_closed_waits_with_messages_that_were_sent(shore: Shore, sid: str) -> None:
    """It ends once they had their turn; where it is cancelled before, their ids are named."""
    sessions = shore.stand.sessions
    await far_behind(shore, sid)
    await sessions.send(sid, "four", message_id="m-four")
    await until_refused(shore, sid, 1)
    await sessions.session(sid).close()
    await asyncio.sleep(2)
    assert (await sessions.session(sid).get_status()).waiting == 1
    shore.proxy.refuse(False)
    assert (await asyncio.wait_for(sessions.session(sid).result(), 30)).turns == 4
    assert "four" in await shore.stand.texts(sid)


async def test_messages_that_wait_for_the_archive_are_named_where_the_session_is_cancelled(
    shore: Shore, sid: str
) -> None:
    """As all that was sent, and had no turn."""
    sessions = shore.stand.sessions
    await far_behind(shore, sid)
    await sessions.send(sid, "four", message_id="m-four")
    await until_refused(shore, sid, 1)
    await shore.stand.handle(sid).cancel()
    with pytest.raises(WorkflowFailureError):
        await shore.stand.handle(sid).result()
    receipts = {each.name: each for each in (await sessions.session(sid).get_status()).receipts}
    assert receipts["sent"].detail == "no turn any more for 1: m-four"


async def test_a_hook_sees_a_message_that_is_tried_again_as_it_was_sent(shore: Shore, sid: str) -> None:
    """It was given what it had made of the text itself, and added its part each time."""
    sessions, desk = shore.stand.sessions, shore.stand.desk
    desk.hooks[sid, "before_user_message"] = lambda event: f"{event.text}!"
    await far_behind(shore, sid, agent="hooked")
    await sessions.send(sid, "four", message_id="m-four")
    await until_refused(shore, sid, 1)
    await sessions.send(sid, "five", message_id="m-five")
    await until_refused(shore, sid, 2)
    shore.proxy.refuse(False)
    # Who asks before is told the failure of an attempt that began while the archive was away.
    await until_none_waits(shore, sid)
    answered = await sessions.ask(sid, "five", message_id="m-five", timeout=30)
    assert answered.status is AskStatus.ANSWERED
    texts = [text for text in await shore.stand.texts(sid) if len(text) < 10]
    assert texts == ["one!", "two!", "three!", "four!", "five!"]


async def far_behind(shore: Shore, sid: str, agent: str = "main") -> None:
    """More than is allowed is not archived: the next turn is refused."""
    shore.stand.desk.scripts[sid] = lambda request: "x" * 700_000
    await shore.stand.sessions.ask(sid, "one", agent=agent)
    # Not at once where the archive was away a moment ago, or is slow: then the third turn is refused already.
    await until_archived(shore, sid)
    shore.proxy.refuse()
    for text in ("two", "three"):
        await shore.stand.sessions.ask(sid, text, timeout=20)


async def refusals(shore: Shore, sid: str) -> int:
    """How many turns were refused."""
    failed = [
        event.activity_task_failed_event_attributes.failure
        for event in await shore.stand.events(sid)
        if event.HasField("activity_task_failed_event_attributes")
    ]
    kinds = [each.application_failure_info.type for each in failed]
    return kinds.count("ColdTierBehindError")


async def until_refused(shore: Shore, sid: str, count: int) -> None:
    """Return once so many turns were refused."""
    async with asyncio.timeout(20):
        while await refusals(shore, sid) < count:  # noqa: ASYNC110 (another process tells)
            await asyncio.sleep(0.05)
        # What comes in one workflow task with the refusal is refused with it; now the session has seen it.
        await shore.stand.sessions.session(sid).get_status()


async def test_a_message_during_the_idle_end_without_the_archive_does_not_wait_for_it(
    temporal_address: str, redis_url: str, s3: S3Endpoint
) -> None:
    """A flush that cannot succeed must not stand between a question and its answer."""
    timeouts = TIMEOUTS.model_copy(update={"finaliser_budget": timedelta(seconds=90)})
    async with own_shore(temporal_address, redis_url, s3, timeouts=timeouts) as sea:
        client, sid = sea.stand.client(idle_timeout=0.5), sea.names[0]
        await client.ask(sid, "one", agent="main")
        sea.proxy.refuse()
        await client.ask(sid, "two", timeout=20)
        await sea.status(sid, lambda info: info.status == "ending")
        result = await client.ask(sid, "three", timeout=30)
        assert result.text == "5: three"


async def until_none_waits(shore: Shore, sid: str) -> None:
    """Return once all messages that were sent had their turn."""
    async with asyncio.timeout(30):
        while (await shore.stand.sessions.session(sid).get_status()).waiting:  # noqa: ASYNC110 (another process tells)
            await asyncio.sleep(0.05)
