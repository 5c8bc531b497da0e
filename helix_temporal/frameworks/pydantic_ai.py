"""Conversations of pydantic-ai: ``conversation = await HelixConversationStore(store).load("user-42")``."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from helix_temporal._retries import repeat_unanswered, retry_pause
from helix_temporal.errors import (
    HeadMovedError,
    InvalidRequestError,
    SessionNotFoundError,
    StaleStateError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.entry_tree import EntryNotFoundError, EntryPlace, EntryTree, TreeEntry
from helix_temporal.frameworks.given_stores import check_sessions
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, StateChange
from helix_temporal.models.store_calls import SessionQuery, SessionSummary
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.sessions import SessionStore

logger = logging.getLogger(__name__)

ENTRY_FORMAT: Final = "pydantic-ai/1"
LIVE: Final = "pydantic-ai"
"""The agent type of a conversation's session."""
DELETED: Final = "pydantic-ai-deleted"
"""That of one whose conversation was deleted: what is left of it says so to late writers."""
_WRITTEN: Final = 20
"""Newest revisions that a conversation remembers, to tell a repeated write from a late one."""
_OVERTAKEN: Final = 100
_LISTED: Final = 200
_RECORDS: Final = TypeAdapter(ConversationRecord)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a session's custom state says of its conversation.

    Attributes:
        record: The record, as JSON; None before the first write, and after a delete.
        revision: The record's; of a deleted one the last.
        written: The newest revisions, the last one last.
        end: Where the session's rows ended after the newest write.
        places: Where the head and the ends of branches lie.
        erasure: Of a deleted conversation: ``running``, ``kept`` (others share its entries) or ``done``.
        version: Of the session's state; 0: there is no session.
        links: Sessions whose entries this conversation shares.
        released: Those that it shared before it was erased, and that may have to be erased, too.
    """

    record: str | None = None
    revision: str | None = None
    written: tuple[str, ...] = ()
    end: Head = EMPTY
    places: Mapping[str, EntryPlace] = field(default_factory=dict)
    erasure: str | None = None
    version: int = 0
    links: frozenset[str] = frozenset()
    released: frozenset[str] = frozenset()

    @property
    def standing(self) -> str | None:
        """The revision that a writer must know."""
        return None if self.record is None else self.revision


class HelixConversationStore(ConversationStore):
    """A `ConversationStore` of pydantic-ai over a session store; several processes may share it.

    A conversation is a session, with its entries as rows and its record in the custom state: a write is one
    atomic append.  Branches and forks copy nothing.  A write whose answer was lost is repeated, and stands
    once; who repeats `write_record` with the same record succeeds, too.

    `delete` erases the entries of the conversation that no other one shares.  Those that forks share go with
    the last fork.  What is left of a deleted conversation holds no text: it refuses late writers.

    Args:
        store: `Backends.sessions`, or another session store.
    """

    def __init__(self, store: SessionStore) -> None:
        check_sessions(store)
        self._store = store
        self._tree = EntryTree(store, ENTRY_FORMAT, (LIVE, DELETED))

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation; None if there is none, or it was deleted.

        Raises:
            InvalidIdError: The id is none that a store can keep.
        """
        session_id = _session_id(conversation_id)
        stored = _read_state(await self._store.load_state(session_id))
        return None if stored.record is None else self._decode_record(session_id, stored)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, or those of a scope, newest ``updated_at`` first.

        One that this version of pydantic-ai can't read is left out, with a warning in the log.

        With a ``limit`` they are the ones that were written last by the store's clock.
        """
        if limit is not None and limit <= 0:
            return []
        found: list[ConversationRecord] = []
        last = -1
        async for each in self._list_sessions(scope, limit):
            if limit is not None and len(found) >= limit and each.updated_at < last:
                break
            stored = _read_custom(each.custom_state or {})
            if stored.record is None:
                continue
            last = each.updated_at
            try:
                found.append(self._decode_record(each.session_id, stored))
            except StoreCorruptError as error:
                logger.warning("left out of a list: %s", error)
        found.sort(key=lambda record: record.updated_at, reverse=True)
        return found[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries, all or nothing; the same write again changes nothing.

        Raises:
            ConversationConflict: Another revision is stored than ``expected_revision``; or the head, or the
                entry before a new one, is in no conversation.
            StoreUnavailableError: The store did not answer five times; the write may have happened.
            InvalidRequestError: The record or an entry is no JSON.
            InvalidIdError: An id is none that a store can keep.
            TooLargeError: An entry is too large.
        """
        write = _Write(
            _session_id(record.conversation_id),
            record,
            _encode_record(record),
            [_encode_entry(each) for each in new_entries],
            expected_revision,
        )
        await repeat_unanswered(lambda: self._write(write))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a record, and erase its entries, but for those that other conversations share.

        Raises:
            ConversationConflict: No record of that revision is stored.
            StoreUnavailableError: The store did not answer five times; `delete` ends what was begun.
        """
        session_id, asked = _session_id(conversation_id), False

        async def delete() -> None:
            nonlocal asked
            repeated, asked = asked, True
            stored = _read_state(await self._store.load_state(session_id))
            # Whose answer was lost finds the record deleted, by itself.
            if not (repeated and stored.erasure is not None and stored.revision == expected_revision):
                if stored.standing != expected_revision:
                    raise ConversationConflict(conversation_id)
                await self._mark_deleted(conversation_id, session_id, stored)
            await self._erase_entries(session_id)

        await repeat_unanswered(delete)

    async def delete(self, conversation_id: str, *, scope: str | None = None) -> None:
        """Delete a conversation; asked again, end the erasure of one whose delete was interrupted."""
        session_id = _session_id(conversation_id)
        try:
            await super().delete(conversation_id, scope=scope)
        except StoreCorruptError:
            if scope is not None:
                raise  # whose it is can't be told
            stored = _read_state(await self._store.load_state(session_id))
            await self.delete_record(conversation_id, expected_revision=stored.revision or "")
        await repeat_unanswered(lambda: self._erase_entries(session_id))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry of an id.

        This process knows where an entry lies that it has read or written lately, or that ends a history or
        a branch it has read.  Any other is searched for: in all conversations that have changed since its id
        was minted.

        Raises:
            EntryNotFoundError: There is none; a `LookupError`.
        """
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The last ``limit`` entries up to ``head_id``, or all, in order; only these are read.

        Raises:
            EntryNotFoundError: One is not stored (any more); a `LookupError`.
        """
        try:
            entries = await self._tree.read_history(head_id, limit)
        except EntryNotFoundError:
            await self._go_back_if_lost(head_id)
            raise
        try:
            messages = ModelMessagesTypeAdapter.validate_json(f"[{','.join(each.text for each in entries)}]")
        except ValidationError as error:
            raise _corrupt_error("an entry", error) from None
        return [
            ConversationEntry(id=each.id, parent_id=each.parent_id, message=message, kind=each.kind)
            for each, message in zip(entries, messages, strict=True)
        ]

    # -- references

    async def find_place(self, entry_id: str) -> EntryPlace:
        """Where an entry lies, for who reads from there later, in another process.

        Raises:
            EntryNotFoundError: It is not stored; a `LookupError`.
        """
        return await self._tree.find_place(entry_id)

    async def read_history_at(self, head_id: str, place: EntryPlace) -> list[ConversationEntry]:
        """As `read_history`, without a search: the head lies in the place that `find_place` told."""
        self._tree.remember_place(head_id, place)
        return await self.read_history(head_id)

    # -- writing

    async def _write(self, write: "_Write") -> None:
        conversation_id = write.record.conversation_id
        for attempt in range(_OVERTAKEN):
            state = await self._store.load_state(write.session_id)
            stored = _read_state(state)
            if write.is_repeated(stored):
                return
            if write.expected != stored.standing:
                raise ConversationConflict(conversation_id)
            try:
                await self._place_entries(write, stored)
                if await self._link_sessions(write, stored):
                    continue
                await self._append_entries(write, stored)
            except EntryNotFoundError:
                raise ConversationConflict(conversation_id) from None
            except HeadMovedError:
                await asyncio.sleep(_pause(attempt))
                await self._follow_rows(write.session_id, stored.version)
            except (StaleStateError, SessionNotFoundError):
                await asyncio.sleep(_pause(attempt))
            else:
                return
        raise StoreUnavailableError(f"conversation {conversation_id!r}: overtaken {_OVERTAKEN} times")

    async def _place_entries(self, write: "_Write", stored: _Stored) -> None:
        """Find out where everything lies that the record and the entries name.

        Raises:
            EntryNotFoundError: The head is nowhere, or the entry before a new one.
        """
        write.places = dict(stored.places)
        for at, entry in enumerate(write.entries, stored.end.position):
            if entry.parent_id is not None and entry.parent_id not in write.places:
                write.places[entry.parent_id] = await self._tree.find_place(entry.parent_id)
            write.places[entry.id] = EntryPlace(write.session_id, at)
        head_id = write.record.head_id
        if head_id is not None and head_id not in write.places:
            write.places[head_id] = await self._tree.find_place(head_id)
        for tip in write.record.branches:
            if tip not in write.places:
                place = await self._seek_place(tip)
                if place is not None:  # whoever branches to one that is gone is told
                    write.places[tip] = place

    async def _link_sessions(self, write: "_Write", stored: _Stored) -> bool:
        """Make the session, and say in it whose entries it shares before it does; False if both are done.

        Who deletes the others looks for this afterwards; so that entries are never erased under a fork.

        Raises:
            EntryNotFoundError: What it would share is being erased.
        """
        # What the record names already is said already.
        shared = {
            place.session_id
            for name, place in write.places.items()
            if name not in stored.places and place.session_id != write.session_id
        }
        links = {_link_to(each): "1" for each in shared - stored.links}
        if stored.version == 0:
            metadata = {"conversation_id": write.record.conversation_id, **links}
            create = CreateSession(agent_type=LIVE, metadata=metadata)
            await self._store.create_session(write.session_id, create, if_not_exists=True)
            return True
        if links:
            change = StateChange(metadata=MergeChanges(values=dict(links)))
            await self._change_state(write.session_id, change, stored.version)
            return True
        for session_id in shared:
            await self._confirm_shared(session_id, write.places)
        return False

    async def _confirm_shared(self, session_id: str, places: Mapping[str, EntryPlace]) -> None:
        """Make sure that nobody began to erase a session's entries before it was said that they are shared.

        Raises:
            EntryNotFoundError: Somebody did.
        """
        if _read_state(await self._store.load_state(session_id)).erasure not in {None, "kept"}:
            raise EntryNotFoundError(f"session {session_id!r}: its entries are being erased")
        for entry_id, place in places.items():
            if place.session_id == session_id:
                await self._tree.find_place(entry_id)

    async def _append_entries(self, write: "_Write", stored: _Stored) -> None:
        rows = []
        for entry in write.entries:
            parent = None if entry.parent_id is None else write.places[entry.parent_id]
            rows.append(self._tree.encode_entry(entry, write.places[entry.id], parent))
        await self._store.append_messages(
            write.session_id,
            rows,
            change=write.make_change(stored),
            head=stored.end,
            expected_version=stored.version,
            on_duplicate="keep_first",
        )
        for entry_id, place in write.places.items():
            self._tree.remember_place(entry_id, place)

    async def _change_state(self, session_id: str, change: StateChange, version: int) -> None:
        await self._store.append_messages(session_id, [], change=change, expected_version=version)

    # -- rows and records that do not go together

    async def _go_back_if_lost(self, head_id: str | None) -> None:
        """An entry isn't there, where this process was told that it lies: have its conversation looked at."""
        place = None if head_id is None else self._tree.recall_place(head_id)
        if place is not None:
            await self._follow_rows(place.session_id)

    async def _follow_rows(self, session_id: str, version: int | None = None) -> None:
        """Let the state say where its rows end, if it has this version still.

        Where threads lie in another store than sessions a writer can die between the two, and leave rows that
        no record names; and that store can lose rows which were not archived.  Then the conversation goes
        back to the newest entry that is left.
        """
        stored = _read_state(await self._store.load_state(session_id))
        if stored.version == 0 or (version is not None and version != stored.version):
            return
        end = await self._tree.read_end(session_id)
        if end == stored.end:
            return
        values: dict[str, Any] = {"end": _end_values(end)}
        lost = stored.record is not None and not await self._holds_end(session_id, stored.end)
        if lost:
            values |= await self._go_back(session_id, stored, end)
        try:
            await self._change_state(
                session_id, StateChange(merge=MergeChanges(values=values)), stored.version
            )
        except (StaleStateError, SessionNotFoundError):
            return  # somebody else has done it, or has gone on, or it is deleted
        if lost:
            logger.warning(
                "session %r had %d entries and has %d: its thread's store has lost what was not archived",
                session_id,
                stored.end.position,
                end.position,
            )

    async def _go_back(self, session_id: str, stored: _Stored, end: Head) -> dict[str, Any]:
        """What the state has of a conversation that ends with the newest entry that is left.

        Its revision is new, so that whoever has loaded what was lost is told to load again.
        """
        record = self._decode_record(session_id, stored)
        left = end.last_id or record.forked_at
        places = {name: place for name in record.branches if (place := await self._seek_place(name))}
        head = None if left is None else await self._seek_place(left)
        record = replace(
            record,
            head_id=None if head is None else left,
            deferred_tool_requests=None,
            branches=[name for name in record.branches if name in places and name != left],
            revision=str(uuid.uuid4()),
        )
        if left is not None and head is not None:
            places[left] = head
        return {
            "record": _encode_record(record),
            "revision": record.revision,
            # Of writes whose entries are lost none is taken for done.
            "written": [record.revision],
            "places": {name: list(place) for name, place in places.items()},
        }

    async def _holds_end(self, session_id: str, end: Head) -> bool:
        return end == EMPTY or await self._tree.search_session(session_id, end.last_id) is not None

    async def _seek_place(self, entry_id: str) -> EntryPlace | None:
        try:
            return await self._tree.find_place(entry_id)
        except EntryNotFoundError:
            return None

    # -- deleting

    async def _mark_deleted(self, conversation_id: str, session_id: str, stored: _Stored) -> None:
        change = StateChange(
            agent_type=DELETED,
            merge=MergeChanges(values={"erasure": "running"}, removes=("record", "places")),
            metadata=MergeChanges(removes=("scope", "conversation_id")),
        )
        try:
            await self._change_state(session_id, change, stored.version)
        except (StaleStateError, SessionNotFoundError):
            raise ConversationConflict(conversation_id) from None

    async def _erase_entries(self, session_id: str) -> None:
        """Erase what a deleted conversation left, if nobody shares it; then what it shared itself."""
        stored = _read_state(await self._store.load_state(session_id))
        if stored.erasure not in {"running", "kept"}:
            return
        try:
            version = stored.version
            if stored.erasure == "kept":
                await self._set_erasure(session_id, "running", version)
                version += 1
            query = SessionQuery(metadata={_link_to(session_id): "1"}, limit=1)
            if (await self._store.list_sessions(query)).sessions:
                await self._set_erasure(session_id, "kept", version)
                return
            await self._store.truncate_messages(session_id, 0, expected_version=version)
            released = stored.links | stored.released
            await self._set_erasure(session_id, "running", version + 1, released)
            # Before the end is noted: who is interrupted here finds them again.
            for each in released:
                await self._erase_entries(each)
            await self._set_erasure(session_id, "done", version + 2)
        except StaleStateError:
            return  # begun anew, or erased by somebody else

    async def _set_erasure(
        self, session_id: str, erasure: str, version: int, released: frozenset[str] = frozenset()
    ) -> None:
        values: dict[str, Any] = {"erasure": erasure, "released": sorted(released)}
        if erasure == "done":
            values["end"] = _end_values(EMPTY)
        change = StateChange(
            merge=MergeChanges(values=values),
            metadata=MergeChanges(removes=tuple(_link_to(each) for each in released)),
        )
        await self._change_state(session_id, change, version)

    # -- reading

    async def _list_sessions(self, scope: str | None, limit: int | None) -> AsyncIterator[SessionSummary]:
        query = SessionQuery(
            agent_type=LIVE,
            metadata={} if scope is None else {"scope": scope},
            include=("custom_state",),
            # One more than wanted: times of the store are of milliseconds, and equal ones are sorted here.
            limit=_LISTED if limit is None else min(limit + 1, _LISTED),
        )
        cursor: str | None = None
        while True:
            page = await self._store.list_sessions(query.model_copy(update={"cursor": cursor}))
            for each in page.sessions:
                yield each
            cursor = page.next_cursor
            if cursor is None:
                return

    def _decode_record(self, session_id: str, stored: _Stored) -> ConversationRecord:
        for entry_id, place in stored.places.items():
            self._tree.remember_place(entry_id, place)
        assert stored.record is not None
        try:
            return _RECORDS.validate_json(stored.record)
        except ValidationError as error:
            raise _corrupt_error(f"session {session_id!r}: its record", error) from None


@dataclass(slots=True)
class _Write:
    """One `write_record`, over its attempts.

    Attributes:
        text: The record, as JSON.
        expected: The revision that must be stored.
        places: Where everything lies that it names.
    """

    session_id: str
    record: ConversationRecord
    text: str
    entries: list[TreeEntry]
    expected: str | None
    places: dict[str, EntryPlace] = field(default_factory=dict)

    def is_repeated(self, stored: _Stored) -> bool:
        """Whether it has happened; the conversation may have gone on from it.

        Raises:
            ConversationConflict: It has happened, and was deleted since.
        """
        revision = self.record.revision
        if revision == self.expected or revision not in stored.written:
            return False
        if stored.record is None or (revision == stored.revision and self.text != stored.record):
            raise ConversationConflict(self.record.conversation_id)
        return True

    def make_change(self, stored: _Stored) -> StateChange:
        """What becomes of the session's state."""
        named = (self.record.head_id, *self.record.branches)
        places = {name: list(self.places[name]) for name in named if name is not None and name in self.places}
        written = [each for each in stored.written if each != self.record.revision]
        values: dict[str, Any] = {
            "record": self.text,
            "revision": self.record.revision,
            "written": [*written, self.record.revision][-_WRITTEN:],
            "end": _end_values(self._end(stored)),
            "places": places,
        }
        metadata: dict[str, Any] = {"conversation_id": self.record.conversation_id}
        if self.record.scope is not None:
            metadata["scope"] = self.record.scope
        return StateChange(
            agent_type=LIVE,
            merge=MergeChanges(values=values, removes=("erasure", "released")),
            metadata=MergeChanges(values=metadata, removes=("scope",)),
        )

    def _end(self, stored: _Stored) -> Head:
        if not self.entries:
            return stored.end
        return Head(position=stored.end.position + len(self.entries), last_id=self.entries[-1].id)


def _session_id(conversation_id: str) -> str:
    return f"pydantic-ai/{encode_id(validate_id(conversation_id, 'conversation id'))}"


def _link_to(session_id: str) -> str:
    return f"shares {session_id}"


def _read_state(state: SessionState | None) -> _Stored:
    if state is None:
        return _Stored()
    links = (key.removeprefix(_link_to("")) for key in state.metadata if key.startswith(_link_to("")))
    return _read_custom(state.custom_state, state.version, frozenset(links))


def _read_custom(custom: Mapping[str, Any], version: int = 0, links: frozenset[str] = frozenset()) -> _Stored:
    return _Stored(
        record=custom.get("record"),
        revision=custom.get("revision"),
        written=tuple(custom.get("written", ())),
        end=Head(position=custom["end"][0], last_id=custom["end"][1]) if "end" in custom else EMPTY,
        places={name: EntryPlace(*place) for name, place in custom.get("places", {}).items()},
        erasure=custom.get("erasure"),
        version=version,
        links=links,
        released=frozenset(custom.get("released", ())),
    )


def _end_values(end: Head) -> list[Any]:
    return [end.position, end.last_id]


def _pause(attempt: int) -> float:
    return retry_pause(attempt, first=0.001, longest=0.05)


def _encode_record(record: ConversationRecord) -> str:
    what = f"conversation {record.conversation_id!r}: its record"
    try:
        text = _RECORDS.dump_json(record, warnings=False).decode()
        _RECORDS.validate_json(text)
    except ValidationError as error:
        raise _unreadable_error(what, error) from None
    except (PydanticSerializationError, UnicodeError) as error:
        raise _no_json_error(what, error) from None
    return text


def _encode_entry(entry: ConversationEntry) -> TreeEntry:
    try:
        text = ModelMessagesTypeAdapter.dump_json([entry.message], warnings=False).decode()[1:-1]
        ModelMessagesTypeAdapter.validate_json(f"[{text}]")
    except ValidationError as error:
        raise _unreadable_error(f"entry {entry.id!r}", error) from None
    except (PydanticSerializationError, ValueError) as error:
        raise _no_json_error(f"entry {entry.id!r}", error) from None
    return TreeEntry(validate_id(entry.id, "entry id"), entry.parent_id, text, entry.kind)


def _no_json_error(what: str, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(f"{what} is no JSON ({type(error).__name__}); give plain values")


def _unreadable_error(what: str, error: ValidationError) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} would not be read back by pydantic-ai ({_describe_problems(error)}); was a value "
        "set that is of another type than its field?"
    )


def _corrupt_error(what: str, error: ValidationError) -> StoreCorruptError:
    return StoreCorruptError(
        f"{what} is none that this version of pydantic-ai reads ({_describe_problems(error)})"
    )


def _describe_problems(error: ValidationError) -> str:
    """Fields and kinds of problems; not the values, which show what people said."""
    problems = error.errors(include_url=False, include_input=False)
    found = {f"{_name_field(each['loc'])}: {each['type']}" for each in problems}
    return ", ".join(sorted(found)[:5])


def _name_field(place: tuple[int | str, ...]) -> str:
    """The last part of a place that is a field's name, not a key of somebody's dict."""
    names = [each for each in place if isinstance(each, str) and each.isidentifier()]
    return names[-1] if names else "it"
