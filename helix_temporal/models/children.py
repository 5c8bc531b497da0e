"""Sub-agents: whose session a session is, how children are named, and how a result names its text."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

import orjson
from pydantic import ValidationError

from helix_temporal.errors import InvalidIdError
from helix_temporal.models._base import Model
from helix_temporal.models._json import canonical
from helix_temporal.models.agents import ChildThread
from helix_temporal.models.ids import Id
from helix_temporal.models.records import Position
from helix_temporal.models.states import Submission
from helix_temporal.models.suspensions import AnsweredCall, PendingCall, SubmitInput

MAX_DEPTH: Final = 8
"""Sessions above one another: an agent that calls itself would never end otherwise."""

MAX_INLINE_TEXT: Final = 2 * 1024
"""Bytes of an answer that travel in a session's result; longer ones are named there."""

_MARK: Final = "thread:"
_PUT_ASIDE: Final = "payload:"
_MAX_CHARACTERS: Final = 200
_MAX_BYTES: Final = 400
_CHILD: Final = re.compile(r".+>[A-Za-z0-9_.-]+", re.DOTALL)
"""A parent's id, and behind the last ``>`` a tool's name, a call, or a digest."""


class ParentLink(Model):
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


class MessageRef(Model):
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

    def named(self) -> str:
        """What stands for it where a payload's reference may stand."""
        return _MARK + canonical(self.model_dump(mode="json", exclude_defaults=True)).decode()


class PayloadRef(Model):
    """A payload that was put aside for another thread."""

    thread_id: Id
    name: str

    def named(self) -> str:
        """What stands for it where a payload's own reference may stand."""
        return _PUT_ASIDE + canonical(self.model_dump(mode="json")).decode()


class ChildPending(Model):
    """What a sub-agent's session tells its parent that it waits for, and those below it.

    Attributes:
        run: The execution that says so.
        number: Goes up with each; an older one says nothing new.
        calls: Nothing while it works.
        expired: Calls that nobody answered in time, as far as they are remembered.
    """

    session_id: Id
    run: str
    number: int
    calls: tuple[PendingCall, ...] = ()
    expired: tuple[AnsweredCall, ...] = ()


class RoutedSubmit(Model):
    """An answer on its way from the root to the session whose call it is.

    Attributes:
        id: Names it for the reply.
        reply_to: The workflow that waits for that.
    """

    id: str
    reply_to: str
    request: SubmitInput


class Wake(Model):
    """Starts a sub-agent's session again, which ended while it waits for people.

    Attributes:
        submits: Answers for it, and for those below it.
        ends: Its turn ends without further answers.
    """

    submits: tuple[RoutedSubmit, ...] = ()
    ends: bool = False


class RoutedReply(Model):
    """What became of it; without a ``submission`` the owner was ending."""

    id: str
    submission: Submission | None = None


class TakenUpInput(Model):
    """Names the execution of a sub-agent's session."""

    workflow_id: str
    run_id: str


class TakenUpResult(Model):
    """Whether a worker has begun with it; if none has, it is ended."""

    taken_up: bool


def is_message_ref(ref: str) -> bool:
    """Whether a reference names a message, or a payload of another thread, rather than one of this thread."""
    return ref.startswith((_MARK, _PUT_ASIDE))


def payload_ref(ref: str) -> PayloadRef | None:
    """Inverse of `PayloadRef.named`; None for anything else."""
    if not ref.startswith(_PUT_ASIDE):
        return None
    try:
        return PayloadRef.model_validate(orjson.loads(ref.removeprefix(_PUT_ASIDE)))
    except (ValueError, ValidationError):
        return None


def message_ref(ref: str) -> MessageRef | None:
    """Inverse of `MessageRef.named`; None for anything else."""
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


def call_of(key: str) -> str:
    """The part of a tool call's key that names it within its session, as the id of its result does."""
    return ".".join(key.rsplit("/", 2)[-2:])


def task_of(arguments: Mapping[str, object], argument: str | None) -> str | None:
    """A sub-agent's message, from the arguments of the call; None if there is none in them."""
    if argument is None:
        return canonical(arguments).decode()
    text = arguments.get(argument)
    return text if isinstance(text, str) and text.strip() else None
