"""What tests may ask of usage in memory."""

from helix_temporal.models.usage import UsageQuery
from helix_temporal.stores.memory import MemoryUsage
from helix_temporal.testing.contracts._usage_base import some_tokens


async def test_a_test_can_look_at_everything() -> None:
    """Without a query for each session."""
    usage = MemoryUsage()
    assert (usage.size, usage.total_entry_count, usage.get_all_session_ids()) == (0, 0, [])
    for session_id, number in (("b", 1), ("a", 1), ("a", 2)):
        await usage.record_entry(some_tokens(session_id, number))
    assert (usage.size, usage.total_entry_count, usage.get_all_session_ids()) == (2, 3, ["a", "b"])


async def test_a_test_can_start_over() -> None:
    """As with a new store."""
    usage = MemoryUsage()
    await usage.record_entry(some_tokens("a"))
    usage.clear()
    assert (usage.size, usage.total_entry_count) == (0, 0)
    assert (await usage.query_usage(UsageQuery())).total == 0
    assert await usage.record_entry(some_tokens("a"))
