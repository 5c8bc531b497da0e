"""Sub-agents' sessions, newest first: by the references of a session store, or by the calls in a thread."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from helix_temporal.activities._agent_calls import agent_calls
from helix_temporal.agents import Agent
from helix_temporal.models.children import tool_of
from helix_temporal.models.handles import ChildInfo, ListChildrenInput
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.queries import Page
from helix_temporal.models.records import Kind
from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.stores._cursors import decode_cursor, encode_cursor
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore

MOST_MESSAGES: Final = 2000
"""A page of calls looks at so many messages."""
_AT_ONCE: Final = 200
_BY_REFS: Final = "children.refs"
_BY_CALLS: Final = "children.calls"


class Listed(NamedTuple):
    """A page of sub-agents' sessions.

    Attributes:
        unsure: Of those whose calls may never have been let through: only those with a thread were there.
    """

    page: Page[ChildInfo]
    unsure: frozenset[str] = frozenset()


def by_refs(request: ListChildrenInput, refs: Sequence[SubSessionRef]) -> Listed:
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
    return Listed(Page(items=items, next_cursor=cursor, has_more=start > 0, total=len(refs)))


async def by_calls(
    threads: ThreadStore, agent: Agent, request: ListChildrenInput, facts: ThreadFacts
) -> Listed:
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
        page = await threads.read(
            ReadPage(
                request.thread, 0, stop, limit=_AT_ONCE, backward=True, committed_only=False, whole=False
            )
        )
        for at in range(page.first + len(page.records) - 1, page.first - 1, -1):
            record = page.records[at - page.first]
            looked += 1
            if record.kind == Kind.RESULT:
                results[record.id] = from_record(record)
                continue  # what a page ends with is a call, or no part of one
            if record.kind == Kind.CALLS:
                children = _of_calls(request.session_id, agent, from_record(record), results, seen)
                found += children
                unsure.update(each.session_id for each in children if _waits_for_approval(agent, each.tool))
                results = {}
            if at > 0 and (len(found) >= request.limit or looked >= MOST_MESSAGES):
                cursor = encode_cursor(_BY_CALLS, at, " ".join(sorted(seen)))
                return Listed(Page(items=tuple(found), next_cursor=cursor, has_more=True), frozenset(unsure))
        stop = page.before
    return Listed(Page(items=tuple(found)), frozenset(unsure))


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
        **{name: value for name, value in given.items() if value is not None},
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
                status=_status(results.get(each.name)),
            )
        )
    return found


def _status(result: Message | None) -> SessionStatus:
    if result is None:
        return SessionStatus.ACTIVE
    return SessionStatus.FAILED if result.is_error else SessionStatus.COMPLETED


def _waits_for_approval(agent: Agent, tool: str) -> bool:
    found = agent.tool(tool)
    return found is not None and found.approval
