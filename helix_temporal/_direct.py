"""Reads by stores that the application has: in its own process, without a workflow."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from temporalio.exceptions import ApplicationError

from helix_temporal._updates import root_error
from helix_temporal.activities import ThreadActivities
from helix_temporal.activities.checkpoints import CheckpointActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.usage import UsageActivities
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.queries import Page
from helix_temporal.models.records import Record
from helix_temporal.models.store_calls import ListCheckpointsInput
from helix_temporal.stores._pages import MAX_LIMIT
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.workflows import LookReply, LookRequest, ThreadReply, ThreadRequest

R = TypeVar("R")

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a thread that is read whole, so much at a time."""
_UNBOUNDED: Final = 2**62
"""Nothing passes through Temporal, which would limit its size."""


class ReadableStores(Protocol):
    """Where the workers have sessions: a `helix_temporal.backends.Backends`, or `SessionStores`."""

    @property
    def threads(self) -> ThreadStore:
        """Messages, and the slice."""
        ...

    @property
    def usage(self) -> UsageStore:
        """What sessions used."""
        ...

    @property
    def sessions(self) -> SessionStore | None:
        """States and checkpoints; None where the workers have no session store."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStores:
    """Stores from anywhere, as a `SessionClient` reads them.

    They must be those of the workers, with the same prefixes; whoever made them closes them.

    Attributes:
        threads: A hot tier alone, as `HotThreads`, or over the archive, as `TieredThreads`.
        usage: What sessions used.
        sessions: States and checkpoints; None where the workers have no session store.
    """

    threads: ThreadStore
    usage: UsageStore
    sessions: SessionStore | None = None


class DirectReads:
    """Answers as the short workflows do, by the same code."""

    def __init__(self, stores: ReadableStores) -> None:
        self._store = stores.threads
        self._threads = ThreadActivities(stores.threads, max_payload=_UNBOUNDED)
        self._sessions = SessionReads(stores.threads, stores.usage, stores.sessions, max_payload=_UNBOUNDED)
        self._usage = UsageActivities(stores.usage, max_payload=_UNBOUNDED)
        self._checkpoints = CheckpointActivities(stores.sessions) if stores.sessions is not None else None

    async def thread(self, request: ThreadRequest) -> ThreadReply | None:
        """What a thread is asked; None where it is no read.

        Raises:
            HelixError: As the workflow does.
        """
        if request.read is not None:
            return ThreadReply(read=await _typed(self._threads.read(request.read)))
        if request.describe is not None:
            return ThreadReply(described=await _typed(self._threads.describe(request.describe)))
        return None

    async def messages(self, thread_id: str) -> list[Message]:
        """All messages of the finished turns.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        found: list[Message] = []
        after: int | None = 0
        while after is not None:
            wanted = ReadPage(thread_id, after, limit=MAX_LIMIT, max_bytes=PAGE_BYTES, whole=False)
            page = await self._store.read(wanted)
            # In a thread: other tasks of the application go on.
            found += await asyncio.to_thread(_messages, page.records)
            after = page.after
        return found

    async def look(self, request: LookRequest) -> LookReply | None:
        """What a session is asked; None where only a worker, which serves the agents, can tell.

        Raises:
            HelixError: As the workflow does.
        """
        if request.show is not None:
            return LookReply(show=await _typed(self._sessions.show(request.show)))
        if request.usage is not None:
            return LookReply(usage=await _typed(self._sessions.usage(request.usage)))
        if request.turns is not None:
            return LookReply(turns=await _typed(self._sessions.turns(request.turns)))
        if request.find_turn is not None:
            return LookReply(find_turn=await _typed(self._sessions.find_turn(request.find_turn)))
        if request.sessions is not None:
            return LookReply(sessions=await _typed(self._sessions.find(request.sessions)))
        if request.entries is not None:
            return LookReply(entries=await _typed(self._usage.query(request.entries)))
        if request.checkpoints is not None:
            return LookReply(checkpoints=await self._listed(request.checkpoints))
        return None

    async def _listed(self, request: ListCheckpointsInput) -> Page[CheckpointMeta]:
        return (
            Page(items=(), total=0)
            if self._checkpoints is None
            else await _typed(self._checkpoints.list(request))
        )


def _messages(records: Sequence[Record]) -> list[Message]:
    return [from_record(each) for each in records]


async def _typed(answer: Awaitable[R]) -> R:
    try:
        return await answer
    except ApplicationError as error:
        # As which a typed error leaves an activity.
        raise root_error(error) from None
