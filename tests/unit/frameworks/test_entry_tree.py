"""Entries that share what comes before them: found by their places, or by a search."""

import uuid
from typing import Any

import pytest

from helix_temporal.errors import StoreCorruptError
from helix_temporal.frameworks import entry_tree
from helix_temporal.frameworks.entry_tree import EntryNotFoundError, EntryPlace, EntryTree, TreeEntry
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory import MemorySessions, MemoryThreads
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

TREE: Any = ("test/1", ["tree"])


@pytest.fixture
def store() -> RowSessions:
    threads = MemoryThreads()
    return RowSessions(MemorySessions(threads), HotThreads(threads))


async def append(
    store: RowSessions, session_id: str, *names: str, parent: str | None = None, at: EntryPlace | None = None
) -> None:
    """Append entries, each behind the one before it; the first one behind ``parent``."""
    await store.create_session(session_id, CreateSession(agent_type="tree"), if_not_exists=True)
    tree, rows = EntryTree(store, *TREE), list[Message]()
    first = await store.get_message_count(session_id)
    for number, name in enumerate(names, first):
        entry = TreeEntry(name, parent, f'"{name}"', "message")
        rows.append(tree.encode_entry(entry, EntryPlace(session_id, number), at))
        parent, at = name, EntryPlace(session_id, number)
    await store.append_messages(session_id, rows)


async def read(tree: EntryTree, name: str, limit: int | None = None) -> str:
    """The names of a history."""
    return " ".join(each.id for each in await tree.read_history(name, limit))


async def test_a_history_is_read_over_sessions(store: RowSessions) -> None:
    """From where a row says that the one before it lies."""
    await append(store, "s", "a", "b", "c")
    await append(store, "t", "d", "e", parent="b", at=EntryPlace("s", 1))
    await append(store, "s", "f", parent="a", at=EntryPlace("s", 0))
    for name, history in (("e", "a b d e"), ("c", "a b c"), ("f", "a f")):
        assert await read(EntryTree(store, *TREE), name) == history
    assert await read(EntryTree(store, *TREE), "e", 3) == "b d e"


async def test_a_place_that_is_wrong_is_corrected(store: RowSessions) -> None:
    """It is a hint: rows of a writer that died may have come before."""
    await append(store, "s", "lost")
    await append(store, "s", "a", "b", "c")
    tree = EntryTree(store, *TREE)
    for at in (0, 1, 7):
        tree.remember_place("b", EntryPlace("s", at))
        assert await read(tree, "b") == "a b"
    assert await tree.find_place("b") == EntryPlace("s", 2)


async def test_a_search_leaves_out_sessions_that_cannot_have_it(
    store: RowSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were made later than its id, and those that have not changed since."""
    now = await store.now()
    young, old = (
        str(uuid.UUID(int=(now + days * 86_400_000) << 80 | 0x7 << 76 | 0b10 << 62)) for days in (9, -9)
    )
    await append(store, "s", young, old)
    for name in (young, old):
        with pytest.raises(EntryNotFoundError, match="in no conversation"):
            await EntryTree(store, *TREE).find_place(name)
    monkeypatch.setattr(entry_tree, "_TOLERANCE", 10 * 86_400_000)
    assert await EntryTree(store, *TREE).find_place(young) == EntryPlace("s", 0)
    assert await EntryTree(store, *TREE).find_place(old) == EntryPlace("s", 1)


async def test_a_search_reads_whole_sessions(store: RowSessions) -> None:
    """Over their pages."""
    names = [f"n{number}" for number in range(450)]
    await append(store, "s", *names)
    for name in ("n0", "n249", "n449"):
        assert await EntryTree(store, *TREE).find_place(name) == EntryPlace("s", int(name[1:]))


async def test_memory_of_places_is_bounded(store: RowSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest ones are searched for again."""
    monkeypatch.setattr(entry_tree, "REMEMBERED", 2)
    await append(store, "s", "a", "b", "c", "d")
    tree = EntryTree(store, *TREE)
    assert await read(tree, "d") == "a b c d"
    assert len(tree._places) == 2
    assert await read(tree, "d") == "a b c d"


async def test_a_row_of_something_else_is_named(store: RowSessions) -> None:
    """Rather than read as an entry."""
    await store.create_session("s", CreateSession(agent_type="tree"))
    await store.append_messages("s", [Message(id="m", role="user", content="secret")])
    with pytest.raises(StoreCorruptError, match="'user'") as error:
        await EntryTree(store, *TREE).read_history("m")
    assert "secret" not in str(error.value)
