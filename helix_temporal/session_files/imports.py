"""Sessions from files: `import_session`.

The whole file is verified before anything is written.  Then each session is made so that nobody sees half of
it: its messages come into a thread that shows none of them before the last one is there, and its state comes
at the end, in one commit with its runs.  A session comes after those of its sub-agents.  An import that was
broken off goes on where it was when it is made again.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, Final, Literal

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    InvalidConfigError,
    NotArchivedError,
    SessionExistsError,
    ThreadExistsError,
)
from helix_temporal.models.base import JsonObject, wall_clock_ms
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import SessionState, SubSessionRef
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, size_of
from helix_temporal.models.usage import SubAgentUsageEntry, UsageEntry
from helix_temporal.models.waiting import check_own_id
from helix_temporal.session.record import encode_record
from helix_temporal.session_files.export import ignore_progress
from helix_temporal.session_files.file import (
    Header,
    LineKind,
    Section,
    VerifiedFile,
    damage,
    decode_child,
    decode_message_part,
    decode_run,
    decode_usage,
    iterate_lines,
    verify_file,
)
from helix_temporal.session_files.portable import list_differences, make_portable_state
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.threads import (
    Create,
    FlushStatus,
    FlushThread,
    OpenThread,
    ThreadFacts,
    ThreadStore,
    find_facts,
)
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.sessions.imports import (
    ImportedSession,
    make_outline,
    make_session,
    owner_without_workflow,
)
from helix_temporal.stores.sessions.threads import next_epoch
from helix_temporal.views.models import View
from helix_temporal.views.reading import stores_for_reading

_MANY: Final = 500
_STEP_BYTES: Final = 4 * 1024 * 1024
_FLUSH_BYTES: Final = 16 * 1024 * 1024
_AT_ONCE: Final = 16
_OWNER: Final = "import/"
_MAX_ID: Final = 256

Progress = Callable[[str, int, int], None]
"""Told what is done (``verify``, ``import``), how far it is, and how far it goes: bytes, or messages."""


class Imported(View):
    """What became of a file.

    Attributes:
        session_id: Of its first session here.
        outcome: ``imported``; ``there``: all of it was there already; ``sound``: it was a dry run,
            and the file can be imported.
        sessions, messages: In the file.
        redacted: Texts were taken out when it was written.
    """

    session_id: str
    outcome: Literal["imported", "there", "sound"]
    sessions: int
    messages: int
    redacted: bool


async def import_session(
    stores: ReadableStores,
    file: BinaryIO,
    *,
    new_id: str | None = None,
    dry_run: bool = False,
    when_verified: Callable[[], Awaitable[None]] | None = None,
    progress: Progress = ignore_progress,
) -> Imported:
    """Make the sessions of a file, as they were where they come from.

    Made a second time it changes nothing; made again after it was broken off it goes on from there.

    Args:
        stores: Where to: a `helix_temporal.backends.Backends`, or `helix_temporal.client.SessionStores` over
            the stores of this package.
        file: One that can be read again from its beginning.
        new_id: Of the first session, instead of its own: it is nobody's sub-agent then, and those of its
            sub-agents get ids that follow from it.
        dry_run: Verify the file, and look whether its ids are free; change nothing.
        when_verified: Called before a store is asked for the first time; what it raises ends the import.
        progress: Told how far it is.

    Raises:
        SessionFileError: The file is damaged; the message names the line.  Nothing was changed.
        UnsupportedFormatError: It is of a newer format.
        SessionExistsError, ThreadExistsError: An id is taken, or its session has gone on since the import.
        InvalidIdError: ``new_id`` is none for a session.
        InvalidConfigError: The file has states, and there is no session store.
        FencedError, HeadMovedError: Somebody opened the session while it was made; it is in use.
        NotArchivedError: The archive, which is required, did not take it.  Repeat the call.
        StoreUnavailableError: A store does not answer.  Repeat the call.
    """
    verified = await asyncio.to_thread(_verify, file, progress)
    if when_verified is not None:
        await when_verified()
    names = SessionNames.make(verified, new_id)
    # A dry run repairs nothing either.
    target = _Target(stores_for_reading(stores) if dry_run else stores, verified, names)
    places = [target.find_place(section) for section in verified.sections]
    whole = [await target.is_whole(place) for place in places]
    outcome: Literal["imported", "there", "sound"] = "there"
    if dry_run:
        outcome = "there" if all(whole) else "sound"
    elif await target.make_sessions(file, places, progress):
        outcome = "imported"
    header = verified.header
    return Imported(
        session_id=names.get_name(header.session_id),
        outcome=outcome,
        sessions=header.sessions,
        messages=header.messages,
        redacted=header.redacted,
    )


def _verify(file: BinaryIO, progress: Progress) -> VerifiedFile:
    file.seek(0)
    return verify_file(file, lambda done, total: progress("verify", done, total))


@dataclass(slots=True)
class _Count:
    """How many messages of the file are through."""

    total: int
    progress: Progress
    done: int = 0

    def add(self, number: int) -> None:
        self.done += number
        self.progress("import", self.done, self.total)


# ---- ids --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionNames:
    """The ids that sessions of a file get.

    Attributes:
        names: By the ids in the file; those that are not in it stay.
    """

    names: dict[str, str]

    @classmethod
    def make(cls, verified: VerifiedFile, new_id: str | None) -> "SessionNames":
        """The ids for a file.

        Raises:
            InvalidIdError: ``new_id`` is none for a session.
        """
        old = verified.header.session_id
        names = {each.part.session_id: each.part.session_id for each in verified.sections}
        if new_id is None or new_id == old:
            return cls(names)
        new_id = check_own_id(validate_id(new_id, "session id"))
        for name in names:
            names[name] = new_id if name == old else rename_child(name, old, new_id)
        return cls(names)

    def get_name(self, name: str) -> str:
        """The id here of a session."""
        return self.names.get(name, name)

    def rename_state(self, state: SessionState) -> SessionState:
        """The state with the ids of here; it has the thread of its own id."""
        name, parent, root = self.get_name(state.session_id), state.parent_session_id, state.root_session_id
        return state.model_copy(
            update={
                "session_id": name,
                "thread_id": None,
                "stream_id": name if state.stream_id else None,
                "parent_session_id": None if parent is None else self.get_name(parent),
                "root_session_id": None if root is None else self.get_name(root),
            }
        )

    def rename_child_ref(self, ref: SubSessionRef) -> SubSessionRef:
        """The reference with the id of here."""
        return ref.model_copy(update={"sub_session_id": self.get_name(ref.sub_session_id)})

    def rename_entry(self, entry: UsageEntry) -> UsageEntry:
        """The entry with the ids of here; its own session's is named already."""
        if not isinstance(entry, SubAgentUsageEntry):
            return entry
        return entry.model_copy(update={"sub_session_id": self.get_name(entry.sub_session_id)})


def rename_child(name: str, old: str, new: str) -> str:
    """The id of a sub-agent's session of a session that gets another id: the same for the same three."""
    if name.startswith(f"{old}>"):
        renamed = new + name.removeprefix(old)
        if len(renamed) <= _MAX_ID and len(renamed.encode()) <= 2 * _MAX_ID:
            return renamed
    return f"{new[:80]}>{hashlib.sha256(f'{new}>{name}'.encode()).hexdigest()[:32]}"


# ---- one session ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ImportPlace:
    """A session of the file as it is to be here.

    Attributes:
        top: The first session of the file, where it is another.
        owner: Who has the thread while it is written.
    """

    section: Section
    session_id: str
    state: SessionState | None
    top: str | None
    owner: str

    @property
    def head(self) -> Head:
        """Where its messages end."""
        return self.section.part.head

    @property
    def thread_id(self) -> str | None:
        """Where its messages go: the thread of its own id; None where it has none."""
        return None if self.section.part.thread is None else self.session_id


class _Target:
    """The stores that sessions of a file come into."""

    def __init__(self, stores: ReadableStores, verified: VerifiedFile, names: SessionNames) -> None:
        self._threads, self._usage, self._names = stores.threads, stores.usage, names
        self._header: Header = verified.header
        found = stores.sessions if stores.keeps_sessions else None
        if found is not None and not isinstance(found, RowSessions):
            raise InvalidConfigError(
                "sessions are imported into a session store of this package, not into a "
                f"{type(found).__name__}"
            )
        if found is None and any(each.part.state is not None for each in verified.sections):
            raise InvalidConfigError(
                "the file has states of sessions, and HELIX_SESSION_STORE is 'none': set a session store"
            )
        self._sessions = found

    def find_place(self, section: Section) -> _ImportPlace:
        """Where a session of the file is to be."""
        part = section.part
        name, state = self._names.get_name(part.session_id), part.read_state()
        state = None if state is None else self._names.rename_state(state)
        top = None if part.parent is None else self._names.get_name(self._header.session_id)
        content = f"{self._header.sha256} {part.session_id} {name}"
        owner = _OWNER + hashlib.sha256(content.encode()).hexdigest()[:32]
        return _ImportPlace(section, name, state, top, owner)

    async def is_whole(self, place: _ImportPlace) -> bool:
        """Whether the session is here already, just as it would be made.

        Raises:
            SessionExistsError, ThreadExistsError: Another one is here.
        """
        found = await self._load_state(place)
        thread_id = place.session_id if found is None else found.messages_thread_id
        facts = await find_facts(self._threads, thread_id)
        if found is not None:
            _check_same_session(found, facts, place)
            return True
        if _ends_as(facts, place) and place.state is None:
            return True
        if facts is not None and not _may_write(facts, place):
            raise ThreadExistsError(
                f"thread {facts.thread_id!r} exists, and is not of this import; choose another id"
            )
        return False

    async def _load_state(self, place: _ImportPlace) -> SessionState | None:
        if place.state is None or self._sessions is None:
            return None
        return await self._sessions.load_state(place.session_id)

    async def make_sessions(self, file: BinaryIO, places: Sequence[_ImportPlace], progress: Progress) -> bool:
        """Make all sessions, or what is missing of them; False if all of it was here already."""
        count = _Count(self._header.messages, progress)
        # From below: a session is seen only with all of its sub-agents'.
        made = [await self._make_session(file, place, count) for place in reversed(places)]
        return any(made)

    async def _make_session(self, file: BinaryIO, place: _ImportPlace, count: _Count) -> bool:
        """Make a session, or what is missing of it; False if all of it was here already."""
        part = place.section.part
        if await self.is_whole(place):
            await self._settle(place)
            count.add(part.messages)
            return False
        lines = iterate_lines(file, place.section)
        children = [
            self._names.rename_child_ref(decode_child(number, plain))
            for number, _, plain in islice(lines, part.children)
        ]
        runs = [decode_run(number, plain, place.session_id) for number, _, plain in islice(lines, part.runs)]
        usage = [
            self._names.rename_entry(decode_usage(number, plain, place.session_id))
            for number, _, plain in islice(lines, part.usage)
        ]
        writer = None if place.thread_id is None else await self._open_thread(place, place.thread_id)
        if writer is not None:
            await writer.write_messages(lines, count)
        await self._record_usage(usage)
        if writer is not None:
            await writer.commit_rest(count)
        if place.state is not None and self._sessions is not None:
            await make_session(self._sessions, ImportedSession(place.state, runs, children))
        await self._settle(place)
        return True

    async def _record_usage(self, entries: list[UsageEntry]) -> None:
        for at in range(0, len(entries), _AT_ONCE):
            await asyncio.gather(*map(self._usage.record_entry, entries[at : at + _AT_ONCE]))

    async def _open_thread(self, place: _ImportPlace, thread_id: str) -> "_ThreadWriter":
        """The thread as this import left it, or a new one.

        Raises:
            FencedError, ThreadExistsError: Somebody else has opened it meanwhile.
        """
        facts = await find_facts(self._threads, thread_id)
        if facts is not None and facts.owner == place.owner and not facts.closed:
            return _ThreadWriter(self._threads, thread_id, facts.epoch, facts.head, place.head)
        now = wall_clock_ms() if self._sessions is None else await self._sessions.now()
        epoch = next_epoch(now, 0 if facts is None else facts.epoch)
        if facts is not None:
            # Another import that was broken off: nothing of it can be seen.
            await self._threads.delete(thread_id, facts.epoch)
        request = OpenThread(
            thread_id,
            epoch,
            place.owner,
            Create.NEW,
            slice=self._make_slice(place),
            adapter=place.section.part.thread.adapter if place.section.part.thread else "",
        )
        await self._threads.open(request)
        return _ThreadWriter(self._threads, thread_id, epoch, EMPTY, place.head)

    def _make_slice(self, place: _ImportPlace) -> bytes:
        """What is kept with the thread: a session workflow's record, or what the session is without one."""
        record = place.section.part.read_record()
        if record is not None:
            return encode_record(record)
        if place.state is None or self._sessions is None:
            return b""
        return make_outline(self._sessions, place.state)

    async def _settle(self, place: _ImportPlace) -> None:
        """Give the thread to those who will use it, and archive it; who uses it already goes on."""
        if place.thread_id is None:
            return
        facts = await find_facts(self._threads, place.thread_id)
        if facts is None:
            return  # The session is here with a thread of another id.
        epoch = facts.epoch
        if facts.owner == place.owner and place.section.part.read_record() is None:
            # Below that of whoever opens it now.
            epoch += 2
            request = OpenThread(
                place.thread_id,
                epoch,
                owner_without_workflow(place.session_id),
                Create.NEVER,
                # Cuts nothing: so that no store reads the whole thread for it.
                rewind_to=place.head,
                expected_head=place.head,
            )
            try:
                await self._threads.open(request)
            except (FencedError, HeadMovedError):
                return
        elif facts.owner != place.owner:
            return
        if self._threads.archives:
            await self._archive(place.thread_id, epoch, place.head)

    async def _archive(self, thread_id: str, epoch: int, head: Head) -> None:
        try:
            receipt = await self._threads.flush(FlushThread(thread_id, epoch, mine=head, commits=True))
        except (FencedError, HeadMovedError):
            return  # Somebody uses it already.
        required = self._sessions is not None and self._sessions.archive_required
        if receipt.status is FlushStatus.ARCHIVED:
            await self._threads.evict(thread_id, epoch)
        elif required:
            raise NotArchivedError(
                f"thread {thread_id!r}: imported, and not archived, which is required; import it again",
                thread_id=thread_id,
            )


def _ends_as(facts: ThreadFacts | None, place: _ImportPlace) -> bool:
    """Whether a thread that is here, or is not, ends as that of the file."""
    if place.thread_id is None:
        return facts is None or facts.head == EMPTY
    return facts is not None and (facts.head, facts.committed) == (place.head, place.head.position)


def _may_write(facts: ThreadFacts, place: _ImportPlace) -> bool:
    """Whether a thread is this import's, or one that shows nothing and that another import has left."""
    abandoned = facts.owner.startswith(_OWNER) and not facts.committed
    return abandoned or facts.owner == place.owner


def _check_same_session(found: SessionState, facts: ThreadFacts | None, place: _ImportPlace) -> None:
    """Refuse a session that is here with another state or with other messages than the file's.

    Raises:
        SessionExistsError: It says in what they differ.
    """
    assert place.state is not None  # else none was looked for
    differences = list_differences(make_portable_state(found, place.head, place.top), place.state)
    if not _ends_as(facts, place):
        differences.append(_describe_end(facts, place))
    if differences:
        raise SessionExistsError(
            f"session {place.session_id!r} exists, and differs from the file's in {', '.join(differences)}: "
            "it is another one, or was changed after the file was written; it is left as it is. Choose "
            "another id for the file's",
            session_id=place.session_id,
        )


def _describe_end(facts: ThreadFacts | None, place: _ImportPlace) -> str:
    committed, wanted = 0 if facts is None else facts.committed, place.head.position
    if committed != wanted:
        return f"messages of finished turns ({committed:,}, the file has {wanted:,})"
    return "messages" if facts is None or facts.head.position == committed else "a turn under way"


# ---- its messages -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _ThreadWriter:
    """Writes messages of a file into a thread; readers see none before the last is there.

    Attributes:
        at: Where the thread stands.
        end: Where it must end.
        held: The messages that come next, not written yet.
        unflushed: Bytes that the archive does not have.
    """

    threads: ThreadStore
    thread_id: str
    epoch: int
    at: Head
    end: Head
    held: list[StoredMessage] = field(default_factory=list)
    held_bytes: int = 0
    unflushed: int = 0

    async def write_messages(self, lines: Iterator[tuple[int, LineKind, JsonObject]], count: _Count) -> None:
        """Write all messages but the last ones, which `commit_rest` writes."""
        there = self.at
        count.add(there.position)
        for number, _, plain in lines:
            position, message = decode_message_part(number, plain)
            if position < there.position:
                _check_same(number, position, message, there)
                continue
            size = size_of((message,))
            if self.held and (len(self.held) >= _MANY or self.held_bytes + size > _STEP_BYTES):
                await self._append_held(count, commits=False)
                await self._flush_if_many()
            self.held.append(message)
            self.held_bytes += size

    async def commit_rest(self, count: _Count) -> None:
        """Write the last messages: from then on all are seen."""
        if self.held:
            await self._append_held(count, commits=True)

    async def _append_held(self, count: _Count, *, commits: bool) -> None:
        step = StepAppend(self.thread_id, self.epoch, self.at, tuple(self.held), commits=commits)
        appended = await self.threads.append(step)
        await self.threads.confirm_step(step, appended)
        count.add(len(self.held))
        self.at, self.unflushed = appended.head, self.unflushed + self.held_bytes
        self.held, self.held_bytes = [], 0

    async def _flush_if_many(self) -> None:
        """Let the archive have it, so that the hot store need not hold all of a long thread."""
        if not self.threads.archives or self.unflushed < _FLUSH_BYTES:
            return
        receipt = await self.threads.flush(FlushThread(self.thread_id, self.epoch, mine=self.at))
        if receipt.status is FlushStatus.ARCHIVED:
            await self.threads.evict(self.thread_id, self.epoch)
            self.unflushed = 0


def _check_same(number: int, position: int, message: StoredMessage, there: Head) -> None:
    if position == there.position - 1 and message.id != there.last_id:
        raise damage(number, "another message than the one that was imported before")
