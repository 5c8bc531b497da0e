"""Workflows with conversations of pydantic-ai, and a model that says what it was given."""

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits
from temporalio import workflow

from helix_temporal.frameworks.pydantic_ai_workflow import load_conversation, save_conversation

if TYPE_CHECKING:
    from pydantic_ai.conversation import Conversation

UNLIMITED = UsageLimits(request_limit=None)

given: list[list[str]] = []
"""What each call of the model was given, as text; in the memory of the worker's process."""


def read_text(message: ModelMessage) -> str:
    """What a message says."""
    part: Any = message.parts[-1]
    return f"{part.tool_name}()" if isinstance(part, ToolCallPart) else str(part.content)


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Look, remove, or say how many messages there are, in as many characters as the question has."""
    given.append([read_text(each) for each in messages])
    last, text = messages[-1].parts[-1], read_text(messages[-1])
    if not isinstance(last, ToolReturnPart) and text in {"look", "remove"}:
        return ModelResponse(parts=[ToolCallPart(text, {})])
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(text)])
    return ModelResponse(parts=[TextPart(f"{len(messages)} messages".ljust(len(text), "."))])


agent: Any = Agent(
    FunctionModel(answer),
    name="chat",
    output_type=[str, DeferredToolRequests],
    capabilities=[TemporalDurability()],
)


@agent.tool_plain
def look() -> str:
    """Looks."""
    return "seen"


@agent.tool_plain(requires_approval=True)
def remove() -> str:
    """Removes."""
    return "removed"


class Chat(PydanticAIWorkflow):
    """What the chats have in common."""

    __pydantic_ai_agents__ = (agent,)


@workflow.defn
class StoredChat(Chat):
    """A chat whose conversation is in our stores.

    It runs a turn for each message that it is sent, one behind the other.
    """

    @workflow.init
    def __init__(self, conversation_id: str, newest: int = 0) -> None:
        self._id, self._newest, self._ended = conversation_id, newest, False
        self._conversation: Conversation | None = None

    @workflow.run
    async def run(self, conversation_id: str, newest: int = 0) -> int:
        """Until it is told to end; how many messages the workflow holds then."""
        await workflow.wait_condition(lambda: self._ended)
        return len(self._conversation.messages) if self._conversation else 0

    @workflow.update
    async def ask(self, text: str) -> str:
        """A turn."""
        if self._conversation is None:
            self._conversation = await load_conversation(self._id, newest=self._newest)
        waits = self._conversation.deferred_tool_requests
        if waits is None:
            result = await agent.run(text, conversation=self._conversation, usage_limits=UNLIMITED)
        else:
            results = waits.build_results(approve_all=text == "yes")
            result = await agent.run(conversation=self._conversation, deferred_tool_results=results)
        try:
            self._conversation = await save_conversation(result, newest=self._newest)
        except ConversationConflict:
            self._conversation = None
            return "conflict"
        return "waits" if isinstance(result.output, DeferredToolRequests) else str(result.output)

    @workflow.signal
    def end(self) -> None:
        """End it."""
        self._ended = True


@workflow.defn
class PlainChat(Chat):
    """A chat whose messages are in the workflow, as pydantic-ai's pages have it."""

    def __init__(self) -> None:
        self._messages: list[ModelMessage] = []
        self._ended = False

    @workflow.run
    async def run(self) -> None:
        """Until it is told to end."""
        await workflow.wait_condition(lambda: self._ended)

    @workflow.update
    async def ask(self, text: str) -> str:
        """A turn."""
        result = await agent.run(text, message_history=self._messages)
        self._messages = result.all_messages()
        return str(result.output)

    @workflow.signal
    def end(self) -> None:
        """End it."""
        self._ended = True


@workflow.defn
class ThiefChat(Chat):
    """Runs the agent on a message that it was given."""

    @workflow.run
    async def run(self, stolen: dict[str, Any]) -> str:
        """A turn."""
        message = ModelResponse(parts=[TextPart("")], metadata=stolen)
        return str((await agent.run("tell me", message_history=[message])).output)
