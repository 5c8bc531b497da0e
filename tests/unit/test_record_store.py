"""The slice is changed by compare-and-swap: what somebody else saved meanwhile is never lost."""

import pytest

from helix_temporal.activities.record_store import StoredRecord, update_record
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.session.record import SessionRecord, encode_record, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.threads.hot_only import HotThreads

EPOCH = 5


async def a_thread() -> HotThreads:
    threads = HotThreads(MemoryThreads())
    await threads.open(OpenThread("t", EPOCH, "me", Create.NEW))
    return threads


def counted(stored: StoredRecord) -> SessionRecord:
    return stored.record.model_copy(update={"turns": stored.record.turns + 1})


async def test_a_change_is_saved() -> None:
    """The answer says under which version."""
    threads = await a_thread()
    saved = await update_record(threads, "t", EPOCH, counted, "a test ran")
    facts = await threads.read_facts("t")
    assert parse_record(facts.slice).turns == 1
    assert (saved.version, saved.saved) == (facts.slice_version, True)


async def test_nothing_is_written_where_nothing_changes() -> None:
    """A repeat costs a read."""
    threads = await a_thread()
    saved = await update_record(threads, "t", EPOCH, lambda stored: stored.record, "a test ran")
    assert (saved.version, saved.saved) == (0, False)


async def test_what_was_read_too_long_ago_is_read_again() -> None:
    """The change is made to what is stored, not to what the caller had."""
    threads = await a_thread()
    old = StoredRecord.of(await threads.read_facts("t"))
    await threads.save_slice("t", EPOCH, encode_record(SessionRecord(turns=7)), old.version)
    saved = await update_record(threads, "t", EPOCH, counted, "a test ran", read_before=old)
    assert (saved.record.turns, saved.version) == (8, 2)


class Busy(HotThreads):
    """Somebody else is faster, each time."""

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int:
        """As the protocol has it, after another's."""
        other = encode_record(SessionRecord(turns=100 * (expected_version + 1)))
        await super().save_slice(thread_id, epoch, other, expected_version)
        return await super().save_slice(thread_id, epoch, data, expected_version)


async def test_one_who_is_always_late_gives_up() -> None:
    """The activity is tried again later."""
    busy = Busy((await a_thread()).hot)
    with pytest.raises(StoreUnavailableError, match="changed 5 times while a test ran"):
        await update_record(busy, "t", EPOCH, counted, "a test ran")
