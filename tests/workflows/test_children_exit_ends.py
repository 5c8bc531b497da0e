"""Trees of sessions that ended while they wait, and whose turn ends otherwise: nothing waits any more."""

import asyncio
from collections.abc import Sequence

import pytest
from temporalio.client import WorkflowExecutionStatus

from helix_temporal.errors import SessionInterruptedError
from helix_temporal.models.sessions import AskStatus, ExitReason
from helix_temporal.models.states import SessionStatus
from tests.workflows._team import ask, ask_both
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound, ended, lineage, reset, task_ends
from tests.workflows.test_children_exit import answer, leaving, left, once_more, state_of

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

WHOLE = ["user", "assistant", "tool"]


async def open_again(crew: Crew, sid: str, agent: str = "asks-below") -> None:
    """Let the root run, without an answer: a message that was sent holds it."""
    await leaving(crew).send(sid, "and then?", agent=agent)
    async with asyncio.timeout(20):
        while (await leaving(crew).session(sid).get_status()).status != "suspended":  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)


async def check_ended(crew: Crew, sid: str, below: Sequence[str]) -> None:
    """Each session below has ended its turn whole, and nobody waits for it."""
    for each in below:
        assert await ended(crew, each) is WorkflowExecutionStatus.COMPLETED
        assert [message.role for message in await crew.messages(each)] == WHOLE
        state = await state_of(crew, each)
        assert state.pending_client_tool_calls == {}
        assert state.suspended_awaiting_children == ()
    assert (await state_of(crew, sid)).suspended_awaiting_children == ()
    for each in (sid, *below[:-1]):
        assert [ref.status for ref in await crew.children(each)] == [SessionStatus.INTERRUPTED]
    await check_sound(crew, sid, *below)


async def test_an_interrupt_ends_the_turns_of_all_that_sleep(crew: Crew, sid: str) -> None:
    """Each call on each level has a result, and the session serves on."""
    await left(crew, sid, agent="asks-below")
    below = await lineage(crew, sid)
    await open_again(crew, sid)
    crew.team.leads[sid] = lambda request: "fine"
    assert await leaving(crew).session(sid).stop()
    assert (await once_more(crew, sid)).status is AskStatus.INTERRUPTED
    await leaving(crew).session(sid).close()
    await leaving(crew).session(sid).result()
    assert [each.role for each in await crew.messages(sid)] == [*WHOLE, "user", "assistant"]
    await check_ended(crew, sid, below)


async def test_an_abort_ends_them_and_leaves_no_trace_above(crew: Crew, sid: str) -> None:
    """The person takes the question back."""
    await left(crew, sid, agent="asks-below")
    below = await lineage(crew, sid)
    await open_again(crew, sid)
    crew.team.leads[sid] = lambda request: "fine"
    assert await leaving(crew).session(sid).stop(abort=True)
    await leaving(crew).session(sid).close()
    await leaving(crew).session(sid).result()
    assert await crew.texts(sid) == ["and then?", "fine"]
    await check_ended(crew, sid, below)


@pytest.mark.parametrize("abort", [False, True])
async def test_a_stop_reaches_a_tree_that_has_ended(crew: Crew, sid: str, abort: bool) -> None:
    """It is started to end its turn, on each level."""
    await left(crew, sid, agent="asks-below")
    below = await lineage(crew, sid)
    assert await leaving(crew).session(sid).stop(abort=abort)
    await leaving(crew).session(sid).close()
    await leaving(crew).session(sid).result()
    assert [each.role for each in await crew.messages(sid)] == ([] if abort else WHOLE)
    await check_ended(crew, sid, below)


async def test_a_cancel_ends_them(crew: Crew, sid: str) -> None:
    """Who reads "cancelled" may count on it: nothing is left that looks as if it waited."""
    await left(crew, sid, agent="asks-below")
    below = await lineage(crew, sid)
    await open_again(crew, sid)
    await crew.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await leaving(crew).session(sid).result()
    assert [each.role for each in await crew.messages(sid)] == WHOLE
    await check_ended(crew, sid, below)


async def test_a_message_supersedes_a_tree_that_was_left(crew: Crew, sid: str) -> None:
    """The person goes on without answering."""
    await left(crew, sid, agent="asks-below")
    below = await lineage(crew, sid)
    crew.team.leads[sid] = lambda request: "fine"
    client = leaving(crew, while_suspended="supersede")
    assert (await client.ask(sid, "never mind", agent="asks-below", timeout=30)).text == "fine"
    assert [each.role for each in await crew.messages(sid)] == [*WHOLE, "user", "assistant"]
    await check_ended(crew, sid, below)


async def test_a_rewind_ends_them(crew: Crew, sid: str) -> None:
    """What waited is gone with the turn."""
    crew.team.leads[sid] = lambda request: "fine"
    await crew.sessions.ask(sid, "hello", agent="asks")
    await crew.finish(sid)
    head = (await crew.sessions.session(sid).get_status()).head
    del crew.team.leads[sid]
    (call,) = await left(crew, sid)
    await leaving(crew).session(sid, agent="asks").rewind(head)
    await leaving(crew).session(sid).close()
    await leaving(crew).session(sid).result()
    assert await crew.texts(sid) == ["hello", "fine"]
    await check_ended(crew, sid, call.route)


async def test_a_root_that_is_terminated_while_it_is_woken_waits_on(crew: Crew, sid: str) -> None:
    """What its slice says still counts; the answer it was woken for is told its way."""
    (call,) = await left(crew, sid)
    await open_again(crew, sid, "asks")
    await crew.handle(sid).terminate()
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"
    assert len(crew.team.heard[call.route[0]]) == 2


@pytest.mark.parametrize("how", ["abort", "interrupt", "cancel"])
async def test_who_sleeps_while_others_work_ends_with_them(crew: Crew, sid: str, how: str) -> None:
    """Its session runs no more than the others' when the turn is over."""
    crew.team.leads[sid] = lambda request: ask_both("colour?", f"tool hold {sid}")
    client = leaving(crew)
    asked = await client.ask(sid, "go", agent="mixed", message_id="m", timeout=30)
    asleep = asked.pending[0].route[0]
    await crew.handle(asleep).result()
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await (crew.handle(sid).cancel() if how == "cancel" else client.session(sid).stop(abort=how == "abort"))
    crew.team.gates[sid].opened.set()
    if how != "cancel":
        await client.session(sid).close()
    await asyncio.gather(client.session(sid).result(), return_exceptions=True)
    assert [message.role for message in await crew.messages(asleep)] == WHOLE
    assert (await state_of(crew, asleep)).pending_client_tool_calls == {}
    assert {each.status for each in await crew.children(sid)} == {SessionStatus.INTERRUPTED}
    await check_sound(crew, sid, asleep)


@pytest.mark.parametrize("back", [1, 2, 3])
async def test_a_reset_of_a_root_that_has_ended_loses_no_question(crew: Crew, sid: str, back: int) -> None:
    """The new run takes the end of the call once more, and the answer counts once."""
    await left(crew, sid)
    await reset(crew, sid, (await task_ends(crew, sid))[-back])
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    (call,) = await leaving(crew).session(sid).get_pending_calls()
    reply = await answer(crew, sid, call, "blue")
    assert reply.result is not None
    assert reply.result.text == "they said blue"
    await check_sound(crew, sid, call.route[0])


async def test_calls_of_one_continuing_thread_are_served_one_after_the_other(crew: Crew, sid: str) -> None:
    """The second waits behind the first, also over executions."""
    crew.team.leads[sid] = lambda request: (
        ask("colour?", "size?")
        if request.messages[-1].role == "user"
        else " / ".join(each.text for each in request.messages[-2:])
    )
    (colour,) = await left(crew, sid, agent="asks-on")
    reply = await answer(crew, sid, colour, "blue")
    assert reply.result is not None
    (size,) = reply.result.pending
    assert size.arguments == {"question": "size?"}
    assert (await leaving(crew).session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await answer(crew, sid, size, "small")
    assert reply.result is not None
    assert reply.result.text == "they said blue / they said small"
    assert await crew.texts(colour.route[0]) == [
        "colour?", "", "blue", "they said blue",
        "size?", "", "small", "they said small",
    ]  # fmt: skip


async def test_a_long_answer_reaches_a_sub_agent_that_slept(crew: Crew, sid: str) -> None:
    """It was put aside for the root's thread, two levels above."""
    (call,) = await left(crew, sid, agent="asks-below")
    text = "z" * 100_000
    reply = await answer(crew, sid, call, text)
    assert reply.status == "submitted"
    assert (await crew.messages(call.route[-1]))[2].text == text


async def test_a_root_that_waits_takes_over_a_tree_that_was_left(crew: Crew, sid: str) -> None:
    """Whoever starts it decides how it behaves from then on."""
    first, second = await left(crew, sid, "colour? size?")
    slept = await crew.handle(first.route[0]).describe()
    reply = (
        await crew.client(suspend="wait")
        .session(sid)
        .submit_tool_result(first, "blue", wait=True, timeout=30)
    )
    assert reply.result is not None
    assert [each.id for each in reply.result.pending] == [second.id]
    # It is started for the answer, and may have ended again since: the other call waits.
    async with asyncio.timeout(20):
        while (await crew.handle(first.route[0]).describe()).run_id == slept.run_id:  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.05)
    reply = await crew.sessions.session(sid).submit_tool_result(second, "small", wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "they said blue small"


async def test_usage_is_counted_once_over_all_executions(crew: Crew, sid: str) -> None:
    """What a sub-agent used before it slept is its caller's, too."""
    (call,) = await left(crew, sid, agent="asks-on")
    await answer(crew, sid, call, "blue")
    usage = (await crew.sessions.session(sid).get_status()).usage
    child = (await crew.sessions.session(call.route[0]).get_status()).usage
    assert usage.input_tokens == 110 + child.input_tokens
