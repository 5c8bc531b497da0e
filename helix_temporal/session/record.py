"""The session's record: what must survive with its thread, and how a step, a save and an open change it.

It is stored in the thread's slice, and saved with each step.  Fields are added with defaults, never renamed
or removed.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import Field

from helix_temporal.models.base import CheckedObject, WireModel, canonical_json, is_same_json
from helix_temporal.models.limits import MAX_CHANGED_BYTES, MAX_CHANGED_KEYS, MAX_VALUES_BYTES
from helix_temporal.models.messages import Message, Usage, check_size
from helix_temporal.models.sessions import SessionOptions, TakenBack
from helix_temporal.models.steps import EndTurnInput, OpenSessionInput, RunStepInput, SaveValuesInput
from helix_temporal.models.stored_messages import Epoch, Head, Position, StoredMessage, head_after
from helix_temporal.models.traces import REMEMBERED_WAITS, TurnTrace, TurnWait
from helix_temporal.models.waiting import REMEMBERED_CALLS, AnswerReceipt, Suspension, WaitingCall
from helix_temporal.session.call_answers import merge_receipts

_PLACE_BYTES: Final = 12
REMEMBERED_REQUESTS: Final = 8
"""Requests to take turns back that a record remembers."""
REMEMBERED_CUT_MESSAGES: Final = 128
"""Messages that were taken back and that a record remembers, each by 12 letters."""


class Summary(WireModel):
    """What a thread says up to a place, in short; the messages themselves stay where they are.

    Attributes:
        upto: The head up to which it goes: the end of a turn.
        kept: Position of the answer that keeps the text in the thread (`GivenSummary.text`); None where no
            answer does yet, or does any more.
    """

    text: str
    upto: Head
    kept: Position | None = None


class ChangedKeys(WireModel):
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


class SessionRecord(WireModel):
    """What must survive with a session's thread, saved with each step.

    Attributes:
        instructions: The system prompt of the session's creation, if the agent pins it.
        turns: Finished turns.
        steps: Model calls whose answers came into the thread; those of turns that were cut since among them.
        usage: Sum over them, and over tools that used models.
        values: The application's own state.
        run: Of the newest turn; its state may have to be committed from here.
        turn_steps: Model calls of that turn.
        at_work_since: When that turn began, or went on after a wait for people, in ms since 1970; 0 if that
            is not known.
        changed: Keys of ``values`` that it changed.
        changes: Keys that earlier turns changed, and where; None in a thread older than this field.
        summary: Of the turns that model calls are no longer given.
        taken_back: The newest requests to take turns back, so that each is carried out once.
        suspended: What the newest step waits for, if it waits.
        answered: The newest answers to calls that waited.
        options: How the session behaves, as far as anybody ever named it.
        writer: Short id of the workflow run whose activity wrote it; empty outside Temporal.
        stream_reached: A sequence that the session's stream had; one that ends before it was lost or set
            back.
        trace: Of the newest turn, where it has one.
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
    at_work_since: int = 0
    changed: tuple[str, ...] = ()
    changes: ChangedKeys | None = None
    summary: Summary | None = None
    taken_back: tuple[TakenBack, ...] = ()
    suspended: Suspension | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    options: SessionOptions | None = None
    writer: str = ""
    stream_reached: int = 0
    trace: TurnTrace | None = None


class AppendedStep(Protocol):
    """A step that is appended to the thread."""

    @property
    def head(self) -> Head:
        """Where the thread stands before it."""
        ...

    @property
    def inputs(self) -> tuple[StoredMessage, ...]:
        """The messages that it begins with."""
        ...

    @property
    def answer(self) -> StoredMessage | None:
        """The model's; None in a step that ends a turn without one."""
        ...

    @property
    def commits(self) -> bool:
        """It ends its turn."""
        ...


class OpenedAt(Protocol):
    """A thread that was opened."""

    @property
    def head(self) -> Head:
        """Where it stands."""
        ...

    @property
    def committed(self) -> int:
        """Where its finished turns end."""
        ...

    @property
    def epoch(self) -> Epoch:
        """Of the open."""
        ...

    @property
    def born(self) -> Epoch:
        """Of the open that made it."""
        ...


def parse_record(data: bytes) -> SessionRecord:
    """The record in a slice's bytes; a new one where there are none."""
    return SessionRecord.model_validate_json(data) if data else SessionRecord()


def encode_record(record: SessionRecord) -> bytes:
    """Inverse of `parse_record`."""
    return canonical_json(record.model_dump(mode="json", exclude_defaults=True))


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that are too large to travel.

    Raises:
        TooLargeError: As JSON they exceed the limit.
    """
    check_size(len(canonical_json(values)), MAX_VALUES_BYTES, "values")


# -- a step


def apply_step(
    record: SessionRecord,
    step: AppendedStep,
    request: RunStepInput | EndTurnInput,
    messages: Sequence[Message],
    *,
    waiting: tuple[WaitingCall, ...] = (),
    writer: str = "",
    now: int = 0,
    trace: TurnTrace | None = None,
) -> SessionRecord:
    """The record that goes with a step.

    Args:
        record: Before it.
        step: As it is appended.
        request: That asked for it.
        messages: Its messages.
        waiting: Calls of its answer that wait for a client or a person.
        writer: Short id of the workflow run that writes it.
        now: When the step was scheduled, in ms since 1970.
        trace: Of the turn, where it has one.

    Raises:
        TooLargeError: The application's values exceed the limit.
    """
    answered = 1 if step.answer is not None else 0
    is_same_turn = request.run_id == record.run
    changes: dict[str, Any] = {
        "turns": record.turns + (1 if step.commits else 0),
        "steps": record.steps + answered,
        "usage": sum((each.usage for each in messages if each.usage), start=record.usage),
        "writer": writer,
        "run": request.run_id,
        "turn_steps": (record.turn_steps if is_same_turn else 0) + answered,
        "at_work_since": record.at_work_since if is_same_turn and record.suspended is None else now,
        "changed": record.changed if is_same_turn else (),
        "trace": trace if trace is not None else (record.trace if is_same_turn else None),
    }
    if isinstance(request, RunStepInput):
        changes["agent"] = request.agent
        changes |= _values_of_step(record, request, changes["changed"])
    values = changes.get("values")
    changes["changes"] = _changes_after_step(record, request, step.head.position, changes["changed"], values)
    after = record.model_copy(update=changes)
    head = None if step.answer is None else head_after(step.head, (*step.inputs, step.answer))
    suspended = Suspension(head=head, calls=waiting) if head is not None and waiting else None
    return _with_answers(after, request, suspended)


def add_waits(trace: TurnTrace, record: SessionRecord, request: RunStepInput | EndTurnInput) -> TurnTrace:
    """The trace with the calls that a step takes answers of: ``record`` knows since when they waited."""
    asked = {} if record.suspended is None else {each.id: each for each in record.suspended.calls}
    found = [
        TurnWait(
            tool=each.name or "",
            kind=asked[each.answered.id].kind,
            outcome=each.answered.outcome,
            since=asked[each.answered.id].since,
            until=each.answered.when,
        )
        for each in request.inputs
        if each.answered is not None and each.answered.id in asked
    ]
    if not found:
        return trace
    return trace.model_copy(update={"waits": (*trace.waits, *found)[:REMEMBERED_WAITS]})


def _values_of_step(record: SessionRecord, request: RunStepInput, changed: tuple[str, ...]) -> dict[str, Any]:
    if request.values is None:
        return {}
    check_values(request.values)
    fresh = request.changed
    if fresh is None:
        fresh = list_differing_keys(record.values, request.values)
    return {"values": request.values, "changed": tuple(sorted({*changed, *fresh}))}


def _with_answers(
    record: SessionRecord, request: RunStepInput | EndTurnInput, suspended: Suspension | None
) -> SessionRecord:
    """What the step waits for, and which calls were answered, here and below."""
    answered = tuple(each.answered for each in request.inputs if each.answered is not None)
    if suspended == record.suspended and not answered and not request.answered:
        return record
    receipts = merge_receipts(record.answered, request.answered, answered)[-REMEMBERED_CALLS:]
    return record.model_copy(update={"suspended": suspended, "answered": receipts})


# -- a save


def apply_save(
    record: SessionRecord, values: Mapping[str, Any], changed: Iterable[str], head: Head
) -> SessionRecord:
    """The record with the application's values, saved where the thread stands at ``head``."""
    if is_same_json(record.values, values):
        return record
    changes = record.changes
    if changes is not None:
        keys = {*list_differing_keys(record.values, values), *changed}
        changes = changes.model_copy(update={"staged": ()})
        changes = _mark_changed(changes, dict.fromkeys(keys, max(head.position - 1, 0)))
    return record.model_copy(update={"values": values, "changes": changes})


def apply_suspension(record: SessionRecord, request: SaveValuesInput) -> SessionRecord:
    """The record with what is known of a suspended step's calls, and that sub-agents wait."""
    suspended = record.suspended
    if request.suspended is not None:
        suspended = request.suspended
    elif request.outcomes is not None and suspended is not None:
        suspended = suspended.model_copy(update={"outcomes": request.outcomes})
    receipts = merge_receipts(record.answered, request.answered)[-REMEMBERED_CALLS:]
    return record.model_copy(update={"suspended": suspended, "answered": receipts})


# -- an open


def apply_open(record: SessionRecord, opened: OpenedAt, request: OpenSessionInput) -> SessionRecord:
    """The record of a thread that was opened.

    A summary of what is cut goes, the request to take turns back is remembered, options are merged.
    """
    at, taken = opened.head.position, request.take_back
    summary = None if record.summary is None else _summary_after_cut(record.summary, at)
    kept = tuple(
        each
        for each in record.taken_back
        # A fork has those of its source, from before it was made.
        if each.epoch >= opened.born
    )
    if taken is not None and all(each.id != taken.id for each in kept):
        taken = taken.model_copy(update={"epoch": opened.epoch, "checkpoint": request.checkpoint})
        # Only the newest request may still have messages to ask again.
        older = [each.model_copy(update={"messages": ()}) for each in kept[1 - REMEMBERED_REQUESTS :]]
        kept = _limit_cut_messages((*older, taken))
    options = record.options if request.options is None else request.options.over(record.options)
    return record.model_copy(update={"summary": summary, "taken_back": kept, "options": options})


def _summary_after_cut(summary: Summary, at: int) -> Summary | None:
    """The summary in a thread that ends here; its text may have been kept by an answer that was cut."""
    if summary.upto.position > at:
        return None
    is_cut = summary.kept is not None and summary.kept >= at
    return summary.model_copy(update={"kept": None}) if is_cut else summary


def _limit_cut_messages(taken: tuple[TakenBack, ...]) -> tuple[TakenBack, ...]:
    """The same requests with the ids of the newest messages: all of this is written with each step."""
    room, fewer = REMEMBERED_CUT_MESSAGES, list[TakenBack]()
    for each in reversed(taken):
        kept = each.cut[max(len(each.cut) - room, 0) :] if room else ()
        fewer.append(each if kept == each.cut else each.model_copy(update={"cut": kept}))
        room -= len(kept)
    return tuple(reversed(fewer))


def mark_synced(record: SessionRecord) -> SessionRecord:
    """The record once the session store has followed the thread: no checkpoint is left to restore."""
    if all(each.checkpoint is None for each in record.taken_back):
        return record
    told = tuple(each.model_copy(update={"checkpoint": None}) for each in record.taken_back)
    return record.model_copy(update={"taken_back": told})


def find_request_behind(record: SessionRecord, opened: OpenedAt) -> TakenBack | None:
    """The newest request to take turns back, if the thread still stands where it was cut; else None."""
    newest = record.taken_back[-1] if record.taken_back else None
    at_rest = opened.committed == opened.head.position
    return newest if newest is not None and at_rest and newest.to == opened.head else None


def is_unknown_request(taken: TakenBack, known_epoch: int | None) -> bool:
    """Whether it was carried out after the open that the workflow knows of.

    Either the workflow was reset to before the request, or the open that carried it out ended in a failure.
    """
    return known_epoch is not None and taken.epoch > known_epoch


def add_waiting_children(record: SessionRecord, head: Head, found: Suspension | None) -> SessionRecord:
    """The record of a thread that stands at ``head``, with the sub-agents that were found to wait there.

    A late save of the execution that is gone may have come in between: what it knows of other calls stays.
    """
    if found is None or found.head != head:
        return record
    stored = find_suspension(record, head) or found
    suspended = stored.model_copy(update={"children": found.children})
    return record.model_copy(update={"suspended": suspended})


# -- calls that wait


def find_suspension(record: SessionRecord, head: Head) -> Suspension | None:
    """What the thread's newest step waits for, if that is where it stands."""
    suspended = record.suspended
    return suspended if suspended is not None and suspended.head == head else None


def list_answered_calls(record: SessionRecord, head: Head) -> tuple[AnswerReceipt, ...]:
    """Receipts of answers that the thread has; not of a call that waits again since its answer was lost."""
    suspended = find_suspension(record, head)
    if suspended is None:
        return record.answered
    receipts = {each.at: each.answered for each in suspended.outcomes if each.answered is not None}
    again = {each.id for each in suspended.calls if each.at not in receipts}
    return tuple(each for each in (*record.answered, *receipts.values()) if each.id not in again)


def apply_wait(record: SessionRecord, head: Head, calls: tuple[WaitingCall, ...]) -> SessionRecord:
    """The record of a thread that ends at ``head`` with a step that waits for these calls."""
    if find_suspension(record, head) is not None:
        return record
    return record.model_copy(update={"suspended": Suspension(head=head, calls=calls)})


def find_kept_head(data: bytes) -> Head | None:
    """The head up to which an open keeps an unfinished turn: where the step ends that waits for answers."""
    suspended = parse_record(data).suspended
    return None if suspended is None else suspended.head


# -- which keys of the values changed where


def list_differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys that are not the same in both."""
    return tuple(
        key
        for key in {*old, *new}
        if key not in old or key not in new or not is_same_json(old[key], new[key])
    )


def list_missing_changes(record: SessionRecord, at: int, stop: int) -> tuple[str, ...]:
    """Keys that changed in turns which end at ``stop``, and not in a state that stands at ``at``."""
    changes = record.changes
    if changes is None:
        return record.changed
    newest = record.changed if changes.turn < stop else ()
    return tuple(sorted({*newest, *(key for key, place in changes.at.items() if at <= place < stop)}))


def _changes_after_step(
    record: SessionRecord,
    request: RunStepInput | EndTurnInput,
    position: int,
    changed: Iterable[str],
    values: Mapping[str, Any] | None,
) -> ChangedKeys | None:
    """What is known after a step at ``position``.

    ``changed`` are the keys that the application changed in its turn so far, ``values`` what it sends.
    """
    changes = record.changes
    if request.run_id is None:
        return None
    if request.run_id != record.run:
        changes = _begin_turn(changes, position, is_told=values is not None)
    if changes is None:
        return None  # its turn began before any of this was kept
    staged = tuple(each.staged for each in request.inputs if each.staged)
    if staged:
        changes = changes.model_copy(update={"staged": changes.staged + staged})
    # The application saw others' changes as they were at the end of the last turn.
    seen = () if values is None else list_differing_keys(record.values, values)
    return _mark_changed(
        changes, {**dict.fromkeys(seen, max(position - 1, 0)), **dict.fromkeys(changed, position)}
    )


def _begin_turn(changes: ChangedKeys | None, position: int, *, is_told: bool) -> ChangedKeys:
    if changes is None:
        return ChangedKeys(since=position, turn=position)
    # If the application was not told of the last turn's changes by tools, they are lost to it.
    is_lost = bool(changes.staged) and not is_told
    since = max(changes.since, changes.turn + 1) if is_lost else changes.since
    return ChangedKeys(since=since, turn=position, at=changes.at)


def _mark_changed(changes: ChangedKeys, marks: Mapping[str, int]) -> ChangedKeys:
    if not marks:
        return changes
    places, since = {**changes.at, **marks}, changes.since
    kept: dict[str, int] = {}
    size = 0
    for key, place in sorted(places.items(), key=lambda item: (-item[1], item[0])):
        size += len(canonical_json(key)) + _PLACE_BYTES
        if size > MAX_CHANGED_BYTES or len(kept) == MAX_CHANGED_KEYS:
            # Whatever is older goes with it.
            since = max(since, place + 1)
            break
        kept[key] = place
    return changes.model_copy(update={"at": kept, "since": since})
