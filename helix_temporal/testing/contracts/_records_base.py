"""What the parts of the contract of sessions' storage share."""

from collections.abc import Sequence
from typing import Any

import pytest

from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import OrderBy, SessionPage, SessionQuery
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_records import (
    KeyedRecord,
    RecordKind,
    RecordsCommitted,
    SessionCommit,
    SessionRecords,
    SessionRow,
    SessionView,
    WantedRecords,
)
from helix_temporal.testing.builders import EPOCH, an_id

PAGED = (RecordKind.CHECKPOINT, RecordKind.RUN, RecordKind.REF)
"""Kinds that are listed in pages."""

SESSIONS: dict[str, dict[str, Any]] = {
    "a": {"user_id": "u1", "agent_type": "x", "created_at": 10, "updated_at": 50, "tags": ("red", "big")},
    "b": {"user_id": "u1", "agent_type": "y", "created_at": 20, "updated_at": 40, "status": "completed"},
    "c": {"user_id": "u2", "agent_type": "x", "created_at": 30, "updated_at": 30, "tags": ("red",)},
    "d": {"user_id": "u2", "created_at": 40, "updated_at": 60, "status": "failed", "tags": ("big", "r")},
    "e": {"parent_session_id": "a", "created_at": 50, "updated_at": 20, "metadata": {"k": "v", "n": 1}},
    "f": {"parent_session_id": "a", "created_at": 60, "updated_at": 10, "metadata": {"k": "v", "l": "w"}},
    "g": {"parent_session_id": "e", "created_at": 70, "updated_at": 70, "metadata": {"k": "w", "o": {}}},
}
BY_CREATION = OrderBy(field="created_at", direction="asc")

WAYS: list[dict[str, Any]] = [
    {},
    {"status": ("active", "failed")},
    {"parent_session_id": None, "agent_type": "x"},
    {"date_field": "updated_at", "date_from": 20, "date_to": 61},
    {"date_from": 20, "date_to": 61},
]
"""Filters that stores answer in different ways."""


class SessionRecordsFixtures:
    """Fixtures; a backend overrides the first, and the second where it keeps threads."""

    @pytest.fixture
    async def store(self) -> SessionRecords:
        """An empty store."""
        raise NotImplementedError("bind the contract: override the fixture `store`")

    @pytest.fixture
    async def threads(self, store: SessionRecords) -> HotTier:
        """The threads that lie with these sessions."""
        raise NotImplementedError("bind the contract: override the fixture `threads`")

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"


class ListFixtures(SessionRecordsFixtures):
    """A store that has something to list."""

    @pytest.fixture
    async def listed(self, store: SessionRecords) -> SessionRecords:
        """A store with the sessions of the table above."""
        for session_id, fields in SESSIONS.items():
            await committed(store, a_change(session_id, row=a_row(session_id, b"{}", **fields)))
        return store


def a_row(session_id: str, body: bytes | None = None, **fields: Any) -> SessionRow:
    """A state and bytes for it, which need not tell the same: the store looks at the state only."""
    state = SessionState(session_id=session_id, **fields)
    return SessionRow(state, state.model_dump_json().encode() if body is None else body)


def a_change(session_id: str, revision: int = 0, **parts: Any) -> SessionCommit:
    """A commit of a plain state; ``row=None`` leaves the state."""
    parts.setdefault("row", a_row(session_id))
    parts.setdefault("max_epoch", EPOCH)
    return SessionCommit(session_id=session_id, revision=revision, **parts)


def a_removal(session_id: str, revision: int) -> SessionCommit:
    """The end of a session."""
    return SessionCommit(session_id=session_id, revision=revision, max_epoch=EPOCH, deletes=True)


def a_record(
    key: str, kind: RecordKind = RecordKind.CHECKPOINT, *, group: str = "", order: int = 0, body: bytes = b""
) -> KeyedRecord:
    """A record whose bytes name it."""
    return KeyedRecord(kind, key, body or b'"%s"' % key.encode(), group, order)


def staged(step: str, key: str, order: int = 0, body: bytes = b"") -> KeyedRecord:
    """A change that waits for its step's commit."""
    return a_record(key, RecordKind.STAGED, group=step, order=order, body=body)


def keys(records: Sequence[KeyedRecord]) -> list[str]:
    """Their keys, in the order given."""
    return [each.key for each in records]


async def committed(store: SessionRecords, change: SessionCommit) -> int:
    """Commit what must succeed; the new revision."""
    done = await store.commit(change)
    assert done is not None, f"the revision of {change.session_id!r} is not {change.revision}"
    return done.revision


async def saved(store: SessionRecords, session_id: str, **fields: Any) -> RecordsCommitted:
    """Write a state over whatever is there."""
    view = await store.view(session_id, WantedRecords())
    done = await store.commit(a_change(session_id, view.revision, row=a_row(session_id, **fields)))
    assert done is not None
    return done


async def view_of(store: SessionRecords, session_id: str, *groups: tuple[RecordKind, str]) -> SessionView:
    """The state, and the records of some groups."""
    return await store.view(session_id, WantedRecords(groups=groups))


async def image(store: SessionRecords, session_id: str) -> object:
    """Everything that the contract's tests write of a session, to see that nothing changed."""
    names = ((RecordKind.STAGED, "s1"), (RecordKind.STAGED, "s2"), (RecordKind.STEP, "s1"))
    view = await store.view(session_id, WantedRecords(groups=names))
    groups = [view.list_records(*name) for name in names]
    pages = [await store.read_page(session_id, kind, limit=100) for kind in PAGED]
    return view.revision, view.max_epoch, view.state, groups, pages


def ids(page: SessionPage) -> list[str]:
    """The ids of a page's sessions."""
    return [each.session_id for each in page.sessions]


async def all_pages(store: SessionRecords, query: SessionQuery) -> list[str]:
    """Ids of all pages from the query's own on."""
    found: list[str] = []
    while True:
        page = await store.list_sessions(query)
        found += ids(page)
        assert page.has_more == (page.next_cursor is not None)
        if page.next_cursor is None:
            return found
        query = query.model_copy(update={"cursor": page.next_cursor})
