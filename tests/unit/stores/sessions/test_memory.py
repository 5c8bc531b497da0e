"""What tests of applications see of sessions in memory, without awaiting."""

from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.sessions.store import RowSessions


async def test_get_sync_gives_a_copy_of_its_own() -> None:
    """A test that plays with what it was given must not change what is stored."""
    rows = MemorySessions()
    store = RowSessions(rows)
    await store.create_session("s", CreateSession(custom_state={"list": [1]}))
    seen = rows.get_sync("s")
    assert seen is not None
    assert seen == await store.load_state("s")
    kept = seen.custom_state["list"]
    assert isinstance(kept, list)
    kept.append(2)
    again = rows.get_sync("s")
    assert again is not None
    assert again.custom_state == {"list": [1]}
    assert rows.get_sync("nobody") is None


async def test_all_ids_and_then_none() -> None:
    """Between two tests."""
    rows = MemorySessions()
    store = RowSessions(rows)
    for name in ("b", "a"):
        await store.create_session(name)
    assert rows.get_all_session_ids() == ["b", "a"]
    rows.clear()
    assert rows.get_all_session_ids() == []
    assert await store.load_state("a") is None
