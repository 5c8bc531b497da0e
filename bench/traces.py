"""What telling of a step in a trace costs: a root, a model call, and ids for the workers of its tools."""

import time
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from bench._lab import Lab, in_turns, per
from bench._report import Row, told
from helix_temporal.activities.traces import TurnTraces
from helix_temporal.agents import Agent, ModelRequest, ModelResponse
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.steps import RunStepInput, StepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.record import SessionRecord
from helix_temporal.telemetry.emitter import Emitter

_ON: Final = 2_000
_REPEATS: Final = 20
_ATTRIBUTES: Final[dict[str, Any]] = {f"attribute.{number}": "value" for number in range(10)}


class _Nowhere(SpanExporter):
    """Takes spans as fast as they come."""

    def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002 (see the class)
        """See the class."""
        return SpanExportResult.SUCCESS


class _Model:
    async def generate(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002
        raise AssertionError("it is not called")


def first_steps(count: int) -> list[RunStepInput]:
    """The first steps of so many turns."""
    given: dict[str, Any] = {"agent": "main", "epoch": 1, "head": EMPTY}
    inputs = (StepInput(id="q", text="?"),)
    return [
        RunStepInput(session_id="s", inputs=inputs, run_id=f"run-{number}", **given)
        for number in range(count)
    ]


def tell_steps(traces: TurnTraces, requests: Sequence[RunStepInput]) -> None:
    """Tell of turns of one step, as a worker does."""
    agent = Agent(name="main", model=_Model())
    record = SessionRecord(agent="main")
    used = Usage(input_tokens=10, output_tokens=3)
    answer = Message(id="a", role="assistant", content="so", usage=used)
    for request in requests:
        with traces.open_step(request, record, agent) as traced:
            call = traced.call_model("a")
            with call:
                call.note_answer(answer, (), "")
            traced.commit(str(request.run_id), ends_turn=True)


def bare_spans(provider: TracerProvider, count: int) -> None:
    """As many spans with as many attributes, by the SDK alone."""
    tracer = provider.get_tracer("bare")
    for _ in range(2 * count):
        tracer.start_span("chat", attributes=_ATTRIBUTES).end()


async def traces(lab: Lab) -> list[Row]:
    """CPU time of all threads for a turn of one step, with traces and without; and of the event loop."""
    steps = first_steps(_ON)
    on_loop: list[float] = []

    async def on() -> float:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
        emitter = Emitter(provider)
        began, began_here = time.process_time(), time.thread_time()
        tell_steps(TurnTraces(emitter), steps)
        on_loop.append((time.thread_time() - began_here) / _ON)
        emitter.flush(30)
        spent = time.process_time() - began
        emitter.close()
        provider.shutdown()
        return spent / _ON

    async def off() -> float:
        began = time.process_time()
        for _ in range(_REPEATS):
            tell_steps(TurnTraces(), steps)
        return (time.process_time() - began) / (_ON * _REPEATS)

    async def floor() -> float:
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
        began = time.process_time()
        bare_spans(provider, _ON)
        provider.force_flush()
        spent = time.process_time() - began
        provider.shutdown()
        return spent / _ON

    found = await in_turns(lab, "traces", {"on": on, "off": off, "floor": floor})
    bare = min(found["floor"]) * 1e6
    note = f"root and model call; the SDK alone takes {bare:.0f} µs for two such spans"
    return [
        told("a step with traces", "µs", per(found["on"], 1e6), at_most=100, note=note),
        told("a step with traces: event loop", "µs", per(on_loop, 1e6)),
        told("a step without traces", "µs", per(found["off"], 1e6), at_most=2),
    ]
