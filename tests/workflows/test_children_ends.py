"""Sub-agents whose parents are stopped, cancelled, terminated or reset: none is left, nothing is lost."""

import asyncio

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from helix_temporal.agents import ModelRequest
from helix_temporal.client import workflow_id
from helix_temporal.errors import SessionInterruptedError
from helix_temporal.models.sessions import AskResult, AskStatus, SessionOptions
from helix_temporal.models.states import SessionStatus
from helix_temporal.workflows import sub_agents
from tests._resets import reset_workflow
from tests.workflows._desk import Answer
from tests.workflows._team import ask
from tests.workflows.conftest import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def held(crew: Crew, sid: str, agent: str = "new", task: str = "hold") -> "asyncio.Task[AskResult]":
    """An ask whose sub-agent is in the middle of its work."""
    asked = asyncio.create_task(crew.sessions.ask(sid, f"{task} {sid}", agent=agent, timeout=60))
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    return asked


async def ended(crew: Crew, session_id: str) -> WorkflowExecutionStatus | None:
    """How the newest run of a session ended, once it has."""
    handle = crew.handle(session_id)
    async with asyncio.timeout(30):
        while True:
            found = (await handle.describe()).status
            if found is not WorkflowExecutionStatus.RUNNING:
                return found
            await asyncio.sleep(0.05)


async def started(crew: Crew, session_id: str) -> bool:
    """Whether a sub-agent's workflow was started."""
    try:
        events = await crew.events(session_id)
    except RPCError:
        return False
    return any(each.HasField("child_workflow_execution_started_event_attributes") for each in events)


async def heard(crew: Crew, session_id: str) -> None:
    """Wait until a session has taken note that a sub-agent's workflow has ended."""
    async with asyncio.timeout(20):
        while True:
            kinds = [each.WhichOneof("attributes") for each in await crew.events(session_id)]
            end = "child_workflow_execution_completed_event_attributes"
            if end in kinds and "workflow_task_completed_event_attributes" in kinds[kinds.index(end) :]:
                return
            await asyncio.sleep(0.05)


async def lineage(crew: Crew, session_id: str) -> list[str]:
    """The sessions below this one, from the top, where each has one child."""
    found: list[str] = []
    refs = await crew.children(session_id)
    while refs:
        found.append(refs[0].sub_session_id)
        refs = await crew.children(found[-1])
    return found


async def check_sound(crew: Crew, *session_ids: str) -> None:
    """Each thread holds finished turns alone, and its archive is whole."""
    for each in session_ids:
        roles = [message.role for message in await crew.messages(each)]
        assert roles.count("tool") == sum(
            len(message.tool_calls) for message in await crew.messages(each) if message.role == "assistant"
        )
        audit = await crew.served.plugin.backends.tiered.upkeep.audit(each)
        assert audit.problems == ()


async def test_a_cancel_reaches_all_below_and_waits_for_them(crew: Crew, sid: str) -> None:
    """Who reads "cancelled" may count on it: nobody below works on, and each has saved and archived."""
    asked = await held(crew, sid, "top")
    middle, helper = await lineage(crew, sid)
    await crew.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await crew.sessions.session(sid).result()
    statuses = [(await crew.handle(each).describe()).status for each in (middle, helper)]
    assert statuses == [WorkflowExecutionStatus.CANCELED] * 2
    assert (await asked).status is AskStatus.INTERRUPTED
    receipts = (await crew.sessions.session(helper).get_status()).receipts
    assert [(each.name, each.ok) for each in receipts] == [("save", True), ("flush", True), ("evict", True)]
    assert [each.status for each in await crew.children(sid)] == ["interrupted"]
    crew.team.gates[sid].opened.set()
    await check_sound(crew, sid, middle, helper)


async def test_an_abort_ends_sub_agents_and_leaves_no_trace_of_the_turn(crew: Crew, sid: str) -> None:
    """The session serves on at once, and nothing of the turn comes back."""
    asked = await held(crew, sid, "top")
    middle, helper = await lineage(crew, sid)
    assert await crew.sessions.session(sid).stop(abort=True)
    assert not (await asked).in_thread
    statuses = [(await crew.handle(each).describe()).status for each in (middle, helper)]
    assert statuses == [WorkflowExecutionStatus.CANCELED] * 2
    assert [each.status for each in await crew.children(sid)] == ["interrupted"]
    crew.team.gates[sid].opened.set()
    assert (await crew.sessions.ask(sid, "anew")).text == "1: anew"
    assert [each.text for each in await crew.messages(sid) if each.role == "user"] == ["anew"]


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_sub_agent_that_had_answered_before_its_turn_was_cut_is_not_shown_at_work(
    crew: Crew, sid: str, how: str
) -> None:
    """Its answer is in no step, and nobody else would ever say that it has ended."""
    crew.team.leads[sid] = lambda request: (
        ask("at once", f"hold {sid}") if request.messages[-1].role == "user" else "done"
    )
    asked = await held(crew, sid)
    early, late = await crew.children(sid)
    await heard(crew, sid)
    if how == "abort":
        await crew.sessions.session(sid).stop(abort=True)
    else:
        await crew.handle(sid).cancel()
    await asked
    crew.team.gates[sid].opened.set()
    await crew.sessions.session(sid).close()
    await ended(crew, sid)
    shown = {each.sub_session_id: each.status for each in await crew.children(sid)}
    assert shown == {
        early.sub_session_id: SessionStatus.COMPLETED,
        late.sub_session_id: SessionStatus.INTERRUPTED,
    }


async def test_an_abort_does_not_wait_for_ever_for_a_sub_agent_that_nobody_serves(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been asked to end, and ends by its time-out; the person need not wait for that."""
    monkeypatch.setattr(sub_agents, "STOP_SECONDS", 1.0)
    asked = asyncio.create_task(crew.sessions.ask(sid, "go", agent="far", timeout=60))
    async with asyncio.timeout(20):
        while not await started(crew, sid):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    assert await crew.sessions.session(sid).stop(abort=True)
    assert (await asked).status is AskStatus.INTERRUPTED
    crew.team.leads[sid] = lambda request: "fine"
    assert (await crew.sessions.ask(sid, "anew")).text == "fine"
    await crew.finish(sid)


async def until_signalled(crew: Crew, session_id: str) -> None:
    """Until what goes down from level to level has come to this one."""
    async with asyncio.timeout(30):
        while not any(  # noqa: ASYNC110 (the server tells nobody)
            each.HasField("workflow_execution_signaled_event_attributes")
            for each in await crew.events(session_id)
        ):
            await asyncio.sleep(0.05)


async def test_an_interrupt_lets_sub_agents_end_after_their_step(crew: Crew, sid: str) -> None:
    """What was paid for is kept, on every level, and every call has its result."""
    asked = await held(crew, sid, "top", task="tool hold")
    middle, helper = await lineage(crew, sid)
    assert await crew.sessions.session(sid).stop()
    await until_signalled(crew, helper)
    crew.team.gates[sid].opened.set()
    result = await asked
    assert (result.status, result.exit_reason) == (AskStatus.INTERRUPTED, "interrupted")
    for each in (sid, middle, helper):
        assert [message.role for message in await crew.messages(each)] == ["user", "assistant", "tool"]
    assert "was interrupted" in (await crew.messages(sid))[-1].text
    assert [each.status for each in await crew.children(sid)] == ["interrupted"]


@pytest.mark.parametrize("agent", ["continue", "serial"])
async def test_an_interrupt_keeps_sub_agents_from_beginning(crew: Crew, sid: str, agent: str) -> None:
    """Those whose turn has not come would only cost."""
    crew.team.leads[sid] = lambda request: ask(f"tool hold {sid}", "two")
    asked = asyncio.create_task(crew.sessions.ask(sid, "go", agent=agent, timeout=60))
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await crew.sessions.session(sid).stop()
    crew.team.gates[sid].opened.set()
    assert (await asked).status is AskStatus.INTERRUPTED
    *_, first, second = await crew.messages(sid)
    assert "was interrupted" in first.text
    assert second.text == "The sub-agent was interrupted before it began."


async def test_a_session_that_is_closed_lets_its_sub_agents_finish(crew: Crew, sid: str) -> None:
    """Closing is for what comes after."""
    asked = await held(crew, sid)
    await crew.sessions.session(sid).close()
    crew.team.gates[sid].opened.set()
    assert (await asked).text == f"1: hold {sid}"
    assert await ended(crew, sid) is WorkflowExecutionStatus.COMPLETED


async def test_a_terminated_parent_leaves_no_sub_agent_behind(crew: Crew, sid: str) -> None:
    """The server asks them to end, and they save and archive as they do."""
    asked = await held(crew, sid, "top")
    middle, helper = await lineage(crew, sid)
    await crew.handle(sid).terminate()
    assert [await ended(crew, each) for each in (middle, helper)] == [WorkflowExecutionStatus.CANCELED] * 2
    await asyncio.gather(asked, return_exceptions=True)
    crew.team.gates[sid].opened.set()
    # What was left says so once somebody comes back.
    assert (await crew.sessions.ask(sid, "anew", agent="top")).text == "1: anew"
    assert [each.status for each in await crew.children(sid)] == ["interrupted", "completed"]
    await check_sound(crew, sid, middle, helper)


async def test_a_sub_agent_that_is_terminated_is_an_error_for_its_parent(crew: Crew, sid: str) -> None:
    """An operator ends the part that hangs; the whole goes on."""
    asked = await held(crew, sid)
    await crew.handle(await crew.child(sid)).terminate()
    assert (await asked).text == "The sub-agent was terminated."
    crew.team.gates[sid].opened.set()


async def test_a_sub_agent_that_is_cancelled_alone_is_an_error_for_its_parent(crew: Crew, sid: str) -> None:
    """Its parent was not asked to end."""
    asked = await held(crew, sid)
    await crew.handle(await crew.child(sid)).cancel()
    assert (await asked).text == "The sub-agent was cancelled before it had an answer."
    crew.team.gates[sid].opened.set()


async def reset(crew: Crew, session_id: str, event_id: int) -> None:
    await reset_workflow(crew.served.client, workflow_id(session_id), event_id)


async def task_ends(crew: Crew, session_id: str) -> list[int]:
    events = await crew.events(session_id)
    return [each.event_id for each in events if each.HasField("workflow_task_completed_event_attributes")]


@pytest.mark.parametrize("agent", ["new", "fork", "continue"])
@pytest.mark.parametrize("back", [1, 2])
async def test_a_reset_in_the_middle_of_a_call_gives_one_result(
    crew: Crew, sid: str, agent: str, back: int
) -> None:
    """The call is made again under the same name: one session serves it, whoever waited for it before."""
    asked = await held(crew, sid, agent)
    child = await crew.child(sid)
    await reset(crew, sid, (await task_ends(crew, sid))[-back])
    crew.team.gates[sid].opened.set()
    result = await crew.sessions.ask(sid, "two", timeout=60)
    assert result.status is AskStatus.ANSWERED
    await asyncio.gather(asked, return_exceptions=True)
    users = [each.text for each in await crew.messages(sid) if each.role == "user"]
    assert users == [f"hold {sid}", "two"]
    assert (await crew.messages(sid))[2].text == f"1: hold {sid}"
    assert [each.text for each in await crew.messages(child)].count(f"hold {sid}") == 1
    await crew.finish(sid)
    assert await ended(crew, child) is not WorkflowExecutionStatus.RUNNING
    await check_sound(crew, sid, child)


async def test_a_reset_after_a_call_finds_the_answer_and_pays_nothing(crew: Crew, sid: str) -> None:
    """The sub-agent's answer stands in its thread, and its model is not asked again."""
    await crew.sessions.ask(sid, "one", agent="new")
    child = await crew.child(sid)
    usage = (await crew.sessions.session(sid).get_status()).usage
    heard = len(crew.team.heard[child])
    ends = await task_ends(crew, sid)
    await reset(crew, sid, ends[3])
    assert (await crew.sessions.ask(sid, "two")).text == "1: two"
    assert len(crew.team.heard[child]) == heard
    assert (await crew.messages(sid))[2].text == "1: one"
    assert (await crew.sessions.session(sid).get_status()).usage == usage + usage


async def test_a_continuing_sub_agent_never_drops_its_parents_thread(crew: Crew, sid: str) -> None:
    """It ends, archives and drops what is its own; its parent appends as before."""
    result = await crew.sessions.ask(sid, "one", agent="continue")
    child, hot = await crew.child(sid), crew.served.plugin.backends.hot
    assert result.text == "1: one"
    parent = await hot.read_header(sid)
    assert parent is not None
    assert parent.head.position == 4
    assert await hot.read_header(child) is None
    assert (await crew.sessions.ask(sid, "two")).text == "3: two"
    await check_sound(crew, sid, child)


async def test_a_session_that_somebody_talks_to_is_waited_for(crew: Crew, sid: str) -> None:
    """A person chats with the sub-agent; the call comes after that."""
    await crew.sessions.ask(sid, "one", agent="continue")
    child = await crew.child(sid)
    other = crew.served.create_client(SessionOptions(idle_timeout=1))
    await other.ask(child, "hello from aside", agent="helper")
    assert (await crew.sessions.ask(sid, "two")).text == "5: two"


async def test_a_session_that_is_held_for_long_is_refused_with_its_holder(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model learns that it has to do without, and people whom to look at."""
    monkeypatch.setattr(sub_agents, "HELD_SECONDS", 1.0)
    await crew.sessions.ask(sid, "one", agent="continue")
    child = await crew.child(sid)
    await crew.sessions.ask(child, "hello from aside", agent="helper")
    answer = (await crew.sessions.ask(sid, "two")).text or ""
    assert "held by another execution" in answer
    assert workflow_id(child) in answer
    await crew.finish(child)


def asks_twice(request: ModelRequest) -> Answer:
    """The answer after two rounds of calls."""
    return ask("one") if len(request.messages) < 5 else "done"


async def test_sub_agents_of_several_steps_are_each_on_their_own(crew: Crew, sid: str) -> None:
    """Providers use one call id again and again; sessions are named by more than that."""
    crew.team.leads[sid] = asks_twice
    assert (await crew.sessions.ask(sid, "go", agent="new")).text == "done"
    assert len(await crew.children(sid)) == 2
