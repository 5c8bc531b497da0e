"""Turns as traces, told by steps and tools over memory stores; and the same told again from the stores."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

from helix_temporal.activities import kept_answers, steps
from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.steps import Stepper
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.activities.trace_backfill import BackfillSummary, TraceBackfill
from helix_temporal.activities.traces import TurnTraces
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import Agent, AgentRegistry, ModelRequest, ModelResponse, ToolOutcome, tool
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import CreateSession, SubSessionRef
from helix_temporal.models.steps import (
    ChildEnd,
    EndTurnInput,
    OpenSessionInput,
    ReopenHeads,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    StepInput,
    ToolInput,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.traces import TurnTrace
from helix_temporal.session.record import SessionRecord
from helix_temporal.session.sub_agents import refusal_result
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.telemetry.ids import SpanRef, derive_call, derive_span_id, derive_trace_id
from tests._spans import (
    KeptSpans,
    attribute,
    duration_ns,
    named,
    orphans,
    parent_id,
    roots,
    span_id,
    sum_tokens,
    trace_id,
    violations,
)

EPOCH = 1_800_000_000_000_000
CALLER = SpanRef(0xABC, 0xDEF)
USED = Usage(input_tokens=10, output_tokens=3, cached_read_tokens=2)
LOOK = ToolCall(id="c1", name="look", arguments={"where": "here"})


@tool
async def look(where: str) -> ToolOutcome:
    """Look there."""
    if where == "nowhere":
        raise LookupError(where)
    if where == "everywhere":
        return ToolOutcome("." * 100_000, usage=Usage(input_tokens=5, output_tokens=1), state={"seen": 1})
    return ToolOutcome(f"seen {where}", usage=Usage(input_tokens=5, output_tokens=1))


class Scene:
    """A session over memory stores, its spans kept."""

    def __init__(self, kept: KeptSpans, **options: Any) -> None:
        self.kept, backend = kept, MemoryBackend()
        caller = options.pop("caller", "parent")
        self.traces = TurnTraces(kept.emitter(**options), caller)
        self.store, self.usage = RowSessions(backend.sessions), backend.usage
        self.threads = HotThreads(backend.threads)
        self.keeper = SessionSync(self.store, self.threads, traces=self.traces)
        agents = AgentRegistry([Agent(name="main", model=self, tools=[look])])
        log, payloads = UsageLog(self.usage), Payloads(backend.payloads)
        self.stepper = Stepper(
            self.threads, agents, payloads, states=self.keeper, used=log, traces=self.traces
        )
        self.tools = ToolRunner(self.threads, payloads, used=log, traces=self.traces, max_result=64 * 1024)
        self.name = "claude-test"
        self.answers: list[ModelResponse | BaseException | Callable[[], Any]] = []
        self.head = Head(position=0, last_id="")

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """The model: the next of its answers."""
        found = self.answers.pop(0) if self.answers else ModelResponse("so", usage=USED)
        if callable(found):
            found = await found()
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, ModelResponse)
        return found

    async def open(self, epoch: int = EPOCH, **fields: Any) -> None:
        """Open the session."""
        opened = await self.threads.open(OpenThread("s", epoch, "o", create=Create.AUTO))
        request = OpenSessionInput(session_id="s", thread_id="s", agent="main", owner="o", **fields)
        record = SessionRecord(agent="main")
        await self.keeper.open(request, opened.header, record, None)
        self.head = opened.header.head

    async def step(self, *inputs: StepInput, run: str = "run", epoch: int = EPOCH) -> RunStepResult:
        """Run a step."""
        request = self.request(*inputs, run=run, epoch=epoch)
        result = await self.stepper.run(request)
        self.head = result.head
        return result

    def request(self, *inputs: StepInput, run: str = "run", epoch: int = EPOCH) -> RunStepInput:
        """The next step."""
        return RunStepInput(
            session_id="s", agent="main", epoch=epoch, head=self.head, inputs=inputs, run_id=run
        )

    async def end(self, *inputs: StepInput, reason: ExitReason, run: str = "run") -> None:
        """End the turn with results."""
        request = EndTurnInput(
            session_id="s", epoch=EPOCH, head=self.head, inputs=inputs, run_id=run, reason=reason
        )
        self.head = (await self.stepper.end_turn(request)).head

    async def call(self, result: RunStepResult, at: int = 0, number: int = 1) -> StepInput:
        """Run a tool call of a step; its result for the next one."""
        call, key = result.calls[at], f"s/{result.head.last_id}/{at}"
        request = ToolInput(
            session_id="s", thread_id="s", agent="main", tool="look", call=call, key=key, turn=1,
            position=result.head.position, run_id="run", epoch=EPOCH, step=1, traceparent=result.traceparent,
        )  # fmt: skip
        outcome = await self.tools.run(look, request, number=number)
        return result_of(result, outcome.text, at, is_error=outcome.is_error, unfinished=outcome.unfinished)

    async def backfill(self) -> tuple[BackfillSummary, KeptSpans]:
        """All told again, to a provider of its own."""
        kept = KeptSpans()
        emitter = kept.emitter()
        found = await TraceBackfill(self.store, self.usage, emitter.emit).tell_since(0)
        assert emitter.flush()
        return found, kept

    def spans(self) -> list[Any]:
        """All spans by now."""
        assert self.traces.emitter is not None
        assert self.traces.emitter.flush()
        return list(self.kept.all())


def message(text: str = "well?", message_id: str = "q", caller: SpanRef | None = None) -> StepInput:
    """A user's message."""
    return StepInput(id=message_id, text=text, traceparent=None if caller is None else caller.traceparent)


def result_of(result: RunStepResult, text: str = "done", at: int = 0, **fields: Any) -> StepInput:
    """The result of a step's call."""
    call = result.calls[at]
    return StepInput(id=f"{result.head.last_id}.{at}", text=text, call=call.id, name=call.name, **fields)


def asks(*calls: ToolCall) -> ModelResponse:
    """An answer that asks for tools."""
    return ModelResponse("", tool_calls=calls, usage=USED)


def raising(error: Exception) -> Callable[..., Any]:
    """A store's method that fails."""

    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.fixture
async def scene() -> Scene:
    found = Scene(KeptSpans())
    await found.open()
    return found


async def test_a_plain_turn_is_a_root_and_its_model_call(scene: Scene) -> None:
    """One trace a turn, under derived ids."""
    await scene.step(message())
    chat, root = scene.spans()
    assert (root.name, chat.name) == ("invoke_agent main", "chat claude-test")
    assert trace_id(root) == trace_id(chat) == derive_trace_id("s", "run")
    assert span_id(root) == derive_span_id("s", "run", "turn")
    assert root.parent is None
    assert chat.parent.span_id == span_id(root)
    assert attribute(root, "helix.turn.outcome") == "completed"
    assert root.start_time // 1_000_000 <= chat.start_time // 1_000_000
    assert root.end_time >= chat.end_time
    assert attribute(chat, "gen_ai.usage.input_tokens") == 10
    assert attribute(chat, "gen_ai.response.finish_reasons") == ("stop",)


async def test_spans_follow_the_pinned_conventions(scene: Scene) -> None:
    """Boards and viewers that know them show what they should."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message())
    await scene.step(await scene.call(first))
    spans = scene.spans()
    assert len(spans) == 4
    assert [violations(each) for each in spans] == [[]] * 4
    scopes = {(each.instrumentation_scope.name, each.instrumentation_scope.schema_url) for each in spans}
    assert scopes == {("helix_temporal", "https://opentelemetry.io/schemas/1.44.0")}


async def test_a_tool_call_is_a_span_of_the_worker_that_ran_it(scene: Scene) -> None:
    """With the turn's root for its parent, which that worker never met."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message())
    await scene.step(await scene.call(first))
    spans = scene.spans()
    (call,) = named(spans, "execute_tool look")
    assert orphans(spans) == []
    assert span_id(call) == derive_span_id("s", "run", "call", f"{first.head.last_id}.0")
    assert attribute(call, "gen_ai.usage.input_tokens") == 5
    assert sum_tokens(spans) == (25, 7)


async def test_attempts_that_fail_are_spans_of_their_own(scene: Scene) -> None:
    """Each with the class of its error; the call has one span besides."""
    scene.answers = [asks(ToolCall(id="c1", name="look", arguments={"where": "nowhere"}))]
    first = await scene.step(message())
    for number in (1, 2):
        with pytest.raises(Exception, match="nowhere"):
            await scene.call(first, number=number)
    await scene.step(result_of(first, "The tool failed", is_error=True, unfinished=True))
    calls = named(scene.spans(), "execute_tool look")
    assert [attribute(each, "error.type") for each in calls] == ["LookupError", "LookupError", "tool_error"]
    assert [attribute(each, "helix.attempt") for each in calls] == [1, 2, None]
    assert len({span_id(each) for each in calls}) == 3


async def test_a_result_that_is_too_large_is_one_failed_call(scene: Scene) -> None:
    """The tool has run and is paid for; the model is told that it failed."""
    scene.answers = [asks(ToolCall(id="c1", name="look", arguments={"where": "everywhere"}))]
    await scene.step(await scene.call(await scene.step(message())))
    spans = scene.spans()
    (call,) = named(spans, "execute_tool look")
    assert attribute(call, "error.type") == "tool_error"
    assert sum_tokens(spans) == (25, 7)
    assert facts(spans) == facts(list((await scene.backfill())[1].all()))


async def test_an_attempt_whose_result_is_not_kept_has_a_span_of_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call succeeds with the next one: one id does not tell both."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message())
    with monkeypatch.context() as patched:
        patched.setattr(scene.tools, "_build_result", raising(StoreUnavailableError("away")))
        with pytest.raises(StoreUnavailableError):
            await scene.call(first)
    await scene.step(await scene.call(first, number=2))
    spans = scene.spans()
    calls = named(spans, "execute_tool look")
    assert [attribute(each, "error.type") for each in calls] == ["StoreUnavailableError", None]
    assert [attribute(each, "helix.attempt") for each in calls] == [1, None]
    assert sum_tokens(spans) == (25, 7)


async def test_a_model_call_that_fails_is_a_span(scene: Scene) -> None:
    """The next attempt has another; the root is told once."""
    scene.answers = [OSError("provider's secret"), ModelResponse("so", usage=USED)]
    with pytest.raises(OSError, match="secret"):
        await scene.step(message())
    await scene.step(message())
    spans = scene.spans()
    failed, went = named(spans, "chat claude-test")
    assert (attribute(failed, "error.type"), attribute(went, "error.type")) == ("OSError", None)
    assert not failed.events  # texts of errors may quote a conversation
    assert "secret" not in str(failed.to_json())
    assert len(roots(spans)) == 1


async def test_a_cancelled_model_call_has_a_span(scene: Scene) -> None:
    """It was paid for as far as it came."""
    called = asyncio.Event()

    async def hangs() -> None:
        called.set()
        await asyncio.Event().wait()

    scene.answers = [hangs]
    task = asyncio.create_task(scene.step(message()))
    await called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (span,) = scene.spans()
    assert attribute(span, "error.type") == "CancelledError"


async def test_a_step_that_is_found_standing_tells_no_second_root(scene: Scene) -> None:
    """Another attempt comes after one that was taken for dead."""
    request = scene.request(message())
    await scene.stepper.run(request)
    await scene.stepper.run(request)
    assert len(roots(scene.spans())) == 1


async def lose_reply(scene: Scene, attempt: Awaitable[Any]) -> None:
    """Make an attempt whose append is done, and which does not hear of it."""
    append = scene.threads.append

    async def append_silently(step: Any) -> Any:
        await append(step)
        raise StoreUnavailableError("no reply")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scene.threads, "append", append_silently)
        patched.setattr(kept_answers, "STORE_AWAY_PAUSES", ())
        with pytest.raises(StoreUnavailableError):
            await attempt


async def test_a_turn_whose_append_lost_its_reply_has_one_root(scene: Scene) -> None:
    """No worker died, so nobody would think of a backfill; further attempts tell nothing more."""
    request = scene.request(message())
    await lose_reply(scene, scene.stepper.run(request))
    for _ in range(2):
        await scene.stepper.run(request)
    spans = scene.spans()
    (root,) = roots(spans)
    assert attribute(root, "helix.turn.outcome") == "completed"
    assert orphans(spans) == []
    assert facts(spans) == facts(list((await scene.backfill())[1].all()))


async def test_results_whose_append_lost_its_reply_are_told(scene: Scene) -> None:
    """Of a call that no worker ran nobody else tells: in the middle of a turn, and at its end."""
    ghost = ToolCall(id="c1", name="ghost")
    scene.answers = [asks(ghost), asks(ghost)]
    first = await scene.step(message())
    found = result_of(first, is_error=True, unfinished=True)
    await lose_reply(scene, scene.step(found))
    second = await scene.step(found)
    found = result_of(second, is_error=True, unfinished=True)
    await lose_reply(scene, scene.end(found, reason=ExitReason.MAX_STEPS))
    await scene.end(found, reason=ExitReason.MAX_STEPS)
    spans = scene.spans()
    assert [attribute(each, "helix.step") for each in named(spans, "execute_tool ghost")] == [1, 2]
    (root,) = roots(spans)
    assert attribute(root, "helix.turn.outcome") == "max_steps"
    assert facts(spans) == facts(list((await scene.backfill())[1].all()))


async def test_another_workflow_run_that_finds_a_step_standing_tells_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was reset comes by all its turns again: their workers have told of them."""
    request = scene.request(message())
    await lose_reply(scene, scene.stepper.run(request))
    monkeypatch.setattr(steps, "workflow_run", lambda: "another")
    await scene.stepper.run(request)
    assert roots(scene.spans()) == []


async def test_a_turn_that_ends_with_results_says_why(scene: Scene) -> None:
    """There is no last model call whose span would say it."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message())
    await scene.end(await scene.call(first), reason=ExitReason.MAX_STEPS)
    (root,) = roots(scene.spans())
    assert attribute(root, "helix.turn.outcome") == "max_steps"


async def test_the_caller_of_one_message_is_the_parent(scene: Scene) -> None:
    """Its request, and the turn, are one trace."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message(caller=CALLER))
    assert SpanRef.parse(first.traceparent) == CALLER.at(derive_span_id("s", "run", "turn"))
    await scene.step(await scene.call(first))
    spans = scene.spans()
    assert {trace_id(each) for each in spans} == {CALLER.trace_id}
    (root,) = roots(spans)
    assert parent_id(root) == CALLER.span_id
    assert orphans(spans, [CALLER.span_id]) == []


async def test_callers_of_several_messages_are_linked(scene: Scene) -> None:
    """A span has one parent."""
    other = SpanRef(0x123, 0x456)
    await scene.step(message(caller=CALLER), message(message_id="q2", caller=other), message(message_id="q3"))
    (root,) = roots(scene.spans())
    assert root.parent is None
    assert [each.context.span_id for each in root.links] == [CALLER.span_id, other.span_id]


async def test_a_caller_can_be_linked_instead() -> None:
    """Where callers' traces must stay small."""
    scene = Scene(KeptSpans(), caller="link")
    await scene.open()
    await scene.step(message(caller=CALLER))
    (root,) = roots(scene.spans())
    assert trace_id(root) == derive_trace_id("s", "run")
    assert [each.context.trace_id for each in root.links] == [CALLER.trace_id]


async def test_a_caller_that_is_not_sampled_has_no_spans(scene: Scene) -> None:
    """It has decided for all that follows from it."""
    await scene.step(message(caller=SpanRef(1, 2, sampled=False)))
    assert scene.spans() == []


async def test_a_turn_is_linked_to_the_one_before(scene: Scene) -> None:
    """One goes through a conversation from trace to trace."""
    await scene.step(message())
    await scene.step(message(message_id="q2"), run="next")
    first, second = roots(scene.spans())
    assert [each.context.span_id for each in second.links] == [span_id(first)]
    assert second.links[0].attributes == {"helix.link": "turn before"}


async def test_all_spans_of_a_turn_are_sampled_or_none() -> None:
    """Each worker asks its own sampler, which decides by the trace's id."""
    scene = Scene(KeptSpans(ParentBased(TraceIdRatioBased(0.5))))
    await scene.open()
    for number in range(30):
        scene.answers = [asks(LOOK)]
        first = await scene.step(message(message_id=f"q{number}"), run=f"r{number}")
        await scene.step(result_of(first), run=f"r{number}")
    spans = scene.spans()
    turns = {trace_id(each) for each in spans}
    assert 5 < len(turns) < 25
    assert len(spans) == 3 * len(turns)
    assert orphans(spans) == []


async def test_a_sampler_that_takes_none_gets_none() -> None:
    """Nor does a board."""
    scene = Scene(KeptSpans(ALWAYS_OFF))
    await scene.open()
    await scene.step(message())
    assert scene.spans() == []


async def test_spans_of_others_nest_within_ours(scene: Scene) -> None:
    """A provider's own instrumentation is a child of the model call, and its tokens are not counted."""
    other = scene.kept.provider.get_tracer("provider.sdk")

    async def generate() -> ModelResponse:
        with other.start_as_current_span("POST", attributes={"gen_ai.usage.input_tokens": 10}):
            return ModelResponse("so", usage=USED)

    scene.answers = [generate]
    await scene.step(message())
    spans = scene.spans()
    (inner,), (chat,) = named(spans, "POST"), named(spans, "chat claude-test")
    assert (trace_id(inner), parent_id(inner)) == (trace_id(chat), span_id(chat))
    assert sum_tokens(spans) == (10, 3)
    assert not otel.get_current_span().get_span_context().is_valid


async def test_texts_are_not_on_spans_unless_asked_for(scene: Scene) -> None:
    """They are personal data, which erasure does not reach there."""
    scene.answers = [asks(LOOK)]
    first = await scene.step(message("my secret"))
    await scene.step(await scene.call(first))
    assert "secret" not in "".join(each.to_json() for each in scene.spans())
    assert "seen here" not in "".join(each.to_json() for each in scene.spans())


async def test_texts_are_redacted_and_cut() -> None:
    """What must not leave does not, and a long text does not fill the backend."""
    scene = Scene(KeptSpans(), content=True, redact=lambda text: text.replace("secret", "***"))
    await scene.open()
    scene.answers = [asks(LOOK)]
    first = await scene.step(message("my secret " + "ü" * 9000))
    await scene.step(await scene.call(first))
    spans = scene.spans()
    assert [violations(each) for each in spans] == [[]] * len(spans)
    text = attribute(named(spans, "chat claude-test")[0], "gen_ai.input.messages")
    assert "my ***" in text
    assert len(text.encode()) <= 8192
    assert text.endswith("…")
    (call,) = named(spans, "execute_tool look")
    assert attribute(call, "gen_ai.tool.call.arguments") == '{"where": "here"}'
    assert attribute(call, "gen_ai.tool.call.result") == "seen here"


async def test_a_sub_agents_call_is_told_by_the_step_that_has_its_result(scene: Scene) -> None:
    """No worker runs it: it is a workflow."""
    scene.answers = [asks(ToolCall(id="c1", name="researcher"))]
    first = await scene.step(message())
    child = ChildEnd(session_id="s.sub", agent="researcher", status="completed", duration_ms=1500)
    await scene.step(result_of(first, child=child))
    (call,) = named(scene.spans(), "execute_tool researcher")
    assert span_id(call) == derive_span_id("s", "run", "call", f"{first.head.last_id}.0")
    assert attribute(call, "helix.sub_session.id") == "s.sub"
    assert duration_ns(call) == 1_500_000_000


async def test_a_sub_agents_call_that_was_refused_is_told(scene: Scene) -> None:
    """No session was started for it, and the model was told that it failed."""
    scene.answers = [asks(ToolCall(id="c1", name="researcher"))]
    first = await scene.step(message())
    refused = refusal_result("s.sub", "agents call each other 8 deep at most")
    await scene.step(result_of(first, refused.text, is_error=True, child=refused.child))
    spans = scene.spans()
    (call,) = named(spans, "execute_tool researcher")
    assert attribute(call, "error.type") == "tool_error"
    assert attribute(call, "helix.sub_session.id") is None
    assert facts(spans) == facts(list((await scene.backfill())[1].all()))


async def begin_child(scene: Scene, first: RunStepResult, name: str = "s>researcher") -> SpanRef:
    """The session of a sub-agent begins its turn; the span of its call."""
    turn = SpanRef.parse(first.traceparent)
    assert turn is not None
    call = derive_call(turn, "s", "run", f"{first.head.last_id}.0")
    root = turn.at(derive_span_id(name, "c", "turn"))
    ref = SubSessionRef(
        sub_session_id=name, agent_type="researcher", tool="ask", run_id="run", parent_tool_call_id="c1"
    )
    await scene.store.add_sub_session_refs("s", [ref], epoch=EPOCH)
    await scene.store.create_session(name, CreateSession())
    trace = TurnTrace(
        root=root.traceparent, agent="researcher", started=await scene.store.now(), parent=call.traceparent
    )
    await scene.store.start_run(name, NewRun(run_id="c", trace=trace))
    return call


def find_call(spans: Sequence[Any], call: SpanRef) -> list[tuple[Any, ...]]:
    """What spans say of a sub-agent's call."""
    names = ("gen_ai.tool.name", "gen_ai.tool.call.id", "helix.sub_session.id", "error.type")
    return [
        (parent_id(each), *(attribute(each, name) for name in names))
        for each in spans
        if span_id(each) == call.span_id
    ]


CUT_CALL = (derive_span_id("s", "run", "turn"), "ask", "c1", "s>researcher", "cut_off")


async def test_a_sub_agents_call_that_is_cut_off_has_a_span(scene: Scene) -> None:
    """No step takes its result, and the root of the sub-agent's turn is its child."""
    scene.answers = [asks(ToolCall(id="c1", name="ask"))]
    start = scene.head
    call = await begin_child(scene, await scene.step(message()))
    await scene.store.update_run("s>researcher", "c", RunChange(status=RunStatus.INTERRUPTED))
    again = ReopenHeads(head=start, turn_start=start)
    for epoch in (EPOCH + 1, EPOCH + 2):
        await scene.open(epoch, abandoned="run", reopen=again, cut_children=("s>researcher",))
    assert find_call(scene.spans(), call) == [CUT_CALL]
    assert find_call((await scene.backfill())[1].all(), call) == [CUT_CALL]


async def test_a_sub_agents_call_that_is_taken_back_has_a_span(scene: Scene) -> None:
    """A tool beside it rewinds the step: its result goes, and so does its reference's call."""
    scene.answers = [asks(ToolCall(id="c1", name="ask"))]
    call = await begin_child(scene, await scene.step(message()))

    async def open_calls() -> list[str]:
        return []

    for _ in range(2):
        await scene.keeper.children.follow_thread("s", EPOCH, open_calls)
    assert find_call(scene.spans(), call) == [CUT_CALL]


async def test_a_sub_agents_call_that_was_answered_is_not_told_as_cut_off(scene: Scene) -> None:
    """It has its span, from the step that took its result."""
    scene.answers = [asks(ToolCall(id="c1", name="ask"))]
    first = await scene.step(message())
    call = await begin_child(scene, first)
    child = ChildEnd(session_id="s>researcher", agent="researcher", status="completed", duration_ms=5)
    await scene.step(result_of(first, child=child))
    await scene.open(EPOCH + 1, cut_children=("s>researcher",))
    assert [each[-1] for each in find_call(scene.spans(), call)] == [None]
    assert [each[-1] for each in find_call((await scene.backfill())[1].all(), call)] == [None]


async def test_a_turn_that_was_aborted_has_a_root_with_an_error(scene: Scene) -> None:
    """Told by the open that gives its run up, once."""
    scene.answers = [asks(LOOK)]
    await scene.step(message())
    for _ in range(2):
        await scene.open(EPOCH + 1, abandoned="run")
    spans = scene.spans()
    (root,) = roots(spans)
    assert attribute(root, "error.type") == "aborted"
    assert orphans(spans) == []


async def test_a_turn_that_is_aborted_after_its_end_has_one_root(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer stays in the thread, and the step that appended it has told of the turn."""
    before = scene.head
    with monkeypatch.context() as patched:
        patched.setattr(scene.keeper, "finish_turn", raising(StoreUnavailableError("away")))
        with pytest.raises(StoreUnavailableError):
            await scene.step(message())
    await scene.open(EPOCH + 1, abandoned="run", reopen=ReopenHeads(head=before, turn_start=before))
    (root,) = roots(scene.spans())
    assert attribute(root, "helix.turn.outcome") == "completed"


async def test_a_turn_whose_session_failed_has_a_root_with_an_error(scene: Scene) -> None:
    """The traces that matter most."""
    scene.answers = [ValueError("bad")]
    with pytest.raises(ValueError, match="bad"):
        await scene.step(message())
    save = SaveValuesInput(
        session_id="s", thread_id="s", epoch=EPOCH, status="failed", ends_run=True, run_id="run"
    )
    await scene.keeper.save_end(save)
    (root,) = roots(scene.spans())
    assert (attribute(root, "helix.turn.outcome"), attribute(root, "error.type")) == ("failed", "failed")


async def test_a_turn_that_another_run_takes_over_is_abandoned(scene: Scene) -> None:
    """Its execution died: nobody else can close its trace."""
    scene.answers = [asks(LOOK)]
    await scene.step(message())
    await scene.open(EPOCH + 1)
    await scene.step(message(message_id="q2"), run="next", epoch=EPOCH + 1)
    found = {attribute(each, "helix.run.id"): attribute(each, "error.type") for each in roots(scene.spans())}
    assert found == {"run": "abandoned", "next": None}


# -- told again


def facts(spans: list[Any]) -> set[tuple[Any, ...]]:
    """What must be the same when it is told again."""
    names = (
        "error.type", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.request.model",
        "gen_ai.conversation.id", "gen_ai.tool.name", "helix.turn.outcome", "helix.step",
    )  # fmt: skip
    return {
        (
            each.name,
            trace_id(each),
            span_id(each),
            None if each.parent is None else each.parent.span_id,
            tuple((link.context.trace_id, link.context.span_id) for link in each.links),
            *(attribute(each, name) for name in names),
        )
        for each in spans
    }


async def test_a_backfill_tells_the_same_spans(scene: Scene) -> None:
    """A worker was killed before it exported them: they are there again, under the same ids."""
    scene.answers = [asks(LOOK, ToolCall(id="c2", name="ghost"), ToolCall(id="c3", name="researcher"))]
    first = await scene.step(message(caller=CALLER))
    child = ChildEnd(session_id="s.sub", agent="researcher", status="completed", duration_ms=5)
    ghost = result_of(first, "no such tool", 1, is_error=True, unfinished=True)
    await scene.step(await scene.call(first), ghost, result_of(first, "found", 2, child=child))
    await scene.step(message(message_id="q2"), run="next")
    told, (summary, again) = scene.spans(), await scene.backfill()
    assert facts(list(again.all())) == facts(told)
    assert (summary.turns, summary.spans, summary.under_way) == (2, len(told), 0)
    assert sum_tokens(list(again.all())) == sum_tokens(told)


async def test_a_backfill_waits_for_turns_under_way(scene: Scene) -> None:
    """Their root comes; what is told without it would be orphans."""
    scene.answers = [asks(LOOK)]
    await scene.step(message())
    summary, again = await scene.backfill()
    assert (summary.under_way, list(again.all())) == (1, [])


async def test_a_backfill_closes_the_turn_that_its_session_left_under_way(scene: Scene) -> None:
    """The session was ended by the clean-up, and nobody opens it again."""
    scene.answers = [asks(LOOK)]
    await scene.step(message())
    save = SaveValuesInput(session_id="s", thread_id="s", epoch=EPOCH, status="completed")
    await scene.keeper.save_end(save)
    summary, again = await scene.backfill()
    (root,) = roots(again.all())
    assert (summary.abandoned, attribute(root, "error.type")) == (1, "abandoned")
    assert orphans(again.all()) == []


async def test_without_traces_nothing_is_kept_of_them() -> None:
    """Records and rows are as they were."""
    scene = Scene(KeptSpans())
    scene.traces.start(None)
    await scene.open()
    await scene.step(message(caller=CALLER))
    run = await scene.store.get_run("s", "run")
    assert run is not None
    assert run.trace is None
    assert scene.kept.all() == ()
