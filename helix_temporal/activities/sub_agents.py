"""Sub-agents' sessions: which there are, whether anybody serves them, and which wait for people."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from temporalio import activity

from helix_temporal.activities._runtime import heartbeat_with_progress, limited_as, raise_application_errors
from helix_temporal.activities.executions import find_execution, unless_gone
from helix_temporal.activities.stores import checked_size
from helix_temporal.activities.suspended_turns import read_turn_under_way, sum_usage
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.errors import (
    ArchiveCorruptError,
    SessionNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.base import only_set
from helix_temporal.models.deployments import DEFAULT_NAME
from helix_temporal.models.handles import ChildInfo, ListChildrenInput
from helix_temporal.models.ids import make_result_id, workflow_id
from helix_temporal.models.messages import Message, ToolCall, decode_message, shorten_arguments, why_not_run
from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.store_calls import Page
from helix_temporal.models.stored_messages import Kind
from helix_temporal.models.waiting import (
    HasStartedInput,
    HasStartedResult,
    SubAgentCall,
    Suspension,
    check_own_id,
    child_session_id,
    is_child_id,
    pending_below,
    tool_of,
)
from helix_temporal.session.pending_calls import (
    list_pending_calls,
    list_unanswered_calls,
    list_unfinished_children,
)
from helix_temporal.session.record import find_suspension, parse_record
from helix_temporal.session.sub_agents import add_waiting_calls, make_waiting_call
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadPage, ThreadStore

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A call of a sub-agent.

    Attributes:
        at: Its number among the answer's calls.
        name: Names it within the session, as the id of its result does.
        session_id: Of the sub-agent's session.
    """

    at: int
    name: str
    call: ToolCall
    facts: ToolFacts
    session_id: str


def agent_calls(agent: Agent, session_id: str, answer: Message) -> list[AgentCall]:
    """Pure: those calls of an answer that have sessions, or will have once somebody approves them."""
    found = []
    for at, call in enumerate(answer.tool_calls):
        tool, name = agent.find_tool(call.name), make_result_id(answer.id, at)
        facts = None if tool is None else tool.build_facts(agent.name)
        if facts is None or facts.kind != "agent" or why_not_run(call) is not None:
            continue
        child = child_session_id(session_id, facts.name, facts.thread, name)
        found.append(AgentCall(at, name, call, facts, child))
    return found


def calls_agents(agent: Agent) -> bool:
    """Whether any of its tools is another agent."""
    return any(each.build_facts(agent.name).kind == "agent" for each in agent.tools)


async def open_calls(
    threads: ThreadStore, agent: Agent, session_id: str, thread: HotHeader | ThreadFacts
) -> list[AgentCall]:
    """Calls of sub-agents that a thread ends with: they have no results in it yet.

    Raises:
        StoreUnavailableError: The thread stands elsewhere by now.
    """
    if thread.head.position <= thread.committed:
        return []
    last = await _read_last_answer(threads, thread)
    return [] if last is None else agent_calls(agent, session_id, last)


async def _read_last_answer(threads: ThreadStore, thread: HotHeader | ThreadFacts) -> Message | None:
    """The message that a thread ends with, if that asks for tools."""
    head = thread.head
    last = ReadPage.of_message(thread.thread_id, head.position - 1, epoch=thread.epoch)
    page = await threads.read(last)
    if not page.messages or page.messages[-1].id != head.last_id:
        # A store that went back to an older copy since it was opened holds somebody else's turn.
        raise StoreUnavailableError(
            f"thread {thread.thread_id!r}: it stood at {head.position} and does no more; it is opened again"
        )
    return decode_message(page.messages[-1]) if page.messages[-1].kind == Kind.CALLS else None


MOST_MESSAGES: Final = 2000
"""A page of calls looks at so many messages."""
_LOOKS_AT_ONCE: Final = 200
_BY_REFS: Final = "children.refs"
_BY_CALLS: Final = "children.calls"


class SubAgentPage(NamedTuple):
    """A page of sub-agents' sessions.

    Attributes:
        unsure: Of those whose calls may never have been let through: only those with a thread were there.
    """

    page: Page[ChildInfo]
    unsure: frozenset[str] = frozenset()


def by_refs(request: ListChildrenInput, refs: Sequence[SubSessionRef]) -> SubAgentPage:
    """Pure: a page of references, which are given in the order in which they were added.

    Raises:
        InvalidCursorError: See there.
    """
    stop = len(refs)
    if request.cursor is not None:
        stop = max(0, min(stop, decode_cursor(_BY_REFS, request.cursor)[0]))
    start = max(0, stop - request.limit)
    items = tuple(_of_ref(request.session_id, each) for each in reversed(refs[start:stop]))
    cursor = encode_cursor(_BY_REFS, start, "") if start else None
    return SubAgentPage(Page(items=items, next_cursor=cursor, has_more=start > 0, total=len(refs)))


async def by_calls(
    threads: ThreadStore, agent: Agent, request: ListChildrenInput, facts: ThreadFacts
) -> SubAgentPage:
    """A page of the calls of sub-agents that are in a thread, the turn under way included.

    Raises:
        InvalidCursorError: See there.
    """
    stop: int | None = facts.head.position
    seen: set[str] = set()
    if request.cursor is not None:
        before, tools = decode_cursor(_BY_CALLS, request.cursor)
        stop = min(before, facts.head.position)
        seen.update(tools.split())
    found: list[ChildInfo] = []
    unsure: set[str] = set()
    results: dict[str, Message] = {}
    looked = 0
    while stop is not None and stop > 0:
        page = await _read_before(threads, facts, stop)
        for at in range(page.first + len(page.messages) - 1, page.first - 1, -1):
            message = page.messages[at - page.first]
            looked += 1
            if message.kind == Kind.RESULT:
                results[message.id] = decode_message(message)
                continue  # what a page ends with is a call, or no part of one
            if message.kind == Kind.CALLS:
                children = _of_calls(request.session_id, agent, decode_message(message), results, seen)
                found += children
                unsure.update(each.session_id for each in children if _waits_for_approval(agent, each.tool))
                results = {}
            if at > 0 and (len(found) >= request.limit or looked >= MOST_MESSAGES):
                cursor = encode_cursor(_BY_CALLS, at, " ".join(sorted(seen)))
                return SubAgentPage(
                    Page(items=tuple(found), next_cursor=cursor, has_more=True), frozenset(unsure)
                )
        stop = page.before
    return SubAgentPage(Page(items=tuple(found)), frozenset(unsure))


async def _read_before(threads: ThreadStore, thread: ThreadFacts, stop: int) -> ThreadPage:
    """The newest messages before a place, the turn under way included."""
    return await threads.read(
        ReadPage(
            thread.thread_id,
            0,
            stop,
            limit=_LOOKS_AT_ONCE,
            backward=True,
            committed_only=False,
            whole=False,
            epoch=thread.epoch,
        )
    )


def _of_ref(session_id: str, ref: SubSessionRef) -> ChildInfo:
    given: dict[str, Any] = {
        "call": ref.parent_tool_call_id,
        "run_id": ref.run_id,
        "remote": ref.remote,
    }
    return ChildInfo(
        session_id=ref.sub_session_id,
        agent=ref.agent_type,
        tool=ref.tool or tool_of(session_id, ref.sub_session_id),
        status=ref.status,
        created_at=ref.created_at,
        updated_at=ref.updated_at,
        **only_set(**given),
    )


def _of_calls(
    session_id: str, agent: Agent, answer: Message, results: Mapping[str, Message], seen: set[str]
) -> list[ChildInfo]:
    """Sessions that an answer asks for, the last call first, without continuing ones that are in ``seen``."""
    found = []
    for each in reversed(agent_calls(agent, session_id, answer)):
        if each.facts.name in seen:
            continue
        if each.facts.thread == "continue":
            seen.add(each.facts.name)
        found.append(
            ChildInfo(
                session_id=each.session_id,
                agent=each.facts.agent or "",
                tool=each.facts.name,
                call=each.call.id,
                status=_status_of_result(results.get(each.name)),
            )
        )
    return found


def _status_of_result(result: Message | None) -> SessionStatus:
    if result is None:
        return SessionStatus.ACTIVE
    return SessionStatus.FAILED if result.is_error else SessionStatus.COMPLETED


def _waits_for_approval(agent: Agent, tool: str) -> bool:
    found = agent.find_tool(tool)
    return found is not None and found.approval


_AT_ONCE: Final = 8
"""Threads of sub-agents that are looked at side by side."""


class ChildActivities:
    """What is known of sub-agents' sessions; none is woken.

    Args:
        sessions: None where the thread is all that there is.
        max_payload: Bytes that a result may have.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(
        self,
        threads: ThreadStore,
        agents: AgentRegistry,
        sessions: SessionStore | None = None,
        *,
        max_payload: int = 256 * 1024,
        beat_every: float = 1.0,
    ) -> None:
        self._threads, self._agents, self._sessions = threads, agents, sessions
        self._max_payload, self._beat_every = max_payload, beat_every

    @activity.defn(name="helix.sessions.children")
    @raise_application_errors
    @limited_as("heartbeat")
    async def children(self, request: ListChildrenInput) -> Page[ChildInfo]:
        """A page of the sessions that a session's sub-agents have, newest first, and what each used."""
        async with heartbeat_with_progress(self._beat_every):
            listed = await self._list_children(request)
            items = await self._add_usage(listed.page.items, listed.unsure)
        page = listed.page.model_copy(update={"items": tuple(items)})
        checked_size(page, self._max_payload, "page of sub-agents")
        return page

    @activity.defn(name="helix.sessions.has_started")
    @raise_application_errors
    async def has_started(self, request: HasStartedInput) -> HasStartedResult:
        """Whether a worker has ever begun with an execution; one that none has begun with is terminated.

        Nothing of it is lost: it has done nothing.  Left alone it would wait until its time is over.
        """
        handle = activity.client().get_workflow_handle(request.workflow_id, run_id=request.run_id)
        begun = True
        with unless_gone():
            begun = await _has_begun(handle)
        if not begun:
            with unless_gone():
                await handle.terminate(reason="no worker began with it in time")
        return HasStartedResult(has_started=begun)

    async def _list_children(self, request: ListChildrenInput) -> SubAgentPage:
        if self._sessions is not None:
            refs = await self._sessions.list_sub_session_refs(request.session_id)
            if refs or await self._sessions.load_state(request.session_id) is not None:
                return by_refs(request, refs)
        try:
            facts = await self._threads.read_facts(request.thread)
        except ThreadNotFoundError:
            if request.if_any:
                return SubAgentPage(Page(items=(), total=0))
            raise SessionNotFoundError(
                f"session {request.session_id!r} has neither a state nor a thread"
            ) from None
        agent = self._agents.get_agent(parse_record(facts.slice).agent)
        return await by_calls(self._threads, agent, request, facts)

    async def _add_usage(self, items: Sequence[ChildInfo], unsure: frozenset[str]) -> list[ChildInfo]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(child: ChildInfo) -> ChildInfo | None:
            if child.remote is not None:
                return child
            async with gate:
                try:
                    facts = await self._threads.read_facts(child.session_id)
                except ThreadNotFoundError:
                    # It did not get so far, or was deleted since.
                    return None if child.session_id in unsure else child
                except (StoreCorruptError, ArchiveCorruptError) as error:
                    activity.logger.warning("session %r: its usage is not known: %s", child.session_id, error)
                    return child
            record = parse_record(facts.slice)
            return child.model_copy(update={"usage": record.usage, "steps": record.steps})

        found = await asyncio.gather(*(one(each) for each in items))
        return [each for each in found if each is not None]


async def _has_begun(handle: "WorkflowHandle[Any, Any]") -> bool:
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_started_event_attributes"):
            return True
    return False


async def recover_sub_agent_calls(
    threads: ThreadStore,
    agent: Agent,
    request: OpenSessionInput,
    inline_arguments: int,
    deployment: str = DEFAULT_NAME,
) -> Suspension | None:
    """What the slice would say of the turn under way, had its execution come to saying so.

    Arguments of more than ``inline_arguments`` bytes are left out.

    Returns:
        None where the record needs no change, or where nobody was ever asked, so that the turn is cut.  A
        suspension without sub-agents where all of them work again or have ended: the turn stays, and their
        calls are made again.

    Raises:
        StoreUnavailableError: A thread went on meanwhile.
    """
    thread = await _find_thread_under_way(threads, agent, request)
    if thread is None:
        return None
    stored = find_suspension(parse_record(thread.slice), thread.head)
    before = {} if stored is None else {each.at: each for each in stored.children}
    calls = {each.at: each for each in await open_calls(threads, agent, request.session_id, thread)}
    found = {
        at: await _find_waiting_call(threads, call, before.get(at), deployment, inline_arguments)
        for at, call in calls.items()
    }
    if stored is None and not any(found.values()) and not await _has_any_waited(threads, calls.values()):
        return None
    kept = add_waiting_calls(stored or Suspension(head=thread.head), found)
    return None if kept == stored else kept


async def _find_thread_under_way(
    threads: ThreadStore, agent: Agent, request: OpenSessionInput
) -> ThreadFacts | None:
    """The thread, if a turn of a session that has sub-agents is open in it."""
    # A sub-agent's own caller is told that it was ended.
    begins = request.parent is None and request.reopen is None and request.rewind_to is None
    if not begins or request.mode not in {"auto", "continue"} or not calls_agents(agent):
        return None
    try:
        thread = await threads.read_facts(request.thread_id)
    except ThreadNotFoundError:
        return None
    return thread if thread.head.position > thread.committed and not thread.closed else None


async def _find_waiting_call(
    threads: ThreadStore,
    call: AgentCall,
    before: SubAgentCall | None,
    deployment: str,
    inline_arguments: int,
) -> SubAgentCall | None:
    """The call as one that waits, if its session does, and for this call.

    None if an execution has its session, which then works or is being ended: the call is made again later.
    """
    if before is not None and not before.calls:
        return before  # behind another call of the same session
    try:
        thread = await threads.read_facts(call.session_id)
    except ThreadNotFoundError:
        return before
    suspended = find_suspension(parse_record(thread.slice), thread.head)
    if suspended is None or thread.head.position <= thread.committed:
        return None
    _, stored = await read_turn_under_way(threads, thread)
    messages = [decode_message(each) for each in stored]
    asked = [shorten_arguments(each, inline_arguments) for each in messages[-1].tool_calls]
    unanswered = list_unanswered_calls(suspended.calls, suspended.outcomes)
    below = pending_below(list_unfinished_children(suspended))
    pending = list_pending_calls(suspended.head, asked, unanswered, below)
    if not pending or all(each.id != call.name for each in messages):
        return None
    if await _is_held(workflow_id(call.session_id, deployment)):
        return None
    if (await threads.read_facts(call.session_id)).head != thread.head:
        return None  # it came to its end between the two looks
    if before is not None and [each.id for each in before.calls] == [each.id for each in pending]:
        return before
    used = sum_usage(messages, suspended.outcomes)
    return (before or make_waiting_call(call.name, call.at, call.session_id, call.facts, pending)).model_copy(
        update={"calls": pending, "used": used}
    )


async def _has_any_waited(threads: ThreadStore, calls: Iterable[AgentCall]) -> bool:
    """Whether people were asked for one of these calls: what they answered is not to be asked again."""
    for call in calls:
        if await _has_waited(threads, call):
            return True
    return False


async def _has_waited(threads: ThreadStore, call: AgentCall) -> bool:
    """Whether its session has waited; in one that serves several calls, perhaps for an earlier one."""
    try:
        thread = await threads.read_facts(call.session_id)
    except ThreadNotFoundError:
        return False
    record = parse_record(thread.slice)
    if record.suspended is None and not record.answered:
        return False
    return await _has_message(threads, thread, call.name)


async def _has_message(threads: ThreadStore, thread: ThreadFacts, message_id: str) -> bool:
    """Whether one of a thread's newest messages has this id."""
    stop: int | None = thread.head.position
    while stop is not None and stop > max(thread.head.position - MOST_MESSAGES, 0):
        page = await _read_before(threads, thread, stop)
        if any(message.id == message_id for message in page.messages):
            return True
        stop = page.before
    return False


async def _is_held(workflow: str) -> bool:
    """Whether an execution has the session: its caller's end has it end, too, and its turn with it."""
    found = await find_execution(activity.client().get_workflow_handle(workflow))
    return found is not None and found.close_time is None


def restrict_sub_agent_id(request: OpenSessionInput) -> OpenSessionInput:
    """The request as it may be carried out: under an id that a sub-agent's session may have, only a
    sub-agent's begins; whatever is there goes on, whoever asks for it.

    Raises:
        InvalidIdError: It insists on beginning such a one, or on another thread for it.
    """
    if request.parent is not None or request.reopen is not None or request.mode == "continue":
        return request
    session, thread = is_child_id(request.session_id), is_child_id(request.thread_id)
    if not (session or thread):
        return request
    if request.mode != "auto" or (session and request.thread_id != request.session_id):
        refuse_sub_agent_id(request)
    return request.model_copy(update={"mode": "continue"})


def refuse_sub_agent_id(request: OpenSessionInput) -> None:
    """Raise what such a session is refused with.

    Raises:
        InvalidIdError: Always, for a request that `restrict_sub_agent_id` does not give back as it is.
    """
    check_own_id(request.session_id)
    check_own_id(request.thread_id, "thread_id")
