"""The slice: what must survive with a session's thread, saved with each step.

It is stored: fields are added with defaults, never renamed or removed.
"""

from typing import Annotated, Literal

from pydantic import Field

from helix_temporal.models.base import Changes, CheckedObject, Model
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Usage, UserMessage
from helix_temporal.models.records import Epoch, Head, Position
from helix_temporal.models.waiting import AnsweredCall, Suspension

ArchiveMode = Literal["eventual", "required"]
"""Whether an answer may be given before it is archived."""


class TakenBack(Model):
    """A request to take turns back that was carried out.

    Attributes:
        to: Where the thread was cut.
        messages: That are asked anew.
        epoch: Of the open that did it.
        checkpoint: To which the state has yet to go back.
        cut: Short ids of the users' messages that were taken back, the newest: after a reset they are
            applied again, and are not asked again.
    """

    id: Id
    to: Head
    messages: tuple[UserMessage, ...] = ()
    epoch: Epoch = 0
    checkpoint: str | None = None
    cut: tuple[str, ...] = ()


class Summary(Model):
    """What a thread says up to a place, in short; the messages themselves stay where they are.

    Attributes:
        upto: The head up to which it goes: the end of a turn.
    """

    text: str
    upto: Head


class SessionOptions(Model, Changes):
    """How a session behaves; it remembers what was named, for executions that others start.

    Attributes:
        persistent: Wait for further messages; otherwise end after the answer.
        idle_timeout: Seconds without a message after which a persistent session archives and ends.
        max_steps: Model calls a turn may take; None for the agent's own number.
        max_turns_per_run: Continue as new after so many turns even if the server suggests nothing.
        suspend: While calls wait for a client or a person, ``wait`` keeps the execution open, with a
            durable timer to the first deadline; ``exit`` ends it, and an answer starts it again.  Sub-agents
            take it over.
        while_suspended: A message that comes meanwhile waits for its turn (``queue``), or ends the
            suspended one (``supersede``).
        archive: ``required``: nobody is answered, and no tool is run, before the archive has the step.
            ``eventual``: while the archive does not answer, the hot store is enough, and it is caught up
            later.  None for the workers' setting.
    """

    persistent: bool = True
    idle_timeout: float = Field(default=300.0, gt=0, le=30 * 24 * 3600.0)
    max_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    max_turns_per_run: Annotated[int, Field(ge=1)] | None = None
    suspend: Literal["wait", "exit"] = "wait"
    while_suspended: Literal["queue", "supersede"] = "queue"
    archive: ArchiveMode | None = None

    def over(self, remembered: "SessionOptions | None") -> "SessionOptions":
        """These where they were named, the remembered ones elsewhere."""
        if remembered is None:
            return self
        return remembered.model_copy(update=self.changes())


class ChangedKeys(Model):
    """When keys of the values changed, so that a state that is turns behind can be brought forward.

    Attributes:
        since: What changed before this place is not known.
        turn: Where the newest turn began.
        at: The place in the thread, by key, with which it changed last; a state whose head is not beyond
            it lacks the change.  The oldest go when there are too many.
        staged: What tools of the newest turn changed of the state, too, by the names in their results; the
            values have it with the next turn.
    """

    since: Position = 0
    turn: Position = 0
    at: dict[str, Position] = Field(default_factory=dict)
    staged: tuple[str, ...] = ()


class SliceState(Model):
    """The slice of a session's thread: what must survive with it, saved with each step.

    Attributes:
        instructions: The system prompt of the session's creation, if the agent pins it.
        turns: Finished turns.
        steps: Model calls whose answers came into the thread; those of turns that were cut since among them.
        usage: Sum over them, and over tools that used models.
        values: The application's own state.
        run: Of the newest turn; its state may have to be committed from here.
        turn_steps: Model calls of that turn.
        changed: Keys of ``values`` that it changed.
        changes: The same of the turns before; None in threads from before it was kept.
        summary: Of the turns that model calls are no longer given.
        taken_back: The newest requests to take turns back, so that each is carried out once.
        options: How the session behaves, as far as anybody ever named it.
        writer: Short id of the workflow run whose activity wrote it; empty outside Temporal.
        stream_reached: A sequence that the session's stream had; one that ends before it was lost or set
            back.
    """

    agent: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    instructions: str | None = None
    turns: int = 0
    steps: int = 0
    usage: Usage = Usage()
    values: CheckedObject = Field(default_factory=dict)
    run: str | None = None
    turn_steps: int = 0
    changed: tuple[str, ...] = ()
    changes: ChangedKeys | None = None
    summary: Summary | None = None
    taken_back: tuple[TakenBack, ...] = ()
    suspended: Suspension | None = None
    answered: tuple[AnsweredCall, ...] = ()
    options: SessionOptions | None = None
    writer: str = ""
    stream_reached: int = 0
