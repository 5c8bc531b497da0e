"""What keeps named bytes beside a session: `Records`."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from helix_temporal.models.states import CreateSession


class RecordName(NamedTuple):
    """Names a record within its session.

    A kind is 1–64 of ``[A-Za-z0-9_.-]``.  Key and group are text of at most 1,024 bytes without NUL; a group
    may be empty.
    """

    kind: str
    key: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Bytes under a name; records of a group are in the order of their keys, as bytes of UTF-8."""

    kind: str
    key: str
    body: bytes
    group: str = ""

    @property
    def name(self) -> RecordName:
        """Its name."""
        return RecordName(self.kind, self.key, self.group)


@dataclass(frozen=True, slots=True)
class WantedRecords:
    """Which records to read, all of one instant.

    Attributes:
        names: Exactly these, where they are there.
        groups: All of a kind and group.
        newest: The one of the highest key of each of these kinds and groups.
    """

    names: tuple[RecordName, ...] = ()
    groups: tuple[tuple[str, str], ...] = ()
    newest: tuple[tuple[str, str], ...] = ()


NO_RECORDS: Final = WantedRecords()
"""No record: only where the session stands."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """Records of one instant.

    Attributes:
        revision: Of the session; goes up with every write to it, of records or of its state.  0: nothing was
            ever stored.
        epoch: The session's fence.
        exists: There is a session; False also for one that was deleted.
        records: Those that were wanted and found, each once, by kind, group and key.
    """

    revision: int
    epoch: int
    exists: bool
    records: tuple[Record, ...]

    def find_record(self, kind: str, key: str, group: str = "") -> Record | None:
        """One record by its name."""
        return next((each for each in self.records if each.name == (kind, key, group)), None)

    def list_records(self, kind: str, group: str = "") -> tuple[Record, ...]:
        """The records of a kind and group, by key."""
        return tuple(each for each in self.records if (each.kind, each.group) == (kind, group))


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What to write: first the clears, then the removes, then the puts.

    Attributes:
        puts: Records to insert or replace.
        removes: Records to remove, where they are there.
        clears: Remove all of these kinds and groups.
    """

    puts: tuple[Record, ...] = ()
    removes: tuple[RecordName, ...] = ()
    clears: tuple[tuple[str, str], ...] = ()


class Records(Protocol):
    """Named bytes beside a session, for what is neither its state nor a message.

    A session's records are written with its revision, and go when it is deleted.  The session is one
    as any other: the session store lists it, finds it by its metadata and deletes it.

    Raises (every method): `InvalidIdError`, `InvalidRequestError`, `InvalidMessageError` and `TooLargeError`
    for arguments that no store can keep; `StoreCorruptError` for a damaged record; `StoreUnavailableError`
    for what passes.
    """

    async def read(self, session_id: str, wanted: WantedRecords = ...) -> RecordView:
        """Read some records, all of one instant; of no session, and of a deleted one, there are none."""
        ...

    async def write(
        self,
        session_id: str,
        change: RecordChange,
        *,
        revision: int | None = None,
        epoch: int | None = None,
        create: CreateSession | None = None,
        revive: bool = False,
        operation_id: str | None = None,
    ) -> int:
        """Write everything of a change, or nothing; the session's new revision.

        The state stays as it is.  Only its ``updated_at`` follows, at most once a minute.

        Args:
            session_id: Whose.
            change: What.
            revision: Only if the session still has the revision that was read; None: whatever it is now.
            epoch: The fence; a higher one than the session's becomes the session's.  None writes unfenced.
            create: What the session begins with, if there is none, in the same commit.
            revive: Begin a session anew that was deleted.
            operation_id: A repeat with the same one gets the first answer.  Without it a repeat writes
                again, which is no harm where no ``revision`` is given.

        Raises:
            SessionNotFoundError: There is no session, and ``create`` is not given; or it was deleted.
            StaleStateError: The revision is another.
            FencedError: The epoch is lower than one that was seen.
            IdempotencyConflictError: The operation id was another request's.
            StoreUnavailableError: It may have happened or not; repeat it.
        """
        ...

    async def read_page(
        self,
        session_id: str,
        kind: str,
        group: str = "",
        *,
        limit: int,
        after: str | None = None,
        descending: bool = False,
    ) -> tuple[Record, ...]:
        """Up to ``limit`` (1–1,000) records of a group by key, beyond the key ``after``.

        Costs what the records returned cost, however many there are.
        """
        ...

    async def list_groups(self, session_id: str, kind: str, *, prefix: str = "") -> tuple[str, ...]:
        """The groups that have records of a kind, and begin so, in order.

        Costs what the groups cost, however many records they have.
        """
        ...

    async def take_over(
        self, session_id: str, *, create: CreateSession | None = None, revive: bool = False
    ) -> int:
        """Make a new epoch, under which the caller writes; who writes under a lower one is refused.

        No two calls get the same one.

        Raises:
            SessionNotFoundError: As for `write`.
        """
        ...

    async def archive(
        self,
        session_id: str,
        kind: str,
        group: str = "",
        *,
        before: str | None = None,
        written_before: int | None = None,
        limit: int = ...,
    ) -> int:
        """Move the bodies of old records of a group to the archive; how many were moved.

        They are read as before, many at once with one request for each object that holds them.  Records that
        are replaced or removed meanwhile are left alone, and so are short ones.  Who writes by a revision
        that was read before is refused then, as after any other write.

        Args:
            session_id: Whose.
            kind: Of which kind.
            group: Of which group.
            before: Only those with a lower key.
            written_before: Only those that were written before this time, ms since 1970 by the store's clock.
            limit: So many at most (1–1,000).

        Raises:
            InvalidConfigError: There is no archive.
            SessionNotFoundError: There is no session.
            StoreUnavailableError: Store or archive do not answer; what was moved is moved, repeat the call.
        """
        ...
