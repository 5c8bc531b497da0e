"""What the session store keeps of a session besides its messages.

Times are integer milliseconds since 1970.  On input fields may also be spelled in camelCase; they are
written in snake_case.  Unknown fields of a `SessionState` are kept when it is written again, so that an
older version of a program does not lose what a newer one stored.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AliasChoices, AliasGenerator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from helix_temporal.errors import InvalidRequestError, SessionExpiredError
from helix_temporal.models.base import Changes, CheckedObject, CheckedValue, WireModel, check_json, check_text
from helix_temporal.models.ids import Id
from helix_temporal.models.limits import MAX_ERROR_TEXT, MAX_TITLE
from helix_temporal.models.stored_messages import EMPTY, Head

Millis = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""Milliseconds since 1970; integers only, so that all backends order them alike."""

Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


def _checked_text(value: object) -> object:
    if isinstance(value, str):
        check_text(value, "text")
    return value


Text = Annotated[str, BeforeValidator(_checked_text)]
"""Text that every backend can hold: no NUL, no lone surrogate."""

Title = Annotated[Text, Field(max_length=MAX_TITLE)]
"""What a list of conversations calls a session, at most 300 characters; empty: it has no title."""


def _either_spelling(name: str) -> AliasChoices:
    return AliasChoices(name, to_camel(name))


def is_past(deadline: float | None, now: float) -> bool:
    """Whether a deadline has passed: at its deadline a call, a session or a stored thing has expired.

    Both are in the same unit, milliseconds mostly; None is a deadline that never comes.
    """
    return deadline is not None and deadline <= now


SCHEMA_VERSION: Final = 1
"""Of a session's state; a change that older programs would misread has a higher one, and they refuse it."""


class StoredModel(WireModel):
    """Base of what session stores keep."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=AliasGenerator(validation_alias=_either_spelling)
    )


class SessionStatus(StrEnum):
    """What a session as a whole is; ``running`` is accepted for ``active``."""

    ACTIVE = "active"
    PAUSED = "paused"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    FAILED = "failed"

    @classmethod
    def _missing_(cls, value: object) -> "SessionStatus | None":
        return cls.ACTIVE if value == "running" else None


TERMINAL: Final = frozenset({SessionStatus.COMPLETED, SessionStatus.FAILED})
"""A clean-up leaves these alone; a new turn may still start in a completed session."""


class ErrorInfo(StoredModel):
    """What failed, without message bodies or secrets."""

    type: Text = ""
    message: Text = ""


class ForkOrigin(StoredModel):
    """Where a forked session comes from; not to be confused with the parent of a sub-agent."""

    session_id: Id
    checkpoint_id: Text | None = None
    head: Head = EMPTY
    at: Millis = 0


class WorkspaceRef(StoredModel):
    """A workspace whose snapshots go when the session expires."""

    provider_id: Text
    workspace_id: Text


class SuspensionContext(StoredModel):
    """How to go on after a pause for people or children; any process can read it on resume."""

    kind: Literal["client_tool", "approval", "awaiting_children", "step_partial"]
    run_id: Text | None = None
    step_id: Text | None = None
    tool_call_ids: tuple[Text, ...] = ()
    assistant_message_position: Count | None = None
    completed_tool_results: CheckedObject = Field(default_factory=dict)
    resume_payload: CheckedObject = Field(default_factory=dict)
    suspended_at: Millis = 0


class SuspendedChildWait(StoredModel):
    """One child session that a suspended parent waits for; ``until`` when, if it has ended meanwhile."""

    sub_session_id: Id
    tool_call_id: Text
    agent_type: Text = ""
    child_kind: Literal["local", "remote"] = "local"
    since: Millis = 0
    until: Millis | None = None
    resolved: bool = False
    result: CheckedValue = None


class TracingContext(StoredModel):
    """W3C trace context: models and tools of the session get it, also once it is resumed."""

    trace_id: Text
    span_id: Text
    trace_flags: Text = ""
    trace_state: Text = ""
    vendor: dict[str, Text] = Field(default_factory=dict)

    @property
    def traceparent(self) -> str:
        """As the header of that name has it."""
        return f"00-{self.trace_id}-{self.span_id}-{self.trace_flags or '00'}"


class ClientToolResponse(StoredModel):
    """What a client gave for a tool call that it was asked to execute or to approve.

    Attributes:
        outcome: ``approved`` and ``denied`` answer an approval, and nothing else does; the others a call.
        result: JSON, at most 1 MiB; for an approval the reason may be here.
    """

    outcome: Literal["result", "error", "approved", "denied"] = "result"
    result: CheckedValue = None
    error: Text | None = Field(default=None, max_length=MAX_ERROR_TEXT)


class PendingClientToolCall(StoredModel):
    """A tool call that a client, or a person, must answer."""

    tool_call_id: Id
    tool_name: Text
    input: CheckedValue = None
    kind: Literal["client", "approval"] = "client"
    approval_id: Text | None = None
    run_id: Text | None = None
    step_id: Text | None = None
    created_at: Millis = 0
    deadline_at: Millis | None = None
    response: ClientToolResponse | None = None
    responded_at: Millis | None = None


class CompletedClientToolCall(StoredModel):
    """Remembers that a call was answered, so that a late or repeated answer is told so."""

    tool_call_id: Id
    outcome: Literal["result", "error", "approved", "denied", "expired"]
    completed_at: Millis = 0
    result_hash: Text = ""


MAX_COMPLETED_CALLS: Final = 256
"""Answered calls that a session remembers; an answer to an older one is told ``not_pending``."""


def newest_completed(completed: Mapping[str, CompletedClientToolCall]) -> dict[str, CompletedClientToolCall]:
    """Those that a session remembers, so that its state does not grow with its age."""
    newest = sorted(completed.values(), key=lambda each: (each.completed_at, each.tool_call_id))
    return {each.tool_call_id: each for each in newest[-MAX_COMPLETED_CALLS:]}


class SessionState(StoredModel):
    """The state of a session; its messages are in the thread, of which it holds a head.

    Attributes:
        failure_reason: With status ``failed``, e.g. ``parent_suspended`` or ``session_expired``.
        mode: Written once.
        version: Goes up by one with every change of the state.
        head: The committed head of the session's thread when the state was last committed with it.
        metadata: At most 64 KiB as JSON: lists show them.
        updated_at: When the state was last changed, or messages were last appended (`append_messages`).
        parent_session_id: Of a sub-agent; ``forked_from`` is for forks.
        thread_id: Of its messages, where that is not the session's id.
        expires_at: A clean-up may end the session after this.
        cleanup_pending: Ended by a clean-up that has still workspace snapshots to delete.
    """

    model_config = ConfigDict(extra="allow")

    session_id: Id
    agent_type: Text = ""
    user_id: Text | None = None
    title: Title = ""
    status: SessionStatus = SessionStatus.ACTIVE
    failure_reason: Text | None = None
    mode: Literal["standard", "persistent"] | None = None
    version: Annotated[int, Field(strict=True, ge=1)] = 1
    step_count: Count = 0
    resume_count: Count = 0
    head: Head = EMPTY
    current_run_id: Text | None = None
    stream_id: Text | None = None
    thread_id: Id | None = None
    custom_state: CheckedObject = Field(default_factory=dict)
    output: CheckedValue = None
    error: ErrorInfo | None = None
    tags: tuple[Text, ...] = ()
    metadata: CheckedObject = Field(default_factory=dict)
    parent_session_id: Id | None = None
    root_session_id: Id | None = None
    forked_from: ForkOrigin | None = None
    pending_client_tool_calls: dict[str, PendingClientToolCall] = Field(default_factory=dict)
    completed_client_tool_calls: dict[str, CompletedClientToolCall] = Field(default_factory=dict)
    client_tool_call_ownership: dict[str, Id] = Field(default_factory=dict)
    suspension_context: SuspensionContext | None = None
    suspended_awaiting_children: tuple[SuspendedChildWait, ...] = ()
    suspended_step_id: Text | None = None
    tracing_context: TracingContext | None = None
    expires_at: Millis | None = None
    workspaces: tuple[WorkspaceRef, ...] = ()
    cleanup_pending: bool = False
    created_at: Millis = 0
    updated_at: Millis = 0
    schema_version: Count = SCHEMA_VERSION

    @model_validator(mode="before")
    @classmethod
    def _check_extra(cls, data: Any) -> Any:
        # What is unknown here goes to the store as it is, so that it is looked at as well.
        if isinstance(data, dict):
            for key, value in data.items():
                if key not in _KNOWN:
                    check_json({key: value})
        return data

    @property
    def messages_thread_id(self) -> str:
        """The thread that has its messages: its own, or that of the session's id."""
        return self.thread_id or self.session_id

    @property
    def message_count(self) -> int:
        """Messages of finished turns when the state was last committed with its thread."""
        return self.head.position


_KNOWN: Final = frozenset(
    set(SessionState.model_fields) | {to_camel(name) for name in SessionState.model_fields}
)


def check_not_expired(state: SessionState, now: int) -> None:
    """Refuse a session that has expired.

    Raises:
        SessionExpiredError: It has, by ``now``.
    """
    refuse_past(state.session_id, state.expires_at, now)


def other_thread_text(session_id: str) -> str:
    """How a refusal of another thread begins."""
    return f"session {session_id!r} has thread "


def check_thread(session_id: str, thread_id: str, named: str) -> None:
    """Refuse another thread than the session has.

    Raises:
        InvalidRequestError: ``named`` is another one.
    """
    if named != thread_id:
        raise InvalidRequestError(
            f"{other_thread_text(session_id)}{thread_id!r}, not {named!r}; name that one, or none, or take "
            "another session's id"
        )


def refuse_past(session_id: str, expires_at: int | None, now: int) -> None:
    """Refuse a session whose time is over.

    Raises:
        SessionExpiredError: It has expired, by ``now``.
    """
    if is_past(expires_at, now):
        raise session_expired_error(session_id, expires_at)


def session_expired_error(session_id: str, expires_at: int | None) -> SessionExpiredError:
    """What those are told who want something of a session that has expired."""
    return SessionExpiredError(
        f"session {session_id!r} expired at {expires_at} (ms since 1970); to go on with it, ask with "
        "properties=SessionProperties(expires_at=…): a later time, or None",
        expires_at=expires_at,
    )


class SessionProperties(StoredModel, Changes):
    """What is kept of a session beside its conversation; the fields that are named are set.

    Attributes:
        expires_at: From then on it takes no answer and no message, and a clean-up ends it; None: never.
            Naming it renews a session that has expired.
        tracing_context: The caller's W3C trace context: model calls, tools and sub-agents get it, also those
            of a turn that is resumed.
    """

    user_id: Text | None = None
    title: Title = ""
    tags: tuple[Text, ...] = ()
    workspaces: tuple[WorkspaceRef, ...] = ()
    expires_at: Millis | None = None
    tracing_context: TracingContext | None = None

    @classmethod
    def of(cls, state: SessionState) -> "SessionProperties":
        """Those of a state that are there."""
        found = {name: getattr(state, name) for name in cls.model_fields}
        return cls(
            **{name: value for name, value in found.items() if value != cls.model_fields[name].default}
        )

    def over(self, before: "SessionProperties") -> "SessionProperties":
        """These where they are named, the others as before."""
        return SessionProperties(**(before.changes() | self.changes()))

    @property
    def renews(self) -> bool:
        """Whether it says when the session expires."""
        return "expires_at" in self.model_fields_set


class StateChange(StoredModel):
    """Changes of a state by one that has not read it; None leaves a field as it is.

    Attributes:
        head: The thread's committed head that goes with the change.
        follows: The change builds on a state whose head is here or beyond: one that stands before it,
            because its store was restored, is refused with `StateBehindThreadError`.
        merge: Changes of the custom state by key.
        metadata: Changes of the metadata by key.
        title: The new title; an empty one takes it away.
        steps: Added to ``step_count``.
    """

    head: Head | None = None
    follows: Count | None = None
    merge: "MergeChanges | None" = None
    metadata: "MergeChanges | None" = None
    title: Title | None = None
    status: SessionStatus | None = None
    failure_reason: Text | None = None
    error: ErrorInfo | None = None
    output: CheckedValue = None
    steps: Count = 0
    agent_type: Text | None = None


class CreateSession(StoredModel):
    """What a new session starts with."""

    agent_type: Text = ""
    user_id: Text | None = None
    title: Title = ""
    mode: Literal["standard", "persistent"] | None = None
    status: SessionStatus = SessionStatus.ACTIVE
    custom_state: CheckedObject = Field(default_factory=dict)
    tags: tuple[Text, ...] = ()
    metadata: CheckedObject = Field(default_factory=dict)
    parent_session_id: Id | None = None
    root_session_id: Id | None = None
    forked_from: ForkOrigin | None = None
    head: Head = EMPTY
    stream_id: Text | None = None
    thread_id: Id | None = None
    expires_at: Millis | None = None
    workspaces: tuple[WorkspaceRef, ...] = ()


class MergeChanges(StoredModel):
    """Changes of a JSON object by key: of the custom state, or of the metadata.

    Attributes:
        values: Replace these keys.
        appends: Add these items to the list under each key (an absent one is empty).
        removes: Remove these keys.
    """

    values: CheckedObject = Field(default_factory=dict)
    appends: dict[str, list[CheckedValue]] = Field(default_factory=dict)
    removes: tuple[str, ...] = ()


class SaveResult(StoredModel):
    """A state was stored."""

    new_version: int


class MergeResult(StoredModel):
    """A merge was stored; each warning names a key that was not what the change expected."""

    new_version: int
    warnings: tuple[str, ...] = ()


class CountResult(StoredModel):
    """A counter after its increment."""

    value: int
    new_version: int


class _NoTruth(StoredModel):
    def __bool__(self) -> bool:
        """Refused: both outcomes would be true, and code ported from a boolean form would not notice."""
        raise TypeError(f"{type(self).__name__} has no truth value: look at .ok, or use match")


class CasOk(_NoTruth):
    """The status was set."""

    ok: Literal[True] = True
    new_version: int
    previous_status: SessionStatus


class CasConflict(_NoTruth):
    """Nothing was changed; what is stored, read in the same instant."""

    ok: Literal[False] = False
    current_status: SessionStatus
    current_version: int


class ToolResultSubmission(StoredModel):
    """An answer to a pending client tool call."""

    tool_call_id: Id
    response: ClientToolResponse


class Submission(StoredModel):
    """What became of a submitted tool result.

    Attributes:
        status: ``expired``: its deadline has passed.
        completed_at: When it was answered first.
        new_version: Of the state, when it was taken.
    """

    status: Literal["submitted", "already_completed", "not_pending", "expired"]
    completed_at: Millis | None = None
    new_version: int | None = None


class OwnedPendingCall(StoredModel):
    """A pending call whose deadline has passed, and whose it is."""

    session_id: Id
    call: PendingClientToolCall


class RemoteRef(StoredModel):
    """A sub-agent that runs elsewhere."""

    endpoint_id: Text
    remote_session_id: Text
    remote_stream_id: Text | None = None
    last_forwarded_sequence: Count = 0


class SubSessionRef(StoredModel):
    """A child session of a session.

    Attributes:
        tool: Of the parent's, behind which it is; empty in references of before there was this field.
        remote: It runs elsewhere; whoever runs it keeps this.
    """

    sub_session_id: Id
    agent_type: Text = ""
    tool: Text = ""
    run_id: Text | None = None
    parent_tool_call_id: Text | None = None
    status: SessionStatus = SessionStatus.ACTIVE
    wait_mode: Literal["blocking", "background"] = "blocking"
    remote: RemoteRef | None = None
    created_at: Millis = 0
    updated_at: Millis = 0
