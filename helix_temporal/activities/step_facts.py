"""Helpers of steps: the record and number of a step, errors of a thread that is an older copy, receipts."""

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from helix_temporal.agents import Agent
from helix_temporal.errors import HeadMovedError, IdempotencyConflictError, StoreUnavailableError
from helix_temporal.models.messages import SummaryUsage
from helix_temporal.models.sessions import AnswerRef
from helix_temporal.models.steps import EndTurnInput, RunStepInput
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.session.record import SessionRecord, parse_record
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushStatus
from helix_temporal.telemetry import metrics
from helix_temporal.telemetry.spans import Stopwatch


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A step that calls its model: whose, on which thread, and its record.

    Attributes:
        note_summary: Told of a summary that was made for it, and since when.
    """

    agent: Agent
    request: RunStepInput
    thread_id: str
    record: SessionRecord
    note_summary: Callable[[SummaryUsage, Stopwatch], None] = lambda _used, _watch: None


def lost_answer_error(thread_id: str, head: Head) -> HeadMovedError:
    """The error for a hot thread that does not hold what an earlier answer stood behind."""
    return HeadMovedError(
        f"thread {thread_id!r}: the hot tier does not hold what was answered before {head.position}; "
        "open it again"
    )


def older_copy_error(thread_id: str, opened: Head, found: Head) -> StoreUnavailableError:
    """The error for a store that went back to an older copy since the thread was opened."""
    return StoreUnavailableError(
        f"thread {thread_id!r}: opened at {opened.position}, it now ends at {found.position};"
        " it is opened again"
    )


def new_id() -> str:
    """A fresh random message id, 96 bits."""
    return secrets.token_urlsafe(12)


def step_number(request: RunStepInput | EndTurnInput, record: SessionRecord) -> int:
    """Which step of its turn this one is, or would be, from 1."""
    return (record.turn_steps if request.run_id == record.run else 0) + 1


def record_of(view: StepView) -> SessionRecord:
    """The record that was read with a step's view."""
    return parse_record(view.header.slice)


def is_archived(receipt: FlushReceipt) -> bool:
    """Nothing is left to archive: it is done, or there is no cold tier."""
    return receipt.status is not FlushStatus.UNAVAILABLE


def unarchived_fields(receipt: FlushReceipt) -> dict[str, Any]:
    """What a result says of a step that is not archived."""
    if is_archived(receipt):
        return {}
    return {"archived": False, "backlog": receipt.pending_bytes, "reason": receipt.reason}


def count_step(receipt: FlushReceipt) -> None:
    """Count a step, by what became of its archiving."""
    if receipt.status is not FlushStatus.NO_COLD_TIER:
        outcome = "archived" if is_archived(receipt) else "failed" if receipt.tried else "not_tried"
        metrics.STEPS.add(outcome=outcome)


class TurnAnswers:
    """Finds, message after message, where users were answered: in the turn that has theirs, or nowhere.

    Attributes:
        open: Of these, messages whose turn has not come to its end yet.
        answers: Where the others were answered.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted, self._spoke = wanted, False
        self.open: list[str] = []
        self.answers: dict[str, AnswerRef] = {}

    def follow(self, first: int, messages: Sequence[StoredMessage]) -> None:
        """Go on with the messages from position ``first`` on.

        Raises:
            IdempotencyConflictError: One of the wanted ids belongs to a message that is no user's.
        """
        for position, message in enumerate(messages, first):
            if message.kind == Kind.USER:
                if self._spoke:
                    self.open, self._spoke = [], False  # that turn ended without an answer
                if message.id in self._wanted:
                    self.open.append(message.id)
                continue
            self._spoke = True
            if message.id in self._wanted:
                raise IdempotencyConflictError(
                    f"message id {message.id!r} belongs to another message of the session, at position "
                    f"{position}, which is no user's; send the message under an id of its own",
                    message_id=message.id,
                )
            if message.kind == Kind.ANSWER:
                answer = AnswerRef(position=position, id=message.id)
                self.answers |= dict.fromkeys(self.open, answer)
                self.open = []
