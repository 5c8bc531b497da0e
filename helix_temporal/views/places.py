"""How threads are stored: hot, archived, and what keeps this from being read."""

from dataclasses import dataclass
from typing import Any

from helix_temporal.errors import HelixError, ThreadNotFoundError
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadFacts
from helix_temporal.views.access import PASSING, ViewedSessions, describe_problem
from helix_temporal.views.models import ThreadPlace
from helix_temporal.views.thread_parts import NO_ANSWER, read_hot_header, wait_for_archive


@dataclass(frozen=True, slots=True)
class FoundThread:
    """What is known of a thread; without ``facts`` it is not there, or ``problem`` says why they are not."""

    facts: ThreadFacts | None = None
    problem: str | None = None


async def find_thread(viewed: ViewedSessions, thread_id: str) -> FoundThread:
    """A thread's facts; those of its hot part where the archive is away or damaged."""
    try:
        return FoundThread(await wait_for_archive(lambda: viewed.threads.read_facts(thread_id)))
    except ThreadNotFoundError:
        return FoundThread()
    except (*PASSING, TimeoutError) as error:
        problem = describe_problem(error) if isinstance(error, HelixError) else NO_ANSWER
    header = await read_hot_header(viewed.threads, thread_id)
    return FoundThread(None if header is None else _facts_of(header), problem)


def _facts_of(header: HotHeader) -> ThreadFacts:
    return ThreadFacts(
        header.thread_id,
        header.head,
        header.committed,
        header.epoch,
        header.owner,
        header.closed,
        True,
        header.archived,
        header.slice,
        header.slice_version,
        header.adapter,
        header.size,
    )


def place_of(thread_id: str, found: FoundThread, *, archives: bool, **archive: Any) -> ThreadPlace:
    """How a thread is stored, of what is known; ``archive`` holds further fields."""
    facts = found.facts
    if facts is None:
        return ThreadPlace(thread_id=thread_id, problem=found.problem)
    archived = max(facts.archived, 0) if archives else None
    return ThreadPlace(
        thread_id=thread_id,
        messages=facts.committed,
        unfinished=facts.head.position - facts.committed,
        bytes=facts.size,
        hot=facts.hot,
        archived=archived,
        unarchived=max(facts.head.position - (archived or 0), 0) if facts.hot else 0,
        epoch=facts.epoch,
        opened_at=facts.epoch // 1000 or None,
        owner=facts.owner,
        closed=facts.closed,
        slice_version=facts.slice_version,
        slice_bytes=len(facts.slice),
        adapter=facts.adapter,
        problem=found.problem,
        **archive,
    )


async def read_place(viewed: ViewedSessions, state: SessionState) -> ThreadPlace:
    """How a session's thread is stored, with the objects of its archive."""
    thread_id = state.thread_id or state.session_id
    found = await find_thread(viewed, thread_id)
    return place_of(thread_id, found, archives=viewed.threads.archives)
