"""How threads are stored: hot, archived, and what keeps this from being read."""

from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import size_of
from helix_temporal.stores.protocols.threads import Audit, ThreadFacts, ThreadStore
from helix_temporal.views.access import ViewedSessions
from helix_temporal.views.models import SegmentPlace, ThreadPlace
from helix_temporal.views.problems import PARTIAL_READ_ERRORS, describe_problem
from helix_temporal.views.thread_parts import find_hot_header

MAX_SEGMENTS: Final = 2_000
"""Of one archive, that are listed: the newest ones."""


@dataclass(frozen=True, slots=True)
class FoundThread:
    """What is known of a thread; without ``facts`` it is not there, or ``problem`` says why they are not.

    Attributes:
        hot: Whether the hot store has it; None where that did not answer.
    """

    facts: ThreadFacts | None = None
    problem: str | None = None
    hot: bool | None = False


async def find_thread(threads: ThreadStore, thread_id: str) -> FoundThread:
    """A thread's facts; those of its hot part where the archive is away or damaged."""
    try:
        facts = await threads.read_facts(thread_id)
        return FoundThread(facts, hot=facts.hot)
    except ThreadNotFoundError:
        return FoundThread()
    except PARTIAL_READ_ERRORS as error:
        problem = describe_problem(error)
    try:
        header = await find_hot_header(threads, thread_id)
    except PARTIAL_READ_ERRORS:
        return FoundThread(problem=problem, hot=None)
    if header is None:
        return FoundThread(problem=problem)
    return FoundThread(ThreadFacts.of_hot(header, header.archived), problem, hot=True)


def place_of(thread_id: str, found: FoundThread, *, archives: bool) -> ThreadPlace:
    """How a thread is stored, of what is known, without the objects of its archive."""
    facts = found.facts
    if facts is None:
        return ThreadPlace(thread_id=thread_id) if found.problem is None else _unread_place(thread_id, found)
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
    )


def _unread_place(thread_id: str, found: FoundThread) -> ThreadPlace:
    """How a thread is stored of which at most is known whether it is hot."""
    return ThreadPlace(
        thread_id=thread_id,
        messages=None,
        unfinished=None,
        bytes=None,
        hot=found.hot,
        unarchived=0 if found.hot is False else None,
        epoch=None,
        closed=None,
        slice_version=None,
        slice_bytes=None,
        problem=found.problem,
    )


async def read_place(viewed: ViewedSessions, state: SessionState) -> ThreadPlace:
    """How a session's thread is stored, with the objects of its archive; reads no message."""
    thread_id = state.messages_thread_id
    found = await find_thread(viewed.threads, thread_id)
    place = place_of(thread_id, found, archives=viewed.threads.archives)
    # One that has not answered is not waited for again.
    archive = {} if found.problem else await _read_archive(viewed.threads, thread_id)
    return place.model_copy(update=archive | {"problem": place.problem or archive.get("problem")})


async def verify_thread(viewed: ViewedSessions, state: SessionState) -> Audit | None:
    """Read and verify all of the archive of a session's thread; None where there is no archive.

    Raises:
        StoreUnavailableError: The archive does not answer.
    """
    if not isinstance(viewed.threads, TieredThreads):
        return None
    return await viewed.threads.upkeep.audit(state.messages_thread_id)


async def _read_archive(threads: ThreadStore, thread_id: str) -> dict[str, Any]:
    """Fields of a `ThreadPlace` about the archive; ``problem`` among them where it could not be read."""
    if not isinstance(threads, TieredThreads):
        return {}
    try:
        return await _list_archive(threads, thread_id)
    except PARTIAL_READ_ERRORS as error:
        return {"problem": describe_problem(error)}


async def _list_archive(threads: TieredThreads, thread_id: str) -> dict[str, Any]:
    manifest, segments = await threads.list_contents(thread_id)
    prefix = threads.layout.thread_prefix(thread_id)
    objects, size = 0, 0
    async for info in threads.blobs.list(prefix):
        objects, size = objects + 1, size + info.size
    shown = [] if manifest.is_absent else segments[-MAX_SEGMENTS:]
    places = [
        SegmentPlace(
            name=threads.layout.segment_key(thread_id, ref).removeprefix(prefix),
            first=ref.first,
            stop=ref.stop,
            bytes=ref.size,
        )
        for ref in shown
    ]
    if manifest.inline and not manifest.is_absent:
        inline = SegmentPlace(
            name="manifest",
            first=manifest.inline_first,
            stop=manifest.head.position,
            bytes=size_of(manifest.inline),
        )
        places.append(inline)
    return {
        "manifest_version": manifest.version or None,
        "segments": tuple(places),
        "segments_left_out": len(segments) - len(shown),
        "objects": objects,
        "object_bytes": size,
    }
