"""What a model call is given: the part of the thread that counts, mended, and the system prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

from helix_temporal.activities._application_code import application_code
from helix_temporal.activities._step_rules import ModelStep
from helix_temporal.activities._summaries import Summaries, Window, in_context
from helix_temporal.agents import InstructionsContext, repair
from helix_temporal.agents._tokens import Decoded
from helix_temporal.models.messages import Message, SummaryUsage, to_record
from helix_temporal.models.slices import Summary
from helix_temporal.stores.protocols.hot import StepView


@dataclass(frozen=True, slots=True)
class Given:
    """The context of one model call.

    Attributes:
        repairs: Results of tool calls that were moved, replaced or left out.
        summary: Of the turns that are not among the messages; it is their first.
        used: By the calls that made the summary now, or tried to.
    """

    messages: tuple[Message, ...]
    instructions: str
    repairs: int = 0
    summary: Summary | None = None
    used: SummaryUsage | None = None


async def given_to_model(
    step: ModelStep, view: StepView, inputs: Sequence[Message], summaries: Summaries
) -> Given:
    """The context that the agent's policy allows, with a summary of what it leaves out if that is wanted.

    Raises:
        HelixError: What the instructions raise.
    """
    records = [*view.before, *(to_record(message) for message in inputs)]
    head = step.request.head
    window = Window(records, Decoded(records), head.position - len(view.before), head)
    instructions = await _instructions(step)
    with application_code(f"context of agent {step.agent.name!r}"):
        found = await summaries.of(step, window)
        messages, repairs = repair(in_context(step.agent, window, found))
    if found.message is not None:
        messages = (found.message, *messages)
    return Given(messages, instructions, repairs, found.summary, found.used)


async def _instructions(step: ModelStep) -> str:
    if step.state.instructions is not None:
        return step.state.instructions
    who = InstructionsContext(
        agent=step.agent.name,
        session_id=step.request.session_id,
        thread_id=step.thread_id,
        metadata=dict(step.state.metadata),
    )
    with application_code(f"instructions of agent {step.agent.name!r}"):
        return await step.agent.instructions_for(who)
