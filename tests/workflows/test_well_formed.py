"""However a turn ends, each call of the thread has its one result, directly after it; so has the archive."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from helix_temporal.agents import ToolContext, ToolOutcome
from helix_temporal.errors import AgentMismatchError, SessionInterruptedError, SessionTerminatedError
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import AskResult, AskStatus
from tests.workflows._desk import Gate, calls, first_tools_then
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Exit = Callable[[Stand, str], Awaitable[None]]


def check(messages: Sequence[Message]) -> None:
    """Each answer with calls is followed by their results, in call order, and there are no others."""
    at = 0
    while at < len(messages):
        wanted = [call.id for call in messages[at].tool_calls]
        results = messages[at + 1 : at + 1 + len(wanted)]
        assert [each.tool_call_id for each in results] == wanted
        assert messages[at].role != "tool"
        at += 1 + len(wanted)


def asking(stand: Stand, session_id: str, agent: str = "main") -> "asyncio.Task[AskResult]":
    return asyncio.create_task(stand.sessions.ask(session_id, "go", agent=agent, timeout=20))


def held(stand: Stand, session_id: str) -> Gate:
    """A turn whose second tool waits at a gate."""
    gate = Gate()

    async def act(what: str, _: ToolContext) -> str:
        if what == "y":
            await gate.passing()
        return what

    stand.desk.scripts[session_id] = first_tools_then("done", "x", "y")
    stand.desk.acts[session_id] = act
    return gate


async def max_steps(stand: Stand, session_id: str) -> None:
    stand.desk.scripts[session_id] = lambda _: calls("x", "y")
    assert (await asking(stand, session_id, "two-steps")).exit_reason == "max_steps"


async def a_rewind_at_the_last_step(stand: Stand, session_id: str) -> None:
    stand.desk.scripts[session_id] = lambda _: calls("x", "y")
    stand.desk.acts[session_id] = lambda what, _: ToolOutcome(what, rewind=what == "y")
    assert (await asking(stand, session_id, "two-steps")).exit_reason == "max_steps"


async def a_hook_that_fails(stand: Stand, session_id: str) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a plain one")

    stand.desk.scripts[session_id] = first_tools_then("done", "x", "y")
    stand.desk.hooks |= {(session_id, name): fail for name in ("after_user_message", "turn_completed")}
    assert (await asking(stand, session_id, "hooked")).status is AskStatus.ANSWERED


async def a_tool_that_is_cancelled_from_outside(stand: Stand, session_id: str) -> None:
    async def act(what: str, _: ToolContext) -> str:
        if what == "y":
            raise asyncio.CancelledError
        return what

    stand.desk.scripts[session_id] = first_tools_then("done", "x", "y")
    stand.desk.acts[session_id] = act
    assert (await asking(stand, session_id)).status is AskStatus.ANSWERED


async def a_tool_that_is_not_there(stand: Stand, session_id: str) -> None:
    stand.desk.scripts[session_id] = lambda request: (
        calls("x", name="gone") if request.messages[-1].role == "user" else "done"
    )
    assert (await asking(stand, session_id)).status is AskStatus.ANSWERED


async def an_interrupt_during_tools(stand: Stand, session_id: str) -> None:
    gate = held(stand, session_id)
    asked = asking(stand, session_id)
    await gate.reached.wait()
    assert await stand.sessions.session(session_id).stop()
    gate.opened.set()
    assert (await asked).status is AskStatus.INTERRUPTED


async def an_abort_during_tools(stand: Stand, session_id: str) -> None:
    gate = held(stand, session_id)
    asked = asking(stand, session_id)
    await gate.reached.wait()
    assert await stand.sessions.session(session_id).stop(abort=True)
    assert (await asked).status is AskStatus.INTERRUPTED
    gate.opened.set()


async def a_cancel_during_tools(stand: Stand, session_id: str) -> None:
    gate = held(stand, session_id)
    asked = asking(stand, session_id)
    await gate.reached.wait()
    await stand.handle(session_id).cancel()
    assert (await asked).status is AskStatus.INTERRUPTED
    gate.opened.set()
    with pytest.raises(SessionInterruptedError):
        await stand.sessions.session(session_id).result()


async def an_end_between_call_and_result(stand: Stand, session_id: str) -> None:
    gate = held(stand, session_id)
    asked = asking(stand, session_id)
    await gate.reached.wait()
    await stand.handle(session_id).terminate()
    with pytest.raises(SessionTerminatedError):
        await asked
    gate.opened.set()


EXITS: list[Exit] = [
    max_steps,
    a_rewind_at_the_last_step,
    a_hook_that_fails,
    a_tool_that_is_cancelled_from_outside,
    a_tool_that_is_not_there,
    an_interrupt_during_tools,
    an_abort_during_tools,
    a_cancel_during_tools,
    an_end_between_call_and_result,
]


@pytest.mark.parametrize("leave", EXITS, ids=lambda each: each.__name__)
async def test_the_thread_is_well_formed_however_a_turn_ends(stand: Stand, sid: str, leave: Exit) -> None:
    """Providers refuse a call without its result, in this turn and in all that follow."""
    await leave(stand, sid)
    check(await stand.messages(sid))
    stand.desk.scripts.pop(sid, None)
    try:
        again = await stand.sessions.ask(sid, "again", agent="main", timeout=30)
    except AgentMismatchError:
        again = await stand.sessions.ask(sid, "again", timeout=30)
    assert again.status is AskStatus.ANSWERED
    await stand.finish(sid)
    check(await stand.messages(sid))
    await stand.sessions.ask(sid, "from the archive", agent="main", timeout=30)
    status = await stand.sessions.session(sid).get_status()
    # Nothing had to be mended: the thread itself is whole.
    assert status.repairs == 0
    for request in stand.desk.requests[sid]:
        check(request.messages)
