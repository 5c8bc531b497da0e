"""What was shown of a session goes with it, whoever deletes it."""

import pytest
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.states import SessionStoreActivities
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.chunks import TextDelta
from helix_temporal.models.cleanup import CleanUpOldInput
from helix_temporal.models.store_calls import DeleteSessionInput
from helix_temporal.stores.alone import HotThreads
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.sessions import RecordSessions

OLD = CleanUpOldInput(max_age_ms=1000)


class Away(MemoryStreams):
    """That does not answer."""

    async def delete_stream(self, stream_id: str) -> bool:
        """See the class."""
        raise StoreUnavailableError(f"stream {stream_id!r}: no answer")


@pytest.fixture
async def store() -> RecordSessions:
    """With a session ``s`` that nobody has changed for a minute."""
    now = [1_000_000.0]
    threads = MemoryThreads()
    store = RecordSessions(MemorySessions(threads, clock=lambda: now[0]), HotThreads(threads))
    await store.create_session("s")
    now[0] += 60
    return store


@pytest.fixture
async def streams() -> MemoryStreams:
    """Where ``s`` was shown."""
    streams = MemoryStreams()
    writer = await streams.create_writer("s", agent_id="r")
    await writer.write(TextDelta(delta="what somebody said"))
    return streams


async def test_a_session_that_is_deleted_takes_its_stream_along(
    store: RecordSessions, streams: MemoryStreams
) -> None:
    """Whoever asks for what was said to be deleted does not want it to be shown for another day."""
    delete = SessionStoreActivities(store, streams=streams).delete
    await ActivityEnvironment().run(delete, DeleteSessionInput(session_id="s"))
    assert await streams.get_info("s") is None


async def test_an_attempt_whose_first_deleted_the_session_deletes_the_stream(
    store: RecordSessions, streams: MemoryStreams
) -> None:
    """The worker may have died between the two."""
    await store.delete_session("s")
    delete = SessionStoreActivities(store, streams=streams).delete
    await ActivityEnvironment().run(delete, DeleteSessionInput(session_id="s"))
    assert await streams.get_info("s") is None


async def test_clean_up_by_age_takes_streams_along(store: RecordSessions, streams: MemoryStreams) -> None:
    """Retention counts for copies, too."""
    summary = await Cleanup(store, streams=streams).old(OLD)
    assert (summary.deleted, summary.error_count) == (1, 0)
    assert await streams.get_info("s") is None


async def test_a_stream_that_stays_is_named(store: RecordSessions) -> None:
    """The session is gone, so that no later clean-up would find its stream: somebody must know."""
    summary = await Cleanup(store, streams=Away()).old(OLD)
    assert (summary.deleted, summary.error_count) == (1, 1)
    assert summary.errors[0].session_id == "s"
