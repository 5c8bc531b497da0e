"""What an application uses to talk to sessions: `SessionClient`, and a `SessionHandle` for each session.

With every type that their methods take and return.
"""

from helix_temporal.client._client import SessionClient
from helix_temporal.client._handle import AskOptions, SendOptions, SessionHandle, StreamOptions
from helix_temporal.client._streams import LiveAsk, StreamAfter, StreamUntil
from helix_temporal.models.base import JsonObject
from helix_temporal.models.checkpoints import CheckpointMeta, Run
from helix_temporal.models.handles import (
    ChildInfo,
    DeleteResult,
    FindTurnResult,
    MessagePage,
    SessionUsage,
    TurnInfo,
)
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    CallPolicy,
    ForkFrom,
    Mode,
    SessionInfo,
    SessionOptions,
    SessionResult,
    SubmitReply,
)
from helix_temporal.models.states import SessionProperties, SessionState
from helix_temporal.models.store_calls import Page, SessionQuery, SessionSummary
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.threads import DescribeThreadResult
from helix_temporal.models.usage import (
    CustomUsageEntry,
    SubAgentUsageEntry,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageQuery,
)
from helix_temporal.models.waiting import PendingCall, ToolApproval
from helix_temporal.stores.protocols.readable import ReadableStores, SessionStores
from helix_temporal.stores.protocols.streams import StreamStore

__all__ = [
    "AskOptions",
    "AskResult",
    "AskStatus",
    "CallPolicy",
    "CheckpointMeta",
    "ChildInfo",
    "CustomUsageEntry",
    "DeleteResult",
    "DescribeThreadResult",
    "FindTurnResult",
    "ForkFrom",
    "Head",
    "JsonObject",
    "LiveAsk",
    "Message",
    "MessagePage",
    "Mode",
    "Page",
    "PendingCall",
    "ReadableStores",
    "Run",
    "SendOptions",
    "SessionClient",
    "SessionHandle",
    "SessionInfo",
    "SessionOptions",
    "SessionProperties",
    "SessionQuery",
    "SessionResult",
    "SessionState",
    "SessionStores",
    "SessionSummary",
    "SessionUsage",
    "StoredChunk",
    "StreamAfter",
    "StreamOptions",
    "StreamStore",
    "StreamUntil",
    "SubAgentUsageEntry",
    "SubmitReply",
    "TokenUsageEntry",
    "ToolApproval",
    "ToolUsageEntry",
    "TurnInfo",
    "UsageEntry",
    "UsageQuery",
    "workflow_id",
]
