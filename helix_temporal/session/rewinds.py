"""Taking turns back: which turns a thread has, where a request cuts it, and what is asked anew.  Pure."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import HeadMovedError, InvalidRequestError, ThreadBehindStateError, split_text
from helix_temporal.models.handles import PlanTakeBackResult, TakeBackRequest, TurnInfo
from helix_temporal.models.ids import shorten_id
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import Receipt, RewindResult, TakenBack, UserMessage
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.models.turns import find_answer, starts_in, user_in
from helix_temporal.session.inbox import AskAgain, Inbox
from helix_temporal.session.record import SessionRecord

SHOWN_CHARACTERS: Final = 200
"""So much of a message is shown in a list of turns."""


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn with its messages."""

    start: Head
    messages: tuple[StoredMessage, ...]

    @property
    def users(self) -> tuple[Message, ...]:
        """The users' messages in it, also those that came while tools of version 1 ran."""
        return tuple(said for message in self.messages if (said := user_in(message)) is not None)

    @property
    def end(self) -> Head:
        """Where the thread stands after it."""
        return Head(position=self.start.position + len(self.messages), last_id=self.messages[-1].id)

    def build_info(self, number: int) -> TurnInfo:
        """What a list says of it."""
        users, answer = self.users, find_answer(self.messages)
        return TurnInfo(
            number=number,
            start=self.start,
            end=self.end,
            message_ids=tuple(each.id for each in users),
            text=_shorten_text(users[0]) if users else "",
            answer=None if answer is None else _shorten_text(answer),
        )


def _shorten_text(message: Message) -> str:
    return message.text[:SHOWN_CHARACTERS]


def split_turns(start: Head, messages: Sequence[StoredMessage]) -> list[FoundTurn]:
    """The turns that these messages, which begin with a turn, are: each begins where users speak again."""
    turns: list[FoundTurn] = []
    starts = starts_in(messages, from_begin=start.position == 0)
    for begin, end in itertools.pairwise([0, *starts, len(messages)]):
        turns.append(FoundTurn(turns[-1].end if turns else start, tuple(messages[begin:end])))
    return turns


def split_after_first(first: int, messages: Sequence[StoredMessage]) -> list[FoundTurn]:
    """The turns of a part of a thread that may begin within one, which is left out."""
    starts = starts_in(messages)
    if not starts:
        return []
    begin = starts[0]
    return split_turns(Head(position=first + begin, last_id=messages[begin - 1].id), messages[begin:])


# -- a request


def find_carried_out(record: SessionRecord, request_id: str) -> TakenBack | None:
    """What the request has done already; None if it has not been carried out."""
    return next((each for each in reversed(record.taken_back) if each.id == request_id), None)


def check_one_place(request: TakeBackRequest) -> None:
    """Refuse a request that does not say in exactly one way where it cuts.

    Raises:
        InvalidRequestError: It names none of head, number of turns and checkpoint, or several.
    """
    given = [each for each in (request.to, request.turns, request.checkpoint) if each is not None]
    if len(given) != 1:
        raise InvalidRequestError(f"one of to, turns and checkpoint expected, {len(given)} given")


def check_nothing_lost(thread_id: str, known: Head | None, head: Head) -> None:
    """Refuse to count turns on a thread that has lost some of those that its session knows.

    Raises:
        HeadMovedError: It stands before the head that is known.
    """
    if known is not None and head.position < known.position:
        raise HeadMovedError(
            f"thread {thread_id!r}: the session stood at {known.position}, the thread is at "
            f"{head.position}: turns behind that were lost; see what stands, and ask again"
        )


def tells_of_lost_turns(receipt: Receipt) -> bool:
    """Whether an open says by this that the thread has lost turns which the session's state knows."""
    kind, _ = split_text(receipt.detail)
    return receipt.name == "state" and kind == ThreadBehindStateError.__name__


def record_rewind(
    request_id: str, to: Head, users: Sequence[str], messages: tuple[UserMessage, ...] = ()
) -> TakenBack:
    """What the session's record remembers of a request: where it cuts, and what it takes out.

    Args:
        request_id: Of the request.
        to: The head that stays.
        users: Ids of users' messages behind it: late attempts must not bring them back.
        messages: What is asked anew.
    """
    cut = tuple(map(shorten_id, users))
    return TakenBack(id=request_id, to=to, messages=messages, cut=cut)


def derive_message_id(request_id: str, message_id: str) -> str:
    """The id of a message that is asked anew, the same for each attempt.

    It is made of both: a fork may use a request's id again, and a message whose id is known counts as asked.
    """
    return hashlib.sha256(f"{request_id}\0{message_id}".encode()).hexdigest()[:32]


# -- its place among the messages of a session


@dataclass(slots=True)
class PendingRewind:
    """A rewind that waits for the end of the turn.

    Attributes:
        seed: Of the run's random numbers when it came; a reset gives the run another one.  None where the run
            had just been reset: the server applies again what came before.
        before: Messages that waited when it came: their turn is first.
        tells_losses: It was refused since turns are lost: whoever asked knows it.
    """

    request: TakeBackRequest
    seed: int | None
    before: frozenset[str] = frozenset()
    result: RewindResult | AskAgain | None = None
    tells_losses: bool = False

    def check_not_old(self, thread_id: str, seed: int) -> None:
        """Refuse a request that may be from before a reset: its sender may not know of turns that followed.

        Raises:
            HeadMovedError: A reset came after the request, or the server may have applied it again.
        """
        if self.seed != seed:
            raise HeadMovedError(
                f"thread {thread_id!r}: the session was reset since this was asked for, and it had not been "
                "carried out before; look at what stands, and ask again under another id"
            )

    def check_losses_told(self, thread_id: str, lost: Sequence[Receipt]) -> None:
        """Refuse to take back the newest turns where newer ones, which are meant, are lost and nobody knows.

        Raises:
            HeadMovedError: ``lost`` says which messages; it is told by this.
        """
        counts_back = self.request.turns is not None and self.request.turns < 0
        if lost and counts_back:
            self.tells_losses = True
            told = ", ".join(each.detail for each in lost)
            raise HeadMovedError(
                f"thread {thread_id!r}: turns behind its newest one were lost ({told}); see what stands, and "
                "ask again"
            )


class Rewinds:
    """Requests to take turns back that have no result yet: each waits for the end of the turn, one by one."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._pending: list[PendingRewind] = []

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add_request(self, request: TakeBackRequest, seed: int | None) -> PendingRewind:
        """The request as it waits; sent again under its id it is the same request."""
        known = next((each for each in self._pending if each.request.id == request.id), None)
        if known is not None:
            return known
        rewind = PendingRewind(request, seed, frozenset(self._inbox.waiting))
        self._pending.append(rewind)
        return rewind

    @property
    def due(self) -> bool:
        """The oldest may be carried out: no message that came before it waits."""
        return bool(self._pending) and self.next.before.isdisjoint(self._inbox.waiting)

    @property
    def before(self) -> frozenset[str] | None:
        """Messages whose turn is before the oldest one; None if there is none."""
        return self.next.before if self._pending else None

    @property
    def next(self) -> PendingRewind:
        """The oldest; it stays here until it has its result: whoever ends the run meanwhile refuses it."""
        return self._pending[0]

    def remove_rewind(self, rewind: PendingRewind) -> None:
        """Remove a request that has its result."""
        self._pending.remove(rewind)

    def refuse_all(self) -> None:
        """Refuse all requests, since the run ends: clients send them again, to the next run."""
        for rewind in self._pending:
            rewind.result = AskAgain()


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """How a request is carried out.

    Attributes:
        found: What the stores say of it.
        tried: An open that was to cut for it failed: the epoch that it took is not known.
    """

    found: PlanTakeBackResult
    tried: bool

    @property
    def cuts(self) -> bool:
        """Whether the thread is opened again and cut."""
        return self.tried or not self.found.done

    @property
    def head(self) -> Head:
        """The head that the client is told: where the request has cut, or where it is to cut."""
        return self.found.taken_back.to if self.found.done else self.found.to


def requeue_messages(inbox: Inbox, plan: RewindPlan, *, cut: Head | None) -> tuple[UserMessage, ...]:
    """Let what is asked anew wait before all else: one turn, whose answer those get who ask for one of it."""
    if cut is not None:
        inbox.forget_answers_after(cut.position)
    messages = plan.found.taken_back.messages
    inbox.put_first([each for each in messages if inbox.find_answer(each.id) is None])
    return messages
