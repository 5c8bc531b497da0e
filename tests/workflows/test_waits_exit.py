"""Sessions that end while they wait for people, and are started again by the answer."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.sessions import AskStatus, ExitReason, Status
from helix_temporal.models.states import ClientToolResponse, SessionStatus, ToolResultSubmission
from helix_temporal.models.waiting import INTERRUPTED, PendingCall, ToolApproval
from helix_temporal.settings import Limits, Settings
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_states import PAIRINGS, place, served, state_of
from tests.workflows.test_waits import ACT, LOCATE, WIPE, asks, asks_once

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]


async def left(stand: Stand, sid: str, text: str = "go", **options: Any) -> tuple[PendingCall, ...]:
    """Ask, and wait until the session has ended suspended."""
    client = stand.client(suspend="exit", **options)
    result = await client.ask(sid, text, agent="people", message_id=f"m-{text}")
    assert result.status is AskStatus.SUSPENDED
    ended = await client.session(sid).result()
    assert (ended.exit_reason, ended.status) == (ExitReason.SUSPENDED, Status.WAITING)
    return result.pending


async def test_an_answer_starts_the_session_again(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing runs while a person thinks; the turn goes on where it stood."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left(stand, sid)
    assert (await stand.sessions.session(sid).get_pending_calls()) == (call,)
    reply = await stand.client(suspend="exit").session(sid).submit_tool_result(call, "in Bonn", wait=True)
    assert reply.status == "submitted"
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (AskStatus.ANSWERED, "in Bonn")
    assert await stand.texts(sid) == ["go", "", "in Bonn", "in Bonn"]
    assert len(desk.requests[sid]) == 2
    again = await stand.client(suspend="exit").session(sid).submit_tool_result(call, "in Rome")
    assert again.status == "already_completed"


async def test_the_usage_of_a_turn_is_counted_once(stand: Stand, desk: Desk, sid: str) -> None:
    """Half of it was used by an execution that has ended."""
    from tests.workflows._desk import calls

    desk.scripts[sid] = lambda request: (
        calls("x", name="locate") if request.messages[-1].role == "user" else "done"
    )
    (call,) = await left(stand, sid)
    client = stand.client(suspend="exit")
    await client.session(sid).submit_tool_result(call, "here", wait=True)
    assert (await client.session(sid).get_status()).usage.input_tokens == 10


async def test_several_answers_come_one_by_one(stand: Stand, desk: Desk, sid: str) -> None:
    """Each starts the session for a moment; what is known meanwhile is kept, and no tool runs twice."""
    desk.scripts[sid] = asks_once(LOCATE, ACT, WIPE)
    locate, wipe = await left(stand, sid)
    client = stand.client(suspend="exit")
    reply = await client.session(sid).submit_approval(
        ToolApproval(approval_id=wipe.id, approved=True), wait=True
    )
    assert reply.result is not None
    assert [call.id for call in reply.result.pending] == [locate.id]
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await client.session(sid).submit_tool_result(locate, "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn | here | wiped disk"
    assert len(desk.contexts[sid]) == 2


async def test_an_answer_that_comes_while_the_execution_saves_the_one_before_is_not_lost(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Each of several people answers when he likes, and is told that it counts."""
    gate = Gate()
    desk.scripts[sid] = asks_once(LOCATE, LOCATE, LOCATE)
    desk.hooks[sid, "session_ended"] = lambda _: gate.passing()
    client = stand.client(suspend="exit")
    first, second, third = (await client.ask(sid, "go", agent="hooked")).pending
    await gate.reached.wait()
    assert (await client.session(sid, agent="hooked").submit_tool_result(first, "Bonn")).status == "submitted"
    gate.opened.set()
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    again = await client.session(sid, agent="hooked").submit_tool_result(first, "Rome")
    assert again.status == "already_completed"
    await client.session(sid, agent="hooked").submit_tool_result(second, "Cologne")
    await client.session(sid, agent="hooked").submit_tool_result(third, "Aachen", wait=True)
    assert (await stand.texts(sid))[2:5] == ["Bonn", "Cologne", "Aachen"]


async def test_an_ask_meanwhile_is_told_what_the_session_waits_for(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """It is not in the thread, and whoever asked knows why; the suspended message itself is."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left(stand, sid)
    client = stand.client(suspend="exit")
    other = await client.ask(sid, "and?", agent="people", message_id="m-2")
    assert (other.status, other.in_thread, other.pending) == (AskStatus.SUSPENDED, False, (call,))
    same = await client.ask(sid, "go", agent="people", message_id="m-go")
    assert (same.status, same.in_thread, same.pending) == (AskStatus.SUSPENDED, True, (call,))
    await client.session(sid).submit_tool_result(call, "Bonn", wait=True)
    assert (await client.ask(sid, "go", agent="people", message_id="m-go")).text == "Bonn"
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    assert (await client.ask(sid, "and?", agent="people", message_id="m-2")).text == "AND?"


async def test_a_message_that_was_accepted_meanwhile_is_not_lost(stand: Stand, desk: Desk, sid: str) -> None:
    """Who only sends does not come again: the execution stays open for it."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left(stand, sid)
    client = stand.client(suspend="exit")
    await client.send(sid, "and?", agent="people")
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    await client.session(sid).submit_tool_result(call, "Bonn", wait=True)
    await stand.finish(sid)
    assert await stand.texts(sid) == ["go", "", "Bonn", "BONN", "and?", "AND?"]


async def test_a_message_may_supersede_the_turn_that_was_left(stand: Stand, desk: Desk, sid: str) -> None:
    """The next execution ends the open turn, then serves the message."""
    desk.scripts[sid] = asks_once(LOCATE)
    await left(stand, sid, while_suspended="supersede")
    desk.scripts[sid] = lambda request: request.messages[-1].text.upper()
    client = stand.client(suspend="exit", while_suspended="supersede")
    assert (await client.ask(sid, "next", agent="people")).text == "NEXT"


async def test_a_step_that_waits_again_ends_the_session_again(stand: Stand, desk: Desk, sid: str) -> None:
    """Two questions in one turn: two executions, one turn."""
    desk.scripts[sid] = lambda request: (
        asks(LOCATE) if sum(each.role == "tool" for each in request.messages) < 2 else "done"
    )
    (first,) = await left(stand, sid)
    client = stand.client(suspend="exit")
    reply = await client.session(sid).submit_tool_result(first, "1", wait=True)
    assert reply.result is not None
    (second,) = reply.result.pending
    assert second.id != first.id
    reply = await client.session(sid).submit_tool_result(second, "2", wait=True)
    assert reply.result is not None
    assert reply.result.text == "done"
    assert (await client.session(sid).get_status()).turns == 1


async def test_a_wiped_redis_loses_nothing_of_a_suspended_turn(
    stand: Stand, desk: Desk, sid: str, redis_url: str
) -> None:
    """Days may pass: what waits is in the archive, the results of its other tools with it."""
    desk.scripts[sid] = asks_once(LOCATE, ACT)
    (call,) = await left(stand, sid)
    redis = Redis.from_url(redis_url)
    prefix = stand.served.plugin.settings.redis_prefix
    keys = [key async for key in redis.scan_iter(match=f"{prefix}*{sid}*")]
    if keys:
        await redis.delete(*keys)
    await redis.aclose()
    reply = await stand.client(suspend="exit").session(sid).submit_tool_result(call, "Bonn", wait=True)
    assert reply.result is not None
    assert reply.result.text == "Bonn | here"
    assert len(desk.contexts[sid]) == 1


async def test_closing_leaves_a_suspended_session_as_if_it_were_to_exit(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """A deployment that shuts its sessions down takes no question away."""
    desk.scripts[sid] = asks_once(LOCATE)
    result = await stand.sessions.ask(sid, "go", agent="people")
    await stand.finish(sid)
    reply = await stand.sessions.session(sid, agent="people").submit_tool_result(
        result.pending[0], "Bonn", wait=True
    )
    assert reply.result is not None
    assert reply.result.text == "Bonn"


async def test_an_interrupt_reaches_a_session_that_was_left(stand: Stand, desk: Desk, sid: str) -> None:
    """Rewinding it is one way out; an answer with an error another."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = await left(stand, sid)
    reply = (
        await stand.client(suspend="exit").session(sid).submit_tool_result(call, error=INTERRUPTED, wait=True)
    )
    assert reply.result is not None
    messages = await stand.messages(sid)
    assert (messages[2].is_error, messages[2].text) == (True, INTERRUPTED)


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_every_pairing_of_stores_keeps_what_waits(place: Settings, sid: str) -> None:
    """One setting apart: the pending calls are in the state, and any worker can go on with the turn."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    async with served(place, desk) as stand:
        locate, wipe = await left(stand, sid)
        state = await state_of(stand, sid)
        assert set(state.pending_client_tool_calls) == {locate.id, wipe.id}
        assert state.pending_client_tool_calls[wipe.id].kind == "approval"
        assert state.status is SessionStatus.PAUSED
        assert state.suspension_context is not None
        store = stand.served.plugin.backends.sessions
        assert store is not None
        run = await store.get_current_run(sid)
        assert run is not None
        assert run.status is RunStatus.SUSPENDED_CLIENT_TOOL
        client = stand.client(suspend="exit")
        await client.session(sid).submit_approval(
            ToolApproval(approval_id=wipe.id, approved=False), wait=True
        )
        reply = await client.session(sid).submit_tool_result(locate, "Bonn", wait=True)
        assert reply.result is not None
        state = await state_of(stand, sid)
        assert state.pending_client_tool_calls == {}
        assert {name: each.outcome for name, each in state.completed_client_tool_calls.items()} == {
            locate.id: "result",
            wipe.id: "denied",
        }
        assert (state.suspension_context, state.status) == (None, SessionStatus.ACTIVE)
        runs = await store.list_runs(sid)
        assert [run.status for run in runs.items] == [RunStatus.COMPLETED]
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head


async def test_arguments_that_may_not_be_in_histories_are_in_none(place: Settings, sid: str) -> None:
    """``HELIX_LIMIT_INLINE_TOOL_RESULT_BYTES=0``: nor where the next execution finds the turn."""
    desk = Desk()
    desk.scripts[sid] = asks_once(("locate", {"what": "card NL-4711-X"}))
    hidden = place.model_copy(update={"limits": Limits(inline_tool_result_bytes=0)})
    async with served(hidden, desk) as stand:
        (call,) = await left(stand, sid)
        events, run_id = await stand.events(sid), (await stand.handle(sid).describe()).run_id
        await stand.client(suspend="exit").session(sid).submit_tool_result(call, "Bonn", wait=True)
        assert (await stand.handle(sid).describe()).run_id != run_id
        events += await stand.events(sid)
        assert not [each for each in events if b"NL-4711-X" in each.SerializeToString()]


async def test_an_answer_that_was_given_to_the_store_counts(place: Settings, sid: str) -> None:
    """A program without Temporal may answer; whoever starts the session next takes it along."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    async with served(place, desk) as stand:
        locate, wipe = await left(stand, sid)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        response = ClientToolResponse(result={"city": "Bonn"})
        given = await store.submit_tool_result(
            sid, ToolResultSubmission(tool_call_id=locate.id, response=response)
        )
        assert given.status == "submitted"
        client = stand.client(suspend="exit")
        late = await client.session(sid).submit_tool_result(locate, "Rome")
        assert late.status == "already_completed"
        approval = ToolApproval(approval_id=wipe.id, approved=True)
        reply = await client.session(sid).submit_approval(approval, wait=True)
        assert reply.result is not None
        assert reply.result.text == '{"city":"Bonn"} | wiped disk'


async def test_calls_that_are_too_late_are_found_in_the_store(place: Settings, sid: str) -> None:
    """A program that looks for them resumes their sessions."""
    desk = Desk()
    desk.scripts[sid] = asks_once(("hurry", {"what": "up"}))
    async with served(place, desk) as stand:
        (call,) = await left(stand, sid)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        assert call.until is not None
        (found,) = await store.find_expired_pending(call.until + 1)
        assert (found.session_id, found.call.tool_call_id) == (sid, call.id)
        assert await store.find_expired_pending(call.until - 60_000) == []


async def test_a_worker_that_ends_while_people_think_is_not_missed(place: Settings, sid: str) -> None:
    """Another one, with stores and caches of its own, goes on."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE)
    async with served(place, desk) as stand:
        (call,) = (await stand.client().ask(sid, "go", agent="people")).pending
    async with served(place, desk) as stand:
        reply = await stand.client().session(sid).submit_tool_result(call, "Bonn", wait=True, timeout=60)
        assert reply.result is not None
        assert reply.result.text == "Bonn"
        assert len(desk.requests[sid]) == 2


async def test_an_answer_that_was_taken_is_not_taken_by_the_store_again(place: Settings, sid: str) -> None:
    """The other calls keep the turn waiting; a program without Temporal is told that it comes late."""
    desk = Desk()
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    async with served(place, desk) as stand:
        locate, wipe = await left(stand, sid)
        client = stand.client()
        await client.session(sid).submit_tool_result(locate, "Bonn")
        await client.session(sid).result()
        state = await state_of(stand, sid)
        assert (list(state.pending_client_tool_calls), state.status) == ([wipe.id], SessionStatus.PAUSED)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        late = ToolResultSubmission(tool_call_id=locate.id, response=ClientToolResponse(result="Rome"))
        assert (await store.submit_tool_result(sid, late)).status == "already_completed"
        approval = ToolApproval(approval_id=wipe.id, approved=True)
        reply = await client.session(sid).submit_approval(approval, wait=True)
        assert reply.result is not None
        assert reply.result.text == "Bonn | wiped disk"


async def given_to_the_store(stand: Stand, sid: str, call: PendingCall, said: str) -> None:
    """A program without Temporal answers."""
    store = stand.served.plugin.backends.sessions
    assert store is not None
    answer = ToolResultSubmission(tool_call_id=call.id, response=ClientToolResponse(result=said))
    assert (await store.submit_tool_result(sid, answer)).status == "submitted"


async def test_resuming_a_session_that_is_about_to_end_starts_it_once_it_has(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Its execution read the store before the answer came; whoever asked was told even earlier."""
    gate = Gate()
    desk.scripts[sid] = asks_once(LOCATE)
    desk.hooks[sid, "session_ended"] = lambda _: gate.passing()
    client = stand.client(suspend="exit")
    (call,) = (await client.ask(sid, "go", agent="hooked", message_id="m")).pending
    await gate.reached.wait()
    await given_to_the_store(stand, sid, call, "Bonn")
    resuming = asyncio.create_task(client.session(sid).resume(timeout=20))
    await asyncio.sleep(0.3)
    gate.opened.set()
    await resuming
    await until_said(stand, sid, "Bonn")


async def until_said(stand: Stand, sid: str, text: str) -> None:
    """Wait for the turn's answer without asking: an ask of a session that has ended would start it, too."""
    async with asyncio.timeout(20):
        while (await stand.texts(sid))[-1:] != [text]:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.1)


async def test_resuming_at_once_after_an_answer_to_the_store_counts(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """As soon as somebody is told of the call: the execution is not over by then."""
    desk.scripts[sid] = asks_once(LOCATE)
    client = stand.client(suspend="exit")
    (call,) = (await client.ask(sid, "go", agent="people")).pending
    await given_to_the_store(stand, sid, call, "Bonn")
    await client.session(sid).resume(timeout=20)
    await until_said(stand, sid, "Bonn")


async def test_resuming_comes_back_where_other_calls_are_still_wanted(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The session is started for the answer that there is, says what is left, and ends again."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    client = stand.client(suspend="exit")
    locate, wipe = (await client.ask(sid, "go", agent="people")).pending
    await given_to_the_store(stand, sid, locate, "Bonn")
    async with asyncio.timeout(15):
        await client.session(sid).resume()
    assert await client.session(sid).get_pending_calls() == (wipe,)
    async with asyncio.timeout(15):
        await client.session(sid).resume()
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED


async def test_resuming_leaves_a_session_alone_that_waits(stand: Stand, desk: Desk, sid: str) -> None:
    """Nothing is to be started: who answers it, answers it."""
    desk.scripts[sid] = asks_once(LOCATE)
    asked = await stand.sessions.ask(sid, "go", agent="people")
    async with asyncio.timeout(10):
        await stand.sessions.session(sid).resume()
    assert await stand.sessions.session(sid).get_pending_calls() == asked.pending
