"""Streams beside each pairing of stores: where runs begin on them, how they end, what deletes them."""

import pytest

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk
from tests.workflows.test_states import PAIRINGS, place, served

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_run_says_where_it_begins_on_its_stream(place: Settings, sid: str) -> None:
    """Whoever has a run's name reads its chunks, and nothing of the year before it."""
    async with served(place, Desk()) as stand:
        handle = stand.sessions.session(sid, agent="main")
        shown = [[each async for each in handle.stream_ask(text)] for text in ("one", "two")]
        for turn in shown:
            run = await handle.get_run(turn[0].run_id)
            assert run is not None
            assert (run.status, run.start_sequence) == (RunStatus.COMPLETED, turn[0].sequence - 1)
            again = handle.stream(after=run.start_sequence, run_id=run.run_id)
            assert [each.sequence async for each in again] == [each.sequence for each in turn]
        assert await handle.get_run("nobody's") is None
        await stand.finish(sid)


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_a_deleted_session_takes_its_stream_along(place: Settings, sid: str) -> None:
    """Whoever has a conversation deleted has all of it deleted: by its thread, and at the store itself."""
    async with served(place, Desk()) as stand:
        store, streams = stand.served.plugin.backends.sessions, stand.sessions.streams
        assert store is not None
        for name in (f"{sid}-thread", f"{sid}-store"):
            await stand.sessions.ask(name, "hello", agent="main")
            await stand.finish(name)
            assert await streams.get_info(name) is not None
        await stand.sessions.session(f"{sid}-thread").delete()
        assert await store.delete_session(f"{sid}-store")
        assert [await streams.get_info(f"{sid}-{each}") for each in ("thread", "store")] == [None, None]
