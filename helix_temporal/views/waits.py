"""What a session waits for: calls for a client or a person, and sub-agents."""

from collections.abc import Mapping

from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import PendingClientToolCall, SessionState
from helix_temporal.models.waiting import Suspension, WaitingCall
from helix_temporal.session.pending_calls import list_unanswered_calls, list_unfinished_children
from helix_temporal.views.models import WaitingFor


def list_waits(state: SessionState, turn: int | None) -> tuple[WaitingFor, ...]:
    """By the state: calls that nobody has answered, and sub-agents that wait themselves."""
    calls = [
        _of_pending(each, turn) for each in state.pending_client_tool_calls.values() if not each.response
    ]
    below = [
        WaitingFor(
            call_id=each.tool_call_id,
            tool=each.agent_type,
            kind="sub_agent",
            since=each.since or None,
            until=each.until,
            run_id=state.current_run_id,
            turn=turn,
            sub_session_id=each.sub_session_id,
        )
        for each in state.suspended_awaiting_children
        if not each.resolved
    ]
    return (*calls, *below)


def _of_pending(call: PendingClientToolCall, turn: int | None) -> WaitingFor:
    return WaitingFor(
        call_id=call.tool_call_id,
        tool=call.tool_name,
        kind=call.kind,
        arguments=call.input,
        since=call.created_at or None,
        until=call.deadline_at,
        run_id=call.run_id,
        turn=turn,
    )


def list_waits_of_thread(suspended: Suspension, asked: Message | None) -> tuple[WaitingFor, ...]:
    """By the thread's slice, for a session that has no session store; ``asked`` is its newest answer."""
    calls = () if asked is None else asked.tool_calls
    unanswered = list_unanswered_calls(suspended.calls, suspended.outcomes)
    own = [_of_waiting(each, calls) for each in unanswered]
    below = [
        WaitingFor(
            call_id=each.call,
            tool=each.agent,
            kind="sub_agent",
            since=each.since or None,
            until=each.until,
            sub_session_id=each.session_id,
        )
        for each in list_unfinished_children(suspended)
    ]
    return (*own, *below)


def _of_waiting(waiting: WaitingCall, calls: tuple[ToolCall, ...]) -> WaitingFor:
    call = calls[waiting.at] if waiting.at < len(calls) else None
    return WaitingFor(
        call_id=waiting.id,
        tool="" if call is None else call.name,
        kind=waiting.kind,
        arguments=None if call is None else call.arguments,
        since=waiting.since or None,
        until=waiting.until,
    )


def list_outcomes(state: SessionState) -> Mapping[str, str]:
    """How calls that waited were answered, as far as the state remembers."""
    return {name: each.outcome for name, each in state.completed_client_tool_calls.items()}
