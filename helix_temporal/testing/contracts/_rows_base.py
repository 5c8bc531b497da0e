"""What the parts of the contract of `SessionRows` share."""

from collections.abc import Sequence
from typing import Any

import pytest

from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import OrderBy, SessionPage, SessionQuery
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionRows,
    SessionView,
    StoredState,
    WantedRows,
)
from helix_temporal.testing.builders import EPOCH, an_id

PAGED = (RowKind.CHECKPOINT, RowKind.RUN, RowKind.REF)
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


class SessionRowsFixtures:
    """Fixtures; a backend overrides the first, and the second where it keeps threads."""

    @pytest.fixture
    async def store(self) -> SessionRows:
        """An empty store."""
        raise NotImplementedError("bind the contract: override the fixture `store`")

    @pytest.fixture
    async def threads(self, store: SessionRows) -> HotTier:
        """The threads that lie with these sessions."""
        raise NotImplementedError("bind the contract: override the fixture `threads`")

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"


class ListFixtures(SessionRowsFixtures):
    """A store that has something to list."""

    @pytest.fixture
    async def listed(self, store: SessionRows) -> SessionRows:
        """A store with the sessions of the table above."""
        for session_id, fields in SESSIONS.items():
            await committed(store, a_change(session_id, state=a_state(session_id, b"{}", **fields)))
        return store


def a_state(session_id: str, body: bytes | None = None, **fields: Any) -> StoredState:
    """A state and bytes for it, which need not tell the same: the store looks at the state only."""
    state = SessionState(session_id=session_id, **fields)
    return StoredState(state, state.model_dump_json().encode() if body is None else body)


def a_change(session_id: str, revision: int = 0, **parts: Any) -> SessionCommit:
    """A commit of a plain state; ``state=None`` leaves the state."""
    parts.setdefault("state", a_state(session_id))
    parts.setdefault("max_epoch", EPOCH)
    return SessionCommit(session_id=session_id, revision=revision, **parts)


def a_removal(session_id: str, revision: int) -> SessionCommit:
    """The end of a session."""
    return SessionCommit(session_id=session_id, revision=revision, max_epoch=EPOCH, deletes=True)


def a_row(
    key: str, kind: RowKind = RowKind.CHECKPOINT, *, group: str = "", order: int = 0, body: bytes = b""
) -> SessionRow:
    """A row whose bytes name it."""
    return SessionRow(kind, key, body or b'"%s"' % key.encode(), group, order)


def staged(step: str, key: str, order: int = 0, body: bytes = b"") -> SessionRow:
    """A change that waits for its step's commit."""
    return a_row(key, RowKind.STAGED, group=step, order=order, body=body)


def keys(rows: Sequence[SessionRow]) -> list[str]:
    """Their keys, in the order given."""
    return [each.key for each in rows]


async def committed(store: SessionRows, change: SessionCommit) -> int:
    """Commit what must succeed; the new revision."""
    done = await store.commit(change)
    assert done is not None, f"the revision of {change.session_id!r} is not {change.revision}"
    return done.revision


async def saved(store: SessionRows, session_id: str, **fields: Any) -> RowsCommitted:
    """Write a state over whatever is there."""
    view = await store.view(session_id, WantedRows())
    done = await store.commit(a_change(session_id, view.revision, state=a_state(session_id, **fields)))
    assert done is not None
    return done


async def view_of(store: SessionRows, session_id: str, *groups: tuple[RowKind, str]) -> SessionView:
    """The state, and the rows of some groups."""
    return await store.view(session_id, WantedRows(groups=groups))


async def image(store: SessionRows, session_id: str) -> object:
    """Everything that the contract's tests write of a session, to see that nothing changed."""
    names = ((RowKind.STAGED, "s1"), (RowKind.STAGED, "s2"), (RowKind.STEP, "s1"))
    view = await store.view(session_id, WantedRows(groups=names))
    groups = [view.list_rows(*name) for name in names]
    pages = [await store.read_page(session_id, kind, limit=100) for kind in PAGED]
    return view.revision, view.max_epoch, view.state, groups, pages


def ids(page: SessionPage) -> list[str]:
    """The ids of a page's sessions."""
    return [each.session_id for each in page.sessions]


async def all_pages(store: SessionRows, query: SessionQuery) -> list[str]:
    """Ids of all pages from the query's own on."""
    found: list[str] = []
    while True:
        page = await store.list_sessions(query)
        found += ids(page)
        assert page.has_more == (page.next_cursor is not None)
        if page.next_cursor is None:
            return found
        query = query.model_copy(update={"cursor": page.next_cursor})
