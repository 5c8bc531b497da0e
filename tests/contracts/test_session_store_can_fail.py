"""The contract finds stores that break it: one that never fails would prove nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import cycle

import pytest

from helix_temporal.errors import HelixError
from helix_temporal.models.states import SessionState
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowPage,
    RowsCommitted,
    SessionCommit,
    SessionView,
    WantedRows,
)
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import Crowd, talk
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionStoreContract
from tests._session_stores import store_over
from tests._sessions import Place
from tests.contracts._session_crashes import STORIES, AnyStory, Faults, break_everywhere

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


class Forgetful(MemorySessions):
    """Forgets which operations and steps it has done."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """Without what tells a repeat."""
        kept = tuple(each for each in change.puts if each.kind not in {RowKind.OPERATION, RowKind.STEP})
        return await super().commit(replace(change, puts=kept))


class Unfenced(MemorySessions):
    """Does not remember who has written."""

    async def view(self, session_id: str, wanted: WantedRows = WANTED) -> SessionView:
        """As if nobody had."""
        return replace(await super().view(session_id, wanted), max_epoch=0)


class Torn(MemorySessions):
    """Commits a step's state before its messages, and may be broken off between the two."""

    faults = Faults()

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """In two halves."""
        first = await super().commit(replace(change, append=None))
        if first is None or change.append is None:
            return first
        await self.faults.at("between state and messages")
        return await super().commit(
            SessionCommit(change.session_id, first.revision, change.max_epoch, append=change.append)
        )


class Untouched(MemorySessions):
    """Leaves the state where there are messages in a commit."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """Messages and rows alone."""
        return await super().commit(replace(change, state=None) if change.append else change)


class Resurrecting(MemorySessions):
    """Keeps the rows of what it deletes."""

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """The state goes, and the rest comes back with the next session of this id."""
        held = self._held_session(change.session_id)
        done = await super().commit(change)
        if change.deletes:
            after = self._held_session(change.session_id)
            self._sessions[change.session_id] = replace(after, rows=held.rows)
        return done


class Skipping(MemorySessions):
    """Leaves out the first one of every page but the first page."""

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
        """One too few."""
        page = await super().read_page(
            session_id, kind, limit=limit + 1, after=after, descending=descending, count=count
        )
        return replace(page, rows=page.rows[0 if after is None else 1 :][:limit])


class Narrow(MemorySessions):
    """Sees one staged change of a step only."""

    async def view(self, session_id: str, wanted: WantedRows = WANTED) -> SessionView:
        """The last one."""
        view = await super().view(session_id, wanted)
        staged = [each for each in view.rows if each.kind is RowKind.STAGED]
        others = tuple(each for each in view.rows if each.kind is not RowKind.STAGED)
        return replace(view, rows=(*others, *staged[-1:]))


@dataclass
class Asked:
    """What a case of the contract asks for."""

    contract: SessionStoreContract
    opened: OpenSessions
    crowd: Crowd
    state: SessionState

    @property
    def store(self) -> SessionStore:
        """The store."""
        return self.opened.sessions


Case = Callable[[Asked], Awaitable[None]]
ID = "session"

CASES: dict[str, tuple[type[MemorySessions], Case]] = {
    "a race of saves": (
        Racy,
        lambda asked: asked.contract.test_of_many_saves_exactly_one_wins(
            asked.store, asked.crowd, asked.state, ID
        ),
    ),
    "a race of statuses": (
        Racy,
        lambda asked: asked.contract.test_of_many_exactly_one_sets_the_status(
            asked.store, asked.crowd, asked.state, ID
        ),
    ),
    "a repeated operation": (
        Forgetful,
        lambda asked: asked.contract.test_a_repeat_gets_the_first_answer(
            asked.store, "another", "increment_resume_count"
        ),
    ),
    "a late step": (
        Forgetful,
        lambda asked: asked.contract.test_a_pruned_step_is_still_known(asked.store, asked.state, ID),
    ),
    "an old writer": (
        Unfenced,
        lambda asked: asked.contract.test_an_epoch_may_be_as_large_as_a_clock(asked.store, asked.state, ID),
    ),
    "an append that nobody sees in lists": (
        Untouched,
        lambda asked: asked.contract.test_an_append_lets_the_session_rise_in_lists(asked.store),
    ),
    "a change that is lost beside its messages": (
        Untouched,
        lambda asked: asked.contract.test_a_change_of_the_state_comes_with_the_messages(
            asked.store, "another"
        ),
    ),
    "what comes back": (
        Resurrecting,
        lambda asked: asked.contract.test_a_new_session_under_the_old_id_starts_from_nothing(
            asked.store, "another"
        ),
    ),
    "a page too few": (
        Skipping,
        lambda asked: asked.contract.test_pages_are_complete_while_others_are_added(
            asked.store, asked.state, ID, "asc"
        ),
    ),
    "a lost tool": (
        Narrow,
        lambda asked: asked.contract.test_staged_changes_are_dropped(asked.store, asked.state, ID),
    ),
}
"""What is broken, and the case that finds it."""


async def asked(rows: MemorySessions, threads: MemoryThreads) -> Asked:
    """A case's fixtures over such rows."""
    place = Place(rows, threads)
    opened = store_over(place)
    state = await opened.sessions.create_session(ID)
    await opened.sessions.append_messages(ID, talk(2), touch=False)
    crowd = cycle([store_over(place).sessions for _ in range(4)])
    return Asked(SessionStoreContract(), opened, crowd, state)


@pytest.mark.parametrize("name", CASES)
async def test_a_store_that_breaks_its_promise_is_found(name: str) -> None:
    """By an assertion, by an error that is missing, or by one that was not expected."""
    broken, case = CASES[name]
    threads = MemoryThreads()
    fixtures = await asked(broken(threads), threads)
    with pytest.raises((AssertionError, HelixError, pytest.fail.Exception)):
        await case(fixtures)


@pytest.mark.parametrize("name", CASES)
async def test_the_same_case_passes_a_store_that_keeps_it(name: str) -> None:
    """It was the break that was found, and nothing else."""
    threads = MemoryThreads()
    await CASES[name][1](await asked(MemorySessions(threads), threads))


@pytest.mark.parametrize("story", STORIES)
async def test_a_store_that_commits_in_halves_is_found(story: AnyStory) -> None:
    """The search for crashes finds one that matters."""
    threads = MemoryThreads()
    torn = Torn(threads)
    opened = store_over(Place(torn, threads))
    with pytest.raises(AssertionError):
        await break_everywhere(opened, opened.sessions, torn.faults, seed=0, story=story)
