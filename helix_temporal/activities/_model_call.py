"""One model call: what it is given, and its answer as a message."""

from collections.abc import Sequence
from typing import Final

from helix_temporal.activities._step_rules import new_id
from helix_temporal.agents import Agent, InstructionsContext, choose_context, complete, repair
from helix_temporal.models.agents import ModelRequest
from helix_temporal.models.messages import Finish, Message, from_record, to_record
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.steps import RunStepInput
from helix_temporal.stores.protocols.hot import StepView

_USUAL: Final = (None, Finish.STOP, Finish.TOOL_CALLS)
"""Not written: the message says as much without it."""


async def ask_model(
    agent: Agent,
    request: RunStepInput,
    thread_id: str,
    state: SliceState,
    view: StepView,
    inputs: Sequence[Message],
) -> Message:
    """Call the model with the context that its policy allows; its answer as a message with a fresh id.

    Raises:
        HelixError: What the model or the instructions raise; nothing is in the thread then.
    """
    records = [*view.before, *(to_record(message) for message in inputs)]
    complete_before = len(view.before) == request.head.position
    context = choose_context(records, agent.context, complete_before=complete_before)
    messages, _ = repair([from_record(record) for record in context])
    instructions = state.instructions
    if instructions is None:
        who = InstructionsContext(
            agent=agent.name,
            session_id=request.session_id,
            thread_id=thread_id,
            metadata=dict(state.metadata),
        )
        instructions = await agent.instructions_for(who)
    response = await complete(
        agent.model,
        ModelRequest(
            agent=agent.name,
            session_id=request.session_id,
            thread_id=thread_id,
            messages=tuple(messages),
            instructions=instructions,
            tools=tuple(tool.spec for tool in agent.tools),
            metadata=dict(state.metadata),
            step_key=f"{thread_id}/{request.epoch}/{request.head.position}",
        ),
    )
    return Message(
        id=new_id(),
        role="assistant",
        content=response.content,
        tool_calls=tuple(response.tool_calls),
        usage=response.usage,
        finish=None if response.finish in _USUAL else response.finish,
        provider=response.provider,
    )
