"""Roots that are terminated once answers have started their sub-agents again."""

import asyncio

import pytest

from helix_temporal.agents import ModelRequest
from helix_temporal.client import SessionClient
from helix_temporal.errors import SessionTerminatedError
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.waiting import PendingCall, ToolApproval
from tests.workflows._team import ask
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import check_sound, ended

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


def client_of(crew: Crew, suspend: str) -> SessionClient:
    """A client whose sessions wait, or end while they wait."""
    return crew.client(suspend=suspend)


async def approved(
    crew: Crew, sid: str, suspend: str, tasks: list[str], agent: str = "leads-careful"
) -> tuple[PendingCall, ...]:
    """A root whose sub-agents each wait for an approval: all are approved, and at work."""

    def lead(request: ModelRequest) -> object:
        last = request.messages[-1]
        return ask(*tasks) if last.role == "user" else f"told: {last.text}"

    crew.team.leads[sid] = lead
    client = client_of(crew, suspend)
    await client.ask(sid, "go", agent=agent, message_id="m", timeout=30)
    calls: tuple[PendingCall, ...] = ()
    async with asyncio.timeout(30):
        while len(calls) < len(tasks):
            calls = await client.session(sid).get_pending_calls()
    if suspend == "exit":
        await client.session(sid).result()
    for each in calls:
        await client.session(sid).submit_approval(
            ToolApproval(approval_id=each.id, approved=True), timeout=30
        )
    for task in tasks:
        await asyncio.wait_for(crew.team.gates[task].reached.wait(), 30)
    return calls


@pytest.mark.parametrize("suspend", ["wait", "exit"])
@pytest.mark.parametrize("at_work", [True, False])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_terminated_root_keeps_the_turn_of_sub_agents_that_work_again(
    crew: Crew, sid: str, suspend: str, at_work: bool, count: int
) -> None:
    """Nobody is asked twice, and what was approved is not done under another key."""
    tasks = [f"{sid}-{at}" for at in range(count)]
    calls = await approved(crew, sid, suspend, tasks)
    await crew.handle(sid).terminate()
    if not at_work:
        for each in calls:
            await ended(crew, each.route[0])
    again = await client_of(crew, suspend).ask(sid, "go", agent="leads-careful", message_id="m", timeout=60)
    assert (again.status, again.pending) == (AskStatus.ANSWERED, ())
    assert again.text == "told: The sub-agent was interrupted before it had an answer."
    assert len(crew.team.heard[sid]) == 2
    assert len(await crew.children(sid)) == count
    await check_sound(crew, sid, *(each.route[0] for each in calls))


@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_a_terminated_root_finds_what_its_sub_agents_have_done(
    crew: Crew, sid: str, suspend: str
) -> None:
    """All of them came to their end, and the caller was terminated with the results in its hands."""
    tasks = [f"{sid}-{at}" for at in range(2)]
    calls = await approved(crew, sid, suspend, tasks)
    lead, gate = crew.team.leads[sid], crew.team.gates[sid]

    async def held(request: ModelRequest) -> object:
        await gate.passing()
        return lead(request)

    crew.team.leads[sid] = held
    for task in tasks:
        crew.team.gates[task].opened.set()
    await asyncio.wait_for(gate.reached.wait(), 20)
    await crew.handle(sid).terminate()
    gate.opened.set()
    again = await client_of(crew, suspend).ask(sid, "go", agent="leads-careful", message_id="m", timeout=60)
    assert again.text == f"told: hold {tasks[1]}"
    assert [len(crew.team.heard[each.route[0]]) for each in calls] == [2, 2]
    assert len(await crew.children(sid)) == 2
    await check_sound(crew, sid, *(each.route[0] for each in calls))


async def test_a_sub_agent_that_nobody_was_asked_by_keeps_no_turn(crew: Crew, sid: str) -> None:
    """A turn that never waited is cut when its execution is terminated, as any other."""
    crew.team.leads[sid] = lambda request: ask(f"hold {sid}") if len(request.messages) == 1 else "fine"
    await crew.sessions.send(sid, "go", agent="new")
    await asyncio.wait_for(crew.team.gates[sid].reached.wait(), 20)
    await crew.handle(sid).terminate()
    crew.team.leads[sid] = lambda request: "fine"
    assert (await crew.sessions.ask(sid, "anew", agent="new", timeout=60)).text == "fine"
    assert await crew.texts(sid) == ["anew", "fine"]


@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_an_answer_sent_again_after_the_terminate_is_told_as_what_it_is(
    crew: Crew, sid: str, suspend: str
) -> None:
    """The sub-agent is being ended: nobody takes another answer for it."""
    (call,) = await approved(crew, sid, suspend, [f"{sid}-0"])
    await crew.handle(sid).terminate()
    session = client_of(crew, suspend).session(sid)
    reply = await session.submit_approval(ToolApproval(approval_id=call.id, approved=True), timeout=30)
    assert reply.status == "not_pending"
    again = await client_of(crew, suspend).ask(sid, "go", agent="leads-careful", message_id="m", timeout=60)
    assert (again.status, again.pending) == (AskStatus.ANSWERED, ())


async def test_a_session_is_opened_over_a_hot_thread_that_went_back_behind_a_cut(
    crew: Crew, sid: str
) -> None:
    """Two executions were terminated in a turn; Redis then has the first one's, the archive the other's."""

    def lead(request: ModelRequest) -> object:
        last = request.messages[-1]
        # Held: a sub-agent that came to wait for its approval would keep the turn.
        return ask(f"hold {sid}") if last.text == "go" else f"told: {last.text}"

    crew.team.leads[sid], client = lead, client_of(crew, "wait")
    await client.ask(sid, "hello", agent="leads-careful", message_id="m0", timeout=30)
    tiered = crew.served.plugin.backends.tiered
    assert tiered is not None
    copies = []
    for number in (1, 2):
        asking = asyncio.create_task(
            client.ask(sid, "go", agent="leads-careful", message_id="m1", timeout=30)
        )
        async with asyncio.timeout(20):
            while not await stands(crew, sid, number):  # noqa: ASYNC110 (the stores tell nobody)
                await asyncio.sleep(0.05)
        copies.append(await tiered.hot.read_snapshot(sid, 0))
        await crew.handle(sid).terminate()
        with pytest.raises(SessionTerminatedError):
            await asking
    first = copies[0]
    assert first is not None
    await tiered.evict(sid, (await tiered.read_facts(sid)).epoch)
    await tiered.hot.install(first.header, first.messages, replace=False)
    again = await client.ask(sid, "again", agent="leads-careful", message_id="m2", timeout=30)
    assert again.text == "told: again"
    crew.team.gates[sid].opened.set()


async def stands(crew: Crew, session_id: str, turn: int) -> bool:
    """Whether the step of this turn that calls the sub-agent is archived."""
    tiered = crew.served.plugin.backends.tiered
    assert tiered is not None
    return len(crew.team.heard[session_id]) > turn and (await tiered.read_facts(session_id)).archived == 4
