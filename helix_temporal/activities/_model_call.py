"""One model call: what it is given, and its answer as a message."""

from collections.abc import Sequence
from typing import Final

from temporalio import activity

from helix_temporal.activities._application_code import application_code
from helix_temporal.activities._given import Given, given_to_model
from helix_temporal.activities._step_rules import ModelStep
from helix_temporal.activities._streaming import StepStream
from helix_temporal.activities._summaries import Summaries
from helix_temporal.agents import complete
from helix_temporal.models.agents import ModelRequest
from helix_temporal.models.messages import Finish, Message, Usage
from helix_temporal.stores.protocols.hot import StepView

REPAIRS: Final = "helix_context_repairs"
"""The counter of results of tool calls that were moved, replaced or left out for a model call."""
_USUAL: Final = (None, Finish.STOP, Finish.TOOL_CALLS)
"""Not written: the message says as much without it."""


async def ask_model(
    step: ModelStep, view: StepView, inputs: Sequence[Message], live: StepStream, summaries: Summaries
) -> tuple[Message, Given]:
    """Call the model with the context that its policy allows, showing its answer as it comes.

    Returns:
        Its answer as the message that ``live`` has an id for, and what it was given.

    Raises:
        HelixError: What the model or the instructions raise; nothing is in the thread then.
        FencedError: The attempt was left behind, as its stream tells while the answer comes.
    """
    agent, request = step.agent, step.request
    given = await given_to_model(step, view, inputs, summaries)
    if given.repairs and activity.in_activity():
        counter = activity.metric_meter().create_counter(REPAIRS, "Results mended for model calls.")
        counter.add(given.repairs, {"agent": agent.name})
    with application_code(f"model of agent {agent.name!r}"):
        response = await complete(
            agent.model,
            ModelRequest(
                agent=agent.name,
                session_id=request.session_id,
                thread_id=step.thread_id,
                messages=given.messages,
                instructions=given.instructions,
                tools=tuple(tool.spec for tool in agent.tools),
                metadata=dict(step.state.metadata),
                step_key=_step_key(step),
                tracing_context=request.tracing_context,
            ),
            live.on_event,
        )
        answer = Message(
            id=live.message_id,
            role="assistant",
            content=response.content,
            tool_calls=tuple(response.tool_calls),
            # What a summary cost belongs to the call for which it was made.
            usage=response.usage if given.used is None else (response.usage or Usage()) + given.used.used,
            summary_usage=given.used,
            finish=None if response.finish in _USUAL else response.finish,
            provider=response.provider,
        )
    return answer, given


def _step_key(step: ModelStep) -> str:
    """Names the step for its provider.

    With the epoch, since a tool that rewinds its turn has the same model called again with the same inputs
    on purpose: nothing but the open in between tells that from a step whose answer was lost.  With the run,
    since a turn that came to nothing is followed by another at the same place.
    """
    request = step.request
    key = f"{step.thread_id}/{request.epoch}/{request.head.position}"
    return key if request.run_id is None else f"{key}/{request.run_id}"
