"""Agents: what answers in a session, and the tools it may use."""

from helix_temporal.agents._agent import (
    Agent,
    AgentRegistry,
    Hooks,
    Instructions,
    InstructionsContext,
)
from helix_temporal.agents._client_tool import ask_user, client_tool
from helix_temporal.agents._compaction import Compaction
from helix_temporal.agents._context import ContextPolicy, choose_context, repair
from helix_temporal.agents._conversation import (
    Conversation,
    ExpectedMessage,
    Step,
    Turn,
    parse_conversation,
    read_conversation,
)
from helix_temporal.agents._model import Model, StreamingModel, complete
from helix_temporal.agents._replay import replay_agent
from helix_temporal.agents._scripted import ScriptedModel
from helix_temporal.agents._subagent import AgentTool, agent_tool
from helix_temporal.agents._tokens import CountTokens, estimate_tokens
from helix_temporal.agents._tool import Tool, ToolContext, ToolOutcome, tool
from helix_temporal.models.agents import (
    AgentFacts,
    HookFacts,
    InstructionsMode,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolFacts,
    ToolSpec,
)
from helix_temporal.models.hooks import (
    AfterUserMessage,
    BeforeUserMessage,
    HookEvent,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
    UserMessageDecision,
)
from helix_temporal.models.messages import Finish

__all__ = [
    "AfterUserMessage",
    "Agent",
    "AgentFacts",
    "AgentRegistry",
    "AgentTool",
    "BeforeUserMessage",
    "Compaction",
    "ContextPolicy",
    "Conversation",
    "CountTokens",
    "ExpectedMessage",
    "Finish",
    "HookEvent",
    "HookFacts",
    "Hooks",
    "Instructions",
    "InstructionsContext",
    "InstructionsMode",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "ModelResponse",
    "ReasoningDelta",
    "ScriptedModel",
    "SessionEnded",
    "SessionStarted",
    "Step",
    "StreamingModel",
    "TextDelta",
    "Tool",
    "ToolArgumentsDelta",
    "ToolCallStarted",
    "ToolContext",
    "ToolFacts",
    "ToolOutcome",
    "ToolSpec",
    "Turn",
    "TurnCompleted",
    "UserMessageDecision",
    "agent_tool",
    "ask_user",
    "choose_context",
    "client_tool",
    "complete",
    "estimate_tokens",
    "parse_conversation",
    "read_conversation",
    "repair",
    "replay_agent",
    "tool",
]
