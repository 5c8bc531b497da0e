"""Every backend's rows answer every sequence of operations as memory's do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from helix_temporal.errors import HelixError
from helix_temporal.models.states import (
    PendingClientToolCall,
    SessionState,
    SessionStatus,
    SuspendedChildWait,
)
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionCommit,
    SessionRow,
    SessionView,
    StoredState,
    WantedRows,
)
from helix_temporal.testing.builders import a_header, an_id, opened
from tests import _postgres
from tests._sessions import (
    LONG,
    Place,
    PlaceOpener,
    empty_postgres_place,
    memory_place,
    redis_place,
    sqlite_place,
)

T = TypeVar("T")

UNHEALTHY = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

SESSIONS: tuple[str, ...] = ("a", "b", "ü/🙂", "~61")
GROUPED = (RowKind.STEP, RowKind.STAGED, RowKind.RECORD)
PLAIN = tuple(kind for kind in RowKind if kind not in GROUPED)
WITHOUT_ORDER = (RowKind.STEP, RowKind.STOP, RowKind.THREAD, RowKind.RECORD)
IN_FULL = tuple(kind for kind in PLAIN if kind is not RowKind.CHECKPOINT_STATE)
"""Kinds of which all rows of a session are ever asked for at once; the others may be too large."""
ORDERED = (RowKind.CHECKPOINT, RowKind.CHECKPOINT_STATE, RowKind.RUN, RowKind.REF)

KEYS = st.sampled_from(["k", "K", "k2", "ü", "🙂", "x" * 200, "a:b", "%", "\\"])
GROUPS = st.sampled_from(["g", "G:1", "ü", "y" * 200])
BODIES = st.sampled_from([b"", b"{}", b"\x00\xff", b"x" * 5_000])
ORDERS = st.sampled_from([0, 1, 2, 10, 9, 2**53 + 1, 2**63 - 1])
TIMES = st.sampled_from([0, 5, 900, 10_000, 2**53, 2**53 + 1])
NAMES = st.one_of(
    st.builds(lambda kind, key: RowKey(kind, key), st.sampled_from(PLAIN), KEYS),
    # Keys of two groups differ, as places in a page have no group.
    st.builds(
        lambda kind, key, group: RowKey(kind, key + group, group), st.sampled_from(GROUPED), KEYS, GROUPS
    ),
)
ROWS = st.builds(
    lambda name, body, order: SessionRow(
        name.kind, name.key, body, name.group, 0 if name.kind in WITHOUT_ORDER else order
    ),
    NAMES,
    BODIES,
    ORDERS,
)
WHOLE = st.one_of(
    st.tuples(st.sampled_from(IN_FULL), st.just("")), st.tuples(st.sampled_from(GROUPED), GROUPS)
)
WANTED = st.builds(
    WantedRows,
    keys=st.lists(NAMES, max_size=4).map(tuple),
    groups=st.lists(WHOLE, max_size=3, unique=True).map(tuple),
    newest=st.lists(st.sampled_from(ORDERED), max_size=2, unique=True).map(tuple),
    newest_in=st.lists(st.tuples(st.just(RowKind.RECORD), GROUPS), max_size=2, unique=True).map(tuple),
)
TEXTS = st.sampled_from(["", "x", "y", "ü", "a:b", "*"])
SLEEPERS = st.builds(
    lambda until: SuspendedChildWait(sub_session_id="b", tool_call_id="c", until=until), st.none() | TIMES
)
CALLS = st.builds(
    lambda deadline, answered: PendingClientToolCall.model_validate(
        {
            "tool_call_id": "c",
            "tool_name": "t",
            "deadline_at": deadline,
            "response": {"result": 1} if answered else None,
        }
    ),
    st.none() | TIMES,
    st.booleans(),
)
STATES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "agent_type": TEXTS,
        "user_id": st.none() | TEXTS,
        "status": st.sampled_from(SessionStatus),
        "tags": st.lists(TEXTS, max_size=3).map(tuple),
        "metadata": st.dictionaries(
            TEXTS, TEXTS | st.integers(0, 2) | st.lists(TEXTS, max_size=1), max_size=2
        ),
        "parent_session_id": st.none() | st.sampled_from(SESSIONS),
        "expires_at": st.none() | TIMES,
        "cleanup_pending": st.booleans(),
        "created_at": TIMES,
        "updated_at": TIMES,
        "pending_client_tool_calls": st.dictionaries(st.just("c"), CALLS, max_size=1),
        "suspended_awaiting_children": st.lists(SLEEPERS, max_size=1).map(tuple),
        "version": st.integers(1, 5),
        "step_count": st.integers(0, 3),
    },
)
QUERIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "order_by": st.builds(
            OrderBy,
            field=st.sampled_from(["created_at", "updated_at"]),
            direction=st.sampled_from(["asc", "desc"]),
        ),
        "limit": st.integers(1, 5),
    },
    optional={
        "user_id": TEXTS,
        "agent_type": TEXTS,
        "status": st.lists(st.sampled_from(SessionStatus), max_size=2).map(tuple),
        "parent_session_id": st.none() | st.sampled_from(SESSIONS),
        "tags": st.lists(TEXTS, max_size=2).map(tuple),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=1),
        "date_field": st.sampled_from(["created_at", "updated_at"]),
        "date_from": TIMES,
        "date_to": TIMES,
        "offset": st.integers(0, 3),
    },
)


def comparable(outcome: object) -> object:
    """Clocks differ between two stores, and so does the order in which a view finds rows."""
    if isinstance(outcome, HotHeader):
        return replace(outcome, unarchived_since=int(outcome.unarchived_since > 0))
    if isinstance(outcome, SessionView):
        rows = tuple(sorted(outcome.rows, key=lambda each: each.name))
        return replace(outcome, now=0, rows=rows)
    appended = getattr(outcome, "appended", None)
    if appended is not None:
        same = replace(appended, header=comparable(appended.header), messages=tuple(appended.messages))
        return replace(outcome, appended=same)  # type: ignore[type-var]
    return outcome


class _SameAnswers(RuleBasedStateMachine):
    """Runs each operation on both and compares what they say; ``opener`` is set by the test."""

    opener: Callable[[], PlaceOpener]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.memory = self.runner.run(self.stack.enter_async_context(memory_place()()))
        self.other = self.runner.run(self.stack.enter_async_context(self.opener()()))
        self.views = dict.fromkeys(SESSIONS, SessionView(0, 0, 0, None))
        self.threads: dict[str, object] = {}
        self.threads.update(dict.fromkeys(SESSIONS))
        self.steps: list[StepAppend] = []

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def both(self, operation: Callable[[Place], Awaitable[T]]) -> object:
        """Run it on both; they must say the same."""
        mine, theirs = self.outcome(operation, self.memory), self.outcome(operation, self.other)
        assert comparable(theirs) == comparable(mine)
        return mine

    def outcome(self, operation: Callable[[Place], Awaitable[T]], place: Place) -> object:
        async def run() -> object:
            try:
                return await operation(place)
            except HelixError as error:
                return type(error)

        return self.runner.run(run())

    def look(self, session_id: str) -> None:
        """Both must hold the same."""
        everything = WantedRows(groups=tuple((kind, "") for kind in IN_FULL))
        view = self.both(lambda place: place.rows.view(session_id, everything))
        assert isinstance(view, SessionView)
        self.views[session_id] = view
        self.threads[session_id] = self.both(lambda place: place.threads.read_header(session_id))

    # -- writes

    @rule(
        session_id=st.sampled_from(SESSIONS),
        fields=st.none() | STATES,
        puts=st.lists(ROWS, max_size=5, unique_by=lambda each: each.name).map(tuple),
        removes=st.lists(NAMES, max_size=3).map(tuple),
        clears=st.lists(WHOLE, max_size=2, unique=True).map(tuple),
        raised=st.sampled_from([0, 0, 1, 2**40]),
        stale=st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        append=st.sampled_from([None, None, "next", "repeat", "elsewhere"]),
    )
    def commit(
        self,
        session_id: str,
        fields: dict[str, Any] | None,
        puts: tuple[SessionRow, ...],
        removes: tuple[RowKey, ...],
        clears: tuple[tuple[RowKind, str], ...],
        raised: int,
        stale: int,
        append: str | None,
    ) -> None:
        row = None
        view = self.views[session_id]
        if fields is not None or view.state is None:
            state = SessionState(session_id=session_id, **(fields or {}))
            row = StoredState(state, state.model_dump_json().encode())
        change = SessionCommit(
            session_id,
            max(0, view.revision + stale),
            view.max_epoch + raised,
            row,
            puts,
            tuple(each for each in removes if each not in {put.name for put in puts}),
            clears,
            append=self.step(session_id, append),
        )
        self.both(lambda place: place.rows.commit(change))
        self.look(session_id)

    def step(self, session_id: str, how: str | None) -> StepAppend | None:
        if how is None:
            return None
        mine = [each for each in self.steps if each.thread_id == session_id]
        if how == "repeat" and mine:
            return mine[-1]
        thread = self.threads[session_id]
        there = thread.head if isinstance(thread, HotHeader) else EMPTY
        head = Head(position=1, last_id="other") if how == "elsewhere" else there
        inputs = tuple(StoredMessage(Kind.USER, f"m{len(self.steps)}-{n}", b"x" * n) for n in range(2))
        step = StepAppend(session_id, a_header(session_id).epoch, head, inputs, commits=True)
        self.steps.append(step)
        return step

    @precondition(lambda self: any(view.state for view in self.views.values()))
    @rule(which=st.integers(0, len(SESSIONS)), stale=st.sampled_from([0, 0, 1]))
    def delete(self, which: int, stale: int) -> None:
        there = [each for each, view in self.views.items() if view.state is not None]
        session_id = there[which % len(there)]
        view = self.views[session_id]
        change = SessionCommit(session_id, view.revision + stale, view.max_epoch, deletes=True)
        self.both(lambda place: place.rows.commit(change))
        self.look(session_id)

    @precondition(lambda self: None in self.threads.values())
    @rule(which=st.integers(0, len(SESSIONS)))
    def open_thread(self, which: int) -> None:
        cold = [each for each, thread in self.threads.items() if thread is None]
        session_id = cold[which % len(cold)]
        self.both(lambda place: opened(place.threads, session_id))
        self.look(session_id)

    @rule(before=ORDERS)
    def purge(self, before: int) -> None:
        self.both(lambda place: place.rows.purge_operations(before, limit=1_000))

    # -- reads

    @rule(session_id=st.sampled_from(SESSIONS), wanted=WANTED)
    def view(self, session_id: str, wanted: WantedRows) -> None:
        self.both(lambda place: place.rows.view(session_id, wanted))

    @rule(
        session_id=st.sampled_from(SESSIONS),
        kind=st.sampled_from(RowKind),
        limit=st.integers(1, 5),
        after=st.none() | st.tuples(ORDERS, KEYS),
        descending=st.booleans(),
    )
    def page(
        self, session_id: str, kind: RowKind, limit: int, after: tuple[int, str] | None, descending: bool
    ) -> None:
        self.both(
            lambda place: place.rows.read_page(
                session_id, kind, limit=limit, after=after, descending=descending
            )
        )

    @rule(
        session_id=st.sampled_from(SESSIONS),
        group=GROUPS,
        limit=st.integers(1, 3),
        after=st.none() | KEYS,
        descending=st.booleans(),
    )
    def read_group(
        self, session_id: str, group: str, limit: int, after: str | None, descending: bool
    ) -> None:
        self.both(
            lambda place: place.rows.read_group(
                session_id, RowKind.RECORD, group, limit=limit, after=after, descending=descending
            )
        )

    @rule(session_id=st.sampled_from(SESSIONS), first=GROUPS, stop=GROUPS, limit=st.integers(1, 3))
    def list_groups(self, session_id: str, first: str, stop: str, limit: int) -> None:
        self.both(
            lambda place: place.rows.list_groups(
                session_id, RowKind.RECORD, first=first, stop=stop, limit=limit
            )
        )

    @rule(fields=QUERIES)
    def list_sessions(self, fields: dict[str, Any]) -> None:
        query: SessionQuery | None = SessionQuery(**fields)
        while query is not None:
            page = self.both(partial(_list, query=query))
            cursor = getattr(page, "next_cursor", None)
            query = None if cursor is None else query.model_copy(update={"cursor": cursor, "offset": 0})

    @rule(
        before=TIMES, limit=st.integers(1, 3), after=st.none() | st.tuples(TIMES, st.sampled_from(SESSIONS))
    )
    def list_times(self, before: int, limit: int, after: tuple[int, str] | None) -> None:
        self.both(lambda place: place.rows.list_expired(before, limit=limit, after=after))
        self.both(lambda place: place.rows.list_due(before, limit=limit, after=after))

    @rule(limit=st.integers(1, 3), after=st.none() | st.sampled_from(SESSIONS))
    def list_cleanups(self, limit: int, after: str | None) -> None:
        self.both(lambda place: place.rows.list_cleanup_pending(limit=limit, after=after))

    @rule()
    def scan(self) -> None:
        async def ids(place: Place) -> list[str]:
            return sorted([each async for each in place.rows.scan()])

        self.both(ids)


async def _list(place: Place, *, query: SessionQuery) -> object:
    return await place.rows.list_sessions(query)


def compare(opener: Callable[[], PlaceOpener], *, examples: int = 20) -> None:
    """Compare a backend with memory; each example gets an empty place."""
    examples, steps = (500, 50) if LONG else (examples, 30)
    machine = type("Machine", (_SameAnswers,), {"opener": staticmethod(opener)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=UNHEALTHY,
        ),
    )


@pytest.mark.timeout(3_600 if LONG else 120)
def test_postgres_answers_every_sequence_as_memory_does(postgres_dsn: str) -> None:
    """What the rules above rely on, they can rely on here."""
    prefix = _postgres.own_prefix("model")
    compare(lambda: partial(empty_postgres_place, postgres_dsn, prefix))


@pytest.mark.timeout(3_600 if LONG else 120)
def test_sqlite_answers_every_sequence_as_memory_does(data_directory: Path) -> None:
    """What its rows keep of a session is all of it."""
    compare(lambda: partial(sqlite_place, data_directory / an_id()), examples=10)


@pytest.mark.timeout(3_600 if LONG else 120)
def test_redis_answers_every_sequence_as_memory_does(redis_url: str, unique: str) -> None:
    """What the index says is what the sessions say."""
    compare(lambda: partial(redis_place, redis_url, f"{unique}{an_id()}:"))


@pytest.mark.timeout(3_600 if LONG else 120)
def test_a_redis_cluster_answers_every_sequence_as_memory_does(redis_cluster: str, unique: str) -> None:
    """Also where the index lies on another server than the session."""
    compare(lambda: partial(redis_place, redis_cluster, f"{unique}{an_id()}:", cluster=True), examples=5)
