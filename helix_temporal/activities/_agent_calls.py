"""Calls of sub-agents in a thread: which an answer makes, and which a thread that is opened has open."""

from dataclasses import dataclass

from helix_temporal.agents import Agent
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import child_session_id
from helix_temporal.models.messages import Message, ToolCall, from_record, why_not_run
from helix_temporal.models.records import Kind
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore


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
        tool, name = agent.tool(call.name), f"{answer.id}.{at}"
        facts = None if tool is None else tool.facts(agent.name)
        if facts is None or facts.kind != "agent" or why_not_run(call) is not None:
            continue
        child = child_session_id(session_id, facts.name, facts.thread, name)
        found.append(AgentCall(at, name, call, facts, child))
    return found


def calls_agents(agent: Agent) -> bool:
    """Whether any of its tools is another agent."""
    return any(each.facts(agent.name).kind == "agent" for each in agent.tools)


async def open_calls(
    threads: ThreadStore, agent: Agent, session_id: str, thread: HotHeader | ThreadFacts
) -> list[AgentCall]:
    """Calls of sub-agents that a thread ends with: they have no results in it yet.

    Raises:
        StoreUnavailableError: The thread stands elsewhere by now.
    """
    if thread.head.position <= thread.committed:
        return []
    last = await _last(threads, thread)
    return [] if last is None else agent_calls(agent, session_id, last)


async def _last(threads: ThreadStore, thread: HotHeader | ThreadFacts) -> Message | None:
    """The message that a thread ends with, if that asks for tools."""
    head = thread.head
    at = ReadPage(
        thread.thread_id, head.position - 1, head.position, limit=1, committed_only=False, whole=False
    )
    page = await threads.read(at)
    if not page.records or page.records[-1].id != head.last_id:
        # A store that went back to an older copy since it was opened holds somebody else's turn.
        raise StoreUnavailableError(
            f"thread {thread.thread_id!r}: it stood at {head.position} and does no more; it is opened again"
        )
    return from_record(page.records[-1]) if page.records[-1].kind == Kind.CALLS else None
