"""Calls of sub-agents: how a session is started for one, what it gives, and what waits below.  Pure."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.ids import CallKey
from helix_temporal.models.messages import Finish, Usage, are_left_out
from helix_temporal.models.sessions import (
    ArchiveMode,
    AskResult,
    AskStatus,
    ExitReason,
    ForkFrom,
    SessionInput,
    SessionOptions,
    SessionResult,
    UserMessage,
)
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.steps import ChildEnd, ToolInput, ToolResult
from helix_temporal.models.waiting import (
    MessageRef,
    ParentLink,
    PendingCall,
    SubAgentCall,
    Suspension,
    Wake,
    child_session_id,
    task_of,
)
from helix_temporal.session.pending_calls import CallStart, list_results, list_unanswered_calls

_WITHHELD: Final = frozenset({Finish.REFUSAL, Finish.CONTENT_FILTER})
_ENDS: Final[Mapping[ExitReason | None, str]] = {
    ExitReason.MAX_STEPS: "used all the steps it is allowed without coming to an answer",
    ExitReason.WAITING: "waits for a message that nobody here can send, and gave no answer",
    ExitReason.INTERRUPTED: "was interrupted before it had an answer",
    ExitReason.CANCELLED: "was cancelled before it had an answer",
}


def child_result(result: SessionResult, facts: ToolFacts, before: Usage | None = None) -> ToolResult:
    """The result of a call whose session has ended; ``before``: what earlier executions used for the call."""
    told = result.last_result or AskResult(status=AskStatus.FAILED, error="it was given no message")
    used = add_usage(result.used, before) if facts.thread == "continue" else _all_used(result, told, before)
    if told.status is not AskStatus.ANSWERED:
        status: Literal["interrupted", "failed"] = "failed"
        if told.exit_reason in {ExitReason.INTERRUPTED, ExitReason.CANCELLED}:
            status = "interrupted"
        return failed_call_result(_why_no_answer(told), result.session_id, status, used)
    if told.finish in _WITHHELD:
        why = f"The sub-agent gave no answer ({told.finish}). {told.text or ''}".strip()
        return failed_call_result(why, result.session_id, "failed", used)
    fields: dict[str, Any] = {"child": _make_child_end(result.session_id, "completed")}
    if told.text is not None:
        fields["text"] = told.text
    elif told.answer is not None:
        at = told.answer
        fields["ref"] = MessageRef(thread_id=result.thread_id, position=at.position, id=at.id).as_ref()
    return ToolResult(**fields, **_with_usage(used))


def remaining_wait(result: SessionResult, call: SubAgentCall) -> SubAgentCall | None:
    """The call as it waits, if its session has ended because it waits; None if the session is finished."""
    told = result.last_result
    if result.exit_reason is not ExitReason.SUSPENDED or told is None or not told.pending:
        return None
    used = add_usage(result.used, call.used)
    return call.model_copy(update={"calls": told.pending, "due": result.due} | only_set(used=used))


def late_result(facts: ToolFacts, session_id: str, used: Usage | None) -> ToolResult:
    """The result of a call whose deadline passed while its session was suspended."""
    return failed_call_result(f"The sub-agent {describe_lateness(facts)}.", session_id, "failed", used)


def with_call_facts(result: ToolResult, facts: ToolFacts, took: timedelta) -> ToolResult:
    """The result with the agent's name and how long the call took."""
    if result.child is None:
        return result
    counted = {"agent": facts.agent or "", "duration_ms": int(took.total_seconds() * 1000)}
    return result.model_copy(update={"child": result.child.model_copy(update=counted)})


def interrupted_result(session_id: str) -> ToolResult:
    """The result of a call that had not begun when its turn was interrupted."""
    return failed_call_result(
        "The sub-agent was interrupted before it began.", session_id, "interrupted", None
    )


def refusal_result(session_id: str, why: str) -> ToolResult:
    """The result of a call for which no session is started."""
    return failed_call_result(f"The sub-agent was not called: {why}.", session_id, "failed", None)


def _why_no_answer(told: AskResult) -> str:
    if told.status is AskStatus.REFUSED:
        return f"The sub-agent refused the task: {told.error or 'no reason given'}"
    if told.status is AskStatus.FAILED:
        return f"The sub-agent failed: {told.error or 'for no known reason'}"
    return f"The sub-agent {_ENDS.get(told.exit_reason, 'ended without an answer')}."


def _all_used(result: SessionResult, told: AskResult, before: Usage | None) -> Usage | None:
    """What a session has used that serves one call alone: all of it, over all its executions."""
    return result.usage if told.status is AskStatus.ANSWERED else add_usage(result.used, before)


def add_usage(used: Usage | None, before: Usage | None) -> Usage | None:
    """What both used together; None counts as nothing."""
    return before if used is None else used if before is None else used + before


def describe_lateness(facts: ToolFacts) -> str:
    """How the model is told that the call's time is over."""
    return f"had no answer within {facts.schedule_to_close:g} s" if facts.schedule_to_close else "timed out"


def failed_call_result(
    text: str,
    session_id: str,
    status: Literal["interrupted", "failed"],
    used: Usage | None,
    *,
    killed: bool = False,
) -> ToolResult:
    """An error for the model; ``killed``: the session has ended without saving."""
    child = _make_child_end(session_id, status)
    if killed:
        child = child.model_copy(update={"killed": True})
    return ToolResult(text=text, is_error=True, child=child, **_with_usage(used))


def _make_child_end(session_id: str, status: Literal["completed", "interrupted", "failed"]) -> ChildEnd:
    return ChildEnd(session_id=session_id, status=status)


def _with_usage(used: Usage | None) -> dict[str, Any]:
    return {} if used is None or used == Usage() else {"usage": used}


END_SECONDS: Final = 300.0
"""How long a session may take that is started to end its turn."""


def task_message(facts: ToolFacts, request: ToolInput, call: str) -> UserMessage | None:
    """The task as the child's first message; large arguments stay in the parent's thread."""
    if are_left_out(request.call.arguments):
        key = CallKey.parse(request.key)
        ref = MessageRef(
            thread_id=request.thread_id,
            position=request.position - 1,
            id=key.answer_id,
            call=key.at,
            argument=facts.argument,
        )
        return UserMessage(id=call, ref=ref.as_ref())
    text = task_of(request.call.arguments, facts.argument)
    return None if text is None else UserMessage(id=call, text=text)


def new_call_input(
    facts: ToolFacts,
    request: ToolInput,
    call: SubAgentCall,
    message: UserMessage,
    link: ParentLink,
    options: SessionOptions,
) -> SessionInput:
    """How a session is started for a call that is made for the first time."""
    fields: dict[str, Any] = {}
    if facts.thread == "fork":
        # What is finished is all before the turn that asks: no call without its result is copied.
        fields = {"mode": "fork", "fork_from": ForkFrom(thread_id=request.thread_id)}
    return SessionInput(
        session_id=call.session_id,
        agent=facts.agent or "",
        options=options,
        messages=(message,),
        parent=link,
        **fields,
        **_metadata_fields(request.metadata),
        **_tracing_fields(request),
    )


def resumed_call_input(
    resumed: CallStart,
    request: ToolInput,
    message: UserMessage,
    link: ParentLink,
    options: SessionOptions,
) -> SessionInput:
    """How a session is started once more for a call that has waited.

    The message is the same: if its turn has ended meanwhile, the answer is found; if the turn is lost, it is
    run again.
    """
    call = resumed.call
    if resumed.ends or resumed.late:
        return ending_call_input(call, link, request.metadata)
    return SessionInput(
        session_id=call.session_id,
        agent=call.agent,
        mode="continue",
        options=options,
        messages=(message,),
        parent=link,
        woken=Wake(**only_truthy(answers=resumed.call.answers)),
        **_metadata_fields(request.metadata),
        **_tracing_fields(request),
    )


def ending_call_input(call: SubAgentCall, link: ParentLink, metadata: dict[str, str]) -> SessionInput:
    """How a session is started to end its turn, since nobody wants the call's result any more."""
    return SessionInput(
        session_id=call.session_id,
        agent=call.agent,
        mode="continue",
        options=child_options(),
        parent=link,
        woken=Wake(ends=True),
        **_metadata_fields(metadata),
    )


def seconds_left(facts: ToolFacts, start: SessionInput, call: SubAgentCall, now: int) -> float | None:
    """Seconds that its execution may last; None for no limit."""
    if start.woken is None:
        return facts.schedule_to_close
    if start.woken.ends:
        return END_SECONDS
    return None if call.until is None else max((call.until - now) / 1000, 0.001)


def plan_call(facts: ToolFacts, request: ToolInput, now: int) -> SubAgentCall:
    """What is known of a call before its session is started."""
    key, limit = CallKey.parse(request.key), facts.schedule_to_close
    fields: dict[str, Any] = {} if limit is None else {"until": now + int(limit * 1000)}
    if facts.task_queue is not None:
        fields["task_queue"] = facts.task_queue
    return SubAgentCall(
        at=key.at,
        session_id=child_session_id(request.session_id, facts.name, facts.thread, key.result_id),
        call=key.result_id,
        agent=facts.agent or "",
        since=now,
        **fields,
    )


def facts_of(call: SubAgentCall) -> ToolFacts:
    """The tool that was called: what is needed of it to end the call."""
    elsewhere = only_set(task_queue=call.task_queue)
    return ToolFacts(name=call.agent, activity="", kind="agent", agent=call.agent, **elsewhere)


def child_options(archive: ArchiveMode | None = None) -> SessionOptions:
    """How the session of a sub-agent behaves: it ends when it waits; ``archive`` is its caller's."""
    # What an earlier call left unanswered must not hold up a new one.
    return SessionOptions(
        persistent=False, suspend="exit", while_suspended="supersede", **only_set(archive=archive)
    )


def _metadata_fields(metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": metadata} if metadata else {}


def _tracing_fields(request: ToolInput) -> dict[str, Any]:
    trace = request.tracing_context
    return {} if trace is None else {"properties": SessionProperties(tracing_context=trace)}


def add_waiting_calls(stored: Suspension, found: dict[int, SubAgentCall | None]) -> Suspension:
    """The suspension with the calls in ``found`` that wait, and have no outcome yet."""
    unanswered = list_unanswered_calls(stored.calls, stored.outcomes)
    done = {*list_results(stored.outcomes), *(each.at for each in unanswered)}
    children = {each.at: each for each in stored.children} | {
        at: wait for at, wait in found.items() if at not in done
    }
    waits = tuple(each for _, each in sorted(children.items()) if each is not None)
    return stored if waits == stored.children else stored.model_copy(update={"children": waits})


def make_waiting_call(
    call: str, at: int, session_id: str, facts: ToolFacts, pending: Sequence[PendingCall]
) -> SubAgentCall:
    """The call of a session that was found waiting.

    Only its caller knew when the call was made.  So its time counts from the first question.
    """
    since = min(each.since for each in pending)
    given: dict[str, Any] = {
        "until": None if facts.schedule_to_close is None else since + int(facts.schedule_to_close * 1000),
        "task_queue": facts.task_queue,
    }
    return SubAgentCall(
        at=at,
        session_id=session_id,
        call=call,
        agent=facts.agent or "",
        since=since,
        **only_set(**given),
    )
