"""What a session store does by its options, and by a clock that is wrong."""

from itertools import count

import pytest

from helix_temporal.errors import FencedError
from helix_temporal.models.states import SessionStatus
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.contracts._sessions_base import (
    checkpoints_of,
    commits,
    loaded,
    said,
    staged,
    step,
)
from helix_temporal.testing.contracts._sessions_fences import FENCED

ID = "session"


def a_store(*, require_epoch: bool = False, backwards: bool = False) -> RowSessions:
    """A store in memory; ``backwards``: each look at the clock is an hour before the one before."""
    hours = count(start=500_000, step=-1)
    threads = MemoryThreads()
    rows = (
        MemorySessions(threads, clock=lambda: next(hours) * 3600.0) if backwards else MemorySessions(threads)
    )
    return RowSessions(rows, HotThreads(threads), require_epoch=require_epoch)


async def test_the_latest_checkpoint_is_the_last_also_when_the_clock_goes_back() -> None:
    """A server was replaced by one whose clock is behind (case 56)."""
    store = a_store(backwards=True)
    await store.create_session(ID)
    made = await commits(store, ID, 5)
    latest = await store.get_latest_checkpoint(ID)
    assert latest is not None
    assert latest.id == made[-1]
    assert await checkpoints_of(store, ID) == made


async def test_a_change_is_never_dated_before_the_one_before() -> None:
    """Whoever polls for what has changed since misses nothing (case 13)."""
    store = a_store(backwards=True)
    before = await store.create_session(ID)
    await store.increment_step_count(ID)
    assert (await loaded(store, ID)).updated_at > before.updated_at


@pytest.mark.parametrize("name", FENCED)
async def test_a_store_may_ask_for_epochs(name: str) -> None:
    """Then nobody writes who could not be fenced off (case 63)."""
    store = a_store(require_epoch=True)
    state = await store.create_session(ID, epoch=1)
    await store.save_state_and_promote_staging(ID, state, step(), epoch=1)
    with pytest.raises(FencedError):
        await FENCED[name].call(store, ID, None, None)
    assert (await loaded(store, ID)).version == 2


async def test_what_comes_from_outside_needs_no_epoch() -> None:
    """A user's wish to stop, or an answer to a tool, has no writer's epoch (case 63)."""
    store = a_store(require_epoch=True)
    await store.create_session(ID, epoch=1)
    assert not (await store.request_stop(ID, kind="abort")).recorded
    assert (await store.finish_cleanup(ID)).new_version == 1


async def test_an_epoch_of_any_kind_of_write_counts() -> None:
    """Fences are one for state, staging and messages (case 62)."""
    store = a_store(require_epoch=True)
    await store.create_session(ID, epoch=1)
    await store.stage_changes(ID, "step", staged("call", a=1), epoch=3)
    with pytest.raises(FencedError):
        await store.append_messages(ID, [said()], epoch=2)
    with pytest.raises(FencedError):
        await store.update_status(ID, SessionStatus.PAUSED, epoch=2)
