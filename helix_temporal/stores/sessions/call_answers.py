"""Tool calls that a client or a person answers: whose they are, and what an answer makes of them."""

from collections.abc import Iterable, Sequence

from helix_temporal.errors import SessionNotFoundError, TooLargeError
from helix_temporal.models.base import canonical_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.limits import MAX_TEXT
from helix_temporal.models.states import (
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
from helix_temporal.models.waiting import check_outcome
from helix_temporal.session.call_answers import FirstAnswer, refuse_answer
from helix_temporal.stores.protocols.session_rows import STATE_ALONE
from helix_temporal.stores.sessions import runs
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import revalidate_model
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession, digest_parts


def check_submission(submission: ToolResultSubmission) -> None:
    """Refuse a result that is too large.

    Raises:
        TooLargeError: It exceeds 1 MiB as JSON.
    """
    size = len(canonical_json(submission.response.result))
    if size > MAX_TEXT:
        raise TooLargeError(f"result of tool call {submission.tool_call_id!r}: {size} > {MAX_TEXT} bytes")


def call_owner(state: SessionState, tool_call_id: str) -> str | None:
    """Whose call it is: this session's own, or by its map; None if unknown."""
    own_calls = state.pending_client_tool_calls.keys() | state.completed_client_tool_calls.keys()
    return (
        state.session_id if tool_call_id in own_calls else state.client_tool_call_ownership.get(tool_call_id)
    )


def decide_submission(seen: SeenSession, submission: ToolResultSubmission) -> Decision[Submission]:
    """See `SessionStore.submit_tool_result`, in the session whose call it is.

    Raises:
        InvalidRequestError: A result for an approval, or an approval for a call that wants a result.
        SessionExpiredError: It has expired.
    """
    state, name = seen.present, submission.tool_call_id
    check_not_expired(state, seen.now)
    call = state.pending_client_tool_calls.get(name)
    refusal = refuse_answer(
        _first_answer(state, name),
        is_known=call is not None,
        deadline=call.deadline_at if call else None,
        now=seen.now,
    )
    if refusal is not None or call is None:
        return Decision(refusal or Submission(status="not_pending"))
    check_outcome(name, call.kind, submission.response.outcome)
    answered = call.model_copy(update={"response": submission.response, "responded_at": seen.now})
    marker = CompletedClientToolCall(
        tool_call_id=name,
        outcome=submission.response.outcome,
        completed_at=seen.now,
        result_hash=digest_parts(submission.response),
    )
    after = seen.next_state(
        pending_client_tool_calls={**state.pending_client_tool_calls, name: answered},
        completed_client_tool_calls=newest_completed({**state.completed_client_tool_calls, name: marker}),
    )
    taken = Submission(status="submitted", completed_at=seen.now, new_version=after.version)
    return Decision(taken, after)


def _first_answer(state: SessionState, tool_call_id: str) -> FirstAnswer | None:
    """How the call was answered; also where the turn has not taken the answer yet."""
    completed = state.completed_client_tool_calls.get(tool_call_id)
    if completed is not None:
        return FirstAnswer(completed.outcome, completed.completed_at)
    call = state.pending_client_tool_calls.get(tool_call_id)
    if call is None or call.response is None:
        return None
    return FirstAnswer(call.response.outcome, call.responded_at)


def expired_calls(state: SessionState, now: int) -> list[OwnedPendingCall]:
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


async def submit_tool_result(
    store: SessionStoreBase,
    session_id: str,
    submission: ToolResultSubmission,
    *,
    operation_id: str | None = None,
) -> Submission:
    """See `SessionStore.submit_tool_result`; the operation is remembered with the owner of the call."""
    submission = revalidate_model(submission, ToolResultSubmission)
    check_submission(submission)
    root = (await store.view_session(session_id)).present
    owner = call_owner(root, submission.tool_call_id) or session_id
    if owner != session_id and root.expires_at is not None:
        check_not_expired(root, await store.loop.rows.now())
    call = Call("submit_tool_result", owner, (submission,), None, operation_id, fenced=False)
    try:
        return await store.make_change(
            call, STATE_ALONE, lambda seen: decide_submission(seen, submission), Submission
        )
    except SessionNotFoundError:
        runs.check_here(await store.view_session(session_id, runs.wanted_children([owner])), owner)
        raise


async def resolve_tool_call_owner(
    store: SessionStoreBase, root_session_id: str, tool_call_id: str
) -> str | None:
    """See `SessionStore.resolve_tool_call_owner`; a call of the root itself is the root's."""
    validate_id(tool_call_id, "tool call id")
    return call_owner((await store.view_session(root_session_id)).present, tool_call_id)
