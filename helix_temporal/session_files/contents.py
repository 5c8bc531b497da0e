"""What of a session goes into a file, and how it is read so that all of it is of one moment."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.base import JsonObject
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState, SubSessionRef
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.session.record import parse_record
from helix_temporal.session_files.file import (
    FileSession,
    FileThread,
    dump_child,
    dump_record,
    dump_run,
    dump_state,
    dump_usage,
)
from helix_temporal.session_files.portable import make_portable_record, make_portable_state
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, find_facts
from helix_temporal.stores.sessions.imports import is_without_workflow
from helix_temporal.views.access import session_not_found_error
from helix_temporal.views.reading import stores_for_reading
from helix_temporal.views.usage import iterate_entries

_PAGE: Final = 1_000
_PAGE_BYTES: Final = 4 * 1024 * 1024
_RUNS: Final = 200
_TRIES: Final = 40
_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class SessionContents:
    """A session as it goes into a file, without its messages.

    Attributes:
        thread_id: Where its messages are.
        epoch: Of the thread when it was read; None where there is no thread.
    """

    part: FileSession
    children: tuple[JsonObject, ...] = ()
    runs: tuple[JsonObject, ...] = ()
    usage: tuple[JsonObject, ...] = ()
    thread_id: str = ""
    epoch: int | None = None

    @property
    def head(self) -> Head:
        """Where its messages end."""
        return self.part.head


class ContentsReader:
    """Reads sessions for a file; changes nothing, and refuses no session that is in use.

    What is damaged is an error: a file shall not be written without a part of its session.

    Args:
        stores: A `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores`.
    """

    def __init__(self, stores: ReadableStores) -> None:
        reading = stores_for_reading(stores)
        self._threads, self._usage, self._sessions = reading.threads, reading.usage, reading.sessions

    async def read_contents(
        self,
        session_id: str,
        *,
        parent: str | None = None,
        top: str | None = None,
        children: Sequence[SubSessionRef] = (),
    ) -> SessionContents:
        """The session at one moment, up to the end of its finished turns.

        Args:
            session_id: Which one.
            parent: The session of the file whose child it is.
            top: The first session of the file, where it is another.
            children: Its children in the file.

        Raises:
            SessionNotFoundError: There is none.
            StoreUnavailableError: It changed during each of many looks.
        """
        validate_id(session_id, "session id")
        for number in range(_TRIES):
            found = await self._try_read(session_id, (parent, top), children, last=number == _TRIES - 1)
            if found is not None:
                return found
            await asyncio.sleep(_PAUSE)
        raise StoreUnavailableError(
            f"session {session_id!r}: it changed during {_TRIES} looks; export it again",
            session_id=session_id,
        )

    async def _try_read(
        self,
        session_id: str,
        above: tuple[str | None, str | None],
        children: Sequence[SubSessionRef],
        *,
        last: bool,
    ) -> SessionContents | None:
        parent, top = above
        state = await self._load_state(session_id)
        thread_id = session_id if state is None else state.messages_thread_id
        facts = await find_facts(self._threads, thread_id)
        if state is None and facts is None:
            raise session_not_found_error(session_id)
        runs, live = await self._list_runs(session_id, state)
        behind = state is not None and facts is not None and state.head.position < facts.committed
        if live and behind and not last:
            return None  # A turn has just ended in the thread, and its state is being committed.
        usage = [each async for each in iterate_entries(self._usage, session_id)]
        head = EMPTY if facts is None else await self._find_head(facts)
        if head is None or not await self._is_unchanged(session_id, state, facts):
            return None
        if state is not None:
            state = make_portable_state(state, head, top)
            if not await self._holds(thread_id, state.head, head):
                state = state.model_copy(update={"head": head})
        thread = None if facts is None else _make_thread_part(facts, head)
        part = FileSession(
            session_id=session_id,
            parent=parent,
            state=None if state is None else dump_state(state),
            thread=thread,
            children=len(children),
            runs=len(runs),
            usage=len(usage),
        )
        return SessionContents(
            part,
            tuple(map(dump_child, children)),
            tuple(map(dump_run, runs)),
            tuple(map(dump_usage, usage)),
            thread_id,
            None if facts is None else facts.epoch,
        )

    async def _load_state(self, session_id: str) -> SessionState | None:
        return None if self._sessions is None else await self._sessions.load_state(session_id)

    async def _is_unchanged(
        self, session_id: str, state: SessionState | None, facts: ThreadFacts | None
    ) -> bool:
        again = await self._load_state(session_id)
        if (again and again.version) != (state and state.version):
            return False
        if facts is None:
            return True
        now = await find_facts(self._threads, facts.thread_id)
        return now is not None and (now.epoch, now.committed) == (facts.epoch, facts.committed)

    async def _find_head(self, facts: ThreadFacts) -> Head | None:
        """Where the finished turns end; None if the thread was cut meanwhile."""
        if facts.head.position == facts.committed:
            return facts.head
        if not facts.committed:
            return EMPTY
        last_id = await self._read_id(facts.thread_id, facts.committed - 1)
        return None if last_id is None else Head(position=facts.committed, last_id=last_id)

    async def _holds(self, thread_id: str, wanted: Head, end: Head) -> bool:
        if wanted in (EMPTY, end):
            return True
        return await self._read_id(thread_id, wanted.position - 1) == wanted.last_id

    async def _read_id(self, thread_id: str, position: int) -> str | None:
        page = await self._threads.read(ReadPage.of_message(thread_id, position))
        return page.messages[0].id if page.messages else None

    async def _list_runs(self, session_id: str, state: SessionState | None) -> tuple[list[Run], bool]:
        """Runs that are over, oldest first, and whether one is live."""
        if self._sessions is None or state is None:
            return [], False
        page = await self._sessions.list_runs(session_id, limit=_RUNS)
        runs = list(page.items)
        while page.next_cursor is not None:
            page = await self._sessions.list_runs(session_id, limit=_RUNS, cursor=page.next_cursor)
            runs += page.items
        over = [run for run in runs if not run.status.live]
        return over[::-1], len(over) < len(runs)

    # -- messages

    async def read_messages(self, contents: SessionContents) -> AsyncIterator[tuple[int, StoredMessage]]:
        """The messages up to the head, with their positions; ends early if the thread was cut."""
        start, stop = 0, contents.head.position
        while start < stop:
            wanted = ReadPage(
                contents.thread_id, start, stop, limit=_PAGE, max_bytes=_PAGE_BYTES, whole=False
            )
            page = await self._threads.read(wanted)
            for position, message in enumerate(page.messages, start):
                yield position, message
            if not page.messages:
                return
            start += len(page.messages)

    async def is_same_thread(self, contents: SessionContents) -> bool:
        """Whether nobody has opened the thread since: only an open can cut it."""
        if contents.epoch is None:
            return True
        facts = await find_facts(self._threads, contents.thread_id)
        return facts is not None and facts.epoch == contents.epoch

    # -- children

    async def list_children(self, session_id: str, known: set[str]) -> list[SubSessionRef]:
        """Sub-agents' sessions of a session that are here and are not ``known``, in a lasting order."""
        if self._sessions is None:
            return []
        refs = {}
        for ref in await self._sessions.list_sub_session_refs(session_id):
            state = None if ref.remote else await self._sessions.load_state(ref.sub_session_id)
            if state is not None and state.parent_session_id == session_id:
                refs[ref.sub_session_id] = ref
        for ref in await self._list_unnamed_children(session_id):
            refs.setdefault(ref.sub_session_id, ref)
        return [ref for name, ref in refs.items() if name not in known]

    async def _list_unnamed_children(self, session_id: str) -> list[SubSessionRef]:
        """Sessions whose parent this is, by the list of all."""
        assert self._sessions is not None  # asked before
        found: list[SubSessionRef] = []
        query = SessionQuery(
            parent_session_id=session_id, order_by=OrderBy(field="created_at", direction="asc"), limit=_RUNS
        )
        while True:
            page = await self._sessions.list_sessions(query)
            found += [
                SubSessionRef(sub_session_id=each.session_id, agent_type=each.agent_type)
                for each in page.sessions
            ]
            if page.next_cursor is None:
                return found
            query = query.model_copy(update={"cursor": page.next_cursor})


def _make_thread_part(facts: ThreadFacts, head: Head) -> FileThread | None:
    if is_without_workflow(facts):
        return FileThread(adapter=facts.adapter, head=head) if head != EMPTY else None
    record = make_portable_record(parse_record(facts.slice), head)
    return FileThread(adapter=facts.adapter, head=head, record=dump_record(record))
