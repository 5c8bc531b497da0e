"""`Records` over the port `SessionRows`."""

from typing import Final

from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import CreateSession, SessionState
from helix_temporal.stores.protocols.records import (
    NO_RECORDS,
    Record,
    RecordChange,
    RecordName,
    RecordView,
    WantedRecords,
)
from helix_temporal.stores.protocols.session_rows import STATE_ALONE, RowKind
from helix_temporal.stores.records.archive import Chosen, archive_group, read_bodies, unless_gone
from helix_temporal.stores.records.rows import (
    MAX_PAGE,
    check_record,
    checked_key,
    checked_page,
    encode_record,
    group_in,
    group_of,
    groups_with_prefix,
    in_order,
    plain_parts,
    row_key,
    wanted_rows,
)
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_count, revalidate_model
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession
from helix_temporal.stores.sessions.life import decide_creation
from helix_temporal.stores.sessions.loop import TRIES, encode_state, pause_before_retry
from helix_temporal.stores.sessions.threads import next_epoch

TOUCH_AFTER: Final = 60_000
"""Milliseconds after which a write of records brings the state's ``updated_at`` forward: so that clean-ups by
age see that the session is in use, and not every write stores the state and its place in lists."""
_GROUPS: Final = 500


class RowRecords:
    """`Records` of the sessions of a session store.

    A write is one view and one commit, and again if somebody was faster; where this process wrote the session
    last, and the store is durable, it is the commit alone.

    Args:
        sessions: The store of the sessions, which also lists and deletes them.
    """

    def __init__(self, sessions: SessionStoreBase) -> None:
        self._sessions = sessions
        self._rows = sessions.loop.rows

    async def read(self, session_id: str, wanted: WantedRecords = NO_RECORDS) -> RecordView:
        """See `Records.read`."""
        rows = wanted_rows(wanted)
        validate_id(session_id, "session id")

        async def read() -> RecordView:
            view = await self._rows.view(session_id, rows)
            records = await read_bodies(self._sessions, session_id, view.rows)
            return RecordView(view.revision, view.max_epoch, view.state is not None, in_order(records))

        return await unless_gone(session_id, read)

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
        """See `Records.write`."""
        create = None if create is None else revalidate_model(create, CreateSession)
        expected = None if revision is None else checked_count(revision, "revision")
        _check_change(change)
        content = (*plain_parts(change), expected, create, revive)
        call = Call("write_records", session_id, content, epoch, operation_id)

        async def decide(seen: SeenSession) -> Decision[int]:
            state = await self._state_to_write(seen, create, revive, touch=change != RecordChange())
            _check_revision(seen, expected)
            return _decide_write(seen, change, state)

        done = await self._sessions.loop.make_change(call, STATE_ALONE, decide, int, keeps=True)
        return done.answer if done.repeated else done.revision

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
        """See `Records.read_page`."""
        validate_id(session_id, "session id")
        row_group, limit = group_of(kind, group), checked_page(limit)
        beyond = None if after is None else checked_key(after)

        async def read() -> tuple[Record, ...]:
            rows = await self._rows.read_group(
                session_id, RowKind.RECORD, row_group, limit=limit, after=beyond, descending=descending
            )
            return tuple(await read_bodies(self._sessions, session_id, rows))

        return await unless_gone(session_id, read)

    async def list_groups(self, session_id: str, kind: str, *, prefix: str = "") -> tuple[str, ...]:
        """See `Records.list_groups`."""
        session_id = validate_id(session_id, "session id")
        first, stop = groups_with_prefix(kind, prefix)
        found: list[str] = []
        while page := await self._rows.list_groups(
            session_id, RowKind.RECORD, first=first, stop=stop, limit=_GROUPS
        ):
            found += map(group_in, page)
            # No group has NUL, so that this is the next one that there can be.
            first = f"{page[-1]}\x01"
        return tuple(found)

    async def take_over(
        self, session_id: str, *, create: CreateSession | None = None, revive: bool = False
    ) -> int:
        """See `Records.take_over`."""
        create = None if create is None else revalidate_model(create, CreateSession)
        validate_id(session_id, "session id")
        loop = self._sessions.loop
        async with loop.lock_session(session_id):
            for number in range(TRIES):
                seen = await loop.view_session(session_id, STATE_ALONE)
                state = await self._state_to_write(seen, create, revive, touch=True)
                epoch = next_epoch(seen.now, seen.view.max_epoch)
                call = Call("take_over_records", session_id, epoch=epoch)
                body = None if state is None else encode_state(state)
                done = await loop.commit_seen(seen, call, Decision(epoch, state, body), int, STATE_ALONE)
                if done is not None:
                    return done.answer
                await pause_before_retry(number)
        raise StoreUnavailableError(
            f"session {session_id!r}: take_over was overtaken {TRIES} times", session_id=session_id
        )

    async def archive(
        self,
        session_id: str,
        kind: str,
        group: str = "",
        *,
        before: str | None = None,
        written_before: int | None = None,
        limit: int = MAX_PAGE,
    ) -> int:
        """See `Records.archive`."""
        validate_id(session_id, "session id")
        chosen = Chosen(
            group_of(kind, group),
            None if before is None else checked_key(before),
            None if written_before is None else checked_count(written_before, "written_before"),
            checked_page(limit),
        )
        return await archive_group(self._sessions, session_id, chosen)

    async def _state_to_write(
        self, seen: SeenSession, create: CreateSession | None, revive: bool, *, touch: bool
    ) -> SessionState | None:
        """The state that a write stores: a new one, one with a later time, or None.

        Raises:
            SessionNotFoundError: There is no session, and none is to be made.
        """
        if seen.state is None:
            if create is None:
                return seen.present
            made = decide_creation(seen, create, if_not_exists=True, revive=revive)
            if seen.view.revision:
                await self._sessions.threads.delete_left(seen)
            return made.state
        if not touch or seen.now - seen.state.updated_at < TOUCH_AFTER:
            return None
        return seen.state.model_copy(update={"updated_at": seen.now})


def _decide_write(seen: SeenSession, change: RecordChange, state: SessionState | None) -> Decision[int]:
    return Decision(
        seen.view.revision + 1,
        state,
        None if state is None else encode_state(state),
        puts=tuple(encode_record(each, seen.now) for each in change.puts),
        removes=tuple(row_key(name) for name in change.removes),
        clears=tuple((RowKind.RECORD, group_of(*each)) for each in change.clears),
    )


def _check_change(change: RecordChange) -> None:
    """Refuse what no store can keep, before any is asked."""
    for record in change.puts:
        check_record(record)
    for name in change.removes:
        row_key(RecordName(*name))
    for kind, group in change.clears:
        group_of(kind, group)


def _check_revision(seen: SeenSession, expected: int | None) -> None:
    if expected is None or expected == seen.view.revision:
        return
    raise StaleStateError(
        f"session {seen.session_id!r}: revision {seen.view.revision} is stored, {expected} was expected; "
        "read it again",
        session_id=seen.session_id,
        expected_revision=expected,
        actual_revision=seen.view.revision,
    )
