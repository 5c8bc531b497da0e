"""The model call of a step: what is asked, and its answer as a message."""

import time
from collections.abc import Sequence
from typing import Final

from helix_temporal.activities._runtime import (
    application_code,
)
from helix_temporal.activities.context import Given, Summaries, given_to_model
from helix_temporal.activities.live import StepStream
from helix_temporal.activities.step_facts import (
    ModelStep,
)
from helix_temporal.activities.traces import NO_MODEL, ModelTrace
from helix_temporal.agents import call_model
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import (
    Finish,
    Message,
    Usage,
)
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.telemetry import metrics

_USUAL: Final = (None, Finish.STOP, Finish.TOOL_CALLS)
"""Not written: the message says as much without it."""


async def ask_model(
    step: ModelStep,
    view: StepView,
    inputs: Sequence[Message],
    live: StepStream,
    summaries: Summaries,
    traced: ModelTrace = NO_MODEL,
) -> tuple[Message, Given, float]:
    """Call the model with the context that its policy allows, showing its answer as it comes.

    Returns:
        Its answer as the message that ``live`` has an id for, what it was given, and seconds that it took.

    Raises:
        HelixError: What the model or the instructions raise; nothing is in the thread then.
        FencedError: The attempt was left behind, as its stream tells while the answer comes.
    """
    agent = step.agent
    given = await given_to_model(step, view, inputs, summaries)
    metrics.CONTEXT_REPAIRS.add(given.repairs, agent=agent.name)
    began = time.monotonic()
    with application_code(f"model of agent {agent.name!r}"), traced:
        response = await call_model(agent.model, _build_model_request(step, given), live.on_event)
        metrics.MODEL_DURATION.record_since(began, agent=agent.name)
        answer = _build_answer(response, live.message_id, given)
        traced.note_answer(answer, inputs, given.instructions)
    return answer, given, time.monotonic() - began


def _build_model_request(step: ModelStep, given: Given) -> ModelRequest:
    """What the model is asked: the context that it is given, with the step that asks."""
    return ModelRequest(
        agent=step.agent.name,
        session_id=step.request.session_id,
        thread_id=step.thread_id,
        messages=given.messages,
        instructions=given.instructions,
        tools=tuple(tool.spec for tool in step.agent.tools),
        metadata=dict(step.record.metadata),
        step_key=_step_key(step),
        tracing_context=step.request.tracing_context,
    )


def _build_answer(response: ModelResponse, message_id: str, given: Given) -> Message:
    """The model's answer as a message; what a summary cost belongs to the call for which it was made."""
    summary = given.used
    return Message(
        id=message_id,
        role="assistant",
        content=response.content,
        tool_calls=tuple(response.tool_calls),
        usage=response.usage if summary is None else (response.usage or Usage()) + summary.used,
        summary_usage=summary,
        cost_usd=response.cost_usd,
        finish=None if response.finish in _USUAL else response.finish,
        given=given.told,
        provider=response.provider,
    )


def _step_key(step: ModelStep) -> str:
    """Names the step for its provider.

    The epoch is part of it: a tool that rewinds its turn wants the same call made again, and only the new
    epoch tells that from a retry.  The run is part of it, too: after a turn that came to nothing another one
    begins at the same place.
    """
    request = step.request
    key = f"{step.thread_id}/{request.epoch}/{request.head.position}"
    return key if request.run_id is None else f"{key}/{request.run_id}"
