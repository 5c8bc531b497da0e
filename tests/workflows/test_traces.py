"""Traces of turns by a real worker: one root a turn, whatever becomes of its executions."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from helix_temporal.activities.steps import Stepper
from helix_temporal.activities.trace_backfill import TraceBackfill
from helix_temporal.agents import ModelResponse, ToolContext
from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.plugin import HelixPlugin
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry.ids import derive_trace_id
from helix_temporal.testing.serving import session_worker
from tests._spans import (
    KeptSpans,
    attribute,
    named,
    orphans,
    roots,
    span_id,
    sum_tokens,
    trace_id,
    violations,
)
from tests.replay._wire import HERE
from tests.replay.record import load
from tests.workflows._desk import Desk, calls, first_tools_then
from tests.workflows._team import Team, ask
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_reset import reset, task_ends
from tests.workflows.test_waits import WIPE, asks_once

pytestmark = pytest.mark.asyncio(loop_scope="session")

HISTORIES: Final = sorted((HERE / "histories").glob("*/*.json"))
CHILD: Final = "execute_tool helper"


def calls_both(task: str) -> ModelResponse:
    """An answer that asks a sub-agent, and a tool that takes the step back."""
    rewind = ToolCall(id="call_1", name="act", arguments={"what": "rewind"})
    return ModelResponse(tool_calls=(*ask(task).tool_calls, rewind), usage=Usage(input_tokens=1))


@dataclass(frozen=True)
class TracedStand(Stand):
    """A worker whose spans are kept, and whose agents call each other, too."""

    kept: KeptSpans
    team: Team

    def spans(self, session_id: str) -> list[ReadableSpan]:
        """The session's spans by now, and its sub-agents'."""
        emitter = self.served.plugin.backends.traces.emitter
        assert emitter.flush()
        return [
            each
            for each in self.kept.all()
            if str(attribute(each, "gen_ai.conversation.id") or "").startswith(session_id)
        ]

    async def check(self, session_id: str) -> list[ReadableSpan]:
        """One root for each turn that ended, all whole, and a backfill that has nothing to add."""
        spans = self.spans(session_id)
        backends = self.served.plugin.backends
        runs = (await backends.sessions.list_runs(session_id)).items
        ended = sorted(run.run_id for run in runs if not run.status.live)
        own = [each for each in roots(spans) if attribute(each, "gen_ai.conversation.id") == session_id]
        assert sorted(attribute(each, "helix.run.id") for each in own) == ended
        assert [each for span in spans for each in violations(span)] == []
        again = KeptSpans()
        emitter = again.emitter()
        await TraceBackfill(backends.sessions, backends.usage, emitter.emit).tell_since(0, session_id)
        assert emitter.flush()
        assert {*map(span_id, again.all())} <= {*map(span_id, spans)}
        return spans


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[TracedStand]:
    """The worker of these tests."""
    desk, team, kept = Desk(), Team(), KeptSpans()
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    async with session_worker(
        settings,
        [*(each for each in desk.agents() if each.name != "serial"), *team.agents()],
        options=SessionOptions(idle_timeout=60),
        plugin={"telemetry": Telemetry(tracer_provider=kept.provider)},
        drain=1.0,
    ) as served:
        yield TracedStand(served, desk, kept, team)


@pytest.fixture
def sid() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def test_a_plain_turn_is_one_trace(traced: TracedStand, sid: str) -> None:
    """Of a root and its model call; the next turn is another one, linked."""
    await traced.sessions.ask(sid, "one", agent="main")
    await traced.sessions.ask(sid, "two")
    spans = await traced.check(sid)
    first, second = roots(spans)
    assert len(spans) == 4
    assert trace_id(first) != trace_id(second)
    assert [each.context.span_id for each in second.links] == [span_id(first)]
    assert orphans(spans) == []


async def test_tools_of_a_turn_are_in_its_trace(traced: TracedStand, sid: str) -> None:
    """By whichever worker ran them; tokens are counted once."""
    traced.desk.scripts[sid] = first_tools_then("done", "a", "b")
    await traced.sessions.ask(sid, "go", agent="main")
    spans = await traced.check(sid)
    assert sorted(each.name for each in spans) == [
        "chat Desk", "chat Desk", "execute_tool act", "execute_tool act", "invoke_agent main",
    ]  # fmt: skip
    assert len({trace_id(each) for each in spans}) == 1
    assert orphans(spans) == []
    rollup = await traced.served.plugin.backends.usage.get_rollup(sid)
    assert sum_tokens(spans) == (rollup.tokens.prompt, rollup.tokens.completion)


async def test_attempts_that_fail_are_in_the_trace(traced: TracedStand, sid: str) -> None:
    """Of the model and of the tool, each under the name of its error."""
    tries: list[str] = []

    async def act(what: str, context: ToolContext) -> str:
        raise ApplicationError("no", type="PlayedError")

    def script(request: Any) -> Any:
        tries.append("")
        if len(tries) == 1:
            raise OSError("away")
        return calls("a") if request.messages[-1].role == "user" else "sorry"

    traced.desk.acts[sid], traced.desk.scripts[sid] = act, script
    await traced.sessions.ask(sid, "go", agent="main", timeout=60)
    spans = await traced.check(sid)
    chats, acts = named(spans, "chat Desk"), named(spans, "execute_tool act")
    assert [attribute(each, "error.type") for each in chats] == ["OSError", None, None]
    assert [attribute(each, "error.type") for each in acts] == ["PlayedError", "PlayedError", "tool_error"]
    assert [attribute(each, "helix.attempt") for each in acts] == [1, 2, None]


async def test_a_wait_for_an_approval_is_an_event_of_the_turn(traced: TracedStand, sid: str) -> None:
    """No span is open while a person thinks; the session's execution may end meanwhile."""
    traced.desk.scripts[sid] = asks_once(WIPE)
    asked = await traced.client(suspend="exit").ask(sid, "go", agent="people")
    (call,) = asked.pending
    assert roots(traced.spans(sid)) == []
    approval = ToolApproval(approval_id=call.id, approved=True)
    await traced.sessions.session(sid).submit_approval(approval, wait=True)
    spans = await traced.check(sid)
    (root,) = roots(spans)
    (event,) = root.events
    assert event.name == "helix.wait"
    assert event.attributes is not None
    assert event.attributes["gen_ai.tool.name"] == "wipe"
    assert (event.attributes["helix.wait.kind"], event.attributes["helix.wait.outcome"]) == (
        "approval", "approved",
    )  # fmt: skip
    assert len(named(spans, "execute_tool wipe")) == 1
    assert len({trace_id(each) for each in spans}) == 1


async def test_a_sub_agents_turn_is_within_the_call(traced: TracedStand, sid: str) -> None:
    """One trace from the first question down to the last tool."""
    await traced.sessions.ask(sid, "tool hammer", agent="new", timeout=60)
    spans = await traced.check(sid)
    (call,) = named(spans, CHILD)
    (root,), (inner,) = named(spans, "invoke_agent new"), named(spans, "invoke_agent helper")
    assert inner.parent is not None
    assert inner.parent.span_id == span_id(call)
    assert {trace_id(each) for each in spans} == {trace_id(root)}
    assert len(named(spans, "execute_tool act")) == 1
    assert orphans(spans) == []
    # In the caller's turn it is of the step that asked for it, and ends before the next one's model call.
    chats = [
        each for each in named(spans, "chat Team") if each.parent and each.parent.span_id == span_id(root)
    ]
    asked, answered = sorted(chats, key=lambda each: each.start_time or 0)
    assert call.attributes is not None
    assert asked.attributes is not None
    assert call.attributes["helix.step"] == asked.attributes["helix.step"] == 1
    assert (inner.start_time or 0) <= (call.end_time or 0) <= (answered.start_time or 0)


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_a_sub_agents_turn_is_within_its_call_also_where_that_is_cut_off(
    traced: TracedStand, sid: str, how: str
) -> None:
    """No step has its result, and its trace is looked at because something went wrong."""
    asked = asyncio.create_task(traced.sessions.ask(sid, f"hold {sid}", agent="top", timeout=60))
    await asyncio.wait_for(traced.team.gates[sid].reached.wait(), 20)
    if how == "abort":
        assert await traced.sessions.session(sid).stop(abort=True)
    else:
        await traced.handle(sid).cancel()
    assert (await asked).status is AskStatus.INTERRUPTED
    await traced.sessions.ask(sid, "once more", agent="top", timeout=60)  # behind the end of the other
    spans = await traced.check(sid)
    assert orphans(spans) == []
    cut = [each for each in spans if attribute(each, "error.type") == "cut_off"]
    assert [each.name for each in cut] == [CHILD] * 2
    traced.team.gates[sid].opened.set()


async def test_a_sub_agents_turn_is_within_its_call_also_where_a_tool_takes_that_back(
    traced: TracedStand, sid: str
) -> None:
    """Its result goes with the step, and what it cost is looked for in its trace."""
    answers: list[Any] = ["done", calls_both("hammer")]
    traced.team.leads[sid] = lambda _: answers.pop()
    assert (await traced.sessions.ask(sid, "go", agent="new", timeout=60)).text == "done"
    spans = await traced.check(sid)
    assert orphans(spans) == []
    assert [attribute(each, "error.type") for each in named(spans, CHILD)] == ["cut_off"]


async def test_a_turn_whose_append_lost_its_reply_has_its_root_at_once(
    traced: TracedStand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store took the answer, and its worker lives: nobody would think of a backfill."""
    append, lost = Stepper._append_step, list[str]()

    async def append_silently(self: Stepper, step: StepAppend, *rest: Any, **more: Any) -> Any:
        found = await append(self, step, *rest, **more)
        if step.thread_id == sid and not lost:
            lost.append(sid)
            raise StoreUnavailableError("no reply")
        return found

    monkeypatch.setattr(Stepper, "_append_step", append_silently)
    await traced.sessions.ask(sid, "one", agent="main", timeout=60)
    spans = await traced.check(sid)
    assert lost
    assert orphans(spans) == []


async def test_a_turn_is_in_the_trace_of_its_caller(traced: TracedStand, sid: str) -> None:
    """The client says which span it is sent from, and nothing has to be set up."""
    tracer = traced.kept.provider.get_tracer("application")
    with tracer.start_as_current_span("request") as request:
        await traced.sessions.ask(sid, "one", agent="main")
    spans = await traced.check(sid)
    (root,) = roots(spans)
    assert trace_id(root) == request.get_span_context().trace_id
    assert root.parent is not None
    assert root.parent.span_id == request.get_span_context().span_id


async def test_callers_of_messages_that_share_a_turn_are_linked(traced: TracedStand, sid: str) -> None:
    """Each of them finds the turn from its own trace's backend."""
    gate = asyncio.Event()
    reached = asyncio.Event()

    async def script(request: Any) -> str:
        reached.set()
        await gate.wait()
        return "done"

    traced.desk.scripts[sid] = script
    tracer, callers = traced.kept.provider.get_tracer("application"), []
    first = asyncio.create_task(traced.sessions.ask(sid, "zero", agent="main"))
    await reached.wait()
    for text in ("one", "two"):
        with tracer.start_as_current_span(text) as span:
            callers.append(span.get_span_context().span_id)
            await traced.sessions.session(sid).send(text)
    gate.set()
    await first
    await traced.sessions.ask(sid, "three")
    shared = [each for each in roots(await traced.check(sid)) if len(each.links) > 1]
    assert [[link.context.span_id for link in each.links[:2]] for each in shared] == [callers]


async def test_traces_go_on_over_continue_as_new(traced: TracedStand, sid: str) -> None:
    """A run that ends after each turn: every turn still has one root, linked to the one before."""
    client = traced.client(max_turns_per_run=1)
    for text in ("one", "two", "three"):
        await client.ask(sid, text, agent="main")
    spans = await traced.check(sid)
    found = roots(spans)
    assert [[link.context.span_id for link in each.links] for each in found] == [
        [], [span_id(found[0])], [span_id(found[1])],
    ]  # fmt: skip


async def test_a_reset_within_a_turn_tells_no_turn_twice(traced: TracedStand, sid: str) -> None:
    """The workflow runs again from there, and finds what stands."""
    traced.desk.scripts[sid] = first_tools_then("done", "a")
    for text in ("one", "two"):
        await traced.sessions.ask(sid, text, agent="main", message_id=f"m-{text}", timeout=30)
    ends = await task_ends(traced, sid)
    await reset(traced, sid, ends[2])
    result = await traced.sessions.ask(sid, "three", agent="main", timeout=60)
    assert result.status is AskStatus.ANSWERED
    spans = await traced.check(sid)
    counted = [span_id(each) for each in roots(spans)]
    assert len(counted) == len(set(counted)) == 3
    assert orphans(spans) == []


async def test_a_turn_that_fails_has_a_root_with_its_error(traced: TracedStand, sid: str) -> None:
    """And so has the turn after it, without one."""

    def script(request: Any) -> Any:
        if request.messages[-1].text == "one":
            raise ApplicationError("no", type="PlayedError", non_retryable=True)
        return "fine"

    traced.desk.scripts[sid] = script
    result = await traced.sessions.ask(sid, "one", agent="main", timeout=60)
    assert result.status is AskStatus.FAILED
    await traced.sessions.ask(sid, "two", agent="main", timeout=60)
    errors = [attribute(each, "error.type") for each in roots(await traced.check(sid))]
    assert errors == ["failed", None]


async def test_a_plain_session_keeps_its_trace_apart(traced: TracedStand, sid: str) -> None:
    """Its id is derived: whoever knows session and run finds it."""
    await traced.sessions.ask(sid, "one", agent="main")
    (root,) = roots(await traced.check(sid))
    assert trace_id(root) == derive_trace_id(sid, attribute(root, "helix.run.id"))


async def test_replaying_all_stored_histories_tells_nothing() -> None:
    """Workflow code tells of nothing, so a replay cannot tell it twice."""
    kept = KeptSpans()
    plugin = HelixPlugin(telemetry=Telemetry(tracer_provider=kept.provider))
    replayer = Replayer(workflows=[], plugins=[plugin])
    for path in HISTORIES:
        result = await replayer.replay_workflow(load(path), raise_on_replay_failure=False)
        assert result.replay_failure is None, path.name
    assert len(HISTORIES) > 10
    assert kept.all() == ()


async def test_a_history_has_no_trace_where_nobody_asked_for_one(stand: Stand, desk: Desk) -> None:
    """Histories cost money: a worker without traces writes none of it."""
    session_id = f"s-{uuid.uuid4().hex[:8]}"
    desk.scripts[session_id] = first_tools_then("done", "a")
    await SessionClient(stand.served.client, task_queue=stand.served.plugin.settings.task_queue).ask(
        session_id, "go", agent="main"
    )
    history = await stand.handle(session_id).fetch_history()
    assert "traceparent" not in json.dumps(history.to_json_dict())
    await stand.finish(session_id)
