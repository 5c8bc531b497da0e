"""The inbox: messages that wait for a turn, and the callers that wait for an answer.  Pure state."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.models.base import json_size
from helix_temporal.models.newest import Newest
from helix_temporal.models.sessions import (
    Answered,
    AnswerRef,
    AskResult,
    AskStatus,
    ExitReason,
    UserMessage,
)
from helix_temporal.models.waiting import REMEMBERED_CALLS

REMEMBERED_ANSWERS: Final = 32
"""Answers to messages that an execution remembers by reference, and carries along.

`REMEMBERED_CALLS` is another rule: answers to calls, which the session's record has as well.
"""


class AskAgain:
    """Stands for a result: the run ends, or ends the updates that are open.  Clients ask again."""


@dataclass(slots=True, eq=False)
class Entry:
    """A message in the session, and what its askers are told once that is known.

    Attributes:
        interim_result: What they were told before its turn ended: that it waits, or to ask again.
        asked: It came by `ask` alone: a caller waits for its result.  Nobody waits for one that was sent.
        in_thread: It is in the thread, with a turn that waits for somebody.
        changed: The message as a hook has changed it, for the turn under way only.
    """

    message: UserMessage
    result: AskResult | AskAgain | None = None
    alone: bool = False
    interim_result: AskResult | AskAgain | None = None
    asked: bool = False
    in_thread: bool = False
    changed: UserMessage | None = None

    @property
    def for_thread(self) -> UserMessage:
        """The message as it enters the thread."""
        return self.changed or self.message

    @property
    def size(self) -> int:
        """Bytes that the message takes in an input."""
        message = self.message
        return json_size([message.id, message.text, message.ref, message.metadata])


@dataclass(slots=True, eq=False)
class TurnOutcome:
    """What becomes of one turn: set once, for everybody who waits for that turn."""

    result: AskResult | AskAgain | None = None


class Inbox:
    """Messages enter the thread only at turn boundaries; those that waited together become one turn."""

    def __init__(
        self,
        waiting: Sequence[UserMessage] = (),
        answered: Sequence[Answered] = (),
        asked: Collection[str] = (),
    ) -> None:
        self._asked = frozenset(asked)
        self._waiting: OrderedDict[str, Entry] = OrderedDict(
            (each.id, self._make_entry(each)) for each in waiting
        )
        self._turn_entries: dict[str, Entry] = {}
        self._answered = Newest(REMEMBERED_ANSWERS, ((each.message_id, each.answer) for each in answered))
        self.last_result: AskResult | None = None
        """What became of the newest message, for the result of the execution."""
        self.turn_outcome = TurnOutcome()
        """Of the turn under way, or of the next one."""
        self._turns = Newest[str, TurnOutcome](REMEMBERED_CALLS)
        self._waits_for_archive = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: UserMessage, *, asked: bool = False) -> Entry:
        """Add a message; one whose id waits or is being answered is the same message sent again."""
        entry = self.find(message.id)
        if entry is not None:
            entry.asked = entry.asked and asked
            return entry
        entry = Entry(message, asked=asked)
        self._waiting[message.id] = entry
        self.try_again()
        return entry

    def put_first(self, messages: Sequence[UserMessage]) -> None:
        """Let these messages be the next ones; those whose id is known stay where they are."""
        fresh = OrderedDict((each.id, Entry(each)) for each in messages if self.find(each.id) is None)
        self._waiting = OrderedDict([*fresh.items(), *self._waiting.items()])
        self.try_again()

    @property
    def size(self) -> int:
        """Bytes that all messages that wait take in an input."""
        return sum(entry.size for entry in self._waiting.values())

    @property
    def waits_for_archive(self) -> bool:
        """Whether waiting messages are held until the archive has caught up, or a new message comes."""
        return self._waits_for_archive and bool(self._waiting)

    def wait_for_archive(self, result: AskResult) -> None:
        """Hold messages that were sent until the archive has caught up; open asks get this result."""
        self.put_back_first([*self._turn_entries])
        self.turn_away(result)
        self._waits_for_archive = True

    def try_again(self) -> None:
        """Let the waiting messages have a turn again."""
        self._waits_for_archive = False

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of the messages that wait for a turn."""
        return tuple(self._waiting)

    def list_sent_ids(self, *, with_turn: bool) -> tuple[str, ...]:
        """Ids of messages that came by `send`: no client waits for them, so none would send them again.

        ``with_turn``: after those of the turn under way.
        """
        entries = [*(self._turn_entries.values() if with_turn else ()), *self._waiting.values()]
        return tuple(entry.message.id for entry in entries if not entry.asked)

    def find(self, message_id: str) -> Entry | None:
        """The message of this id, if it waits or is being answered."""
        return self._turn_entries.get(message_id) or self._waiting.get(message_id)

    @property
    def turn_entries(self) -> list[Entry]:
        """Messages of the turn under way."""
        return list(self._turn_entries.values())

    def adopt_messages(self, messages: Sequence[UserMessage]) -> None:
        """Make these the messages of the turn under way, which an earlier execution began."""
        for message in messages:
            waiting = self._waiting.pop(message.id, None)
            entry = self._turn_entries.get(message.id) or waiting or self._make_entry(message)
            entry.message, entry.changed, entry.in_thread = message, None, True
            self._turn_entries[message.id] = entry

    def suspend_turn(self, result: AskResult) -> None:
        """Give this result to the turn's askers: they need not wait with a turn that waits for people."""
        for entry in self._turn_entries.values():
            entry.interim_result, entry.in_thread = result, True

    def let_askers_go(self) -> None:
        """End every open `ask`: its client asks again at once."""
        for entry in (*self._turn_entries.values(), *self._waiting.values()):
            entry.interim_result = AskAgain()

    def turn_away(self, result: AskResult) -> None:
        """Give all waiting asks this result, and forget messages that were only asked."""
        for entry in list(self._waiting.values()):
            entry.interim_result = result
            if entry.asked:
                del self._waiting[entry.message.id]

    def find_answer(self, message_id: str) -> AnswerRef | None:
        """Where the answer to an earlier message is, if it is remembered."""
        return self._answered.get(message_id)

    def forget_answer(self, message_id: str) -> None:
        """Forget an answer that the stores have lost: its message may be asked again."""
        self._answered.pop(message_id, None)

    def forget_answers_after(self, position: int) -> None:
        """Forget answers beyond the place where the thread was cut: their messages may be asked again."""
        for message_id in [
            message_id for message_id, answer in self._answered.items() if answer.position >= position
        ]:
            del self._answered[message_id]

    def count_for_turn(self, count: int, size: int) -> int:
        """How many of the waiting messages, one at least, have a turn together: no more than this in all."""
        for at, entry in enumerate(self._waiting.values()):
            size -= entry.size
            if at and (at == count or size < 0):
                return at
        return len(self._waiting)

    def begin_turn(self, only: Collection[str] | None = None, most: int | None = None) -> list[Entry]:
        """Begin the next turn: take its messages out of the queue, and return them in order.

        They are all that wait, or those of the ids in ``only``, and at most ``most``.  A message that was put
        back alone has a turn of its own.
        """
        waiting = self._waiting.values()
        entries = [entry for entry in waiting if only is None or entry.message.id in only]
        taken = [entry for entry in entries if entry.alone][:1] or entries[:most]
        self._turn_entries = {entry.message.id: entry for entry in taken}
        self.try_again()
        for message_id in self._turn_entries:
            del self._waiting[message_id]
        return taken

    def put_back_alone(self, message_ids: Sequence[str]) -> None:
        """Put these messages, which were answered before, back into the queue, each for a turn of its own."""
        for message_id in message_ids:
            if message_id in self._turn_entries:
                entry = self._waiting[message_id] = self._turn_entries.pop(message_id)
                entry.alone = True

    def put_back_first(self, message_ids: Sequence[str]) -> None:
        """Put these messages back, before all others: they are not of the turn under way."""
        left = OrderedDict(
            (message_id, self._turn_entries.pop(message_id))
            for message_id in message_ids
            if message_id in self._turn_entries
        )
        for entry in left.values():
            entry.in_thread = False
        self._waiting = OrderedDict([*left.items(), *self._waiting.items()])

    def resolve_earlier(self, message_id: str, answer: AnswerRef | None) -> None:
        """Give a message of the turn under way the answer that an earlier turn gave; None: that had none."""
        entry = self._turn_entries.pop(message_id, None)
        if entry is None:
            return
        if answer is None:
            entry.result = AskResult(
                status=AskStatus.INTERRUPTED, in_thread=True, exit_reason=ExitReason.INTERRUPTED
            )
        else:
            entry.result = AskResult(status=AskStatus.ANSWERED, in_thread=True, answer=answer)
            self._answered[message_id] = answer
        self.last_result = entry.result

    def refuse_message(self, entry: Entry, result: AskResult) -> None:
        """Take a message out of the turn and give it this result: it does not enter the thread."""
        self._turn_entries.pop(entry.message.id, None)
        entry.result = self.last_result = result

    def link_calls(self, calls: Iterable[str]) -> None:
        """Remember that these calls are of the turn under way: who answers one may wait for its outcome."""
        self._turns |= dict.fromkeys(calls, self.turn_outcome)

    def turn_of(self, call: str) -> TurnOutcome | None:
        """The outcome of the turn that made this call; None if this execution did not have that turn."""
        return self._turns.get(call)

    def finish_turn(self, result: AskResult | AskAgain, *, answer: AnswerRef | None = None) -> None:
        """End the turn: everybody who waits for it gets this result."""
        if self._turn_entries and isinstance(result, AskResult):
            self.last_result = result
        for entry in self._turn_entries.values():
            entry.result = result
            if answer is not None:
                self._answered[entry.message.id] = answer
        self._turn_entries = {}
        self.turn_outcome.result, self.turn_outcome = result, TurnOutcome()

    def answer_all(self, of_turn: AskResult | AskAgain, in_queue: AskResult | None = None) -> None:
        """End the run: the turn's askers get ``of_turn``, the others ``in_queue`` or `AskAgain`."""
        self.finish_turn(of_turn)
        for entry in self._waiting.values():
            entry.result = in_queue or AskAgain()

    def carry_over(self) -> tuple[tuple[UserMessage, ...], tuple[Answered, ...], tuple[str, ...]]:
        """What the next run needs: waiting messages, remembered answers, ids of those only asked."""
        answered = tuple(
            Answered(message_id=message_id, answer=answer) for message_id, answer in self._answered.items()
        )
        entries = (*self._turn_entries.values(), *self._waiting.values())
        asked = tuple(entry.message.id for entry in entries if entry.asked)
        return tuple(entry.message for entry in self._waiting.values()), answered, asked

    def _make_entry(self, message: UserMessage) -> Entry:
        """A message that an earlier run had, or began with."""
        return Entry(message, asked=message.id in self._asked)
