"""The port below the session store: what a backend must do, and all that it must do.

The rules of the session store (versions, fences, operations, staging, runs …) are pure code above this
port (`helix_temporal.stores.sessions`).  A backend keeps opaque rows of a session and writes any
number of them at once, if the session's revision is still the one that was read.  So that every
operation of the session store is: view, decide, commit; and again if somebody was faster.

A backend is one class with these methods and one contract (`helix_temporal.testing.contracts`).
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import (
    DueSession,
    ExpiredSession,
    SessionPage,
    SessionQuery,
    call_deadlines,
)
from helix_temporal.stores.protocols.hot import Appended, HotHeader, StepAppend


class RowKind(StrEnum):
    """What a row is; where ``group``, ``key`` and ``order`` come from."""

    CHECKPOINT = "checkpoint"
    """A checkpoint without its state, small.  No group; key: checkpoint id; order: commit sequence."""
    CHECKPOINT_STATE = "checkpoint_state"
    """The state of a checkpoint.  No group; key and order: those of the checkpoint."""
    STEP = "step"
    """A closed step.  Group: step id; key: what closed it; order: 0."""
    STAGED = "staged"
    """Group: step id; key: tool call id; order: the change's timestamp."""
    RUN = "run"
    """No group; key: run id; order: turn."""
    STOP = "stop"
    """No group; key: run id; order: 0."""
    REF = "ref"
    """A sub-session.  No group; key: its id; order: its place in the order of creation."""
    OPERATION = "operation"
    """No group; key: operation id; order: time of the operation in ms."""
    THREAD = "thread"
    """What the session's thread must still be told.  No group; key: what; order: 0."""
    RECORD = "record"
    """A record of whoever uses `Records`.  Group: its kind and group; key: its key; order: 0."""
    PACK = "pack"
    """Names a pack of archived records.  No group; key: its id; order: when it was begun, in ms."""


class RowKey(NamedTuple):
    """Names a row within a session."""

    kind: RowKind
    key: str
    group: str = ""


def checksum_place(session_id: str, name: RowKey, order: int) -> tuple[str | int, ...]:
    """What the checksum of a row is of, beside its body, where a backend keeps one."""
    return session_id, name.kind.value, name.key, name.group, order


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A row: opaque bytes (JSON, to the rules) and its place in the order of its kind."""

    kind: RowKind
    key: str
    body: bytes
    group: str = ""
    order: int = 0

    @property
    def name(self) -> RowKey:
        """Its key."""
        return RowKey(self.kind, self.key, self.group)


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Which rows to read with the state, all in one instant.

    Attributes:
        keys: Exactly these, where they are there.
        groups: All of a kind and group, in the order of (order, key).
        newest: The one of the highest order of each of these kinds.
        newest_in: The one of the highest key of each of these kinds and groups; of kinds without an order
            (always 0) only.
        thread: The header of the hot thread of the same id, if this backend's threads
            lie with its sessions.
    """

    keys: tuple[RowKey, ...] = ()
    groups: tuple[tuple[RowKind, str], ...] = ()
    newest: tuple[RowKind, ...] = ()
    newest_in: tuple[tuple[RowKind, str], ...] = ()
    thread: bool = False


STATE_ALONE: Final = WantedRows()
"""No row beside the state."""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session in one instant.

    Attributes:
        revision: Goes up by one with every commit; 0: nothing was ever stored.  Survives a delete.
        max_epoch: The session's fence: the highest epoch ever seen.  Survives a delete.
        now: The store's clock, ms since 1970.
        state: The state's bytes; None if there is no session (never, or no more).
        rows: Those that were wanted and found.
        birth: Tells two sessions of one id apart, of which the store forgot the first: its revisions come
            again.  0 where nothing is stored, and in a store that never forgets one.
    """

    revision: int
    max_epoch: int
    now: int
    state: bytes | None
    rows: tuple[SessionRow, ...] = ()
    thread: HotHeader | None = None
    birth: int = field(default=0, compare=False)

    def is_same_as(self, other: "SessionView") -> bool:
        """Whether nobody has written the session between the two looks."""
        return (self.revision, self.birth) == (other.revision, other.birth)

    def find_row(self, kind: RowKind, key: str, group: str = "") -> SessionRow | None:
        """One row by its key."""
        return next((each for each in self.rows if each.name == (kind, key, group)), None)

    def list_rows(self, kind: RowKind, group: str = "") -> tuple[SessionRow, ...]:
        """The rows of a kind and group, by (order, key)."""
        found = [each for each in self.rows if (each.kind, each.group) == (kind, group)]
        return tuple(sorted(found, key=lambda each: (each.order, each.key)))


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state to store: its bytes, and the model they were made of for what must be queried."""

    state: SessionState
    body: bytes

    @property
    def due_at(self) -> int | None:
        """The earliest of the `call_deadlines` of what the session waits for, for `list_due`."""
        return min(call_deadlines(self.state), default=None)


@dataclass(frozen=True, slots=True)
class SessionCommit:
    """What to write, all at once or not at all.

    Attributes:
        revision: The one that was read; the commit happens only if it still is.
        max_epoch: The new one, never lower.
        state: The new state; None leaves it.
        puts: Rows to insert or replace.
        removes: Rows to remove, where they are there.
        clears: Remove all of these kinds and groups (before ``puts``).
        deletes: The session is deleted: state and all rows go, revision and fence stay.  Nothing
            else is given then.
        append: A step of the session's thread that is part of it, as `HotTier.append`.
        unless: Where one of these keys or groups is there, the commit does not happen, as if the revision
            were another: for who did not look for them.  Keys of kinds without groups and whole groups
            only; nothing else of it counts.
        birth: The one that was read; the commit happens only if it still is.  0: not compared.
    """

    session_id: str
    revision: int
    max_epoch: int
    state: StoredState | None = None
    puts: tuple[SessionRow, ...] = ()
    removes: tuple[RowKey, ...] = ()
    clears: tuple[tuple[RowKind, str], ...] = ()
    deletes: bool = False
    append: StepAppend | None = None
    unless: WantedRows = STATE_ALONE
    birth: int = 0


@dataclass(frozen=True, slots=True)
class RowsCommitted:
    """The commit happened.

    Attributes:
        appended: What became of ``append``; None where none was given.
    """

    revision: int
    appended: Appended | None = None


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of one kind, in order, and how many there are in all; None where nobody asked."""

    rows: tuple[SessionRow, ...]
    total: int | None


class SessionRows(Protocol):
    """Sessions in one store.  Every method is atomic, but a page and its total may be of two instants.

    Errors are `StoreUnavailableError` for passing ones.

    An unclear outcome (`StoreUnavailableError` from `commit`) leaves the revision as the judge: the
    same commit made again is refused if it happened.

    Attributes:
        keeps_threads: This backend's hot threads lie with its sessions, so that `SessionCommit.append`
            works and both commit together.
        durable: An acknowledged commit survives the server's death (by its usual configuration).
    """

    keeps_threads: bool
    durable: bool

    async def view(self, session_id: str, wanted: WantedRows = ...) -> SessionView:
        """Read the state and some rows in one instant."""
        ...

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """Write everything if revision and birth are those that were read; None if not, or for `unless`.

        Raises:
            FencedError, HeadMovedError, IdempotencyConflictError, StaleStateError: As `HotTier.append`
                for ``append``; then nothing at all is changed.  Where the step stands already the
                rest of the commit happens.
            ThreadNotFoundError: ``append`` is given and the thread is not hot; nothing is changed.
        """
        ...

    async def read_page(
        self,
        session_id: str,
        kind: RowKind,
        *,
        limit: int,
        after: tuple[int, str] | None = None,
        descending: bool = False,
        count: bool = True,
    ) -> RowPage:
        """Rows of a kind (of every group) by (order, key), beyond ``after`` in the direction given.

        ``count`` asks for the total, which costs more the more rows there are.
        """
        ...

    async def read_group(
        self,
        session_id: str,
        kind: RowKind,
        group: str,
        *,
        limit: int,
        after: str | None = None,
        descending: bool = False,
    ) -> tuple[SessionRow, ...]:
        """Rows of one group by key, beyond ``after``; of kinds without an order (always 0) only.

        Costs what the rows returned cost, however many there are.
        """
        ...

    async def list_groups(
        self, session_id: str, kind: RowKind, *, first: str, stop: str, limit: int
    ) -> tuple[str, ...]:
        """Groups that have rows of a kind, in order, from ``first`` on and before ``stop``.

        Costs what the groups returned cost, however many rows they have.
        """
        ...

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """Sessions by an index, never by reading all, and what is shown of them with it.

        With ``query.include`` the state's own bytes tell, which then are the JSON of a `SessionState`.

        Raises:
            InvalidCursorError: The cursor is not of this kind of query.
        """
        ...

    def scan(self) -> AsyncIterator[str]:
        """Ids of all sessions that are not deleted, in no order."""
        ...

    async def list_expired(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[ExpiredSession, ...]:
        """Sessions with ``expires_at < before``, in the order of (expires_at, id), beyond ``after``."""
        ...

    async def list_due(
        self, before: int, *, limit: int, after: tuple[int, str] | None = None
    ) -> tuple[DueSession, ...]:
        """Sessions with ``due_at < before``, in the order of (due_at, id), beyond ``after``."""
        ...

    async def list_cleanup_pending(self, *, limit: int, after: str | None = None) -> tuple[str, ...]:
        """Ids of sessions whose clean-up is not finished, in order."""
        ...

    async def purge_operations(self, before: int, *, limit: int) -> int:
        """Remove up to ``limit`` operation rows older than ``before`` (ms); how many."""
        ...

    async def now(self) -> int:
        """The store's clock, ms since 1970."""
        ...

    async def check(self) -> None:
        """Refuse a server that would lose data or that we don't understand.

        Raises:
            UnsafeRedisPolicyError, SchemaVersionError, UnsupportedServerError: See there.
        """
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...
