"""Imports that are broken off: nobody sees half a session, and a repeat ends them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.backends import Backends
from helix_temporal.client import SessionStores
from helix_temporal.errors import FencedError, StoreUnavailableError
from helix_temporal.models.messages import Message
from helix_temporal.stores.protocols.threads import Create, OpenThread, ReadPage
from helix_temporal.stores.sessions.threads import next_epoch
from tests.unit.session_files._scenes import (
    export_bytes,
    import_bytes,
    make_session,
    make_tree,
    open_memory,
    open_sqlite,
)


class _FailsAt:
    """A store of which a call of one method fails: the one of this number, from 1."""

    def __init__(self, store: Any, method: str, number: int) -> None:
        self._store, self._method, self._left = store, method, number

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._count(found) if name == self._method else found

    def _count(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def fail(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if not self._left:
                raise StoreUnavailableError("the store went away")
            return await call(*arguments, **named)

        return fail


async def _make_file(*, children: bool = True) -> bytes:
    """A tree, or one session, whose messages come in three steps."""
    async with open_memory() as source:
        await (make_tree(source) if children else make_session(source))
        for number in range(12):
            texts = [Message(id=f"m{number}-{at}", role="user", content="x") for at in range(100)]
            await source.sessions.append_messages("s", texts)
        return await export_bytes(source, children=children)


@pytest.mark.parametrize(
    ("part", "method", "number"),
    [
        ("threads", "open", 1),
        ("threads", "open", 3),
        ("threads", "append", 1),
        ("threads", "append", 2),
        ("threads", "append", 4),
        ("threads", "append", 5),
        ("usage", "record_entry", 1),
        ("usage", "record_entry", 3),
    ],
)
@pytest.mark.parametrize("archive", [False, True], ids=["hot alone", "with an archive"])
async def test_an_import_that_was_broken_off_is_ended_by_a_repeat(
    part: str, method: str, number: int, archive: bool, tmp_path: Path
) -> None:
    """A store went away, a machine was switched off: the same command again is all there is to do."""
    data = await _make_file()
    settings: dict[str, Any] = {"cold_directory": tmp_path} if archive else {}
    async with open_memory(**settings) as target:
        with pytest.raises(StoreUnavailableError):
            await import_bytes(_break_store(target, part, method, number), data)
        # The root comes last, so that whoever lists roots sees nothing.
        assert await target.sessions.load_state("s") is None
        assert (await import_bytes(target, data)).outcome == "imported"
        assert await export_bytes(target, children=True) == data


def _break_store(stores: Backends, part: str, method: str, number: int) -> Any:
    parts: dict[str, Any] = {"threads": stores.threads, "usage": stores.usage, "sessions": stores.sessions}
    return SessionStores(**{**parts, part: _FailsAt(parts[part], method, number)})


async def test_nobody_reads_half_a_conversation(tmp_path: Path) -> None:
    """A reader, or a model, would take it for all that was said."""
    data = await _make_file()
    async with open_sqlite(tmp_path) as target:
        with pytest.raises(StoreUnavailableError):
            await import_bytes(_break_store(target, "threads", "append", 5), data)
        assert (await target.threads.read_facts("s")).head.position == 1000
        assert (await target.threads.read(ReadPage("s"))).messages == ()
        assert (await target.sessions.get_messages("s")).messages == ()


async def test_what_an_import_left_blocks_no_other_file(tmp_path: Path) -> None:
    """Somebody gives up on one file, and takes a newer one of the same session."""
    data = await _make_file(children=False)
    async with open_memory() as source, open_memory(cold_directory=tmp_path) as target:
        await make_session(source)
        other = await export_bytes(source)
        with pytest.raises(StoreUnavailableError):
            await import_bytes(_break_store(target, "threads", "append", 2), data)
        assert (await target.threads.read_facts("s")).head.position == 500
        assert (await import_bytes(target, other)).outcome == "imported"
        assert await export_bytes(target) == other


async def test_what_an_import_left_blocks_no_new_session() -> None:
    """A user who writes under that id begins with an empty conversation."""
    data = await _make_file()
    async with open_memory() as target:
        with pytest.raises(StoreUnavailableError):
            await import_bytes(_break_store(target, "threads", "append", 4), data)
        facts = await target.threads.read_facts("s")
        opened = await target.threads.open(OpenThread("s", facts.epoch + 1, "workflow", Create.AUTO))
        assert opened.header.head.position == 0


async def test_who_opens_the_session_meanwhile_has_it() -> None:
    """The import is refused, and takes nothing from a session that somebody has begun."""
    data = await _make_file()
    async with open_memory() as target:
        taking: Any = _TakesOver(target.threads)
        stores: Any = SessionStores(threads=taking, usage=target.usage, sessions=target.sessions)
        with pytest.raises(FencedError):
            await import_bytes(stores, data)
        facts = await target.threads.read_facts("s")
        assert (facts.owner, facts.head.position) == ("somebody", 0)
        assert await target.sessions.load_state("s") is None


class _TakesOver:
    """Threads of which somebody opens the root's after its first messages."""

    def __init__(self, threads: Any) -> None:
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    async def append(self, step: Any) -> Any:
        appended = await self._threads.append(step)
        if step.thread_id == "s":
            epoch = next_epoch(0, step.epoch)
            await self._threads.open(OpenThread("s", epoch, "somebody", Create.AUTO))
        return appended


@pytest.mark.parametrize("archive", [False, True], ids=["hot alone", "with an archive"])
async def test_two_imports_of_a_file_at_once_make_one_session(archive: bool, tmp_path: Path) -> None:
    """Somebody lost patience: at worst one of the two is refused, and a repeat finds all of it."""
    data = await _make_file()
    settings: dict[str, Any] = {"cold_directory": tmp_path} if archive else {}
    async with open_memory(**settings) as target:
        await asyncio.gather(*(import_bytes(target, data) for _ in range(3)), return_exceptions=True)
        await import_bytes(target, data)
        assert await export_bytes(target, children=True) == data


async def test_the_archive_is_filled_as_the_import_goes(tmp_path: Path) -> None:
    """A long conversation does not have to fit the hot store, which is the dearest there is."""
    async with open_memory() as source, open_memory(cold_directory=tmp_path) as target:
        await source.sessions.create_session("s")
        for number in range(40):
            texts = [Message(id=f"m{number}-{at}", role="user", content="x" * 10_000) for at in range(100)]
            await source.sessions.append_messages("s", texts)
        data = await export_bytes(source)
        watched = _Watched(target)
        await import_bytes(watched.stores, data)
        assert watched.most_hot < 25_000_000
        assert not (await target.threads.read_facts("s")).hot
        assert await export_bytes(target) == data


class _Watched:
    """Stores of which is noted how much of a thread was hot."""

    def __init__(self, stores: Backends) -> None:
        self._threads, self._hot, self.most_hot = stores.threads, stores.hot, 0
        parts: Any = {"threads": self, "usage": stores.usage, "sessions": stores.sessions}
        self.stores: Any = SessionStores(**parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    async def append(self, step: Any) -> Any:
        appended = await self._threads.append(step)
        self.most_hot = max(self.most_hot, appended.header.size - appended.header.base_size)
        return appended
