"""Tool calls that a client, or a person, answers: what is stored of them, and what travels.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.  Times are milliseconds since 1970.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models._base import KnownFields, Model
from helix_temporal.models._json import CheckedObject
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import ToolCall, Usage, are_left_out
from helix_temporal.models.records import Head, Position
from helix_temporal.models.states import MAX_ERROR_TEXT, Millis
from helix_temporal.models.tool_results import ToolResult

CallKind = Literal["client", "approval"]
"""What is wanted: the tool's result, or leave to run it."""

Outcome = Literal["result", "error", "approved", "denied", "expired"]
"""How a call was answered; ``expired`` is nobody did in time."""

_ANSWERS: Final[Mapping[CallKind, tuple[str, ...]]] = {
    "client": ("result", "error"),
    "approval": ("approved", "denied"),
}

REMEMBERED_CALLS: Final = 32
"""Answered calls that a session remembers, to tell late and repeated answers apart."""

RESUME: Final = "resume"
"""Submitted as a call's id: nothing is answered, and whoever sleeps looks whether it can go on."""

NO_ANSWER: Final = "No answer in time."
DENIED: Final = "The call was not approved."
WENT_ON: Final = "The user went on without answering."
INTERRUPTED: Final = "Interrupted before it was answered."


class WaitingCall(Model):
    """A call of the newest step that waits for an answer.

    Attributes:
        id: Unique in the session, unlike the provider's: what an answer names.
        at: Its number among the step's calls.
        until: When it counts as unanswered.
    """

    id: str
    at: int = 0
    kind: CallKind = "client"
    since: Millis = 0
    until: Millis | None = None


class AnsweredCall(Model):
    """Remembers an answer, so that a late or repeated one is told so.

    Attributes:
        by: Names the submission: the same one sent again is the first one.
    """

    id: str
    outcome: Outcome = "result"
    when: Millis = 0
    by: str = ""


class KnownCall(Model):
    """What is known of a call of a suspended step, and is not in the thread yet.

    Attributes:
        at: Its number among the step's calls.
        result: None for a call that was approved and has not run.
        answered: For calls that waited for an answer.
    """

    at: int
    result: ToolResult | None = None
    answered: AnsweredCall | None = None


class PendingCall(Model):
    """A tool call that a client executes, a person answers, or somebody approves.

    Attributes:
        id: What `SessionClient.submit_tool_result` wants; of an approval, its ``approval_id`` too.
        call_id: The provider's id, as in the thread and in streams.
        arguments: None where they are too large to travel: `SessionClient.pending` reads them.
        since, until: When it was asked for, and until when an answer counts.
        position: Of the message that asks, in the thread; ``at`` is the call's number in it.
        route: The sessions below this one that lead to the one whose call it is, where that is another.
    """

    id: str
    call_id: str
    name: str
    kind: CallKind = "client"
    arguments: CheckedObject | None = None
    since: Millis = 0
    until: Millis | None = None
    position: Position = 0
    at: int = 0
    route: tuple[str, ...] = ()


class ChildWait(Model):
    """A call of a sub-agent whose session has ended, since it waits for people.

    Attributes:
        at: The call's number among the step's.
        call: Names it within the session, as the id of its result does.
        agent, task_queue: Who serves it, and where if elsewhere.
        calls: What is waited for there and below, with the way from there.  Nothing where the call
            itself waits, for an earlier one of the same session.
        since, until: When it was called, and when its time is over.
        due: When the first call of a sub-agent further below has used up its time.
        used: By what ran of it so far.
    """

    at: int = 0
    session_id: Id
    call: str
    agent: str = ""
    task_queue: str | None = None
    calls: tuple[PendingCall, ...] = ()
    since: Millis = 0
    until: Millis | None = None
    due: Millis | None = None
    used: Usage | None = None


class Suspension(Model):
    """In the slice of a thread: its newest step waits for answers.

    Attributes:
        head: After that step; a thread that stands elsewhere is not suspended.
        children: Those of its calls that are sub-agents, and wait as well.
    """

    head: Head
    calls: tuple[WaitingCall, ...] = ()
    known: tuple[KnownCall, ...] = ()
    children: tuple[ChildWait, ...] = ()


class ToolApproval(Model, KnownFields):
    """Leave to run a tool, or not; ``reason`` is told to the model where it is denied."""

    approval_id: Annotated[str, Field(min_length=1, max_length=512)]
    approved: bool
    reason: Annotated[str, Field(max_length=MAX_ERROR_TEXT)] | None = None


class SubmitInput(Model):
    """An answer to a pending call, as it travels.

    Attributes:
        call: The pending call's id.
        outcome: Of a kind that the call takes: see `check_outcome`.
        text: The result as text, or what went wrong.
        parts: The result as parts.
        ref: Names a payload that holds the result.
        by: The client's name of this submission.
        wait: Answer when the turn is over, or waits for others.
        route: The sessions below this one that lead to the owner of the call.
    """

    call: Annotated[str, Field(min_length=1, max_length=512)]
    outcome: Literal["result", "error", "approved", "denied"] = "result"
    text: str = ""
    parts: list[dict[str, JsonValue]] | None = None
    ref: str | None = None
    by: Annotated[str, Field(max_length=256)] = ""
    wait: bool = False
    route: tuple[Id, ...] = ()


def check_outcome(call: str, kind: CallKind, outcome: str) -> None:
    """Refuse an answer of another kind than the call wants: no result is leave to run, whatever it says.

    Raises:
        InvalidRequestError: A result, or an error, for an approval; or an approval for anything else.
    """
    fitting = _ANSWERS[kind]
    if outcome in fitting:
        return
    wanted, by = ("approval", "submit_approval") if kind == "approval" else ("result", "submit_tool_result")
    raise InvalidRequestError(
        f"call {call!r} waits for the {wanted} that is given by {by}, or in a session store by the outcome "
        f"{fitting[0]!r} or {fitting[1]!r}; not for {outcome!r}"
    )


def pending_call(waiting: WaitingCall, call: ToolCall, position: int) -> PendingCall:
    """A call as clients see it; ``position`` is that of the message that asks."""
    given: dict[str, Any] = {
        "kind": waiting.kind if waiting.kind != "client" else None,
        "arguments": None if are_left_out(call.arguments) else call.arguments,
        "until": waiting.until,
        "at": waiting.at or None,
    }
    return PendingCall(
        id=waiting.id,
        call_id=call.id,
        name=call.name,
        position=position,
        since=waiting.since,
        **{name: value for name, value in given.items() if value is not None},
    )


def pending_below(waits: Iterable[ChildWait]) -> tuple[PendingCall, ...]:
    """What sub-agents wait for, with the way to each."""
    return tuple(
        call.model_copy(update={"route": (wait.session_id, *call.route)})
        for wait in waits
        for call in wait.calls
    )
