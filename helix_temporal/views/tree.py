"""A session with the sessions of its sub-agents, and what all of them used."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from helix_temporal.models.states import SessionState
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.children import MAX_CHILDREN, ChildSessions, list_children
from helix_temporal.views.models import SessionBranch, SessionOverview, UsageSums
from helix_temporal.views.problems import PARTIAL_READ_ERRORS
from helix_temporal.views.session_facts import read_record
from helix_temporal.views.storage import find_thread
from helix_temporal.views.usage import add_usage, has_few_entries, read_short_usage, read_usage

T = TypeVar("T")

MAX_DEPTH: Final = 16
_AT_ONCE: Final = 8
"""Sessions that the stores are asked for side by side."""


@dataclass(slots=True)
class _Node:
    """A session of a tree that is being read."""

    overview: SessionOverview
    thread_id: str | None = None
    children: list["_Node"] = field(default_factory=list)
    usage: UsageSums = field(default_factory=UsageSums)
    hidden: int = 0
    left_out: int = 0


async def read_tree(viewed: ViewedSessions, state: SessionState) -> SessionBranch:
    """A session with all below it: up to 16 deep, and 500 sessions.

    A session is shown once, where it was found first, so that references in a circle end.
    """
    root = _Node(await viewed.show_overview(state), state.thread_id)
    nodes, level, seen = [root], [root], {state.session_id}
    for depth in range(1, MAX_DEPTH + 1):
        found = await _map_some(level, lambda node: list_children(viewed, node.overview.session_id))
        for node, below in zip(level, found, strict=True):
            room = 0 if depth == MAX_DEPTH else MAX_CHILDREN - len(nodes)
            nodes += _add_children(node, below, seen, room)
        level = [child for node in level for child in node.children]
        if not level:
            break
    used = await _map_some(nodes, lambda node: _read_usage(viewed, node))
    for node, usage in zip(nodes, used, strict=True):
        node.usage = usage
    return _build_branch(root)


def _add_children(node: _Node, below: ChildSessions, seen: set[str], room: int) -> list[_Node]:
    """Put as many children that nobody has shown yet below a session as there is room for."""
    new = [
        _Node(child.overview, child.thread_id)
        for child in below.shown
        if child.overview.session_id not in seen
    ]
    hidden = [each for each in below.hidden if each not in seen]
    node.children = new[:room]
    node.left_out = below.left_out + len(new) - len(node.children)
    node.hidden = len(hidden)
    seen.update(child.overview.session_id for child in node.children)
    seen.update(hidden)
    return node.children


async def _read_usage(viewed: ViewedSessions, node: _Node) -> UsageSums:
    """What a session used itself; where that cannot be read, zeros that say so."""
    session_id = node.overview.session_id
    try:
        if await has_few_entries(viewed, session_id):
            return await read_usage(viewed, session_id)
        # Not for each session of a tree: the archive may be asked for this.
        found = await find_thread(viewed.threads, node.thread_id or session_id)
        record = None if found.facts is None else read_record(found.facts)
        return await read_short_usage(viewed, session_id, record)
    except PARTIAL_READ_ERRORS:
        return UsageSums(session_ids=(session_id,), complete=False)


def _build_branch(node: _Node) -> SessionBranch:
    """The branch, with sums from below; it is at most `MAX_DEPTH` deep."""
    children = tuple(_build_branch(child) for child in node.children)
    sums = node.usage
    for child in children:
        sums = add_usage(sums, child.sums)
    if node.hidden or node.left_out:
        sums = sums.model_copy(update={"complete": False})
    return SessionBranch(
        overview=node.overview,
        usage=node.usage,
        sums=sums,
        children=children,
        hidden=node.hidden,
        left_out=node.left_out,
    )


class BranchRow(NamedTuple):
    """A session of a tree in its table: how deep it lies, from 0."""

    depth: int
    branch: SessionBranch


def list_branches(branch: SessionBranch, depth: int = 0) -> list[BranchRow]:
    """A tree as the rows of a table, each parent before its children."""
    below = [row for child in branch.children for row in list_branches(child, depth + 1)]
    return [BranchRow(depth, branch), *below]


async def _map_some(items: Sequence[_Node], read: Callable[[_Node], Awaitable[T]]) -> list[T]:
    """What is read of each, a few side by side."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def read_one(item: _Node) -> T:
        async with slots:
            return await read(item)

    return list(await asyncio.gather(*(read_one(each) for each in items)))
