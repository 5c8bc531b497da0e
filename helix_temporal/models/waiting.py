"""Calls that wait for a client, a person or a sub-agent: what is stored of them, and what travels."""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import orjson
from pydantic import Field, JsonValue, StrictBool, ValidationError

from helix_temporal.errors import InvalidIdError, InvalidRequestError
from helix_temporal.models.agents import ChildThread
from helix_temporal.models.base import CheckedObject, KnownFields, WireModel, canonical_json, only_set
from helix_temporal.models.ids import Id
from helix_temporal.models.limits import MAX_ERROR_TEXT
from helix_temporal.models.messages import ToolCall, ToolResult, Usage, are_left_out
from helix_temporal.models.states import Millis
from helix_temporal.models.store_calls import Limit
from helix_temporal.models.stored_messages import Head, Position

W = TypeVar("W")

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
"""Submitted as a call's id: nothing is answered, and whoever is suspended looks whether it can go on."""

NO_ANSWER: Final = "No answer in time."
DENIED: Final = "The call was not approved."
WENT_ON: Final = "The user went on without answering."
INTERRUPTED: Final = "Interrupted before it was answered."


def name_failure(text: str) -> Literal["denied", "expired", "failed"]:
    """What a result that is an error tells of its call, by its text: a person decided, or nobody answered."""
    if text.startswith(DENIED):
        return "denied"
    return "expired" if text.startswith(NO_ANSWER) else "failed"


class WaitingCall(WireModel):
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


_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def name_waiting_call(answer_id: str, call_id: str, at: int, taken: Container[str] = ()) -> str:
    """The id of a call that waits: the provider's own, with that of the answer that asks.

    Args:
        answer_id: Of the message that asks.
        call_id: The provider's; some give several calls of one answer the same.
        at: The call's number in the answer, which its id ends with where another call has the id without it.
        taken: Ids of calls of the same answer that wait as well.
    """
    name = f"{_ODD.sub('-', call_id)[:128]}_{answer_id}"
    return f"{name}_{at}" if name in taken else name


def find_waiting_call(
    known: Mapping[str, W], answer_id: str, call_id: str, at: int, *, is_repeat: bool = False
) -> W | None:
    """What is known of a call under the id under which it waits, or did: the reverse of `name_waiting_call`.

    Args:
        known: By such ids.
        answer_id: As there.
        call_id: As there.
        at: As there.
        is_repeat: An earlier call of the same answer waits under the id without a number.
    """
    name = name_waiting_call(answer_id, call_id, at)
    numbered = known.get(name_waiting_call(answer_id, call_id, at, taken={name}))
    return known.get(name) if numbered is None and not is_repeat else numbered


class AnswerReceipt(WireModel):
    """Remembers an answer, so that a late or repeated one is told so.

    Attributes:
        by: Names the submission: the same one sent again is the first one.
    """

    id: str
    outcome: Outcome = "result"
    when: Millis = 0
    by: str = ""


class CallOutcome(WireModel):
    """What is known of a call of a suspended step, and is not in the thread yet.

    Attributes:
        at: Its number among the step's calls.
        result: None for a call that was approved and has not run.
        answered: For calls that waited for an answer.
    """

    at: int
    result: ToolResult | None = None
    answered: AnswerReceipt | None = None


class PendingCall(WireModel):
    """A tool call that a client executes, a person answers, or somebody approves.

    Attributes:
        id: What `SessionHandle.submit_tool_result` wants; of an approval, its ``approval_id`` too.
        call_id: The provider's id, as in the thread and in streams.
        arguments: None where they are too large to travel: `SessionHandle.get_pending_calls` reads them.
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


class ToolApproval(WireModel, KnownFields):
    """Leave to run a tool, or not; ``reason`` is told to the model where it is denied."""

    approval_id: Annotated[str, Field(min_length=1, max_length=512)]
    approved: StrictBool
    reason: Annotated[str, Field(max_length=MAX_ERROR_TEXT)] | None = None


class SubmitInput(WireModel):
    """An answer to a pending call, as it travels.

    Attributes:
        call: The pending call's id.
        outcome: Of a kind that the call takes: see `check_outcome`.
        text: The result as text, or what went wrong.
        parts: The result as parts.
        ref: Names a payload that holds the result.
        by: The client's name of this submission.
        wait: Answer when the turn is over, or waits for others.
    """

    call: Annotated[str, Field(min_length=1, max_length=512)]
    outcome: Literal["result", "error", "approved", "denied"] = "result"
    text: str = ""
    parts: list[dict[str, JsonValue]] | None = None
    ref: str | None = None
    by: Annotated[str, Field(max_length=256)] = ""
    wait: bool = False


class TakenAnswer(WireModel):
    """An answer that a root has taken, on its way to the session of the sub-agent whose call it is.

    Attributes:
        when: When it was taken: a deadline that passes on the way does not count.
    """

    request: SubmitInput
    when: Millis = 0


class SubAgentCall(WireModel):
    """A call of a sub-agent.  While it waits for people its session has ended.

    Attributes:
        at: The call's number among the step's.
        call: Names it within the session, as the id of its result does.
        agent, task_queue: Who serves it, and where if elsewhere.
        calls: What is waited for there and below, with the way from there.  Nothing where the call
            itself waits, for an earlier one of the same session.
        since, until: When it was called, and when its time is over.
        due: When the first call of a sub-agent further below has used up its time.
        used: By what ran of it so far.
        answers: Of its calls, taken and not given to its session yet.
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
    answers: tuple[TakenAnswer, ...] = ()

    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that no answer was taken of, with the way to each from the caller."""
        answered = {each.request.call for each in self.answers}
        return tuple(
            call.model_copy(update={"route": (self.session_id, *call.route)})
            for call in self.calls
            if call.id not in answered
        )

    def with_calls(self, calls: tuple[PendingCall, ...]) -> "SubAgentCall":
        """Its session has ended once more, and waits for these: answers of others have arrived."""
        wanted = {each.id for each in calls}
        left = tuple(each for each in self.answers if each.request.call in wanted)
        return self.model_copy(update={"calls": calls, "answers": left})


class Suspension(WireModel):
    """In the slice of a thread: its newest step waits for answers.

    Attributes:
        head: After that step; a thread that stands elsewhere is not suspended.
        children: Those of its calls that are sub-agents, and wait as well.
    """

    head: Head
    calls: tuple[WaitingCall, ...] = ()
    outcomes: tuple[CallOutcome, ...] = ()
    children: tuple[SubAgentCall, ...] = ()


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
        **only_set(**given),
    )


def pending_below(waits: Iterable[SubAgentCall]) -> tuple[PendingCall, ...]:
    """What sub-agents wait for, with the way to each."""
    return tuple(call for wait in waits for call in wait.pending())


MAX_DEPTH: Final = 8
"""Sessions above one another: an agent that calls itself would never end otherwise."""

_MARK: Final = "thread:"
_PUT_ASIDE: Final = "payload:"
_MAX_CHARACTERS: Final = 200
_MAX_BYTES: Final = 400
_CHILD: Final = re.compile(r".+>[A-Za-z0-9_.-]+", re.DOTALL)
"""A parent's id, and behind the last ``>`` a tool's name, a call, or a digest."""


class ParentLink(WireModel):
    """Whose sub-agent a session is.

    Attributes:
        root_session_id: The session that a person talks to.
        call: The tool call that it serves: the id of the answer that asked, and the call's number in it.
        depth: 1 for a child of the root.
    """

    session_id: Id
    root_session_id: Id
    call: str
    depth: int = 1


class MessageRef(WireModel):
    """Content that is in a thread already: a message's text, or the arguments of one of its calls.

    Attributes:
        call: Number of the call whose arguments are meant; None for the text.
        argument: That one of them; None for all, as JSON.
    """

    thread_id: Id
    position: Position
    id: str
    call: int | None = None
    argument: str | None = None

    def as_ref(self) -> str:
        """What stands for it where a payload's reference may stand."""
        return _MARK + canonical_json(self.model_dump(mode="json", exclude_defaults=True)).decode()


class PayloadRef(WireModel):
    """A payload that was put aside for another thread."""

    thread_id: Id
    name: str

    def as_ref(self) -> str:
        """What stands for it where a payload's own reference may stand."""
        return _PUT_ASIDE + canonical_json(self.model_dump(mode="json")).decode()


class Wake(WireModel):
    """Starts a sub-agent's session again, which ended while it waits for people.

    Attributes:
        answers: For it, and for those below it.
        ends: Its turn ends without further answers.
    """

    answers: tuple[TakenAnswer, ...] = ()
    ends: bool = False


class HasStartedInput(WireModel):
    """Names the execution of a sub-agent's session."""

    workflow_id: str
    run_id: str


class HasStartedResult(WireModel):
    """Whether a worker has begun with it; if none has, it is ended."""

    has_started: bool


def is_foreign_ref(ref: str) -> bool:
    """Whether a reference names a message, or a payload of another thread, rather than one of this thread."""
    return ref.startswith((_MARK, _PUT_ASIDE))


def payload_ref(ref: str) -> PayloadRef | None:
    """Inverse of `PayloadRef.as_ref`; None for anything else."""
    if not ref.startswith(_PUT_ASIDE):
        return None
    try:
        return PayloadRef.model_validate(orjson.loads(ref.removeprefix(_PUT_ASIDE)))
    except (ValueError, ValidationError):
        return None


def message_ref(ref: str) -> MessageRef | None:
    """Inverse of `MessageRef.as_ref`; None for anything else."""
    if not ref.startswith(_MARK):
        return None
    try:
        return MessageRef.model_validate(orjson.loads(ref.removeprefix(_MARK)))
    except (ValueError, ValidationError):
        return None


def child_session_id(parent: str, tool: str, thread: ChildThread, call: str) -> str:
    """The session of a sub-agent's call: the same however often the call is made again.

    With ``continue`` it is the same for all calls of the tool by this session.
    """
    name = f"{parent}>{tool}" if thread == "continue" else f"{parent}>{tool}>{call}"
    if len(name) <= _MAX_CHARACTERS and len(name.encode()) <= _MAX_BYTES:
        return name
    return f"{name[:80]}>{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def is_child_id(value: str) -> bool:
    """Whether a sub-agent's session may have this id."""
    return _CHILD.fullmatch(value) is not None


def check_own_id(value: str, what: str = "session_id") -> str:
    """Refuse an id for a session that begins, and is nobody's sub-agent, which a sub-agent's may have.

    Raises:
        InvalidIdError: It is of that form.
    """
    if is_child_id(value):
        raise InvalidIdError(
            f"{what} {value!r}: an id that ends in '>' and a name is that of a sub-agent's session, and "
            "there is none of this id to go on with; choose another one, such as one without '>'"
        )
    return value


def tool_of(parent: str, child: str) -> str:
    """The tool behind which a sub-agent's session is, by its id; empty where that is shortened."""
    return child.removeprefix(f"{parent}>").split(">", 1)[0] if child.startswith(f"{parent}>") else ""


def task_of(arguments: Mapping[str, object], argument: str | None) -> str | None:
    """A sub-agent's message, from the arguments of the call; None if there is none in them."""
    if argument is None:
        return canonical_json(arguments).decode()
    text = arguments.get(argument)
    return text if isinstance(text, str) and text.strip() else None


MAX_NAMED: Final = 20
"""Sessions that a summary names; the rest is only counted."""


class WakeInput(WireModel):
    """Start sessions that ended while they waited, and whose deadline has passed since.

    Attributes:
        task_queue: On which they are started where Temporal no longer knows their last execution, which
            says it otherwise; None for that of the worker that runs this.
        page: How many are looked for at once.
        most: Stop after so many were started; the next run goes on.
        again_after: Seconds after which one is started again whose last start came to nothing.
    """

    task_queue: str | None = None
    page: Limit = 200
    most: Annotated[int, Field(ge=1)] = 1000
    again_after: Annotated[float, Field(ge=1)] = 3600.0


class WakeResult(WireModel):
    """What one run did.

    Attributes:
        due: Sessions with a call whose deadline has passed, be it a question or a sub-agent's call.
        woken: Of these, started now; of a sub-agent's, its root.
        running: Of these, they run: their own timers tell them.
        left: Of these, they have ended, or were started since and came to nothing: not now.
        failed: The first that could not be started, or are damaged; ``failures`` counts all.
        no_session_store: There is none, so nothing was looked for.
    """

    due: int = 0
    woken: int = 0
    running: int = 0
    left: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0
    no_session_store: bool = False

    def plus(self, outcome: str) -> "WakeResult":
        """With a session counted in: ``woken``, ``running`` or ``left``."""
        return self.model_copy(update={"due": self.due + 1, outcome: getattr(self, outcome) + 1})

    def without(self, session_id: str) -> "WakeResult":
        """With one that could not be started or read."""
        failed = (*self.failed, session_id)[:MAX_NAMED]
        return self.model_copy(update={"due": self.due + 1, "failed": failed, "failures": self.failures + 1})
