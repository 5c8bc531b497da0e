"""Redis is wiped while S3 is away: what was acknowledged and not archived is gone, and that is said."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.agents import ModelRequest
from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import HeadMovedError
from helix_temporal.facade import resume_session
from helix_temporal.models.facade import ResultEvent
from helix_temporal.models.sessions import AskResult, AskStatus
from helix_temporal.models.waiting import PendingCall, ToolApproval
from tests.workflows._backups import RedisBackup
from tests.workflows._desk import Answer, Gate, echo, first_tools_then
from tests.workflows._shore import Shore, shore
from tests.workflows.test_waits import LOCATE, WIPE, asks_once

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

LOST = "lost: 2..5"


@pytest_asyncio.fixture(loop_scope="session")
async def sea(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shore]:
    async with shore(temporal_address, redis_url, s3) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def name(sea: Shore) -> str:
    """A session that lost its second and third turn."""
    name, sessions = sea.names[0], sea.sessions
    await sessions.ask(name, "one", agent="main", message_id="m1")
    sea.proxy.refuse()
    for number in (2, 3):
        told = await sessions.ask(name, f"text {number}", message_id=f"m{number}", timeout=20)
        assert (told.status, told.archived) == (AskStatus.ANSWERED, False)
    await sea.wipe()
    sea.proxy.refuse(False)
    return name


def lost(result: AskResult) -> list[str]:
    return [each.detail for each in result.receipts if each.name == "lost"]


async def test_a_new_message_is_answered_at_once_and_told_what_is_lost(sea: Shore, name: str) -> None:
    """Neither an error nor a second try; the receipt names the positions."""
    result = await sea.sessions.ask(name, "four", timeout=30)
    assert (result.status, result.text, lost(result)) == (AskStatus.ANSWERED, "3: four", [LOST])
    assert result.archived is True
    assert await sea.users(name) == ["one", "four"]
    status = await sea.sessions.session(name).get_status()
    assert [each.detail for each in status.receipts if each.name == "lost"] == [LOST]
    assert lost(await sea.sessions.ask(name, "five")) == []


@pytest.mark.parametrize("number", [2, 3])
async def test_the_lost_message_is_answered_anew(sea: Shore, name: str, number: int) -> None:
    """Its sender asks again under the same id, and is not told for ever that there is no such answer."""
    result = await sea.sessions.ask(name, f"text {number}", message_id=f"m{number}", timeout=30)
    assert (result.status, result.text) == (AskStatus.ANSWERED, f"3: text {number}")
    assert lost(result) == [LOST]
    again = await sea.sessions.ask(name, f"text {number}", message_id=f"m{number}", timeout=30)
    assert again.answer == result.answer
    assert await sea.users(name) == ["one", f"text {number}"]


async def test_what_is_not_lost_is_still_there(sea: Shore, name: str) -> None:
    """A message from before is answered as it was."""
    result = await sea.sessions.ask(name, "one", message_id="m1", timeout=30)
    assert (result.status, result.text) == (AskStatus.ANSWERED, "1: one")
    assert await sea.users(name) == ["one"]


async def test_a_watched_ask_goes_on_as_well(sea: Shore, name: str) -> None:
    """The lost message's and a new one."""
    for message_id, text in (("m3", "text 3"), ("m4", "four")):
        live = sea.sessions.session(name).stream_ask(text, message_id=message_id, timeout=30)
        result = await live.result()
        assert result.status is AskStatus.ANSWERED
    assert await sea.users(name) == ["one", "text 3", "four"]


async def test_the_facade_goes_on_as_well(sea: Shore, name: str) -> None:
    """The lost message's and a new one."""
    agent = next(each for each in sea.stand.desk.agents() if each.name == "main")
    session = await resume_session(name, agent, client=sea.sessions)
    for message_id, text, answer in (("m3", "text 3", "3: text 3"), ("m4", "four", "5: four")):
        await session.send(text, message_id=message_id)
        events = [event async for event in session.receive()]
        assert [each.text for each in events if isinstance(each, ResultEvent)] == [answer]


async def test_an_idle_session_finds_out_by_itself(sea: Shore, name: str) -> None:
    """``archived`` is not said of what is gone; the loss is in the status before anybody asks."""
    status = await sea.status(name, lambda info: bool(info.receipts))
    assert [(each.name, each.ok, each.detail) for each in status.receipts] == [("lost", False, LOST)]
    assert (status.archived, status.lag, status.head.position) == (True, None, 2)
    assert lost(await sea.sessions.ask(name, "four", timeout=30)) == [LOST]


async def test_a_session_that_ends_after_a_loss_does_not_call_it_archived(sea: Shore) -> None:
    """The receipt of its flush says what is missing."""
    name, sessions = sea.names[1], sea.sessions
    await sessions.ask(name, "one", agent="main")
    sea.proxy.refuse()
    await sessions.ask(name, "two", timeout=20)
    await sea.wipe()
    await sessions.session(name).close()
    sea.proxy.refuse(False)
    ended = await sessions.session(name).result()
    details = [each.detail for each in ended.receipts if each.name in {"lost", "flush"} and not each.ok]
    assert len(details) == 1
    assert details[0].startswith(("lost: 2..3", "HeadMovedError"))


async def test_a_turn_under_way_is_run_again_where_the_thread_is(sea: Shore) -> None:
    """The loss is noticed in the middle of a turn with a tool: the turn begins anew, and is answered."""
    name, sessions, gate = sea.names[2], sea.sessions, Gate()
    await sessions.ask(name, "one", agent="main")
    sea.proxy.refuse()
    await sessions.ask(name, "two", timeout=20)
    desk = sea.stand.desk
    desk.scripts[name] = first_tools_then("done", "look")

    async def held(what: str, _: object) -> str:
        await gate.passing()
        return what

    desk.acts[name] = held
    task = asyncio.create_task(sessions.ask(name, "three", timeout=40))
    await gate.reached.wait()
    await sea.wipe()
    sea.proxy.refuse(False)
    gate.opened.set()
    result = await task
    assert (result.status, result.text, lost(result)) == (AskStatus.ANSWERED, "done", ["lost: 2..3"])
    assert await sea.users(name) == ["one", "three"]


@pytest.mark.parametrize("suspend", ["wait", "exit"])
@pytest.mark.parametrize("call", [LOCATE, WIPE], ids=["a client's tool", "an approval"])
async def test_an_answer_that_was_lost_with_its_turn_is_asked_for_again(
    sea: Shore, call: tuple[str, dict[str, str]], suspend: str
) -> None:
    """The thread is back where the turn waits: who answered is not told for ever that it is done."""
    name, sessions, gate = sea.names[1], sea.stand.client(suspend=suspend), Gate()

    async def script(request: ModelRequest) -> Answer:
        if request.messages[-1].role == "tool":
            await gate.passing()
        return echo(request) if request.messages[-1].text in {"more", "again"} else asks_once(call)(request)

    sea.stand.desk.scripts[name] = script
    (waiting,) = (await sessions.ask(name, "go", agent="people", message_id="m1", timeout=30)).pending
    await _answer(sessions, name, waiting)
    await gate.reached.wait()
    sea.proxy.refuse()
    gate.opened.set()
    assert (await sessions.ask(name, "go", message_id="m1", timeout=30)).archived is False
    assert (await sessions.ask(name, "more", timeout=30)).archived is False
    await sea.wipe()
    sea.proxy.refuse(False)
    asked = asyncio.create_task(sessions.ask(name, "again", message_id="m2", timeout=50))
    status = await sea.status(name, lambda info: bool(info.pending))
    assert [each.id for each in status.pending] == [waiting.id]
    await _answer(sessions, name, waiting)
    result = await asked
    while result.status is AskStatus.SUSPENDED:
        result = await sessions.ask(name, "again", message_id="m2", timeout=30)
    assert result.status is AskStatus.ANSWERED
    assert await sea.users(name) == ["go", "again"]


async def _answer(sessions: SessionClient, name: str, call: PendingCall) -> None:
    if call.kind == "approval":
        approval = ToolApproval(approval_id=call.id, approved=True)
        reply = await sessions.session(name).submit_approval(approval)
    else:
        reply = await sessions.session(name).submit_tool_result(call, "in Bonn")
    assert reply.status == "submitted"


async def asked(sea: Shore, name: str) -> RedisBackup:
    """Three turns, and what Redis had after the first."""
    backup = RedisBackup(sea.stand.served.plugin.settings)
    await sea.sessions.ask(name, "one", agent="main")
    await backup.take()
    for text in ("two", "three"):
        await sea.sessions.ask(name, text, agent="main", timeout=20)
    return backup


async def test_turns_are_taken_back_from_the_thread_and_not_from_an_older_copy(sea: Shore) -> None:
    """A replica lagged when it took over: the one turn that was asked for was counted on what it had."""
    name = sea.names[2]
    backup = await asked(sea, name)
    await backup.put_back()
    await sea.sessions.session(name, agent="main").rewind_to_turn(-1)
    assert await sea.users(name) == ["one", "two"]
    assert (await sea.sessions.ask(name, "four")).text == "5: four"


@pytest.mark.parametrize("found", ["by the request", "by the session"])
async def test_after_a_loss_turns_are_not_taken_back_that_nobody_meant(sea: Shore, found: str) -> None:
    """Who takes back the newest turn, which is lost, does not mean the one before, whoever found out."""
    name = sea.names[2]
    backup = await asked(sea, name)
    sea.proxy.refuse()
    assert (await sea.sessions.ask(name, "four", timeout=20)).archived is False
    await backup.put_back()
    sea.proxy.refuse(False)
    if found == "by the session":
        await sea.status(name, lambda info: bool(info.receipts))
    with pytest.raises(HeadMovedError, match="were lost"):
        await sea.sessions.session(name, agent="main").rewind_to_turn(-1)
    assert await sea.users(name) == ["one", "two", "three"]
    await sea.sessions.session(name, agent="main").rewind_to_turn(-1)
    assert await sea.users(name) == ["one", "two"]


async def test_a_loss_that_an_answer_has_told_holds_up_no_rewind(sea: Shore, name: str) -> None:
    """Who was told means the newest turn that there is."""
    assert lost(await sea.sessions.ask(name, "four", timeout=30)) == [LOST]
    await sea.sessions.session(name, agent="main").rewind_to_turn(-1)
    assert await sea.users(name) == ["one"]


async def test_an_answer_that_is_lost_while_its_turn_stands_is_told(sea: Shore) -> None:
    """The archive has the turn's tool, and not its answer: it is run to another answer, and that is said."""
    name, sessions, desk = sea.names[0], sea.sessions, sea.stand.desk
    desk.scripts[name] = first_tools_then("done", "look")

    async def look(what: str, _: object) -> str:
        sea.proxy.refuse()
        return what

    await sessions.ask(name, "one", agent="main", message_id="m1", timeout=30)
    desk.acts[name] = look
    told = await sessions.ask(name, "two", message_id="m2", timeout=30)
    assert (told.status, told.archived) == (AskStatus.ANSWERED, False)
    await sea.wipe()
    sea.proxy.refuse(False)
    del desk.acts[name]
    assert (await sessions.ask(name, "three", message_id="m3", timeout=30)).status is AskStatus.ANSWERED
    status = await sessions.session(name).get_status()
    assert [each.detail for each in status.receipts if each.name == "lost"] == ["lost: 4..7"]
    assert await sea.users(name) == ["one", "two", "three"]
