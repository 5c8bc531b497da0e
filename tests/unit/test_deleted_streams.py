"""What was shown of a session goes with it, whoever deletes it."""

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.stores import SessionStoreActivities
from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models.maintenance import CleanUpOldInput
from helix_temporal.models.store_calls import DeleteSessionInput
from helix_temporal.models.streams import TextChunk
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.storage import StoreSessionStorage
from helix_temporal.stores.threads.hot_only import HotThreads

OLD = CleanUpOldInput(max_age_ms=1000)


class Streams(MemoryStreams):
    """That may not answer."""

    away = False

    async def delete_stream(self, stream_id: str) -> bool:
        """See the class."""
        if self.away:
            raise StoreUnavailableError(f"stream {stream_id!r}: no answer")
        return await super().delete_stream(stream_id)


@pytest.fixture
async def streams() -> Streams:
    """Where ``s`` was shown."""
    streams = Streams()
    writer = await streams.create_writer("s", agent_id="r")
    await writer.write(TextChunk(delta="what somebody said"))
    return streams


@pytest.fixture
async def store(streams: Streams) -> RowSessions:
    """With a session ``s`` that nobody has changed for a minute."""
    now = [1_000_000.0]
    threads = MemoryThreads()
    messages = MemorySessions(threads, clock=lambda: now[0])
    store = RowSessions(messages, HotThreads(threads), streams=streams)
    await store.create_session("s")
    now[0] += 60
    return store


async def test_a_session_that_is_deleted_takes_its_stream_along(store: RowSessions, streams: Streams) -> None:
    """Whoever asks for what was said to be deleted does not want it to be shown for another day."""
    await ActivityEnvironment().run(SessionStoreActivities(store).delete, DeleteSessionInput(session_id="s"))
    assert await streams.get_info("s") is None


async def test_a_repeat_deletes_what_the_first_attempt_has_left(store: RowSessions, streams: Streams) -> None:
    """The stream's store was away, or the worker died between the two."""
    streams.away = True
    with pytest.raises(StoreUnavailableError):
        await store.delete_session("s")
    streams.away = False
    assert not await store.delete_session("s")
    assert await streams.get_info("s") is None


async def test_a_session_that_was_changed_keeps_its_stream(store: RowSessions, streams: Streams) -> None:
    """Nothing of what was refused is done."""
    with pytest.raises(StaleStateError):
        await store.delete_session("s", expected_version=7)
    assert await streams.get_info("s") is not None


async def test_the_facades_sessions_take_their_streams_along(store: RowSessions, streams: Streams) -> None:
    """Whichever door a session is deleted by."""
    await StoreSessionStorage(store, MemoryLocks()).delete("s")
    assert await streams.get_info("s") is None


async def test_clean_up_by_age_takes_streams_along(store: RowSessions, streams: Streams) -> None:
    """Retention counts for copies, too."""
    summary = await Cleanup(store).clean_up_old(OLD)
    assert (summary.deleted, summary.error_count) == (1, 0)
    assert await streams.get_info("s") is None


async def test_a_stream_that_stays_is_named(store: RowSessions, streams: Streams) -> None:
    """The session is gone, so that no later clean-up would find its stream: somebody must know."""
    streams.away = True
    summary = await Cleanup(store).clean_up_old(OLD)
    assert (summary.deleted, summary.error_count) == (1, 1)
    assert summary.errors[0].session_id == "s"
