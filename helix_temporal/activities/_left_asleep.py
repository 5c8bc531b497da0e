"""Sub-agents that wait for people, and whose caller was ended before it could say so.

What a session itself waits for stands in its slice since the step that asks.  That a sub-agent waits is known
once its session has ended; the caller's slice has it once its turn is suspended.  Whoever opens the caller's
thread in between finds it in the sub-agents' own threads, and at the server that they have ended.
"""

from collections.abc import Sequence
from typing import Any

from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.activities._agent_calls import AgentCall, calls_agents, open_calls
from helix_temporal.activities._step_rules import parse_state
from helix_temporal.activities._suspensions import as_carried, turn_under_way, used_by, waits_at
from helix_temporal.agents import Agent
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.deployments import DEFAULT_NAME
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.slices import SliceState
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.suspensions import (
    ChildWait,
    PendingCall,
    Suspension,
    pending_below,
    pending_call,
)
from helix_temporal.stores.protocols.threads import ThreadFacts, ThreadStore


async def left_asleep(
    threads: ThreadStore,
    agent: Agent,
    request: OpenSessionInput,
    inline_arguments: int,
    deployment: str = DEFAULT_NAME,
) -> Suspension | None:
    """What the slice would say of the turn under way, had its execution come to saying so.

    Arguments of more than ``inline_arguments`` bytes are left out.

    Returns:
        None where the slice says all there is, or nobody waits.

    Raises:
        StoreUnavailableError: A thread went on meanwhile.
    """
    thread = await _left(threads, agent, request)
    if thread is None:
        return None
    stored = waits_at(parse_state(thread.slice), thread.head)
    before = {} if stored is None else {each.at: each for each in stored.children}
    calls = {each.at: each for each in await open_calls(threads, agent, request.session_id, thread)}
    found = {
        at: await _asleep(threads, call, before.get(at), deployment, inline_arguments)
        for at, call in calls.items()
    }
    return with_children(stored or Suspension(head=thread.head), found, new=stored is None)


def with_children(stored: Suspension, found: dict[int, ChildWait | None], *, new: bool) -> Suspension | None:
    """Pure: the suspension with those calls that do wait; None where that changes nothing."""
    answered = {each.at for each in stored.known}
    held = {*_ended(stored), *(each.at for each in stored.calls if each.at not in answered)}
    children = {each.at: each for each in stored.children} | {
        at: wait for at, wait in found.items() if at not in held
    }
    asleep = tuple(each for _, each in sorted(children.items()) if each is not None)
    if asleep == stored.children or (new and not asleep):
        return None
    return stored.model_copy(update={"children": asleep})


async def _left(threads: ThreadStore, agent: Agent, request: OpenSessionInput) -> ThreadFacts | None:
    """The thread, if a turn of a session whose sub-agents end while they wait is open in it."""
    # A sub-agent's own caller is told that it was ended.
    begins = request.parent is None and request.reopen is None and request.rewind_to is None
    if not begins or request.mode not in {"auto", "continue"} or not calls_agents(agent):
        return None
    try:
        thread = await threads.facts(request.thread_id)
    except ThreadNotFoundError:
        return None
    state = parse_state(thread.slice)
    under_way = thread.head.position > thread.committed and not thread.closed
    return thread if under_way and _leaves(state) else None


def _leaves(state: SliceState) -> bool:
    return state.options is not None and state.options.suspend == "exit"


async def _asleep(
    threads: ThreadStore, call: AgentCall, before: ChildWait | None, deployment: str, inline_arguments: int
) -> ChildWait | None:
    """The call as one that waits, if its session does, and for this call."""
    if before is not None and not before.calls:
        return before  # behind another call of the same session
    try:
        thread = await threads.facts(call.session_id)
    except ThreadNotFoundError:
        return before
    suspended = waits_at(parse_state(thread.slice), thread.head)
    if suspended is None or thread.head.position <= thread.committed:
        return None
    _, records = await turn_under_way(threads, thread)
    messages = [from_record(record) for record in records]
    pending = _pending(suspended, messages[-1], inline_arguments)
    if not pending or all(each.id != call.name for each in messages):
        return None
    if before is not None and [each.id for each in before.calls] == [each.id for each in pending]:
        return before
    if await _is_held(workflow_id(call.session_id, deployment)):
        return before
    used = used_by(messages, suspended.known)
    return (before or _wait(call, pending)).model_copy(update={"calls": pending, "used": used})


def _ended(suspended: Suspension) -> set[int]:
    """Pure: calls that have results; those that were approved may yet have to run."""
    return {each.at for each in suspended.known if each.result is not None}


async def _is_held(workflow: str) -> bool:
    """Whether an execution has the session: its caller's end has it end, too, and its turn with it."""
    try:
        found = await activity.client().get_workflow_handle(workflow).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return found.close_time is None


def _pending(suspended: Suspension, answer: Message, inline_arguments: int) -> tuple[PendingCall, ...]:
    """Pure: what a session waits for, there and below."""
    known, ended = {each.at for each in suspended.known}, _ended(suspended)
    position = suspended.head.position - 1
    own = tuple(
        pending_call(each, as_carried(answer.tool_calls[each.at], inline_arguments), position)
        for each in suspended.calls
        if each.at not in known
    )
    return (*own, *pending_below(each for each in suspended.children if each.at not in ended))


def _wait(call: AgentCall, pending: Sequence[PendingCall]) -> ChildWait:
    """Pure: its time counts from the first question: when it was called, its caller alone knew."""
    facts, since = call.facts, min(each.since for each in pending)
    given: dict[str, Any] = {
        "until": None if facts.schedule_to_close is None else since + int(facts.schedule_to_close * 1000),
        "task_queue": facts.task_queue,
    }
    return ChildWait(
        at=call.at,
        session_id=call.session_id,
        call=call.name,
        agent=facts.agent or "",
        since=since,
        **{name: value for name, value in given.items() if value is not None},
    )
