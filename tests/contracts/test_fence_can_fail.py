"""Each rule of the fence is removed on each backend, with its copies: a contract must then fail."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import ThreadNotFoundError
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.postgres.queries import Queries, statement_names
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.session_rows import SessionRows
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.redis import RedisBackend, scripts, sessions
from helix_temporal.stores.redis.scripts import Script
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import EPOCH, an_id, grown
from helix_temporal.testing.contracts._hot_fence import WRITES, FenceContract
from helix_temporal.testing.contracts._hot_install import InstallContract
from helix_temporal.testing.contracts._hot_life import DropContract
from helix_temporal.testing.contracts._hot_trim import TrimContract
from helix_temporal.testing.contracts._rows_append import LOG, REFUSED, AppendCommitContract
from helix_temporal.testing.contracts._rows_base import a_change, a_state, committed, staged
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.contracts._threads_cut import CutContract
from helix_temporal.testing.contracts._threads_open import FencingContract

FENCE: Final[Mapping[str, Callable[..., object]]] = {
    "find_refusal": lambda *_, **__: None,
    "check_not_replaced": lambda *_: None,
    "is_repeated_open": lambda *_: False,
    "check_same_owner": lambda *_: None,
}
"""What is left of each rule: everybody is admitted."""

Removal = Callable[[str], AbstractContextManager[object]]
OnHotTier = Callable[[HotTier, str], Awaitable[None]]
OnThreads = Callable[[Author], Awaitable[None]]


class Place(NamedTuple):
    """One backend."""

    threads: HotTier
    sessions: SessionRows


def the_rule(name: str) -> AbstractContextManager[object]:
    """Remove the rule in Python."""
    return patch.object(Fence, name, FENCE[name])


def is_broken() -> AbstractContextManager[object]:
    """The contract in the block finds that what was to be refused was done, or that the thread is gone."""
    return pytest.raises((pytest.fail.Exception, AssertionError, ThreadNotFoundError))


# ---- promises of a hot tier -------------------------------------------------------------------------

ADMITS: Final = (
    FenceContract.test_an_old_epoch_is_fenced,
    FenceContract.test_a_thread_older_than_the_open_is_refused,
    FenceContract.test_a_closed_epoch_is_fenced,
)
REFUSED_FOR_ITS_PLACE: Final = "append"
"""It is at the head of an empty thread only."""


def _promise(contract: type[Any], name: str, *args: object) -> Any:
    """A promise of the hot tier's contract, to be made of a store and a thread."""

    async def promise(store: HotTier, thread_id: str) -> None:
        await getattr(contract(), name)(store, thread_id, *args)

    return pytest.param(promise, id="-".join([name, *map(str, args)]))


def _write_promises() -> Iterator[Any]:
    for write in WRITES:
        call: Any = write.values[0]
        if write.id != REFUSED_FOR_ITS_PLACE:
            for each in ADMITS:
                yield _with_id(_promise(FenceContract, each.__name__, call), f"{each.__name__}-{write.id}")
    for write in WRITES[0], WRITES[-1]:
        name = "test_a_tombstone_is_fenced"
        yield _with_id(_promise(FenceContract, name, write.values[0]), f"{name}-{write.id}")


def _with_id(given: Any, name: str) -> Any:
    return pytest.param(*given.values, id=name)


WRITERS: Final = [
    *_write_promises(),
    _promise(TrimContract, "test_the_archive_of_another_epoch_proves_nothing", EPOCH - 1),
    _promise(TrimContract, "test_the_archive_of_another_epoch_proves_nothing", EPOCH + 1),
    _promise(TrimContract, "test_a_closed_thread_is_left_as_it_is"),
]
COPIES: Final = [
    _promise(InstallContract, "test_a_higher_epoch_is_not_replaced"),
    _promise(DropContract, "test_a_higher_epoch_is_not_dropped"),
]


# ---- promises of a thread store ---------------------------------------------------------------------


async def _with_successor(promise: Callable[[Author, Author], Awaitable[None]], author: Author) -> None:
    await author.turn()
    successor = author.later(owner="run-2")
    await successor.open()
    await promise(author, successor)


async def a_late_look(author: Author) -> None:
    """Whoever was replaced asks for what a step needs."""
    await _with_successor(FencingContract().test_a_lower_epoch_may_not_look, author)


async def a_late_delete(author: Author) -> None:
    """Whoever was replaced deletes the thread."""
    await _with_successor(FencingContract().test_a_lower_epoch_may_not_delete, author)


async def a_late_open(author: Author) -> None:
    """An open comes after a later one."""
    await _with_successor(FencingContract().test_a_lower_epoch_may_not_open, author)


async def two_opens_at_once(author: Author) -> None:
    """Two owners open with the same epoch."""
    await FencingContract().test_an_equal_epoch_of_another_owner_is_refused(author)


async def taking_back(author: Author) -> None:
    """Whoever was replaced opens again, under a higher epoch."""
    await CutContract().test_a_reopen_after_another_execution_took_over_touches_nothing(author)


ABOVE: Final = [
    pytest.param("find_refusal", a_late_look, id="find_refusal"),
    pytest.param("check_not_replaced", a_late_delete, id="check_not_replaced"),
    pytest.param("is_repeated_open", a_late_open, id="is_repeated_open"),
    pytest.param("is_repeated_open", two_opens_at_once, id="is_repeated_open of another owner"),
    pytest.param("check_same_owner", taking_back, id="check_same_owner"),
]


# ---- each backend -----------------------------------------------------------------------------------


class FenceRemoved:
    """A backend whose fence is taken away, one rule at a time."""

    @pytest.fixture
    async def place(self) -> Place:
        """The backend as it is; each gives its own."""
        raise NotImplementedError

    @pytest.fixture
    def removed(self, place: Place) -> Removal:
        """How to remove a rule on this backend: in Python, unless its copies decide."""
        return the_rule

    @pytest.mark.parametrize("promise", WRITERS)
    async def test_without_find_refusal(self, place: Place, removed: Removal, promise: OnHotTier) -> None:
        """An intruder's write is taken, and a deleted thread comes back."""
        with removed("find_refusal"), is_broken():
            await promise(place.threads, f"thread-{an_id()}")

    @pytest.mark.parametrize(("step", "error"), REFUSED[:2])
    async def test_commits_without_find_refusal(
        self, place: Place, removed: Removal, step: Any, error: type[Exception]
    ) -> None:
        """An intruder's step comes in with a state."""
        joined = await self.joined(place)
        contract = AppendCommitContract()
        with removed("find_refusal"), is_broken():
            await contract.test_a_refused_step_refuses_the_commit(
                place.sessions, joined, place.threads, step, error
            )

    async def test_commits_of_the_closed_without_find_refusal(self, place: Place, removed: Removal) -> None:
        """A late attempt's step comes in beside the state."""
        joined = await self.joined(place)
        contract = AppendCommitContract()
        with removed("find_refusal"), is_broken():
            await contract.test_a_closed_epoch_refuses_the_commit(place.sessions, joined, place.threads)

    @pytest.mark.parametrize("promise", COPIES)
    async def test_without_check_not_replaced(
        self, place: Place, removed: Removal, promise: OnHotTier
    ) -> None:
        """A copy or a deletion that comes late takes the place of a newer thread."""
        with removed("check_not_replaced"), is_broken():
            await promise(place.threads, f"thread-{an_id()}")

    @pytest.mark.parametrize(("rule", "promise"), ABOVE)
    async def test_a_store_without_archive(self, place: Place, rule: str, promise: OnThreads) -> None:
        """These rules have no copies: they stand above all hot tiers."""
        await self.without(rule, HotThreads(place.threads), promise)

    @pytest.mark.parametrize(("rule", "promise"), ABOVE)
    async def test_a_store_over_an_archive(self, place: Place, rule: str, promise: OnThreads) -> None:
        """The manifest's fence goes with that of the hot thread."""
        await self.without(rule, TieredThreads(place.threads, MemoryBlobs()), promise)

    @staticmethod
    async def without(rule: str, threads: ThreadStore, promise: OnThreads) -> None:
        """The promise, without the rule in Python."""
        author = Author(threads, f"thread-{an_id()}")
        await author.open()
        with the_rule(rule), is_broken():
            await promise(author)

    @staticmethod
    async def joined(place: Place) -> str:
        """A session of revision 1 with a thread of two messages."""
        name = f"session-{an_id()}"
        await grown(place.threads, name, LOG)
        change = a_change(name, state=a_state(name, b"old"), puts=(staged("s1", "t"),))
        await committed(place.sessions, change)
        return name


class TestMemory(FenceRemoved):
    @pytest.fixture
    async def place(self) -> Place:
        """Two dicts."""
        threads = MemoryThreads()
        return Place(threads, MemorySessions(threads))


class TestSqlite(FenceRemoved):
    @pytest.fixture
    async def place(self, sqlite: SqliteBackend) -> Place:
        """A file."""
        return Place(sqlite.threads, sqlite.sessions)


class TestRedis(FenceRemoved):
    @pytest.fixture
    async def place(self, redis: RedisBackend) -> Place:
        """A real server."""
        return Place(redis.threads, redis.sessions)

    @pytest.fixture
    def removed(self, place: Place) -> Removal:
        """The copy in each script that has it."""

        @contextmanager
        def without(rule: str) -> Iterator[None]:
            with ExitStack() as stack:
                for module, name, line, instead in LUA[rule]:
                    script = getattr(module, name)
                    text = _replaced(script.text, line, instead)
                    stack.enter_context(patch.object(module, name, Script(script.name, text)))
                yield

        return without


_REFUSAL: Final = (
    "local function refusal(h, epoch)\n",
    "local function refusal(h, epoch)\n  do return end\n",
)
LUA: Final[Mapping[str, list[tuple[Any, str, str, str]]]] = {
    "find_refusal": [
        (scripts, "APPEND", *_REFUSAL),
        (scripts, "SAVE_SLICE", *_REFUSAL),
        (scripts, "TRIM", *_REFUSAL),
        (sessions, "_COMMIT", *_REFUSAL),
    ],
    "check_not_replaced": [
        (scripts, "INSTALL", "if theirs > mine then return keep('F') end", ""),
        (scripts, "DROP", "if tonumber(h[EPOCH]) > tonumber(ARGV[2]) then return reply('F', h) end", ""),
    ],
}


class TestPostgres(FenceRemoved):
    @pytest.fixture
    async def place(self, postgres: PostgresBackend) -> Place:
        """A real server."""
        return Place(postgres.threads, postgres.sessions)

    @pytest.fixture
    def removed(self, postgres: PostgresBackend) -> Removal:
        """The rule, and its copy in each statement that has it."""

        @contextmanager
        def without(rule: str) -> Iterator[None]:
            with ExitStack() as stack:
                stack.enter_context(the_rule(rule))
                if rule == "find_refusal":
                    for queries in (postgres.threads._queries, postgres.sessions._queries):
                        stack.enter_context(patch.dict(queries._texts, _unfenced(queries)))
                yield

        return without


_SQL: Final = re.compile(r"t\.epoch = (\$\d+) AND NOT t\.closed AND NOT t\.deleted")


def _unfenced(queries: Queries) -> dict[str, str]:
    """The statements that have the fence, without it."""
    return {
        name: _SQL.sub(r"\1::bigint >= 0", queries[name])
        for name in statement_names()
        if _SQL.search(queries[name])
    }


def test_the_copies_of_find_refusal_in_statements() -> None:
    """A statement whose fence is written in another way would be left as it is above."""
    assert set(_unfenced(Queries("p_"))) == {
        "session_touch_append",
        "session_update_append",
        "thread_append",
        "thread_save_slice",
        "thread_settle",
    }


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
    return text.replace(old, new)
