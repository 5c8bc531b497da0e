"""Tool calls across sessions: which failed, for whom, when; and what sessions used."""

from decimal import Decimal
from typing import Any

import pytest

from helix_temporal.client import SessionStores
from helix_temporal.models.checkpoints import Run, RunStatus
from helix_temporal.models.states import CreateSession, SubSessionRef
from helix_temporal.models.usage import SubAgentUsageEntry, TokenCounts, TokenUsageEntry, ToolUsageEntry
from helix_temporal.models.waiting import DENIED
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import FoundCall
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import Scene, Writer, answer, call, result, user


async def found(views: SessionViews, wanted: SessionFilter | None = None, **options: Any) -> list[FoundCall]:
    """All that a search finds."""
    return [each async for each in views.find_calls(wanted or SessionFilter(), **options)]


def named(calls: list[FoundCall]) -> list[tuple[str, int | None, int, str]]:
    """Session, turn, message and status of each."""
    return [(each.session_id, each.turn, each.message_position, each.call.status) for each in calls]


async def turn_with_call(writer: Writer, name: str, *, success: bool = True, recorded: bool = True) -> Run:
    """A turn with one call of the tool ``look``."""
    run = await writer.start()
    said = "seen" if success else "it was closed"
    await writer.append(
        user(f"u-{name}"),
        answer(f"a-{name}", "", call(what=name)),
        result(f"a-{name}", 0, said, is_error=not success),
        answer(f"b-{name}"),
    )
    if recorded:
        await writer.record_model_call(f"a-{name}", run)
        await writer.record_tool_call(f"a-{name}", run, success=success)
    await writer.end()
    return run


@pytest.mark.parametrize("recorded", [True, False], ids=["by usage", "by the thread"])
async def test_which_call_failed_for_a_user(scene: Scene, *, recorded: bool) -> None:
    """Whoever gets the complaint finds the call, its arguments and its error, with or without usage."""
    first = await scene.begin("s1", user_id="ann", agent_type="clerk")
    await turn_with_call(first, "one", recorded=recorded)
    await turn_with_call(first, "two", success=False, recorded=recorded)
    second = await scene.begin("s2", user_id="bob")
    await turn_with_call(second, "three", success=False, recorded=recorded)
    (failed,) = await found(scene.views, SessionFilter(user_id="ann"), failed=True)
    assert named([failed]) == [("s1", 2, 5, "failed")]
    assert (failed.user_id, failed.agent, failed.step) == ("ann", "clerk", 1)
    assert (failed.call.arguments, failed.call.error) == ({"what": "two"}, "it was closed")
    assert failed.at is not None
    assert {each.session_id for each in await found(scene.views, failed=True)} == {"s1", "s2"}
    assert named(await found(scene.views, SessionFilter(user_id="ann"), failed=False)) == [
        ("s1", 1, 1, "done")
    ]
    assert await found(scene.views, tool="write") == []
    assert len(await found(scene.views, tool="look")) == 3


@pytest.mark.parametrize("recorded", [True, False], ids=["by usage", "by the thread"])
async def test_a_call_that_was_denied_is_not_among_those_that_failed(scene: Scene, *, recorded: bool) -> None:
    """Usage knows that it had no success; the thread knows why."""
    writer = await scene.begin()
    run = await writer.start()
    denied = result("a1", 0, f"{DENIED}: too much", is_error=True)
    await writer.append(user("u1"), answer("a1", "", call()), denied, answer("b1"))
    if recorded:
        await writer.record_tool_call("a1", run, success=False)
    await writer.end()
    assert await found(scene.views, failed=True) == []
    assert named(await found(scene.views, failed=False)) == [("s1", 1, 1, "denied")]
    assert named(await found(scene.views)) == [("s1", 1, 1, "denied")]


@pytest.mark.parametrize("recorded", [True, False], ids=["by usage", "by the thread"])
async def test_calls_are_found_by_their_time(scene: Scene, *, recorded: bool) -> None:
    """Yesterday's, in a session that went on today."""
    writer = await scene.begin()
    run = await turn_with_call(writer, "one", recorded=recorded)
    at = run.started_at
    assert named(await found(scene.views, since=at, until=at + 1)) == [("s1", 1, 1, "done")]
    assert await found(scene.views, until=at) == []
    assert await found(scene.views, since=at + 1) == []


async def test_calls_of_a_turn_that_was_aborted_are_told_by_usage(scene: Scene) -> None:
    """The thread has them no more; that they failed is why somebody looks."""
    writer = await scene.begin()
    await turn_with_call(writer, "one")
    run = await writer.start()
    await writer.record_tool_call("a-two", run, success=False)
    await writer.end(RunStatus.ABORTED)
    (failed,) = await found(scene.views, failed=True)
    assert named([failed]) == [("s1", 2, 4, "failed")]
    assert (failed.call.name, failed.call.arguments, failed.call.error) == ("look", None, "it was closed")


async def test_calls_deep_in_a_long_turn_are_found(scene: Scene) -> None:
    """A turn that is longer than a page is read until its call is there."""
    writer = await scene.begin()
    run = await writer.start()
    said = [user("u1")]
    for at in range(300):
        said += [answer(f"a{at}", "", call()), result(f"a{at}", 0, f"r{at}", is_error=at == 299)]
    await writer.append(*said, answer("end"))
    await writer.record_tool_call("a299", run, success=False)
    await writer.end()
    assert named(await found(scene.views, failed=True)) == [("s1", 1, 599, "failed")]


async def test_one_failed_call_among_thousands_is_found(scene: Scene) -> None:
    """A session that has used tools for weeks."""
    writer = await scene.begin()
    run = await writer.start()
    for at in range(300):
        await writer.record_tool_call("a-gone", run, at=at, success=at != 250)
    await writer.append(user("u1"), answer("a1"))
    await writer.end()
    (failed,) = await found(scene.views, failed=True, since=run.started_at)
    assert (failed.turn, failed.call.call_id, failed.call.error) == (1, "call_250", "it was closed")
    assert await found(scene.views, failed=True, until=run.started_at) == []


async def test_calls_without_a_session_store_cannot_be_looked_for_by_list(scene: Scene) -> None:
    """A search over sessions that nobody can list: the error says why."""
    alone = SessionStores(threads=scene.threads, usage=scene.stores.usage)
    with pytest.raises(Exception, match="HELIX_SESSION_STORE"):
        await found(SessionViews(alone))


async def test_calls_in_sessions_that_may_not_be_seen_are_not_found(scene: Scene) -> None:
    """A search is a read like any other."""
    writer = await scene.begin("s1", user_id="ann")
    await turn_with_call(writer, "one", success=False)
    views = SessionViews(scene.stores, admits=lambda overview: overview.user_id == "bob")
    assert await found(views) == []


async def test_a_sub_agents_call_leads_to_its_session(scene: Scene) -> None:
    """Its name is that of the tool, though usage knows the agent."""
    writer = await scene.begin()
    run = await writer.start()
    await scene.sessions.create_session("c1", CreateSession(parent_session_id="s1"))
    ref = SubSessionRef(sub_session_id="c1", agent_type="helper", parent_tool_call_id="call_0")
    await scene.sessions.add_sub_session_refs("s1", [ref])
    await writer.append(user("u1"), answer("a1", "", call(0, "ask_helper")), result("a1"), answer("b1"))
    await scene.stores.usage.record_entry(
        SubAgentUsageEntry.model_validate(
            {
                "id": "child/a1.0",
                "session_id": "s1",
                "timestamp": run.started_at,
                "run_id": run.run_id,
                "agent_type": "helper",
                "source": {"type": "tool", "name": "ask_helper"},
                "sub_session_id": "c1",
                "duration_ms": 30,
            }
        )
    )
    await writer.end()
    (asked,) = await found(scene.views, tool="ask_helper")
    assert (asked.call.sub_session_id, asked.call.duration_ms) == ("c1", 30)
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.messages[1].calls[0].sub_session_id == "c1"


# ---- usage


def tokens(session_id: str, entry_id: str, model: str, prompt: int, **fields: Any) -> TokenUsageEntry:
    """A model call."""
    return TokenUsageEntry(
        id=entry_id,
        session_id=session_id,
        timestamp=1_000,
        model=model,
        tokens=TokenCounts(prompt=prompt, completion=1, cached=2, reasoning=1),
        **fields,
    )


async def test_usage_is_summed_by_model_and_tool(scene: Scene) -> None:
    """What a conversation cost, and what of it went where."""
    writer = await scene.begin()
    run = await turn_with_call(writer, "one")
    await turn_with_call(writer, "two", success=False)
    usage = scene.stores.usage
    await usage.record_entry(tokens("s1", "x", "m-2", 100, cost_usd=Decimal("0.25"), duration_ms=3))
    sums = await scene.views.get_usage("s1")
    assert (sums.tokens.input, sums.tokens.output, sums.tokens.cached) == (120, 5, 2)
    assert (sums.model_calls, sums.tool_calls, sums.failed_tool_calls) == (3, 2, 1)
    assert (sums.cost_usd, sums.duration_ms) == (Decimal("0.25"), 2 * 7 + 3 + 2 * 5)
    assert sums.by_model["m-2"].input == 100
    assert (sums.by_tool["look"].calls, sums.by_tool["look"].failed) == (2, 1)
    assert (sums.session_ids, sums.complete) == (("s1",), True)
    assert run.run_id
    assert (await scene.views.get_session("s1")).usage == sums


async def test_usage_of_descendants_is_added(scene: Scene) -> None:
    """A sum over a tree counts each of its sessions once; hidden ones are left out."""
    await scene.begin("s1", user_id="ann")
    await scene.sessions.create_session("c1", CreateSession(user_id="ann", parent_session_id="s1"))
    await scene.sessions.create_session("c2", CreateSession(user_id="bob", parent_session_id="s1"))
    usage = scene.stores.usage
    for name, prompt in (("s1", 1), ("c1", 10), ("c2", 100)):
        await usage.record_entry(tokens(name, "x", "m", prompt))
    for name in ("c1", "c2"):
        entry = SubAgentUsageEntry(id=f"child/{name}", session_id="s1", timestamp=1, sub_session_id=name)
        await usage.record_entry(entry)
    assert (await scene.views.get_usage("s1")).tokens.input == 1
    assert (await scene.views.get_usage("s1", descendants=True)).tokens.input == 111
    views = SessionViews(scene.stores, admits=lambda overview: overview.user_id == "ann")
    sums = await views.get_usage("s1", descendants=True)
    assert (sums.tokens.input, set(sums.session_ids)) == (11, {"s1", "c1"})


async def test_a_session_without_usage_has_zeros(scene: Scene) -> None:
    """Nothing recorded is no error."""
    await scene.begin()
    sums = await scene.views.get_usage("s1")
    assert (sums.tokens.total, sums.cost_usd, sums.model_calls) == (0, None, 0)


async def test_a_call_that_failed_while_another_one_waits_is_found(scene: Scene) -> None:
    """Its result is not in the thread: the step that takes it waits, perhaps for days."""
    writer = await scene.begin()
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0), call(1), call(2)), commits=False)
    await writer.record_tool_call("a1", run, at=1, success=False)
    await writer.record_tool_call("a1", run, at=2)
    (turn,) = (await scene.views.read_turns("s1")).turns
    calls = turn.messages[1].calls
    assert [(each.status, each.result_due) for each in calls] == [
        ("running", False),
        ("failed", True),
        ("done", True),
    ]
    assert (turn.tool_calls, turn.failed_calls) == (3, 1)
    (failed,) = await found(scene.views, failed=True)
    assert (failed.call.call_id, failed.call.status, failed.call.result_due) == ("call_1", "failed", True)
    (went,) = await found(scene.views, failed=False)
    assert (went.call.call_id, went.call.status) == ("call_2", "done")


async def test_a_call_whose_time_nobody_measured_has_none(scene: Scene) -> None:
    """A tool that was cut off after 15 seconds did not take 0 ms."""
    writer = await scene.begin()
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call()), result("a1", is_error=True), answer("b1"))
    fields: dict[str, Any] = {"session_id": "s1", "timestamp": run.started_at, "run_id": run.run_id}
    failed = ToolUsageEntry(id="tool/a1.0", tool_name="look", success=False, **fields)
    await scene.stores.usage.record_entry(failed)
    gone = ToolUsageEntry(id="tool/gone.0", tool_name="look", success=False, **fields)
    await scene.stores.usage.record_entry(gone)
    await scene.stores.usage.record_entry(TokenUsageEntry(id="step/a1", model="m", **fields))
    await writer.end()
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.messages[1].calls[0].duration_ms is None
    assert [each.duration_ms for each in turn.attempts[0].model_calls] == [None]
    assert [each.call.duration_ms for each in await found(scene.views, failed=True)] == [None, None]


async def test_attempts_of_a_tool_are_told(scene: Scene) -> None:
    """A carrier that answered at the third attempt is not as well as one that answers at once."""
    writer = await scene.begin()
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0), call(1)), result("a1", 0), result("a1", 1))
    await writer.record_tool_call("a1", run, at=0, attempts=3)
    await writer.record_tool_call("gone", run, attempts=2)
    await writer.end()
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert [each.attempts for each in turn.messages[1].calls] == [3, 1]
    assert [each.call.attempts for each in await found(scene.views)] == [3, 2]


async def test_sums_are_those_of_the_conversation_below_them(scene: Scene) -> None:
    """A turn under way counts in all of them; a sub-agent's call is one of its turn's calls."""
    writer = await scene.begin()
    run = await turn_with_call(writer, "one")
    helped = SubAgentUsageEntry(
        id="child/a1.1",
        session_id="s1",
        timestamp=run.started_at,
        run_id=run.run_id,
        sub_session_id="c1",
        success=False,
    )
    await scene.stores.usage.record_entry(helped)
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0), call(1)), commits=False)
    await writer.record_tool_call("a1", run, at=0)
    session = await scene.views.get_session("s1")
    page = await scene.views.read_turns("s1")
    assert session.place is not None
    assert (session.messages, session.place.unfinished) == (page.turns[-1].stop, 2)
    assert (session.usage.calls, session.usage.failed_calls) == (3, 1)
