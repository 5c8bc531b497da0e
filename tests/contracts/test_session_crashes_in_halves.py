"""What takes more than one unit, broken off anywhere: readers see none of it or all; a repeat ends it."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import ids_of, loaded, talk
from helix_temporal.testing.contracts._sessions_checkpoints import turns
from helix_temporal.testing.contracts.session_store import OpenSessions
from tests._session_stores import store_over
from tests._sessions import Place, memory_place
from tests.contracts._session_crashes import STORIES, AnyStory, Faults, break_everywhere
from tests.contracts._session_faults import BreakingCalls, breaking_rows

ID, FORK = "session", "the fork"
ALL = [f"{turn}-{at}" for turn in (1, 2, 3) for at in range(2)]


@dataclass(frozen=True)
class Half:
    """A change of state and thread.

    Attributes:
        make: Makes it.
        seen: The session that shows it; what its messages are then.
        raises: What it adds to the version of that session.
    """

    make: Callable[[SessionStore, list[str]], Awaitable[object]]
    ids: list[str]
    seen: str = ID
    raises: int = 1


CHANGES: dict[str, Half] = {
    "append": Half(
        lambda store, _: store.append_messages(ID, talk(3), operation_id="operation"),
        [*ALL, "m0", "m1", "m2"],
        raises=0,
    ),
    "append without an operation": Half(
        lambda store, _: store.append_messages(ID, talk(3)), [*ALL, "m0", "m1", "m2"], raises=0
    ),
    "truncate": Half(lambda store, _: store.truncate_messages(ID, 2, operation_id="operation"), ALL[:2]),
    "restore": Half(
        lambda store, made: store.restore_checkpoint(ID, made[1], operation_id="operation"), ALL[:4]
    ),
    "fork": Half(lambda store, _: store.fork_session(ID, FORK), ALL, FORK),
    "fork at a checkpoint": Half(
        lambda store, made: store.fork_session(ID, FORK, at_checkpoint=made[0]), ALL[:2], FORK
    ),
    "fork at a message": Half(lambda store, _: store.fork_session(ID, FORK, at_message=4), ALL[:4], FORK),
}


@dataclass
class Stage:
    """A place whose calls break off, and another way to it whose calls don't."""

    clean: OpenSessions
    broken: SessionStore
    faults: Faults
    made: list[str]

    async def version(self, session_id: str) -> int:
        """Of the state; 0 without one."""
        state = await self.clean.sessions.load_state(session_id)
        return 0 if state is None else state.version


async def a_stage(*, together: bool) -> Stage:
    """A session of three turns."""
    async with memory_place(together=together)() as place:
        faults = Faults()
        threads: Any = BreakingCalls(place.threads, faults)
        clean = store_over(place)
        broken = store_over(Place(breaking_rows(place.rows, faults), threads)).sessions
        await clean.sessions.create_session(ID)
        return Stage(clean, broken, faults, await turns(clean, ID, 3))


async def breaks_off(
    stage: Stage, change: Callable[[SessionStore, list[str]], Awaitable[object]], point: int
) -> bool:
    """Break a change off at a point; False if it ended before it came there.

    How many points there are can't be counted in advance: a change whose epoch is taken, as another one has
    that of the same millisecond, asks once more.
    """
    stage.faults.arm(point)
    try:
        await change(stage.broken, stage.made)
    except StoreUnavailableError:
        assert stage.faults.broken
        stage.faults.arm(0)
        return True
    assert not stage.faults.broken
    assert point > 4
    return False


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_is_broken_off_is_seen_whole_or_not_at_all(name: str, together: bool) -> None:
    """And its repeat gives one effect, wherever the first attempt ended."""
    change = CHANGES[name]
    for point in itertools.count(1):
        stage = await a_stage(together=together)
        store = stage.clean.sessions
        before = await stage.version(change.seen), await ids_of(store, change.seen)
        if not await breaks_off(stage, change.make, point):
            break
        after = before[0] + change.raises, change.ids
        assert (await stage.version(change.seen), await ids_of(store, change.seen)) in (before, after)
        first = await change.make(store, stage.made)
        assert (await stage.version(change.seen), await ids_of(store, change.seen)) == after
        assert await change.make(store, stage.made) == first
        assert await ids_of(store, change.seen) == change.ids
        assert (await loaded(store, ID)).custom_state == {"n": 2 if name == "restore" else 3}


@pytest.mark.parametrize("together", [True, False])
async def test_a_deletion_that_is_broken_off_is_ended_by_its_repeat(together: bool) -> None:
    """Nothing of the thread comes back with a new session."""

    async def delete(store: SessionStore, _: list[str]) -> bool:
        return await store.delete_session(ID)

    for point in itertools.count(1):
        stage = await a_stage(together=together)
        if not await breaks_off(stage, delete, point):
            break
        await stage.clean.sessions.delete_session(ID)
        header = await stage.clean.threads.read_header(ID)
        assert header is None or header.deleted
        await stage.clean.sessions.create_session(ID)
        assert await ids_of(stage.clean.sessions, ID) == []
        appended = await stage.clean.sessions.append_messages(ID, talk(1))
        assert appended.first_index == 0


@pytest.mark.parametrize("story", STORIES)
async def test_a_commit_whose_messages_lie_elsewhere_is_ended_by_its_repeat(story: AnyStory) -> None:
    """Messages first, then the state with their head; the repeat finds what is there of it."""
    faults = Faults()
    async with memory_place(together=False)() as place:
        threads: Any = BreakingCalls(place.threads, faults)
        broken = store_over(Place(breaking_rows(place.rows, faults), threads))
        for seed in range(5):
            await break_everywhere(
                store_over(place), broken.sessions, faults, seed, together=False, story=story
            )
