"""What the handle of a session asks for: its turns, its usage, to take turns back, to delete it."""

from typing import Annotated

from pydantic import Field

from helix_temporal.models.base import WireModel
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.sessions import RewindResult, TakenBack, UserMessage
from helix_temporal.models.states import Millis, RemoteRef, SessionState, SessionStatus
from helix_temporal.models.store_calls import DEFAULT_LIMIT, Limit, Page
from helix_temporal.models.stored_messages import EMPTY, Head, Position
from helix_temporal.models.usage import UsageRollup

Many = Annotated[int, Field(strict=True, ge=1, le=500)]


class TurnInfo(WireModel):
    """A finished turn.

    Attributes:
        number: From 1 for the oldest; where the newest were asked for, from -1 for the newest back.
        start, end: Where the thread stood before it and stands after it.
        message_ids: Of the user's messages in it.
        text: Beginning of its first message.
        answer: Beginning of its final answer; None if it ended without one.
    """

    number: int
    start: Head
    end: Head
    message_ids: tuple[str, ...] = ()
    text: str = ""
    answer: str | None = None


class MessagePage(Page[Message]):
    """Consecutive messages of a thread's finished turns, oldest first.

    Attributes:
        total: Messages of all finished turns.
        first: Position of the first one.
        head: Where the thread stands.
    """

    total: int = 0  # pyright: ignore[reportIncompatibleVariableOverride] (pages are frozen)
    first: Position = 0
    head: Head = EMPTY


class ListTurnsInput(WireModel):
    """Finished turns of a thread, by pages.

    Attributes:
        start: Where the first turn begins, and ``number`` is its number.
        newest: Instead: so many of the newest.
    """

    thread_id: Id
    start: Position = 0
    number: int = 1
    limit: Many = 100
    newest: Many | None = None


class ListTurnsResult(WireModel):
    """Turns, oldest first; ``after`` is the start of the next page, None at the end."""

    turns: tuple[TurnInfo, ...] = ()
    after: Position | None = None


class FindTurnInput(WireModel):
    """The finished turn that has this message of the user's."""

    thread_id: Id
    message_id: Id


class FindTurnResult(WireModel):
    """Where the turn begins and ends."""

    start: Head
    end: Head


class ShowSessionInput(WireModel):
    """Names a session, and its thread where that has another id.

    Attributes:
        run_id: One of its runs, which is wanted instead of the state.
    """

    session_id: Id
    thread_id: Id | None = None
    run_id: Id | None = None

    @property
    def thread(self) -> str:
        """The session's thread."""
        return self.thread_id or self.session_id


class ShowSessionResult(WireModel):
    """The state, or the run; None if there is no such session or run."""

    state: SessionState | None = None
    run: Run | None = None


class ModelCalls(WireModel):
    """Model calls of one session itself that told what they used (``ModelResponse.usage``).

    Attributes:
        calls: How many; 0 with a model that reports no usage, however often it answered.
        tokens: What they used, summaries with them.
    """

    calls: int = 0
    tokens: Usage = Usage()


class SessionUsage(WireModel):
    """What a session used.

    Attributes:
        tokens: Of all that is in its thread: its answers, and results of its tools and sub-agents.
        steps: Its answers in the thread, also those that did not tell what they used.
        in_thread: Its own model calls whose answers are in the thread now, in finished turns.
        paid: Its own model calls whose answers came back, each attempt: also those of turns that were
            cancelled, cut or taken back, and of attempts that another one had overtaken.  Never fewer
            than ``in_thread``, but for what a fork has copied, which its source has paid.
        recorded: Sums over what was recorded in the usage store, with all descendants; None if nothing was.
    """

    tokens: Usage = Usage()
    steps: int = 0
    in_thread: ModelCalls = ModelCalls()
    paid: ModelCalls = ModelCalls()
    recorded: UsageRollup | None = None


class ChildInfo(WireModel):
    """A sub-agent's session, as the session that calls it knows it.

    Attributes:
        session_id: Its own: it has a history, a stream and a state under this id.
        tool: Behind which it is; empty where an old reference with a shortened id does not say.
        call: The id that the model gave its call, of a continuing one the newest.
        run_id: Of the caller's turn; None without a session store.
        status: ``active`` while it works or waits; without a session store what came to no answer is
            ``failed``, interrupted or not.
        usage, steps: Of all its turns, those of its own sub-agents included in the usage.
        created_at, updated_at: Of the reference; 0 without a session store.
        remote: It runs elsewhere, and no more than this is known of it.
    """

    session_id: Id
    agent: str = ""
    tool: str = ""
    call: str | None = None
    run_id: str | None = None
    status: SessionStatus = SessionStatus.ACTIVE
    usage: Usage = Usage()
    steps: int = 0
    created_at: Millis = 0
    updated_at: Millis = 0
    remote: RemoteRef | None = None


class ListChildrenInput(ShowSessionInput):
    """Sub-agents' sessions, newest first, by pages.

    Attributes:
        if_any: A session with neither a state nor a thread has none, and is no error.
    """

    limit: Limit = DEFAULT_LIMIT
    cursor: str | None = None
    if_any: bool = False


class TakeBackRequest(WireModel):
    """Take turns back; exactly one of ``to``, ``turns`` and ``checkpoint`` says how far.

    Attributes:
        id: Of this request: repeated under it, it is carried out once.
        to: The head that the thread is cut at.
        turns: How many finished turns stay; below 0: how many of the newest go, one that waits among them.
        checkpoint: Back to where the thread was at this checkpoint, and to the state that it holds.
        again: Ask the messages of the oldest turn that goes anew, under new ids.
    """

    id: Id
    to: Head | None = None
    turns: int | None = None
    checkpoint: str | None = None
    again: bool = False


class TakeBackResult(RewindResult):
    """Where the thread stands, and the messages that are asked anew."""

    messages: tuple[UserMessage, ...] = ()


class PlanTakeBackInput(WireModel):
    """How to carry a request out: read only.

    Attributes:
        head: Where the session's workflow knows the thread to stand.
    """

    session_id: Id
    thread_id: Id
    request: TakeBackRequest
    head: Head | None = None


class PlanTakeBackResult(WireModel):
    """Where to cut; ``done`` if it was carried out before.

    Attributes:
        taken_back: What the thread is to remember of it.
    """

    to: Head = EMPTY
    done: bool = False
    taken_back: TakenBack


class EraseSessionInput(WireModel):
    """Remove one session from all stores of the workers; its sub-agents' are named apart.

    Attributes:
        thread_id: Of its messages, where that is another id.
        keep_usage: Leave what was recorded of its use, for invoices.
    """

    session_id: Id
    thread_id: Id | None = None
    keep_usage: bool = False


class LeftBehind(WireModel):
    """Something of a session that is still there.

    Attributes:
        what: ``thread``, ``state``, ``stream``, ``usage``, ``executions``, ``sub_agents`` or ``late_writes``.
        where: Whose, or which.
        why: And what to do.
    """

    what: str
    where: str
    why: str


class EraseSessionResult(WireModel):
    """What was there and is gone: ``thread``, ``state``, ``stream``, ``usage``; a repeat finds nothing."""

    removed: tuple[str, ...] = ()
    left: tuple[LeftBehind, ...] = ()


class DeleteResult(WireModel):
    """What a deletion did; a repeat tells only what it found itself.

    Attributes:
        sessions: The session, and those of its sub-agents.
        removed: How many of what: ``thread``, ``state``, ``stream``, ``usage``, ``execution``.
        pending: Executions whose deletion the server has accepted, and not carried out yet: it does so some
            seconds to a minute later, by itself.
        left: What is still there, and stays unless somebody does something.
    """

    sessions: tuple[str, ...] = ()
    removed: dict[str, int] = Field(default_factory=dict)
    pending: tuple[str, ...] = ()
    left: tuple[LeftBehind, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing is left, and the server has carried out what it has accepted."""
        return not (self.left or self.pending)
