"""The contract of records finds stores that break it: one that never fails would prove nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from helix_temporal.errors import HelixError
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.records import Records
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.records import RowRecords
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.contracts.records import OpenRecords, RecordsContract

WANTED = WantedRows()


class Racy(MemorySessions):
    """Writes whatever the revision is by now; others run between its view and its commit."""

    async def view(self, session_id: str, wanted: WantedRows = WANTED) -> SessionView:
        """And a pause."""
        view = await super().view(session_id, wanted)
        await asyncio.sleep(0)
        return view

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """Without comparing."""
        return await super().commit(replace(change, revision=self._held_session(change.session_id).revision))


class Unfenced(MemorySessions):
    """Does not remember who has written."""

    async def view(self, session_id: str, wanted: WantedRows = WANTED) -> SessionView:
        """As if nobody had."""
        return replace(await super().view(session_id, wanted), max_epoch=0)


class Resurrecting(MemorySessions):
    """Keeps the rows of what it deletes."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """The state goes alone."""
        held = self._held_session(change.session_id)
        done = await super().commit(change)
        if change.deletes:
            after = self._held_session(change.session_id)
            self._sessions[change.session_id] = replace(after, rows=held.rows)
        return done


class Amnesic(MemorySessions):
    """Forgets that a session was deleted."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """Revision and fence go with it."""
        done = await super().commit(change)
        if change.deletes:
            del self._sessions[change.session_id]
        return done


class Halving(MemorySessions):
    """Leaves out clears where there are puts."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """One half."""
        return await super().commit(replace(change, clears=()) if change.puts else change)


class Oldest(MemorySessions):
    """Goes through a group from the wrong end."""

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
        """Always forward."""
        del descending
        return await super().read_group(session_id, kind, group, limit=limit, after=after)


@dataclass
class Asked:
    """What a case of the contract asks for."""

    contract: RecordsContract
    opened: OpenRecords
    another: Records


Case = Callable[[Asked], Awaitable[None]]
ID = "session"

CASES: dict[str, tuple[type[MemorySessions], Case]] = {
    "a revision that is not compared": (
        Racy,
        lambda asked: asked.contract.test_of_many_with_one_revision_one_writes(
            asked.opened.records, asked.another, ID
        ),
    ),
    "two that take over alike": (
        Racy,
        lambda asked: asked.contract.test_no_two_take_over_alike(asked.opened.records, asked.another, ID),
    ),
    "a writer that was replaced": (
        Unfenced,
        lambda asked: asked.contract.test_a_writer_that_was_replaced_is_refused(
            asked.opened.records, asked.another, ID
        ),
    ),
    "an epoch that is not kept": (
        Unfenced,
        lambda asked: asked.contract.test_a_higher_epoch_becomes_the_sessions(
            asked.opened.records, asked.another, ID
        ),
    ),
    "records that outlive their session": (
        Resurrecting,
        lambda asked: asked.contract.test_a_deleted_session_has_no_records(
            asked.opened.records, asked.opened.sessions, ID
        ),
    ),
    "a session that comes back": (
        Amnesic,
        lambda asked: asked.contract.test_a_late_writer_does_not_bring_a_session_back(
            asked.opened.records, asked.another, asked.opened.sessions, ID
        ),
    ),
    "half a change": (
        Halving,
        lambda asked: asked.contract.test_a_change_clears_removes_and_puts(asked.opened.records, ID),
    ),
    "a page from the wrong end": (
        Oldest,
        lambda asked: asked.contract.test_pages_go_through_a_group(asked.opened.records, ID),
    ),
}
"""What is broken, and the case that finds it."""


def asked(rows: MemorySessions) -> Asked:
    """A case's fixtures over such rows."""
    sessions = RowSessions(rows)
    return Asked(
        RecordsContract(), OpenRecords(RowRecords(sessions), sessions), RowRecords(RowSessions(rows))
    )


@pytest.mark.parametrize("name", CASES)
async def test_a_store_that_breaks_its_promise_is_found(name: str) -> None:
    """By an assertion, by an error that is missing, or by one that was not expected."""
    broken, case = CASES[name]
    with pytest.raises((AssertionError, HelixError, pytest.fail.Exception)):
        await case(asked(broken()))


@pytest.mark.parametrize("name", CASES)
async def test_the_same_case_passes_a_store_that_keeps_it(name: str) -> None:
    """It was the break that was found, and nothing else."""
    await CASES[name][1](asked(MemorySessions()))
