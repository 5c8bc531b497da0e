"""What the usage store has of tools: each call once, with what it used of models, up to the root session."""

import time

import pytest
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import ToolContext, ToolOutcome
from helix_temporal.models.messages import Usage
from helix_temporal.models.streams import ToolEnd
from helix_temporal.models.usage import CallStats, TokenUsageEntry, ToolUsageEntry, UsageRollup
from helix_temporal.models.waiting import ToolApproval
from tests.workflows._desk import Desk, calls, first_tools_then
from tests.workflows._team import ask
from tests.workflows.conftest import Crew, Stand
from tests.workflows.test_waits import ACT, LOCATE, WIPE, asks, asks_once, suspended

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def sums(stand: Stand, session_id: str, *, whole: bool = False) -> UsageRollup:
    usage = stand.served.plugin.backends.usage
    found: UsageRollup | None = await usage.get_rollup(session_id, include_sub_agents=whole)
    assert found is not None
    return found


def counted(stats: CallStats) -> tuple[int, int, int]:
    """Calls, those that went well, those that failed."""
    return stats.total_calls, stats.success, stats.failed


async def test_a_tool_is_recorded_with_what_it_used(stand: Stand, desk: Desk, sid: str) -> None:
    """A tool that asks a model of its own is paid for like any other call."""
    desk.scripts[sid] = first_tools_then("done", "x")
    desk.acts[sid] = lambda what, context: ToolOutcome("sub", usage=Usage(input_tokens=300, output_tokens=30))
    await stand.sessions.ask(sid, "go", agent="main")
    entries = await stand.served.plugin.backends.usage.get_entries(sid)
    by_kind = {entry.source.type + entry.kind: entry for entry in entries if entry.source is not None}
    ran, used = by_kind["tooltool"], by_kind["tooltokens"]
    assert isinstance(ran, ToolUsageEntry)
    assert isinstance(used, TokenUsageEntry)
    assert (ran.tool_name, ran.tool_call_id, ran.success, ran.step_count) == ("act", "call_0", True, 1)
    assert (used.model, used.tokens.prompt, used.step_count, used.run_id) == ("act", 300, 1, ran.run_id)
    usage = (await stand.sessions.session(sid).get_status()).usage
    assert (await sums(stand, sid)).tokens.prompt == usage.input_tokens == 310


async def test_calls_that_fail_are_recorded_once_as_failed(stand: Stand, desk: Desk, sid: str) -> None:
    """However often they were tried; an argument that fits nothing, and a tool that is not there, too."""
    wanted = asks(ACT, ("add", {"a": "no number"}), ("nonsense", {}))
    desk.scripts[sid] = lambda request: wanted if request.messages[-1].role == "user" else "done"

    def act(what: str, context: ToolContext) -> str:
        raise ValueError

    desk.acts[sid] = act
    await stand.sessions.ask(sid, "go", agent="main")
    stats = (await sums(stand, sid)).tool_stats
    assert {name: counted(each) for name, each in stats.by_tool.items()} == {
        "act": (1, 0, 1),
        "add": (1, 0, 1),
        "nonsense": (1, 0, 1),
    }


async def test_a_call_that_works_the_second_time_is_one(stand: Stand, desk: Desk, sid: str) -> None:
    """The entry is the call's, not the attempt's."""

    def act(what: str, context: ToolContext) -> str:
        if context.attempt == 1:
            raise ValueError
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "go", agent="main")
    assert counted((await sums(stand, sid)).tool_stats) == (1, 1, 0)


async def test_attempts_of_a_tool_are_counted(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever looks why a turn took long finds the tool that worked at its second attempt."""

    def act(what: str, context: ToolContext) -> str:
        if context.attempt < 2:
            raise OSError("no route")
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "go", agent="main")
    entries = await stand.served.plugin.backends.usage.get_entries(sid, kinds=["tool"])
    assert [each.attempts for each in entries if isinstance(each, ToolUsageEntry)] == [2]


@pytest.mark.parametrize("late_fails", [True, False])
async def test_the_end_of_an_attempt_that_has_timed_out_is_not_told(
    stand: Stand, desk: Desk, sid: str, late_fails: bool
) -> None:
    """A frozen worker goes on with it, and Temporal takes the next attempt's end: that one is told."""

    def act(what: str, context: ToolContext) -> str:
        late = context.attempt == 1
        if late:
            time.sleep(4)  # the worker beats no more, for twice the time-out
        if late is late_fails:
            raise ApplicationError("no such account", non_retryable=True)
        return what

    desk.acts[sid] = act
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.sessions.ask(sid, "go", agent="main")
    assert len(desk.contexts[sid]) == 2
    assert counted((await sums(stand, sid)).tool_stats) == ((1, 1, 0) if late_fails else (1, 0, 1))
    told = [each.chunk async for each in stand.sessions.stream(sid, until="turn")]
    assert [each.success for each in told if isinstance(each, ToolEnd)] == [late_fails]


async def test_calls_that_people_answer_are_recorded(stand: Stand, desk: Desk, sid: str) -> None:
    """No worker ran them; the step that takes their answers tells."""
    desk.scripts[sid] = asks_once(LOCATE, WIPE, WIPE, ACT)
    locate, wipe, kept = (await suspended(stand, sid)).pending
    await stand.sessions.session(sid).submit_tool_result(locate, "in Bonn")
    await stand.sessions.session(sid).submit_approval(ToolApproval(approval_id=kept.id, approved=False))
    await stand.sessions.session(sid).submit_approval(
        ToolApproval(approval_id=wipe.id, approved=True), wait=True
    )
    stats = (await sums(stand, sid)).tool_stats
    assert {name: counted(each) for name, each in stats.by_tool.items()} == {
        "locate": (1, 1, 0),
        "wipe": (2, 1, 1),
        "act": (1, 1, 0),
    }


async def test_a_turn_that_ends_with_its_tools_records_them(stand: Stand, desk: Desk, sid: str) -> None:
    """There is no further step that could."""
    desk.scripts[sid] = lambda request: calls("again")

    def act(what: str, context: ToolContext) -> str:
        if len(desk.contexts[sid]) > 1:
            raise ValueError
        return what

    desk.acts[sid] = act
    await stand.sessions.ask(sid, "go", agent="two-steps")
    entries = await stand.served.plugin.backends.usage.get_entries(sid, kinds=["tool"])
    told = [(each.step_count, each.success) for each in entries if isinstance(each, ToolUsageEntry)]
    assert told == [(1, True), (2, False)]


async def test_tools_of_sub_agents_are_in_the_sums_of_their_root(crew: Crew, sid: str) -> None:
    """A bill for a session is a bill for all that worked in it; a sub-agent is a call of its own kind."""
    crew.team.leads[sid] = lambda request: ask("tool x") if request.messages[-1].role == "user" else "done"
    await crew.sessions.ask(sid, "go", agent="new")
    alone, whole = await sums(crew, sid), await sums(crew, sid, whole=True)
    assert (counted(alone.tool_stats), counted(whole.tool_stats)) == ((0, 0, 0), (1, 1, 0))
    assert counted(whole.sub_agent_stats) == (1, 1, 0)
