"""Durable conversation threads and sessions for agents on Temporal.

What an application needs first is imported from here, each name from its module when it is first asked for:
importing the package loads neither Temporal's SDK nor a driver.  Errors are in `helix_temporal.errors`, the
parts of a workflow of one's own in `helix_temporal.workflows`, what `SessionClient` takes and returns in
`helix_temporal.client`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    __version__: str
    from helix_temporal.agents import (
        Agent,
        Compaction,
        ContextPolicy,
        Hooks,
        InstructionsContext,
        ModelRequest,
        ModelResponse,
        ScriptedModel,
        ToolContext,
        ToolOutcome,
        agent_tool,
        ask_user,
        client_tool,
        tool,
    )
    from helix_temporal.backends import Backends
    from helix_temporal.client import SessionClient, SessionHandle, SessionStores
    from helix_temporal.devstack import start_stack
    from helix_temporal.errors import HelixError
    from helix_temporal.models.ids import workflow_id
    from helix_temporal.models.messages import Message, ToolCall, Usage
    from helix_temporal.models.sessions import (
        AskResult,
        AskStatus,
        CallPolicy,
        ForkFrom,
        SessionInfo,
        SessionInput,
        SessionOptions,
        SessionResult,
    )
    from helix_temporal.models.states import SessionProperties, SessionState, SessionStatus
    from helix_temporal.models.stored_messages import Head
    from helix_temporal.models.streams import StoredChunk
    from helix_temporal.models.waiting import PendingCall, ToolApproval
    from helix_temporal.plugin import HelixPlugin
    from helix_temporal.settings import Settings
    from helix_temporal.worker import HelixWorker, connect, serve

__all__ = [
    "Agent",
    "AskResult",
    "AskStatus",
    "Backends",
    "CallPolicy",
    "Compaction",
    "ContextPolicy",
    "ForkFrom",
    "Head",
    "HelixError",
    "HelixPlugin",
    "HelixWorker",
    "Hooks",
    "InstructionsContext",
    "Message",
    "ModelRequest",
    "ModelResponse",
    "PendingCall",
    "ScriptedModel",
    "SessionClient",
    "SessionHandle",
    "SessionInfo",
    "SessionInput",
    "SessionOptions",
    "SessionProperties",
    "SessionResult",
    "SessionState",
    "SessionStatus",
    "SessionStores",
    "Settings",
    "StoredChunk",
    "ToolApproval",
    "ToolCall",
    "ToolContext",
    "ToolOutcome",
    "Usage",
    "agent_tool",
    "ask_user",
    "client_tool",
    "connect",
    "serve",
    "start_stack",
    "tool",
    "workflow_id",
]

_MODULES: Final[Mapping[str, str]] = {
    "Agent": "helix_temporal.agents",
    "AskResult": "helix_temporal.models.sessions",
    "AskStatus": "helix_temporal.models.sessions",
    "Backends": "helix_temporal.backends",
    "CallPolicy": "helix_temporal.models.sessions",
    "Compaction": "helix_temporal.agents",
    "ContextPolicy": "helix_temporal.agents",
    "ForkFrom": "helix_temporal.models.sessions",
    "Head": "helix_temporal.models.stored_messages",
    "HelixError": "helix_temporal.errors",
    "HelixPlugin": "helix_temporal.plugin",
    "HelixWorker": "helix_temporal.worker",
    "Hooks": "helix_temporal.agents",
    "InstructionsContext": "helix_temporal.agents",
    "Message": "helix_temporal.models.messages",
    "ModelRequest": "helix_temporal.agents",
    "ModelResponse": "helix_temporal.agents",
    "PendingCall": "helix_temporal.models.waiting",
    "ScriptedModel": "helix_temporal.agents",
    "SessionClient": "helix_temporal.client",
    "SessionHandle": "helix_temporal.client",
    "SessionInfo": "helix_temporal.models.sessions",
    "SessionInput": "helix_temporal.models.sessions",
    "SessionOptions": "helix_temporal.models.sessions",
    "SessionProperties": "helix_temporal.models.states",
    "SessionResult": "helix_temporal.models.sessions",
    "SessionState": "helix_temporal.models.states",
    "SessionStatus": "helix_temporal.models.states",
    "SessionStores": "helix_temporal.client",
    "Settings": "helix_temporal.settings",
    "StoredChunk": "helix_temporal.models.streams",
    "ToolApproval": "helix_temporal.models.waiting",
    "ToolCall": "helix_temporal.models.messages",
    "ToolContext": "helix_temporal.agents",
    "ToolOutcome": "helix_temporal.agents",
    "Usage": "helix_temporal.models.messages",
    "agent_tool": "helix_temporal.agents",
    "ask_user": "helix_temporal.agents",
    "client_tool": "helix_temporal.agents",
    "connect": "helix_temporal.worker",
    "serve": "helix_temporal.worker",
    "start_stack": "helix_temporal.devstack",
    "tool": "helix_temporal.agents",
    "workflow_id": "helix_temporal.models.ids",
}

if not TYPE_CHECKING:  # a type checker would take any name to be here

    def __getattr__(name: str) -> object:
        if name == "__version__":
            return __import__("importlib.metadata", fromlist=["version"]).version("helix_temporal")
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # `__import__`, because the workflow sandbox passes modules through there; past it, by
        # `importlib.import_module`, a workflow gets a second copy.  Nor is the object kept here: this module
        # may be passed through to a sandbox that has a copy of the other.
        return getattr(__import__(module, fromlist=[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
