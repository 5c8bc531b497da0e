"""Every backend answers every sequence of lock and usage operations as memory does."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from helix_temporal.models.usage import (
    CustomUsageEntry,
    StepRange,
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
    UsageKind,
    UsageQuery,
)
from helix_temporal.stores.memory import MemoryBackend
from helix_temporal.stores.paging import encode_cursor
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.locks import Lock
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.builders import an_id
from tests import _postgres

T = TypeVar("T")
Backend = RedisBackend | SqliteBackend | PostgresBackend

Pair = tuple[Lock, Lock]

LONG = 24 * 3600 * 1000
KEYS = st.sampled_from(["a", "ä" * 100])
NAMES = st.sampled_from([None, "x", "y"])
SESSIONS = st.sampled_from(["s", "S", "ß"])
AGENTS = st.sampled_from(["", "writer", "Writer"])
TIMES = st.integers(0, 5)
KINDS: st.SearchStrategy[UsageKind] = st.sampled_from(["tokens", "tool", "subagent", "custom"])
COMMON: dict[str, Any] = {
    "id": st.sampled_from(["1", "2", "b", "B", "é"]),
    "session_id": SESSIONS,
    "timestamp": TIMES,
    "step_count": st.integers(0, 2),
    "run_id": NAMES,
    "agent_type": AGENTS,
}
ENTRIES: st.SearchStrategy[UsageEntry] = st.one_of(
    st.builds(
        TokenUsageEntry,
        model=st.sampled_from(["small", "large"]),
        tokens=st.builds(TokenCounts, prompt=st.integers(0, 2**60)),
        cost_usd=st.none() | st.decimals(0, 10**6, places=6),
        **COMMON,
    ),
    st.builds(ToolUsageEntry, tool_name=st.sampled_from(["look", "write"]), success=st.booleans(), **COMMON),
    st.builds(SubAgentUsageEntry, sub_session_id=SESSIONS, duration_ms=st.integers(0, 9), **COMMON),
    st.builds(
        CustomUsageEntry,
        metric=st.just("m"),
        key=st.sampled_from(["k", "l"]),
        amount=st.integers(-9, 9) | st.just(Decimal("0.1")),
        **COMMON,
    ),
)


class _SameAnswers(RuleBasedStateMachine):
    """Runs each operation on both and compares what they say; ``makers`` has the one that the test sets.

    Tokens are times and differ; which of two is higher, and which are the same, does not.
    """

    makers: list[Callable[[], Backend]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryBackend()
        self.backend = self.makers[0]()
        self.granted: list[Pair] = []

    def teardown(self) -> None:
        async def end() -> None:
            for _, lock in self.granted:
                await lock.release()
            for session_id in ("s", "S", "ß"):
                await self.backend.usage.delete(session_id)
            await self.backend.close()

        self.runner.run(end())
        self.runner.close()

    def both(self, operation: Callable[[Any], Awaitable[T]]) -> tuple[T, T]:
        """What memory says, and what the other says."""

        async def run(backend: Any) -> T:
            return await operation(backend)

        return self.runner.run(run(self.memory)), self.runner.run(run(self.backend))

    def same(self, operation: Callable[[Any], Awaitable[object]]) -> None:
        """Both say the same."""
        mine, theirs = self.both(operation)
        assert theirs == mine

    @rule(key=KEYS, owner=NAMES, claim=NAMES)
    def acquire(self, key: str, owner: str | None, claim: str | None) -> None:
        mine, theirs = self.both(
            lambda backend: backend.locks.acquire(key, ttl_ms=LONG, owner=owner, claim=claim)
        )
        assert (theirs is None) == (mine is None)
        if mine is None or theirs is None:
            return
        for known, other in self.granted:
            if known.key == key:
                assert (known.fencing_token < mine.fencing_token) == (
                    other.fencing_token < theirs.fencing_token
                )
                assert (known.fencing_token == mine.fencing_token) == (
                    other.fencing_token == theirs.fencing_token
                )
        self.granted.append((mine, theirs))

    @rule(at=st.integers(0, 30), gives_back=st.booleans())
    def refresh_or_release(self, at: int, gives_back: bool) -> None:
        if not self.granted:
            return
        mine, theirs = self.granted[-1 - at % len(self.granted)]
        answers = [
            self.runner.run(lock.release() if gives_back else lock.refresh(LONG)) for lock in (mine, theirs)
        ]
        assert answers[0] == answers[1]

    @rule(key=KEYS)
    def is_locked(self, key: str) -> None:
        self.same(lambda backend: backend.locks.is_locked(key))

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=6))
    def record(self, entries: list[UsageEntry]) -> None:
        for entry in entries:
            self.same(lambda backend, entry=entry: backend.usage.record_entry(entry))  # type: ignore[misc]

    @rule(
        session_id=SESSIONS,
        kinds=st.none() | st.lists(KINDS, max_size=3),
        first=st.none() | st.integers(0, 1),
        run_id=NAMES,
        limit=st.none() | st.integers(1, 4),
        offset=st.integers(0, 3),
    )
    def get_entries(self, session_id: str, first: int | None, **options: Any) -> None:
        steps = StepRange(min=first, max=1)
        self.same(lambda backend: backend.usage.get_entries(session_id, step_range=steps, **options))

    @rule(session_id=SESSIONS, deep=st.booleans())
    def roll_up(self, session_id: str, deep: bool) -> None:
        self.same(lambda backend: backend.usage.get_rollup(session_id, include_sub_agents=deep))

    @rule(
        query=st.builds(
            UsageQuery,
            agent_type=st.none() | AGENTS,
            kinds=st.none() | st.lists(KINDS, max_size=3).map(tuple),
            session_id=st.none() | SESSIONS,
            run_id=NAMES,
            since=st.none() | st.integers(0, 3),
            until=st.none() | st.integers(3, 6),
            limit=st.integers(1, 5),
            cursor=st.none() | st.integers(0, 5).map(lambda at: encode_cursor("usage", at, "")),
        )
    )
    def query(self, query: UsageQuery) -> None:
        self.same(lambda backend: backend.usage.query_usage(query))

    @rule(session_id=SESSIONS)
    def delete(self, session_id: str) -> None:
        self.same(lambda backend: backend.usage.delete(session_id))
        self.same(lambda backend: backend.usage.exists(session_id))


@pytest.mark.timeout(300)
def test_redis_answers_every_sequence_as_memory_does(redis_url: str) -> None:
    """Its scripts repeat the rules of memory in another language."""
    _compare(lambda: RedisBackend(redis_url, prefix=f"{an_id()}:", timeout=60), examples=15)


@pytest.mark.timeout(300)
def test_sqlite_answers_every_sequence_as_memory_does(data_directory: Path) -> None:
    """What a row keeps of a lease or an entry is all of it."""
    _compare(lambda: SqliteBackend(data_directory / an_id()), examples=15)


@pytest.mark.timeout(300)
def test_postgres_answers_every_sequence_as_memory_does(postgres_dsn: str) -> None:
    """Its statements repeat the rules of memory in another language."""
    _compare(_postgres_tables(postgres_dsn), examples=15)


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
def test_all_answer_five_hundred_sequences_as_memory_does(
    redis_url: str, postgres_dsn: str, data_directory: Path
) -> None:
    """The long form."""
    _compare(lambda: RedisBackend(redis_url, prefix=f"{an_id()}:", timeout=60), examples=500, steps=50)
    _compare(lambda: SqliteBackend(data_directory / an_id()), examples=500, steps=50)
    _compare(_postgres_tables(postgres_dsn), examples=500, steps=50)


def _postgres_tables(dsn: str) -> Callable[[], PostgresBackend]:
    prefix = _postgres.own_prefix("leasemodel")

    async def migrated() -> None:
        async with _postgres.emptied(dsn, prefix):
            pass

    asyncio.run(migrated())
    return lambda: PostgresBackend(dsn, table_prefix=prefix, timeout=60)


def _compare(make: Callable[[], Backend], *, examples: int, steps: int = 30) -> None:
    class Machine(_SameAnswers):
        pass

    Machine.makers = [make]
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
