"""Pure: tool calls that a client, or a person, answers."""

from collections.abc import Iterable, Sequence

from helix_temporal.errors import TooLargeError
from helix_temporal.models._json import canonical
from helix_temporal.models.states import (
    MAX_CALL_RESULT,
    CompletedClientToolCall,
    OwnedPendingCall,
    PendingClientToolCall,
    SessionState,
    Submission,
    ToolResultSubmission,
    check_not_expired,
    is_past,
    newest_completed,
)
from helix_temporal.models.suspensions import check_outcome
from helix_temporal.stores.sessions._codec import digest
from helix_temporal.stores.sessions._decisions import Decision, Seen


def check_submission(submission: ToolResultSubmission) -> None:
    """Refuse a result that is too large.

    Raises:
        TooLargeError: It exceeds 1 MiB as JSON.
    """
    size = len(canonical(submission.response.result))
    if size > MAX_CALL_RESULT:
        raise TooLargeError(
            f"result of tool call {submission.tool_call_id!r}: {size} > {MAX_CALL_RESULT} bytes"
        )


def owner(state: SessionState, tool_call_id: str) -> str | None:
    """Whose call it is: this session's own, or by its map; None if unknown."""
    known = state.pending_client_tool_calls.keys() | state.completed_client_tool_calls.keys()
    return state.session_id if tool_call_id in known else state.client_tool_call_ownership.get(tool_call_id)


def submit(seen: Seen, submission: ToolResultSubmission) -> Decision[Submission]:
    """See `SessionStore.submit_tool_result`, in the session whose call it is.

    Raises:
        InvalidRequestError: A result for an approval, or an approval for a call that wants a result.
        SessionExpiredError: It has expired.
    """
    state, name = seen.present, submission.tool_call_id
    check_not_expired(state, seen.now)
    completed = state.completed_client_tool_calls.get(name)
    if completed is not None and completed.outcome == "expired":
        return Decision(Submission(status="expired"))
    if completed is not None:
        return Decision(Submission(status="already_completed", completed_at=completed.completed_at))
    call = state.pending_client_tool_calls.get(name)
    if call is None:
        return Decision(Submission(status="not_pending"))
    if call.response is not None:
        return Decision(Submission(status="already_completed", completed_at=call.responded_at))
    if is_past(call.deadline_at, seen.now):
        return Decision(Submission(status="expired"))
    check_outcome(name, call.kind, submission.response.outcome)
    answered = call.model_copy(update={"response": submission.response, "responded_at": seen.now})
    marker = CompletedClientToolCall(
        tool_call_id=name,
        outcome=submission.response.outcome,
        completed_at=seen.now,
        result_hash=digest(submission.response),
    )
    after = seen.bumped(
        pending_client_tool_calls={**state.pending_client_tool_calls, name: answered},
        completed_client_tool_calls=newest_completed({**state.completed_client_tool_calls, name: marker}),
    )
    taken = Submission(status="submitted", completed_at=seen.now, new_version=after.version)
    return Decision(taken, after)


def expired(state: SessionState, now: int) -> list[OwnedPendingCall]:
    """Calls without an answer whose deadline has passed, the oldest deadline first."""
    late = [call for call in state.pending_client_tool_calls.values() if _is_late(call, now)]
    late.sort(key=lambda call: (call.deadline_at or 0, call.tool_call_id))
    return [OwnedPendingCall(session_id=state.session_id, call=call) for call in late]


def _is_late(call: PendingClientToolCall, now: int) -> bool:
    return call.response is None and is_past(call.deadline_at, now)


def uniquify_tool_call_ids(existing: Iterable[str], new: Sequence[str]) -> list[str]:
    """Ids for new tool calls that are unique in a session.

    A provider may use an id again: it becomes ``<id>_<n>`` with the smallest free ``n`` from 2.
    """
    taken, unique = set(existing), []
    for name in new:
        made, number = name, 2
        while made in taken:
            made, number = f"{name}_{number}", number + 1
        taken.add(made)
        unique.append(made)
    return unique
