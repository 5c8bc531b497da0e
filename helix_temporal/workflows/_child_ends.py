"""Pure: what the end of a sub-agent is to the model that called it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import ValidationError
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from temporalio.exceptions import TimeoutError as TimedOutError

from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import MessageRef
from helix_temporal.models.messages import Finish, Usage
from helix_temporal.models.sessions import AskResult, AskStatus, ExitReason, SessionResult
from helix_temporal.models.steps import ChildEnd, ToolResult
from helix_temporal.models.suspensions import ChildWait

_WITHHELD: Final = frozenset({Finish.REFUSAL, Finish.CONTENT_FILTER})
_ENDS: Final[Mapping[ExitReason | None, str]] = {
    ExitReason.MAX_STEPS: "used all the steps it is allowed without coming to an answer",
    ExitReason.WAITING: "waits for a message that nobody here can send, and gave no answer",
    ExitReason.INTERRUPTED: "was interrupted before it had an answer",
    ExitReason.CANCELLED: "was cancelled before it had an answer",
}


def outcome(result: SessionResult, facts: ToolFacts, before: Usage | None = None) -> ToolResult:
    """What a session that came to its end gives; ``before`` is what it used in executions for this call."""
    told = result.told or AskResult(status=AskStatus.FAILED, error="it was given no message")
    used = _sum(result.used, before) if facts.thread == "continue" else _all_used(result, told, before)
    if told.status is not AskStatus.ANSWERED:
        status: Literal["interrupted", "failed"] = "failed"
        if told.exit_reason in {ExitReason.INTERRUPTED, ExitReason.CANCELLED}:
            status = "interrupted"
        return _error(_why(told), result.session_id, status, used)
    if told.finish in _WITHHELD:
        why = f"The sub-agent gave no answer ({told.finish}). {told.text or ''}".strip()
        return _error(why, result.session_id, "failed", used)
    fields: dict[str, Any] = {"child": _ended(result.session_id, "completed")}
    if told.text is not None:
        fields["text"] = told.text
    elif told.answer is not None:
        at = told.answer
        fields["ref"] = MessageRef(thread_id=result.thread_id, position=at.position, id=at.id).named()
    return ToolResult(**fields, **_with_usage(used))


def slept(result: SessionResult, wait: ChildWait) -> ChildWait | None:
    """What a session waits for that has ended; None if it has come to its end."""
    told = result.told
    if result.exit_reason is not ExitReason.SUSPENDED or told is None or not told.pending:
        return None
    used = _sum(result.used, wait.used)
    news: dict[str, Any] = {"calls": told.pending} | ({} if used is None else {"used": used})
    if result.due != wait.due:
        news["due"] = result.due
    return wait.model_copy(update=news)


def late(facts: ToolFacts, session_id: str, used: Usage | None) -> ToolResult:
    """What a call gives whose time ended while its session slept."""
    return _error(f"The sub-agent {_too_late(facts)}.", session_id, "failed", used)


def failed(
    failure: FailureError, facts: ToolFacts, session_id: str, workflow: str, before: Usage | None = None
) -> ToolResult:
    """What a session that failed, or could not be started, gives."""
    cause = failure.cause if isinstance(failure, ChildWorkflowError) and failure.cause else failure
    used = None
    status: Literal["interrupted", "failed"] = "failed"
    if isinstance(cause, WorkflowAlreadyStartedError):
        why = f"is busy: its session {session_id!r} is held by another execution, workflow {workflow!r}"
    elif isinstance(cause, TimedOutError):
        why = _too_late(facts)
    elif isinstance(cause, TerminatedError):
        why = "was terminated"
    elif isinstance(cause, CancelledError):
        why, status = "was cancelled before it had an answer", "interrupted"
    else:
        why, used = f"failed: {getattr(cause, 'message', type(cause).__name__)}", _used_before(cause)
    killed = isinstance(cause, TimedOutError | TerminatedError)
    return _error(f"The sub-agent {why}.", session_id, status, _sum(used, before), killed=killed)


def called(result: ToolResult, facts: ToolFacts, took: timedelta) -> ToolResult:
    """The result with what is counted of the call."""
    if result.child is None:
        return result
    counted = {"agent": facts.agent or "", "duration_ms": int(took.total_seconds() * 1000)}
    return result.model_copy(update={"child": result.child.model_copy(update=counted)})


def interrupted(session_id: str) -> ToolResult:
    """What a call gives whose turn came after its session was interrupted."""
    return _error("The sub-agent was interrupted before it began.", session_id, "interrupted", None)


def refused(session_id: str, why: str) -> ToolResult:
    """A call for which no session is started."""
    return _error(f"The sub-agent was not called: {why}.", session_id, "failed", None)


def _why(told: AskResult) -> str:
    if told.status is AskStatus.REFUSED:
        return f"The sub-agent refused the task: {told.error or 'no reason given'}"
    if told.status is AskStatus.FAILED:
        return f"The sub-agent failed: {told.error or 'for no known reason'}"
    return f"The sub-agent {_ENDS.get(told.exit_reason, 'ended without an answer')}."


def _all_used(result: SessionResult, told: AskResult, before: Usage | None) -> Usage | None:
    """A session that serves one call alone has used all of it for that, whatever executions it took."""
    return result.usage if told.status is AskStatus.ANSWERED else _sum(result.used, before)


def _sum(used: Usage | None, before: Usage | None) -> Usage | None:
    return before if used is None else used if before is None else used + before


def _too_late(facts: ToolFacts) -> str:
    return f"had no answer within {facts.schedule_to_close:g} s" if facts.schedule_to_close else "timed out"


def _used_before(cause: BaseException) -> Usage | None:
    """What a session used before it failed: its result travels with the failure."""
    details = cause.details if isinstance(cause, ApplicationError) else ()
    if not details or not isinstance(details[0], dict):
        return None
    try:
        return SessionResult.model_validate(details[0]).used
    except ValidationError:
        return None


def _error(
    text: str,
    session_id: str,
    status: Literal["interrupted", "failed"],
    used: Usage | None,
    *,
    killed: bool = False,
) -> ToolResult:
    child = _ended(session_id, status)
    if killed:
        child = child.model_copy(update={"killed": True})
    return ToolResult(text=text, is_error=True, child=child, **_with_usage(used))


def _ended(session_id: str, status: Literal["completed", "interrupted", "failed"]) -> ChildEnd:
    return ChildEnd(session_id=session_id, status=status)


def _with_usage(used: Usage | None) -> dict[str, Any]:
    return {} if used is None or used == Usage() else {"usage": used}
