"""What a model call is given: the part of the thread that counts, mended, and the system prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

from helix_temporal.agents import Agent, InstructionsContext, choose_context, repair
from helix_temporal.models.messages import Message, from_record, to_record
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.steps import RunStepInput
from helix_temporal.stores.protocols.hot import StepView


@dataclass(frozen=True, slots=True)
class Given:
    """The context of one model call.

    Attributes:
        repairs: Results of tool calls that were moved, replaced or left out.
    """

    messages: tuple[Message, ...]
    instructions: str
    repairs: int = 0


async def given_to_model(
    agent: Agent,
    request: RunStepInput,
    thread_id: str,
    state: SliceState,
    view: StepView,
    inputs: Sequence[Message],
) -> Given:
    """The context that the agent's policy allows.

    Raises:
        HelixError: What the instructions raise.
    """
    records = [*view.before, *(to_record(message) for message in inputs)]
    complete_before = len(view.before) == request.head.position
    context = choose_context(records, agent.context, complete_before=complete_before)
    messages, repairs = repair([from_record(record) for record in context])
    return Given(messages, await _instructions(agent, request, thread_id, state), repairs)


async def _instructions(agent: Agent, request: RunStepInput, thread_id: str, state: SliceState) -> str:
    if state.instructions is not None:
        return state.instructions
    who = InstructionsContext(
        agent=agent.name,
        session_id=request.session_id,
        thread_id=thread_id,
        metadata=dict(state.metadata),
    )
    return await agent.instructions_for(who)
