"""Conversations of pydantic-ai inside a workflow: what runs in the workflow itself, without any store.

The history of a conversation is one message, a signed reference.  The agent passes it on to the model
activity, where the worker puts the messages in its place; so that the workflow's history grows with what is
new, and not with the conversation.
"""

from datetime import timedelta
from typing import Any, Final, TypeVar

from pydantic import Field
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.run import AgentRunResult
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from helix_temporal.errors import InvalidRequestError
from helix_temporal.frameworks.pydantic_ai_references import MARK, TEXT
from helix_temporal.models.base import WireModel
from helix_temporal.models.ids import Id

LOAD: Final = "helix.pydantic_ai.load"
SAVE: Final = "helix.pydantic_ai.save"
CONFLICT: Final = "ConversationConflict"
"""The type of the error in which an activity tells of a conflict."""
_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)
)

I = TypeVar("I", bound=WireModel)  # noqa: E741 (an input)


class LoadConversationInput(WireModel):
    """Find a conversation, and issue a reference to its history.

    Attributes:
        newest: So many of its messages are wanted as they are, and more if the first of them is an answer.
    """

    conversation_id: Id
    scope: str | None = None
    newest: int = Field(default=0, ge=0, le=1_000)


class SaveConversationInput(WireModel):
    """Write what a run has added; the same for all attempts of the activity.

    Attributes:
        conversation: Its JSON, with the new messages alone, and the revision that must be stored.
        revision: The new one.
        entry_ids: Of the new messages.
        updated_at: As ISO 8601.
    """

    conversation: dict[str, Any]
    revision: str
    entry_ids: list[str]
    updated_at: str
    scope: str | None = None
    newest: int = Field(default=0, ge=0, le=1_000)


class WorkflowConversation(WireModel):
    """A conversation as a workflow has it.

    Attributes:
        conversation: Its JSON, with the newest messages alone.
        reference: Stands for the messages before them, if there are any.
    """

    conversation: dict[str, Any]
    reference: str | None = None


async def load_conversation(
    conversation_id: str, *, scope: str | None = None, newest: int = 0
) -> Conversation:
    """The conversation to run an agent on; a new one if there is none.

    ``await agent.run(text, conversation=conversation)`` takes it as any other.  Of a conversation that waits
    for people the last request and answer stand in it as they are, since pydantic-ai looks at them.

    Args:
        conversation_id: Which.
        scope: Only if it was saved with this scope.
        newest: So many of the newest messages stand in the workflow as they are, for history processors; the
            workflow's history has them with each model call.

    Raises:
        ActivityError: The store did not answer in time; or the worker lacks `HelixPydanticAIPlugin`.
    """
    request = LoadConversationInput(conversation_id=conversation_id, scope=scope, newest=newest)
    return await _execute(LOAD, request, conversation_id)


async def save_conversation(
    conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None, newest: int = 0
) -> Conversation:
    """Append what a run has added; the conversation to run the next turn on.

    An attempt of the activity that is repeated finds what the first one has written.

    Raises:
        ConversationConflict: Somebody else saved or deleted the conversation since it was loaded.
        InvalidRequestError: It was not loaded by `load_conversation`.
        ActivityError: As for `load_conversation`.
    """
    if isinstance(conversation, AgentRunResult):
        conversation = conversation.conversation
    index = conversation.new_message_index
    if index is None:
        raise InvalidRequestError(
            f"conversation {conversation.conversation_id!r}: nobody knows which of its messages are new; run "
            "the agent on what load_conversation or save_conversation returned, and let no capability "
            "rewrite the messages that were in it"
        )
    new = Conversation(
        messages=conversation.messages[index:],
        usage=conversation.usage,
        conversation_id=conversation.conversation_id,
        deferred_tool_requests=conversation.deferred_tool_requests,
        revision=conversation.revision,
    )
    request = SaveConversationInput(
        conversation=ConversationTypeAdapter.dump_python(new, mode="json"),
        revision=_mint_id(),
        entry_ids=[_mint_id() for _ in new.messages],
        updated_at=workflow.now().isoformat(),
        scope=scope,
        newest=newest,
    )
    return await _execute(SAVE, request, conversation.conversation_id)


async def _execute(name: str, request: I, conversation_id: str) -> Conversation:
    try:
        place = await workflow.execute_activity(
            name,
            request,
            result_type=WorkflowConversation,
            start_to_close_timeout=timedelta(seconds=60),
            schedule_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=10),
            retry_policy=_RETRIES,
        )
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == CONFLICT:
            raise ConversationConflict(conversation_id) from error
        raise
    conversation: Conversation = ConversationTypeAdapter.validate_python(place.conversation)
    if place.reference is not None:
        # An answer: the agent merges requests that stand one behind the other, and drops their metadata.
        stands_for = ModelResponse(
            parts=[TextPart(content=TEXT)], metadata={MARK: place.reference}, timestamp=workflow.now()
        )
        conversation.messages.insert(0, stands_for)
    conversation.new_message_index = len(conversation.messages)
    return conversation


def _mint_id() -> str:
    """A UUID of version 7, the same in every replay."""
    random = workflow.random().getrandbits(74)
    high, low = random >> 62, random & ((1 << 62) - 1)
    bits = int(workflow.time() * 1000) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low
    text = f"{bits:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
