"""Items of a framework in a session: appended once, read in order, taken back by one."""

import asyncio
from typing import Any, cast

import pytest

from helix_temporal.errors import InvalidRequestError, StoreCorruptError, StoreUnavailableError
from helix_temporal.frameworks.item_log import PAGE, ItemLog
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory import MemorySessions, MemoryThreads
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads


class Lossy:
    """A session store whose answers to some calls are lost, before or after their effect."""

    def __init__(self, inner: RowSessions) -> None:
        self.inner, self.losses = inner, list[str]()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        async def lose(*arguments: Any, **named: Any) -> Any:
            if f"before {name}" in self.losses:
                self.losses.remove(f"before {name}")
                raise StoreUnavailableError(f"{name}: refused")
            answer = await call(*arguments, **named)
            if f"after {name}" in self.losses:
                self.losses.remove(f"after {name}")
                raise StoreUnavailableError(f"{name}: no reply")
            return answer

        return lose


class Overtaken:
    """A session store whose readers are overtaken: before the second page is read, the log is another one."""

    def __init__(self, store: Lossy) -> None:
        self._store = store
        self.pages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_messages(self, session_id: str, **wanted: Any) -> Any:
        """Refill the log once, between two pages."""
        self.pages += 1
        if self.pages == 2:
            await a_log(self._store).clear_items()
            await a_log(self._store).append_items([{"new": number} for number in range(3 * PAGE)])
        return await self._store.get_messages(session_id, **wanted)


@pytest.fixture
def store() -> Lossy:
    threads = MemoryThreads()
    return Lossy(RowSessions(MemorySessions(threads), HotThreads(threads)))


@pytest.fixture
def log(store: Lossy, monkeypatch: pytest.MonkeyPatch) -> ItemLog:
    monkeypatch.setattr("helix_temporal.frameworks.item_log.retry_pause", lambda *_, **__: 0)
    return a_log(store)


def a_log(store: Lossy, item_format: str = "test/1") -> ItemLog:
    return ItemLog(cast("Any", store), "s", item_format, CreateSession(user_id="u"))


def items(count: int, first: int = 0) -> list[Any]:
    return [{"n": n} for n in range(first, first + count)]


async def test_items_are_read_as_they_were_appended(log: ItemLog) -> None:
    """Of any JSON, in order."""
    odd: list[Any] = [{"text": "\x00 \ud800 é", "b": 1, "a": [None, 1.5, {"deep": {}}]}]
    await log.append_items(items(2))
    await log.append_items(odd)
    assert await log.read_items() == [*items(2), *odd]


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 0), (1000, 0), (450, 0), (449, 1), (3, 447), (200, 250)]
)
async def test_the_newest_are_read(log: ItemLog, limit: int | None, expected: int) -> None:
    """However many pages they fill."""
    await log.append_items(items(450))
    assert await log.read_items(limit) == items(450 - expected, expected)


@pytest.mark.parametrize("limit", [None, 2 * PAGE])
async def test_a_log_that_is_refilled_while_it_is_read_is_read_again(store: Lossy, limit: int | None) -> None:
    """What is read stood there at one moment: no items of before beside items of after."""
    await a_log(store).append_items([{"old": at} for at in range(2 * PAGE + 50)])
    found = await a_log(cast("Lossy", Overtaken(store))).read_items(limit)
    assert {key for item in found for key in item} == {"new"}
    assert len(found) == (limit or 3 * PAGE)


@pytest.mark.parametrize("limit", [0, -1])
async def test_none_are_read_if_none_are_asked_for(log: ItemLog, limit: int) -> None:
    """Rather than all."""
    await log.append_items(items(2))
    assert await log.read_items(limit) == []


async def test_a_log_that_was_never_written_is_empty(log: ItemLog, store: Lossy) -> None:
    """And reading, popping or clearing makes no session."""
    assert await log.read_items() == []
    assert await log.take_newest() is None
    await log.clear_items()
    await log.append_items([])
    assert not await store.inner.session_exists("s")


@pytest.mark.parametrize(
    "loss",
    ["before append_messages", "after append_messages", "after create_session", "before create_session"],
)
async def test_an_append_whose_answer_was_lost_stands_once(log: ItemLog, store: Lossy, loss: str) -> None:
    """The first one and a later one."""
    for first in (0, 2):
        store.losses = [loss, loss]
        await log.append_items(items(2, first))
    assert await log.read_items() == items(4)


@pytest.mark.parametrize("loss", ["before cut_messages", "after cut_messages"])
async def test_a_pop_whose_answer_was_lost_takes_one(log: ItemLog, store: Lossy, loss: str) -> None:
    """And gives it to its caller."""
    await log.append_items(items(3))
    store.losses = [loss, loss]
    assert await log.take_newest() == {"n": 2}
    assert await log.read_items() == items(2)


async def test_a_store_that_stays_away_is_an_error(log: ItemLog, store: Lossy) -> None:
    """After a few tries."""
    store.losses = ["before append_messages"] * 100
    with pytest.raises(StoreUnavailableError):
        await log.append_items(items(1))
    assert len(store.losses) == 95


async def test_several_that_pop_get_different_items(log: ItemLog, store: Lossy) -> None:
    """While others append."""
    await log.append_items(items(10))
    got = await asyncio.gather(
        *(a_log(store).take_newest() for _ in range(10)),
        *(a_log(store).append_items(items(1, n)) for n in range(10, 15)),
    )
    taken = [item["n"] for item in got if item is not None]
    found: list[Any] = [*taken, *(item["n"] for item in await log.read_items())]
    assert sorted(found) == list(range(15))


async def test_after_it_was_cleared_a_log_goes_on(log: ItemLog) -> None:
    """Under its id, and for others that have it open."""
    await log.append_items(items(3))
    await log.clear_items()
    assert await log.read_items() == []
    await log.append_items(items(2))
    assert await log.read_items() == items(2)


NO_JSON: list[Any] = ["hello", {"n": object()}, {"n": (1, 2)}, {1: 2}, {"n": float("nan")}, ["n"], None]


@pytest.mark.parametrize("item", NO_JSON, ids=[str(at) for at in range(len(NO_JSON))])
async def test_items_that_would_not_come_back_are_refused(log: ItemLog, item: Any) -> None:
    """And none of their batch is appended; a text for a list of items was five items of a letter each."""
    with pytest.raises(InvalidRequestError, match="would not come back as it is"):
        await log.append_items([{"n": 0}, item])
    assert await log.read_items() == []


async def test_a_session_of_another_framework_is_not_read(log: ItemLog, store: Lossy) -> None:
    """Its rows mean something else."""
    await a_log(store, "other/1").append_items(items(1))
    with pytest.raises(StoreCorruptError, match="'other/1', and 'test/1' was expected"):
        await log.read_items()


async def test_a_message_of_ours_is_no_item(log: ItemLog, store: Lossy) -> None:
    """A session that a session workflow runs."""
    await log.append_items(items(1))
    await store.inner.append_messages("s", [Message(id="m", role="user", content="hi")])
    with pytest.raises(StoreCorruptError, match="'user'"):
        await log.read_items()
