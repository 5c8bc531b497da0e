"""Answers to waiting calls: which one is accepted, and what the model gets from it.  Pure.

The workflow and the session store both accept answers, by one rule: `refuse_answer`.  In the workflow
`session.pending_calls.PendingCalls.submit_answer` applies it: `client.call_answers` sends an update, which
`workflows.call_answers` handles.  For programs that have the store, `stores.sessions.call_answers` does.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from helix_temporal.models.base import only_set
from helix_temporal.models.messages import ToolResult
from helix_temporal.models.states import Submission, is_past
from helix_temporal.models.waiting import DENIED, AnswerReceipt, CallKind


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """How a call was answered.

    Attributes:
        outcome: ``expired`` if nobody answered in time.
        when: Milliseconds since 1970.
        by: The request that brought the answer, if it had an id.
    """

    outcome: str
    when: int | None
    by: str | None = None


def refuse_answer(
    first: FirstAnswer | None, *, is_known: bool, deadline: int | None, now: int, by: str | None = None
) -> Submission | None:
    """The reply to an answer that is not accepted; None if it is accepted.

    Args:
        first: How the call was answered, if it was.
        is_known: Whether such a call waits, or waited.
        deadline: When it expires, in milliseconds since 1970; None if never.
        now: Milliseconds since 1970.
        by: Id of the request that brings the answer; a repeat of the first request gets the first reply.
    """
    if first is not None and first.outcome == "expired":
        return Submission(status="expired")
    if first is not None:
        is_repeat = bool(by) and first.by == by
        return Submission(status="submitted" if is_repeat else "already_completed", completed_at=first.when)
    if not is_known:
        return Submission(status="not_pending")
    return Submission(status="expired") if is_past(deadline, now) else None


def merge_receipts(*told: Iterable[AnswerReceipt]) -> tuple[AnswerReceipt, ...]:
    """The newest receipt of each call: one whose answer was lost waits again, and is answered twice."""
    newest: dict[str, AnswerReceipt] = {}
    for each in itertools.chain(*told):
        before = newest.pop(each.id, each)
        newest[each.id] = each if each.when > before.when else before
    return tuple(newest.values())


def lets_tool_run(kind: CallKind, outcome: str) -> bool:
    """Whether the answer is an approval: the tool runs, and its result is that of the call."""
    # Older histories say "result" where an approval is "approved" now.
    return kind == "approval" and outcome in {"approved", "result"}


def result_of_answer(
    kind: CallKind,
    outcome: str,
    text: str,
    *,
    parts: list[dict[str, JsonValue]] | None = None,
    ref: str | None = None,
) -> ToolResult | None:
    """The result that the model gets from an answer; None if the tool has to run first."""
    if lets_tool_run(kind, outcome):
        return None
    if outcome == "denied" or kind == "approval":
        return error_result(f"{DENIED} {text}".strip())
    is_error = True if outcome == "error" else None
    return ToolResult(**only_set(parts=parts, ref=ref, text=text or None, is_error=is_error))


def error_result(text: str) -> ToolResult:
    """A result that the model sees as an error."""
    return ToolResult(text=text, is_error=True, unfinished=True)
