"""Interrupt, abort, rewind, close, cancel, and what the status says meanwhile."""

import asyncio

import pytest

from helix_temporal.agents import ToolContext
from helix_temporal.errors import (
    HeadMovedError,
    HelixError,
    InvalidRequestError,
    SessionInterruptedError,
    SessionNotFoundError,
)
from helix_temporal.models.agents import UserMessageDecision
from helix_temporal.models.sessions import AskStatus, StopRequest
from helix_temporal.models.stored_messages import EMPTY, Head
from tests.workflows._desk import Desk, Gate, calls, first_tools_then
from tests.workflows.conftest import Stand
from tests.workflows.test_inbox import until_waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_interrupt_ends_the_turn_after_its_step_with_every_call_answered(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The user presses stop: what was paid for is kept, and the thread is well formed."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x")
    asked = asyncio.create_task(stand.sessions.ask(sid, "go", agent="main"))
    await gate.reached.wait()
    assert await stand.sessions.session(sid).stop()
    gate.opened.set()
    result = await asked
    assert (result.status, result.exit_reason, result.in_thread) == (
        AskStatus.INTERRUPTED,
        "interrupted",
        True,
    )
    assert [message.role for message in await stand.messages(sid)] == ["user", "assistant", "tool"]


async def test_a_message_that_the_next_execution_takes_is_stopped_there(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The session moved on between two turns: it said that nothing was to be stopped, and answered."""
    hook, gate = Gate(), Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    client = stand.client(max_turns_per_run=1)
    desk.hooks[sid, "turn_completed"] = lambda event: hook.passing()
    await client.ask(sid, "one", agent="hooked")
    await hook.reached.wait()
    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x") if len(request.messages) == 3 else "done"
    asked = asyncio.create_task(client.ask(sid, "two"))
    await until_waiting(client, sid, 1)
    stopped = asyncio.create_task(client.session(sid).stop())
    await stand.accepted(sid, 3)
    hook.opened.set()
    assert await stopped
    gate.opened.set()
    assert (await asked).status is AskStatus.INTERRUPTED


async def test_the_session_serves_on_after_an_interrupt(stand: Stand, desk: Desk, sid: str) -> None:
    """Stop is for a turn."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x") if len(request.messages) == 1 else "done"
    asked = asyncio.create_task(stand.sessions.ask(sid, "go", agent="main"))
    await gate.reached.wait()
    await stand.sessions.session(sid).stop()
    gate.opened.set()
    await asked
    assert (await stand.sessions.ask(sid, "go on")).text == "done"


async def test_an_interrupt_during_the_last_model_call_changes_nothing(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The answer is on its way and paid for: it counts."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main"))
    await gate.reached.wait()
    assert await stand.sessions.session(sid).stop()
    gate.opened.set()
    assert (await asked).text == "1: hello"


@pytest.mark.parametrize("hook", ["session_started", "before_user_message"])
async def test_an_abort_before_the_first_step_leaves_no_trace(
    stand: Stand, desk: Desk, sid: str, hook: str
) -> None:
    """A hook looks at the message, or at the session; the model is never asked."""
    gate = Gate()

    async def held(_: object) -> UserMessageDecision | None:
        await gate.passing()
        return UserMessageDecision() if hook == "before_user_message" else None

    desk.hooks[sid, hook] = held
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="hooked"))
    await gate.reached.wait()
    stopped = asyncio.create_task(stand.sessions.session(sid).stop(abort=True))
    if hook == "session_started":
        await stand.accepted(sid, 2)
        gate.opened.set()
    assert await stopped
    result = await asyncio.wait_for(asked, 10)
    gate.opened.set()
    assert (result.status, result.in_thread) == (AskStatus.INTERRUPTED, False)
    assert (await stand.texts(sid), desk.requests[sid][1:]) == ([], [])
    assert (await stand.sessions.ask(sid, "again")).status is AskStatus.ANSWERED


async def test_an_interrupt_before_the_first_step_ends_the_turn_after_it(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """It was said while a hook looked at the message, and was forgotten."""
    gate = Gate()

    async def held(_: object) -> UserMessageDecision:
        await gate.passing()
        return UserMessageDecision()

    desk.hooks[sid, "before_user_message"] = held
    desk.scripts[sid] = lambda request: calls("x")
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="hooked"))
    await gate.reached.wait()
    status = await stand.sessions.session(sid).get_status()
    assert (status.status, status.run_id is None) == ("running", False)
    assert await stand.sessions.session(sid).stop()
    gate.opened.set()
    result = await asked
    assert (result.status, result.in_thread) == (AskStatus.INTERRUPTED, True)
    assert len(desk.requests[sid]) == 1


async def test_stop_without_a_turn_says_so(stand: Stand, sid: str) -> None:
    """Nothing to stop is no error."""
    assert not await stand.sessions.session(sid).stop()
    await stand.sessions.ask(sid, "hello", agent="main")
    assert not await stand.sessions.session(sid).stop()


async def test_an_abort_ends_the_turn_at_once_and_without_a_trace(stand: Stand, desk: Desk, sid: str) -> None:
    """The model still thinks; nobody waits for it."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main"))
    await gate.reached.wait()
    assert await stand.sessions.session(sid).stop(abort=True)
    result = await asyncio.wait_for(asked, 10)
    assert (result.status, result.exit_reason, result.in_thread) == (
        AskStatus.INTERRUPTED,
        "interrupted",
        False,
    )
    assert await stand.texts(sid) == []
    gate.opened.set()


async def test_a_late_attempt_cannot_bring_an_aborted_turn_back(stand: Stand, desk: Desk, sid: str) -> None:
    """The call that nobody waits for ends later, and its append is refused."""
    gate = Gate()

    async def stubborn(request: object) -> str:
        # Cancelling is cooperative: a model in a thread, or in C, does not hear of it.
        waiting = asyncio.ensure_future(gate.passing())
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue
        return "late"

    desk.scripts[sid] = stubborn
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main"))
    await gate.reached.wait()
    await stand.sessions.session(sid).stop(abort=True)
    await asked
    desk.scripts.pop(sid)
    gate.opened.set()
    assert (await stand.sessions.ask(sid, "anew")).text == "1: anew"
    await asyncio.sleep(0.3)
    assert await stand.texts(sid) == ["anew", "1: anew"]
    await stand.finish(sid)
    assert await stand.texts(sid) == ["anew", "1: anew"]


async def test_an_abort_during_tools_takes_their_step_back(stand: Stand, desk: Desk, sid: str) -> None:
    """Also a step that stands already is part of the turn."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x", "y")
    asked = asyncio.create_task(stand.sessions.ask(sid, "go", agent="main"))
    await gate.reached.wait()
    await stand.sessions.session(sid).stop(abort=True)
    assert not (await asyncio.wait_for(asked, 10)).in_thread
    gate.opened.set()
    desk.scripts.pop(sid)
    assert (await stand.sessions.ask(sid, "anew")).text == "1: anew"


async def test_an_abort_of_a_serial_agent_leaves_no_tool_behind(stand: Stand, desk: Desk, sid: str) -> None:
    """The tools that had not begun never begin, and nothing complains of them."""
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = lambda request: calls("x", "y", "z")
    asked = asyncio.create_task(stand.sessions.ask(sid, "go", agent="serial"))
    await gate.reached.wait()
    await stand.sessions.session(sid).stop(abort=True)
    await asyncio.wait_for(asked, 10)
    gate.opened.set()
    await stand.finish(sid)
    assert len(desk.contexts[sid]) == 1


async def test_a_cancel_that_comes_with_an_abort_is_a_cancel(stand: Stand, desk: Desk, sid: str) -> None:
    """Both in one workflow task: the session must not live on."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main", timeout=20))
    await gate.reached.wait()
    handle = stand.handle(sid)
    stopped = asyncio.create_task(handle.execute_update("stop", StopRequest(mode="abort")))
    await asyncio.gather(handle.cancel(), stopped, return_exceptions=True)
    with pytest.raises(SessionInterruptedError):
        await asyncio.wait_for(stand.sessions.session(sid).result(), 15)
    gate.opened.set()
    await asyncio.gather(asked, return_exceptions=True)


async def test_a_cancelled_session_tells_its_asker_and_archives(stand: Stand, desk: Desk, sid: str) -> None:
    """The finished turns are safe, the one under way is gone, and nobody waits in vain."""
    await stand.sessions.ask(sid, "one", agent="main")
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "two"))
    await gate.reached.wait()
    await stand.handle(sid).cancel()
    assert (await asyncio.wait_for(asked, 15)).status is AskStatus.INTERRUPTED
    gate.opened.set()
    with pytest.raises(SessionInterruptedError):
        await stand.sessions.session(sid).result()
    status = await stand.sessions.session(sid).get_status()
    assert (status.status, status.exit_reason) == ("interrupted", "cancelled")
    assert [(receipt.name, receipt.ok) for receipt in status.receipts] == [
        ("save", True),
        ("flush", True),
        ("evict", True),
    ]
    assert await stand.texts(sid) == ["one", "1: one"]


async def test_rewind_waits_for_the_turn_under_way(stand: Stand, desk: Desk, sid: str) -> None:
    """It is an operation between turns."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main"))
    await gate.reached.wait()
    rewound = asyncio.create_task(stand.sessions.session(sid).rewind(EMPTY))
    await asyncio.sleep(0.1)
    assert not rewound.done()
    gate.opened.set()
    await asked
    assert await rewound == EMPTY
    assert await stand.texts(sid) == []


@pytest.mark.parametrize(
    ("to", "error"),
    [
        (Head(position=2, last_id="another"), HeadMovedError),
        (Head(position=99, last_id="x"), HelixError),
    ],
    ids=["another message", "beyond the end"],
)
async def test_rewind_to_what_is_no_head_is_refused_and_changes_nothing(
    stand: Stand, sid: str, to: Head, error: type[Exception]
) -> None:
    """A cut is for good, so it must be where the caller believes."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.ask(sid, "two")
    with pytest.raises(error):
        await stand.sessions.session(sid).rewind(to)
    assert (await stand.sessions.ask(sid, "three")).text == "5: three"


async def test_a_cancel_during_a_rewind_refuses_the_rewind_and_ends(stand: Stand, sid: str) -> None:
    """Whoever waits for it is told, and the workflow does not wait for him for ever."""
    await stand.sessions.ask(sid, "one", agent="main")
    handle = stand.handle(sid)
    rewound = asyncio.create_task(stand.sessions.session(sid).rewind(EMPTY))
    await asyncio.gather(handle.cancel(), asyncio.sleep(0))
    with pytest.raises(SessionInterruptedError):
        await asyncio.wait_for(stand.sessions.session(sid).result(), 15)
    await asyncio.gather(rewound, return_exceptions=True)


async def test_the_state_goes_back_with_the_thread_only_in_its_messages(stand: Stand, sid: str) -> None:
    """Usage and turns were paid for, whatever became of their messages."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.session(sid).rewind(EMPTY)
    await stand.sessions.ask(sid, "uno")
    assert (await stand.sessions.session(sid).get_status()).turns == 2


async def test_close_archives_and_drops_and_says_so(stand: Stand, sid: str) -> None:
    """After it Redis holds nothing of the session."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.sessions.session(sid).close()
    ended = await stand.sessions.session(sid).result()
    assert (ended.status, ended.exit_reason) == ("completed", "completed")
    assert await stand.served.plugin.backends.hot.read_header(sid) is None


async def test_close_of_a_session_that_does_not_run_is_nothing(stand: Stand, sid: str) -> None:
    """It is closed already."""
    await stand.sessions.session(sid).close()


async def test_the_status_of_a_running_and_of_a_closed_session(stand: Stand, desk: Desk, sid: str) -> None:
    """Also after the end, from history alone."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main"))
    await gate.reached.wait()
    assert (await stand.sessions.session(sid).get_status()).status == "running"
    gate.opened.set()
    await asked
    idle = await stand.sessions.session(sid).get_status()
    assert (idle.status, idle.turns, idle.head.position, idle.exit_reason) == ("idle", 1, 2, None)
    await stand.finish(sid)
    closed = await stand.sessions.session(sid).get_status()
    assert (closed.status, closed.exit_reason, closed.archived) == ("completed", "completed", True)


async def test_the_status_of_a_session_that_never_ran_is_a_clear_error(stand: Stand, sid: str) -> None:
    """Not found is not an empty status."""
    with pytest.raises(SessionNotFoundError):
        await stand.sessions.session(sid).get_status()


async def test_a_rewound_message_may_be_sent_again_under_its_id(stand: Stand, sid: str) -> None:
    """The thread and the execution both forgot it."""
    await stand.sessions.ask(sid, "one", agent="main", message_id="m-1")
    await stand.sessions.session(sid).rewind(EMPTY)
    result = await stand.sessions.ask(sid, "one", message_id="m-1", timeout=10)
    assert (result.status, result.text) == (AskStatus.ANSWERED, "1: one")
    assert await stand.texts(sid) == ["one", "1: one"]


async def test_a_handle_does_what_the_client_does(stand: Stand, sid: str) -> None:
    """The same under one name."""
    session = stand.sessions.session(sid, agent="main")
    assert (await session.ask("hello")).text == "1: hello"
    assert len((await session.list_messages()).items) == 2
    assert not await session.stop()
    assert not await session.stop(abort=True)
    await session.close()
    assert (await session.result()).turns == 1


async def test_fork_by_the_client_and_delete(stand: Stand, sid: str) -> None:
    """A copy of finished turns under another id, which a delete of the first does not touch."""
    await stand.sessions.ask(sid, "hello", agent="main")
    head = await stand.sessions.session(sid).fork(f"{sid}-copy")
    assert head.position == 2
    await stand.finish(sid)
    await stand.sessions.session(sid).delete()
    with pytest.raises(HelixError):
        await stand.sessions.session(sid).list_messages()
    assert await stand.texts(f"{sid}-copy") == ["hello", "1: hello"]
    with pytest.raises(InvalidRequestError):
        await stand.sessions.session(f"{sid}-copy").fork(f"{sid}-other", at=99)


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_stop_that_comes_with_a_tools_result_is_heeded(
    stand: Stand, desk: Desk, sid: str, how: str
) -> None:
    """An activity that completes in the very workflow task that cancels it gives its result all the same."""

    async def stopped(session_id: str) -> AskStatus:
        gate = Gate()

        async def act(what: str, _: ToolContext) -> str:
            if what == "y":
                await gate.passing()
            return what

        desk.scripts[session_id], desk.acts[session_id] = first_tools_then("done", "x", "y"), act
        asked = asyncio.create_task(stand.sessions.ask(session_id, "go", agent="main", timeout=20))
        await gate.reached.wait()
        if how == "abort":
            await stand.sessions.session(session_id).stop(abort=True)
        else:
            await stand.handle(session_id).cancel()
        try:
            return (await asked).status
        finally:
            gate.opened.set()
            if how == "abort":
                await stand.handle(session_id).terminate()

    found = await asyncio.gather(*(stopped(f"{sid}-{number}") for number in range(8)))
    assert found == [AskStatus.INTERRUPTED] * 8
