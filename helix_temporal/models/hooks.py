"""What hooks are told, one frozen model each, and what the one that may decide answers."""

from pydantic import Field, model_validator

from helix_temporal.models._base import Model
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Usage


class HookEvent(Model):
    """What every hook is told.

    Attributes:
        metadata: The session's, as its creator gave it.
    """

    session_id: Id
    thread_id: Id
    agent: str
    metadata: dict[str, str] = Field(default_factory=dict)


class SessionStarted(HookEvent):
    """The session is open and serves turns; ``mode`` is ``new``, ``continue`` or ``fork``."""

    mode: str


class SessionEnded(HookEvent):
    """An execution of the session ends; told after its state was saved and its thread archived and dropped.

    It is told again at a later end where a message came meanwhile, and the execution went on with that.
    An execution that continues as new does not tell it.

    Attributes:
        exit_reason: ``completed``, ``max_steps``, ``waiting``, ``interrupted``, ``cancelled``,
            ``failed``, ``suspended`` or ``superseded``.
        turns: Turns that this execution served.
        usage: Sum over them.
        error: Type and message of the failure, if it failed.
    """

    exit_reason: str
    turns: int = 0
    usage: Usage = Usage()
    error: str | None = None


class TurnCompleted(HookEvent):
    """A turn is committed.

    Attributes:
        turn: Number of the turn in the session, from 1.
        steps: Model calls that it took.
        exit_reason: As in `SessionEnded`.
        answer_id: The message that answered; None if the turn ended without an answer.
        usage: Sum over its model calls and tools.
    """

    turn: int
    steps: int
    exit_reason: str = "completed"
    answer_id: Id | None = None
    usage: Usage = Usage()


class BeforeUserMessage(HookEvent):
    """A user's message has arrived and is not in the thread yet; the hook may change or refuse it.

    Attributes:
        ref: Names the text where it is too long to travel through the workflow.  Hooks of agents get
            the whole text; functions of an `AgentSession` get an empty one and this name.
    """

    message_id: Id
    text: str
    ref: str | None = None


class AfterUserMessage(HookEvent):
    """A user's message is in the thread, as ``text`` says; a long text is empty here: read the thread."""

    message_id: Id
    text: str


class UserMessageDecision(Model):
    """What a `BeforeUserMessage` hook decides; nothing given lets the message pass as it is.

    Attributes:
        text: Stands in the thread instead of the user's text.
        refuse: Why the message is refused; the sender is told and nothing enters the thread.
        ref: Set by the worker instead of ``text`` when that is too long to travel.
    """

    text: str | None = None
    ref: str | None = None
    refuse: str | None = None

    @model_validator(mode="after")
    def _either(self) -> "UserMessageDecision":
        if self.text is not None and self.refuse is not None:
            raise ValueError("a message is either changed or refused: give text or refuse, not both")
        return self
