"""Whether a step stands in its thread already, or something else.  Pure.

A step is known by the ids of its inputs, which some model's answer follows (`find_step`).  Who asks knows
more or less of it:

* `is_repeated_step`: a store, which has the step whole.  An id stands for one content only.
* `find_standing_step`: an activity before it calls the model, which has the ids of what was sent to it.
* `opening.count_kept_messages`: a re-open, which keeps the step that its workflow waits for.
"""

from collections.abc import Sequence

from helix_temporal.errors import HeadMovedError, HelixError, IdempotencyConflictError
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend, StepView
from helix_temporal.stores.threads.fences import Fence


def find_step(
    stored: Sequence[StoredMessage], input_ids: Sequence[str], answers: str = Kind.ANSWERS
) -> tuple[StoredMessage, ...] | None:
    """The step that ``stored``, read from the step's head on, begins with; None if it is another.

    Args:
        stored: Messages, as far as there are any.
        input_ids: Of the step's inputs.
        answers: Kinds that count as its answer; none for a step of inputs alone.
    """
    count = len(input_ids)
    if [message.id for message in stored[:count]] != [*input_ids]:
        return None
    if answers and (len(stored) == count or stored[count].kind not in answers):
        return None
    return tuple(stored[: count + 1 if answers else count])


# copies: redis, postgres
def is_repeated_step(
    header: HotHeader, id_before: str | None, stored: Sequence[StoredMessage], step: StepAppend
) -> bool:
    """Whether a step stands already; False where the thread ends at its head.

    Args:
        header: Of the thread as it is held.
        id_before: Id of the message just before the step's head, None if that is not held.
        stored: What stands from the step's head on, at most as many messages as the step has.
        step: The step.

    Raises:
        FencedError, HeadMovedError: The writer does not have the thread; see `Fence`.
        HeadMovedError, IdempotencyConflictError: Something else stands there.
    """
    Fence.of(header).check_writer(step.epoch)
    if id_before != step.head.last_id:
        raise head_moved_error(header, step.head)
    if stored and not is_same_step(step, stored):
        raise step_conflict_error(step, header, stored)
    return bool(stored)


# copies: redis
def is_same_step(step: StepAppend, stored: Sequence[StoredMessage]) -> bool:
    """Whether ``stored``, read from the step's head on, is this step: its very inputs, then some answer."""
    answers = "" if step.answer is None else answer_kinds(step.answer.kind)
    found = find_step(stored, _list_ids(step.inputs), answers)
    return found is not None and found[: len(step.inputs)] == step.inputs


def find_standing_step(
    view: StepView, head: Head, input_ids: Sequence[str]
) -> tuple[StoredMessage, ...] | None:
    """The step that stands at ``head`` with these inputs; None if the thread ends there.

    Only the first inputs may be in it: after a reset the server delivers messages together that had come one
    after the other.  A step that begins with the inputs and goes on with another message is another step.  A
    step that a whole turn has followed is not the one under way.

    Raises:
        HeadMovedError: The thread is elsewhere, or goes on with something else.
    """
    header = view.header
    if view.last_id_at_head == head.last_id:
        if header.head.position == head.position:
            return None
        for count in range(len(input_ids), 0, -1):
            step = find_step(view.after, input_ids[:count])
            if step is not None and header.committed <= head.position + len(step):
                return step
    raise head_moved_error(header, head)


def answer_kinds(kind: str) -> str:
    """Kinds that count as the answer of a step whose own answer is of ``kind``."""
    return Kind.ANSWERS if kind in Kind.ANSWERS else kind


# copies: redis
def ends_turn(step: StepAppend, stored: Sequence[StoredMessage]) -> bool:
    """Whether the step, as it stands, commits: a first answer that asks for tools never does, whatever
    a later attempt's own answer would have been.
    """
    return step.commits and stored[-1].kind != Kind.CALLS


def step_conflict_error(step: StepAppend, header: HotHeader, stored: Sequence[StoredMessage]) -> HelixError:
    """The error for a step at whose head something else stands."""
    inputs = find_step(stored, _list_ids(step.inputs), answers="")
    if not inputs or inputs == step.inputs:
        return head_moved_error(header, step.head)
    return IdempotencyConflictError(
        f"thread {header.thread_id!r} holds the step's message ids at position {step.head.position} with "
        "other content; an id stands for one content only",
        thread_id=header.thread_id,
        position=step.head.position,
    )


def head_moved_error(header: HotHeader, wanted: Head) -> HeadMovedError:
    """The step cannot stand at its head, and does not."""
    return HeadMovedError(
        f"thread {header.thread_id!r} does not go on from position {wanted.position} after message "
        f"{wanted.last_id!r} with this step: it holds {header.base.position} to {header.head.position}, "
        f"the last message being {header.head.last_id!r}; open again",
        thread_id=header.thread_id,
        position=wanted.position,
        last_id=wanted.last_id,
        found_position=header.head.position,
        found_last_id=header.head.last_id,
        found_base=header.base.position,
    )


def _list_ids(messages: Sequence[StoredMessage]) -> list[str]:
    return [message.id for message in messages]
