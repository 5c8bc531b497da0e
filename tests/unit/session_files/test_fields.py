"""Every field of what is stored of a session is in a file or is not, because somebody decided so."""

from typing import Any, Final

import pytest
from pydantic import BaseModel

from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState, SubSessionRef
from helix_temporal.models.usage import SubAgentUsageEntry, TokenUsageEntry, ToolUsageEntry
from helix_temporal.session.record import SessionRecord
from helix_temporal.session_files.file import RUN_LEFT_OUT
from helix_temporal.session_files.portable import RECORD_KEPT, STATE_LEFT_OUT

RECORD: Final = {
    "kept": set(RECORD_KEPT),
    "left out": {
        *("run", "turn_steps", "at_work_since", "changed", "changes", "taken_back", "suspended"),
        *("answered", "writer", "stream_reached", "trace"),
    },
}
STATE: Final = {
    "kept": {
        *("session_id", "agent_type", "user_id", "title", "status", "failure_reason", "mode", "version"),
        *("step_count", "resume_count", "head", "stream_id", "custom_state", "output", "error"),
        *("tags", "metadata", "parent_session_id", "root_session_id", "forked_from", "expires_at"),
        *("created_at", "updated_at", "schema_version"),
    },
    "left out": set(STATE_LEFT_OUT),
}
RUN: Final = {
    "kept": {
        *("run_id", "start_head", "workflow_id", "workflow_run_id", "turn", "status", "step_count"),
        *("completion_reason", "error", "started_at", "ended_at"),
    },
    "left out": set(RUN_LEFT_OUT),
}
CHILD: Final = {
    "kept": {
        *("sub_session_id", "agent_type", "tool", "run_id", "parent_tool_call_id", "status", "wait_mode"),
        *("remote", "created_at", "updated_at"),
    },
    "left out": set[str](),
}
_ENTRY: Final = {"id", "timestamp", "run_id", "agent_type", "step_count", "source", "kind", "duration_ms"}
TOKENS: Final = {"kept": _ENTRY | {"model", "tokens", "cost_usd"}, "left out": {"session_id"}}
TOOL: Final = {
    "kept": _ENTRY | {"tool_name", "tool_call_id", "success", "error", "attempts"},
    "left out": {"session_id"},
}
SUB_AGENT: Final = {"kept": _ENTRY | {"sub_session_id", "success"}, "left out": {"session_id"}}
DECIDED: Final[list[tuple[type[BaseModel], dict[str, Any]]]] = [
    (SessionRecord, RECORD),
    (SessionState, STATE),
    (Run, RUN),
    (SubSessionRef, CHILD),
    (TokenUsageEntry, TOKENS),
    (ToolUsageEntry, TOOL),
    (SubAgentUsageEntry, SUB_AGENT),
]


@pytest.mark.parametrize(("model", "decided"), DECIDED, ids=[model.__name__ for model, _ in DECIDED])
def test_somebody_has_decided_about_each_field(model: type[BaseModel], decided: dict[str, Any]) -> None:
    """A field of the record that is new was lost silently in each backup.

    Does a new field say what the session is?  Then it is kept (and in docs/reference/session-files.md).  Does
    it belong to what runs, or to other systems?  Then it is left out.
    """
    assert decided["kept"] & decided["left out"] == set()
    assert decided["kept"] | decided["left out"] == set(model.model_fields)
