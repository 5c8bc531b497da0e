"""Every hot tier answers every sequence of operations as memory does."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from helix_temporal.errors import HelixError
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage, head_after, size_of
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import (
    SINCE_ARCHIVED,
    Archived,
    HotHeader,
    HotTier,
    PageRange,
    Rebase,
    StepAppend,
)
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.sqlite import SqliteBackend
from helix_temporal.testing.builders import all_of, an_id
from tests import _postgres

T = TypeVar("T")
Backend = RedisBackend | SqliteBackend | PostgresBackend

THREAD = "the thread"
MESSAGES = st.lists(
    st.builds(
        StoredMessage,
        kind=st.sampled_from([Kind.USER, Kind.ANSWER, Kind.CALLS, Kind.RESULT]),
        id=st.sampled_from(["a", "b", "ü", "d" * 40]),
        body=st.sampled_from([0, 1, 50, 40_000]).map(bytes),
    ),
    max_size=5,
).map(tuple)
MANY = st.integers(60, 140).map(
    lambda n: tuple(StoredMessage(Kind.USER, f"m{i}", b"x" * i) for i in range(n))
)
EPOCHS = st.integers(1, 3)
PLACES = st.integers(-1, 40)


def _comparable(outcome: object) -> object:
    """Times differ between the two clocks; whether something waits doesn't."""
    if isinstance(outcome, HotHeader):
        return replace(outcome, unarchived_since=int(outcome.unarchived_since > 0))
    header = getattr(outcome, "header", None)
    if isinstance(header, HotHeader):
        return replace(outcome, header=_comparable(header))  # type: ignore[type-var]
    return outcome


class _SameAnswers(RuleBasedStateMachine):
    """Runs each operation on both and compares what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = MemoryThreads()
        self.backend = self.open_backend()
        self.known: HotHeader | None = None
        self.log: tuple[StoredMessage, ...] = ()
        self.steps: list[StepAppend] = []

    def open_backend(self) -> Backend:
        """An empty backend; set by the test."""
        raise NotImplementedError

    def teardown(self) -> None:
        self.runner.run(self.backend.threads.drop(THREAD, 99))
        self.runner.run(self.backend.close())
        self.runner.close()

    def both(self, operation: Callable[[HotTier], Awaitable[T]]) -> None:
        """Run it on both; then both must hold the same."""
        mine, theirs = self._outcome(operation, self.memory), self._outcome(operation, self.backend.threads)
        assert _comparable(theirs) == _comparable(mine)
        held = self._outcome(lambda store: store.read_snapshot(THREAD, 0), self.memory)
        assert _comparable(
            self._outcome(lambda store: store.read_snapshot(THREAD, 0), self.backend.threads)
        ) == _comparable(held)
        self.known = getattr(held, "header", None)
        self.log = getattr(held, "messages", ())

    def _outcome(self, operation: Callable[[HotTier], Awaitable[T]], store: HotTier) -> object:
        async def run() -> object:
            try:
                return await operation(store)
            except HelixError as error:
                return type(error), str(error)

        return self.runner.run(run())

    def place(self, back: int) -> Head:
        """The head ``back`` messages before the thread's own, as far as it is known."""
        if self.known is None or back < 0:
            return Head(position=2, last_id="a") if back < 0 else EMPTY
        position = max(self.known.head.position - back, 0)
        index = position - self.known.base.position
        if index <= 0:
            return self.known.base if index == 0 else EMPTY
        return Head(position=position, last_id=self.log[index - 1].id)

    # -- writes

    @rule(messages=MESSAGES | MANY, epoch=EPOCHS, base=st.sampled_from([0, 0, 7]), archived=st.booleans())
    def create_or_install(
        self, messages: tuple[StoredMessage, ...], epoch: int, base: int, archived: bool
    ) -> None:
        header = self._header(messages, epoch, base, archived)
        self.both(lambda store: store.install(header, messages, replace=epoch != 2))

    @rule(messages=MESSAGES, epoch=EPOCHS, keep=PLACES, right=st.booleans())
    def rebase(self, messages: tuple[StoredMessage, ...], epoch: int, keep: int, right: bool) -> None:
        known = self.known
        if known is None or not right:
            header, expected = self._header(messages, epoch, 0, False), None
            self.both(lambda store: store.rebase(Rebase(expected, header, 0, messages)))
            return
        cut = self.place(max(keep, 0))
        head = head_after(cut, messages)
        header = replace(known, epoch=epoch, head=head, committed=min(known.committed, cut.position))
        header = replace(header, closed=False, archived=min(known.archived, cut.position))
        change = Rebase((known.epoch, known.head), header, cut.position, messages)
        self.both(lambda store: store.rebase(change))

    @rule(
        inputs=MESSAGES | MANY,
        answer=st.none() | MESSAGES.filter(bool).map(lambda messages: messages[0]),
        epoch=st.none() | EPOCHS,
        back=st.sampled_from([0, 0, 0, 0, 1, 2, 5, -1]),
        commits=st.booleans(),
        data=st.none() | st.binary(max_size=9),
        version=st.sampled_from([None, None, 0, 1]),
        knows=st.booleans(),
    )
    def append(
        self,
        inputs: tuple[StoredMessage, ...],
        answer: StoredMessage | None,
        epoch: int | None,
        back: int,
        commits: bool,
        data: bytes | None,
        version: int | None,
        knows: bool,
    ) -> None:
        known = self.known
        step = StepAppend(
            THREAD,
            epoch or (known.epoch if known else 1),
            self.place(back),
            inputs,
            answer,
            commits,
            data,
            version if version is not None else (known.slice_version if known else 0),
            all_of(known) if known and knows else None,
        )
        self.steps.append(step)
        self.both(lambda store: store.append(step))

    @precondition(lambda self: self.steps)
    @rule(which=st.integers(0, 9), commits=st.booleans(), other=st.none() | MESSAGES.filter(bool))
    def repeat(self, which: int, commits: bool, other: tuple[StoredMessage, ...] | None) -> None:
        step = replace(self.steps[-1 - which % len(self.steps)], commits=commits)
        if other and step.answer:
            step = replace(step, answer=other[0])
        self.both(lambda store: store.append(step))

    @rule(epoch=st.none() | EPOCHS, warm=st.booleans(), wrong=st.sampled_from([0, 0, 1]))
    def evict(self, epoch: int | None, warm: bool, wrong: int) -> None:
        known = self.known
        archive = all_of(known) if known else Archived(EMPTY, 0, 0, 0)
        archive = replace(archive, committed=archive.committed + wrong)
        mine = epoch or (known.epoch if known else 1)
        ttl = 600.0 if warm else None
        self.both(lambda store: store.evict(THREAD, mine, archive, warm_ttl=ttl))
        self._same_expiry()

    @rule(epoch=st.none() | EPOCHS, back=PLACES, keep_from=st.integers(-1, 150))
    def trim(self, epoch: int | None, back: int, keep_from: int) -> None:
        mine, archived = epoch or (self.known.epoch if self.known else 1), self.place(back)
        self.both(lambda store: store.trim(THREAD, mine, archived, keep_from))
        self._same_expiry()

    @rule(epoch=EPOCHS)
    def close(self, epoch: int) -> None:
        self.both(lambda store: store.close_epoch(THREAD, epoch))

    @rule(epoch=st.none() | EPOCHS, data=st.sampled_from([b"", b"x"]), version=st.none() | st.integers(0, 2))
    def save(self, epoch: int | None, data: bytes, version: int | None) -> None:
        known = self.known
        mine = epoch or (known.epoch if known else 1)
        expected = version if version is not None else (known.slice_version if known else 0)
        self.both(lambda store: store.save_slice(THREAD, mine, data, expected))

    @rule(epoch=EPOCHS)
    def drop(self, epoch: int) -> None:
        self.both(lambda store: store.drop(THREAD, epoch))

    # -- reads

    @rule(since=PLACES)
    def snapshot(self, since: int) -> None:
        self.both(lambda store: store.read_snapshot(THREAD, since if since >= 0 else SINCE_ARCHIVED))

    @rule(
        start=st.integers(0, 30),
        stop=st.integers(0, 200),
        limit=st.integers(0, 90),
        size=st.sampled_from([1, 100, 1_000, 1 << 20]),
        backward=st.booleans(),
    )
    def page(self, start: int, stop: int, limit: int, size: int, backward: bool) -> None:
        self.both(lambda store: store.read_page(THREAD, PageRange(start, stop, limit, size, backward)))

    @rule(
        back=PLACES,
        after=st.integers(0, 4),
        limit=st.integers(0, 90),
        size=st.sampled_from([1, 100, 1 << 20]),
        ids=st.integers(0, 200),
    )
    def step_view(self, back: int, after: int, limit: int, size: int, ids: int) -> None:
        head = self.place(back)
        self.both(
            lambda store: store.step_view(THREAD, head, after=after, limit=limit, max_bytes=size, ids=ids)
        )
        self._same_expiry()

    def _header(
        self, messages: tuple[StoredMessage, ...], epoch: int, base: int, archived: bool
    ) -> HotHeader:
        start = Head(position=base, last_id="a") if base else EMPTY
        head = head_after(start, messages)
        known = head.position if archived else -1
        size = size_of(messages) + base * 10
        return HotHeader(
            THREAD,
            epoch,
            "run",
            head,
            0,
            start,
            size=size,
            base_size=base * 10,
            archived=known,
            archived_size=size,
        )

    def _same_expiry(self) -> None:
        assert self.runner.run(self._expires()) == (self.memory.expires_in(THREAD) is not None)

    async def _expires(self) -> bool:
        if isinstance(self.backend, SqliteBackend):
            return await self.backend.threads.expires_in(THREAD) is not None
        if isinstance(self.backend, PostgresBackend):
            query = f'SELECT expires_at FROM "{self.backend.table_prefix}threads" WHERE thread_id = $1'
            return await self.backend.database.fetchval(query, THREAD) is not None
        connection = self.backend.threads._connection
        return bool(await connection.send_command("PTTL", connection.key_of(THREAD)) >= 0)


@pytest.mark.timeout(300)
def test_redis_answers_every_sequence_as_memory_does(redis_url: str) -> None:
    """The model that simulations run on is the store that users run on."""
    _compare(lambda: RedisBackend(redis_url, prefix=f"{an_id()}:", timeout=60), examples=100)


@pytest.mark.timeout(300)
def test_sqlite_answers_every_sequence_as_memory_does(data_directory: Path) -> None:
    """What its rows keep of a thread is all of it."""
    _compare(lambda: SqliteBackend(data_directory / an_id()), examples=25)


@pytest.mark.timeout(300)
def test_postgres_answers_every_sequence_as_memory_does(postgres_dsn: str) -> None:
    """Its statements repeat the rules of memory in another language."""
    prefix = _postgres.own_prefix("model")

    async def migrated() -> None:
        async with _postgres.emptied(postgres_dsn, prefix):
            pass

    asyncio.run(migrated())
    _compare(lambda: PostgresBackend(postgres_dsn, table_prefix=prefix, timeout=60), examples=25)


def _compare(make: Callable[[], Backend], *, examples: int) -> None:
    class Machine(_SameAnswers):
        def open_backend(self) -> Backend:
            return make()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
        ),
    )
