"""Every session store answers every sequence of operations as memory's does."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from pydantic import BaseModel

from helix_temporal.errors import HelixError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus, StepCommit
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import (
    CreateSession,
    MergeChanges,
    SessionState,
    SessionStatus,
    StateChange,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import ANY_VERSION, SessionStore
from helix_temporal.testing.builders import an_id
from helix_temporal.testing.contracts._sessions_base import image, patch, staged
from helix_temporal.testing.contracts._sessions_commit import an_append, suspension
from helix_temporal.testing.contracts.session_store import OpenSessions, SessionOpener
from tests import _postgres
from tests._session_stores import sessions_over
from tests._sessions import LONG, empty_postgres_place, memory_place, redis_place, sqlite_place

SESSIONS = st.sampled_from(["a", "b", "ü/🙂"])
STEPS = st.sampled_from(["step-1", "run-1"])
"""A step may have its run's name, as in the session workflow."""
RUNS = st.sampled_from(["run-1", "run-2", "run-3"])
EPOCHS = st.sampled_from([None, None, None, 1, 2])
OPERATIONS = st.sampled_from([None, None, None, "one", "two"])
STATUSES = st.sampled_from(SessionStatus)
VERSIONS = st.sampled_from([None, None, 0, 1])
"""What is expected: nothing, or the present version and so much more."""

TIMES = frozenset(
    [
        "at",
        "created_at",
        "updated_at",
        "started_at",
        "ended_at",
        "requested_at",
        "completed_at",
        "responded_at",
        "suspended_at",
    ]
)
CALLS = (ToolCall(id="c", name="look"),)
MESSAGES = st.lists(
    st.sampled_from(
        [
            Message(id="u1", role="user", content="one"),
            Message(id="u2", role="user", content="two"),
            Message(id="u2", role="user", content="another two"),
            Message(id="a1", role="assistant", content="yes"),
            Message(id="c1", role="assistant", tool_calls=CALLS),
            Message(id="r1", role="tool", tool_call_id="c", content="found"),
        ]
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each.id,
)
CHANGES = st.sampled_from(
    [
        None,
        StateChange(title="one", metadata=MergeChanges(values={"m": [1]}, removes=("gone",))),
        StateChange(merge=MergeChanges(appends={"list": [3], "n": [1]}), steps=1),
        StateChange(status=SessionStatus.PAUSED, follows=2),
    ]
)
PATCHES = st.sampled_from(
    [
        patch("add", "/list", []),
        patch("add", "/list/-", 1),
        patch("remove", "/list"),
        patch("replace", "/n", 7),
        patch("test", "/n", 7),
    ]
)


class Plain:
    """Answers without what differs between two stores: times, and the random part of checkpoints' ids."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        """The answer as plain values."""
        if isinstance(value, BaseModel):
            return self.of(value.model_dump())
        if isinstance(value, HotHeader):
            return value.head, value.committed
        if isinstance(value, dict):
            return {key: 0 if key in TIMES else self.of(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(each) for each in value]
        if isinstance(value, str) and value.startswith("cpv1-"):
            return self._checkpoints.setdefault(value, f"checkpoint {len(self._checkpoints)}")
        return value


class _SameAnswers(RuleBasedStateMachine):
    """Runs each operation on both and compares what they say; ``opener`` is set by the test."""

    opener: Callable[[], SessionOpener]
    apart = False
    """Whether threads lie in another place than sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.stores = [
            self.runner.run(self.stack.enter_async_context(opener()))
            for opener in (sessions_over(memory_place()), self.opener())
        ]
        self.plain = [Plain(), Plain()]
        for session_id in ("a", "b"):
            self.create(session_id, None, None, False)

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def both(self, session_id: str, operation: Callable[[OpenSessions], Awaitable[object]]) -> None:
        """Run it on both; they must say the same, and hold the same then."""
        mine, theirs = (self.outcome(which, session_id, operation) for which in (0, 1))
        assert theirs == mine

    def outcome(
        self, which: int, session_id: str, operation: Callable[[OpenSessions], Awaitable[object]]
    ) -> object:
        async def run() -> object:
            opened, plain = self.stores[which], self.plain[which]
            try:
                answer = plain.of(await operation(opened))
            except HelixError as error:
                answer = type(error)
            if not await opened.sessions.session_exists(session_id):
                return answer, None
            held = plain.of(await image(opened.sessions, session_id))
            return answer, held, plain.of(await opened.sessions.build_snapshot(session_id))

        return self.runner.run(run())

    # -- life

    @rule(session_id=SESSIONS, epoch=EPOCHS, operation=OPERATIONS, if_not_exists=st.booleans())
    def create(self, session_id: str, epoch: int | None, operation: str | None, if_not_exists: bool) -> None:
        options = CreateSession(agent_type="clerk", custom_state={"n": 1})
        self.both(
            session_id,
            lambda each: each.sessions.create_session(
                session_id, options, if_not_exists=if_not_exists, epoch=epoch, operation_id=operation
            ),
        )

    @rule(session_id=SESSIONS, ahead=VERSIONS, suspends=st.booleans(), epoch=EPOCHS, operation=OPERATIONS)
    def save(
        self, session_id: str, ahead: int | None, suspends: bool, epoch: int | None, operation: str | None
    ) -> None:
        async def run(opened: OpenSessions) -> object:
            state = await present(opened.sessions, session_id)
            expected = ANY_VERSION if ahead is None else state.version + ahead
            state = suspension(state) if suspends else state.model_copy(update={"step_count": 5})
            return await opened.sessions.save_state(
                session_id, state, expected_version=expected, epoch=epoch, operation_id=operation
            )

        self.both(session_id, run)

    @rule(session_id=SESSIONS, expected=st.lists(STATUSES, max_size=3), new=STATUSES, operation=OPERATIONS)
    def set_status(
        self, session_id: str, expected: list[SessionStatus], new: SessionStatus, operation: str | None
    ) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.compare_and_set_status(
                session_id, expected, new, operation_id=operation
            ),
        )

    @rule(session_id=SESSIONS, epoch=EPOCHS, operation=OPERATIONS)
    def merge(self, session_id: str, epoch: int | None, operation: str | None) -> None:
        changes = MergeChanges(appends={"list": [2]}, removes=("n",))
        self.both(
            session_id,
            lambda each: each.sessions.merge_custom_state(
                session_id, changes, epoch=epoch, operation_id=operation
            ),
        )

    @rule(session_id=SESSIONS, operation=OPERATIONS)
    def count(self, session_id: str, operation: str | None) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.increment_resume_count(session_id, operation_id=operation),
        )

    @rule(session_id=SESSIONS, epoch=EPOCHS)
    def delete(self, session_id: str, epoch: int | None) -> None:
        self.both(session_id, lambda each: each.sessions.delete_session(session_id, epoch=epoch))

    @rule(session_id=SESSIONS, source=SESSIONS, at_message=st.none() | st.integers(0, 4))
    def fork(self, session_id: str, source: str, at_message: int | None) -> None:
        if self.apart and at_message is None and self.runner.run(self.has_appended(source)):
            # The one difference that `SessionStore.fork_session` tells of.
            return
        self.both(
            session_id,
            lambda each: each.sessions.fork_session(source, session_id, at_message=at_message),
        )

    async def has_appended(self, session_id: str) -> bool:
        """Whether messages came after the last commit of the state."""
        store = self.stores[0].sessions
        state = await store.load_state(session_id)
        if state is None or state.head.position == 0:
            return False
        return await store.get_message_count(session_id) > state.head.position

    # -- messages

    @rule(session_id=SESSIONS, messages=MESSAGES, epoch=EPOCHS, operation=OPERATIONS)
    def append(
        self, session_id: str, messages: list[Message], epoch: int | None, operation: str | None
    ) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.append_messages(
                session_id, messages, epoch=epoch, operation_id=operation
            ),
        )

    @rule(
        session_id=SESSIONS,
        messages=MESSAGES,
        touch=st.booleans(),
        change=CHANGES,
        keeps=st.booleans(),
        ahead=VERSIONS,
        epoch=EPOCHS,
        operation=OPERATIONS,
    )
    def append_and_change(
        self,
        session_id: str,
        messages: list[Message],
        touch: bool,
        change: StateChange | None,
        keeps: bool,
        ahead: int | None,
        epoch: int | None,
        operation: str | None,
    ) -> None:
        async def act(opened: OpenSessions) -> object:
            version = (await present(opened.sessions, session_id)).version
            return await opened.sessions.append_messages(
                session_id,
                messages,
                touch=touch,
                change=change,
                on_duplicate="keep_first" if keeps else "error",
                expected_version=None if ahead is None else version + ahead,
                epoch=epoch,
                operation_id=operation,
            )

        self.both(session_id, act)

    @rule(user=st.sampled_from([None, "u"]), whole=st.booleans())
    def list_all(self, user: str | None, whole: bool) -> None:
        query = SessionQuery(user_id=user, include=("custom_state",) if whole else ())

        async def act(opened: OpenSessions) -> object:
            page = await opened.sessions.list_sessions(query)
            # Times differ between two stores, and with them the order.
            return sorted(page.sessions, key=lambda each: each.session_id), page.total

        self.both("a", act)

    @rule(session_id=SESSIONS, count=st.integers(0, 5), operation=OPERATIONS)
    def truncate(self, session_id: str, count: int, operation: str | None) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.truncate_messages(session_id, count, operation_id=operation),
        )

    # -- steps

    @rule(session_id=SESSIONS, step_id=STEPS, call=st.sampled_from("xy"), operation=PATCHES)
    def stage(self, session_id: str, step_id: str, call: str, operation: Any) -> None:
        change = staged(call, operation, at=ord(call))
        self.both(session_id, lambda each: each.sessions.stage_changes(session_id, step_id, change))

    @rule(session_id=SESSIONS, step_id=STEPS, warn=st.booleans())
    def promote(self, session_id: str, step_id: str, warn: bool) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.promote_staging(
                session_id, step_id, on_conflict="warn" if warn else "error"
            ),
        )

    @rule(session_id=SESSIONS, step_id=STEPS)
    def discard(self, session_id: str, step_id: str) -> None:
        self.both(session_id, lambda each: each.sessions.discard_staging(session_id, step_id))

    @rule(
        session_id=SESSIONS,
        step_id=STEPS,
        run=st.none() | RUNS,
        ends=st.booleans(),
        speaks=st.booleans(),
        ahead=VERSIONS,
        epoch=EPOCHS,
    )
    def commit(
        self,
        session_id: str,
        step_id: str,
        run: str | None,
        ends: bool,
        speaks: bool,
        ahead: int | None,
        epoch: int | None,
    ) -> None:
        change = RunChange(status=RunStatus.COMPLETED) if run and ends else None

        async def act(opened: OpenSessions) -> object:
            state = await present(opened.sessions, session_id)
            said = Message(id=f"said-{step_id}-{state.version}", role="assistant", content="so")
            append = await an_append(opened.threads, session_id, said) if speaks else None
            result, _ = await opened.sessions.save_state_and_promote_staging(
                session_id,
                state.model_copy(update={"step_count": state.step_count + 1}),
                StepCommit(step_id=step_id, run_id=run),
                append=append,
                run=change,
                expected_version=ANY_VERSION if ahead is None else state.version + ahead,
                epoch=epoch,
            )
            return result

        self.both(session_id, act)

    @rule(session_id=SESSIONS, ends=st.booleans(), epoch=EPOCHS)
    def turn(self, session_id: str, ends: bool, epoch: int | None) -> None:
        async def act(opened: OpenSessions) -> object:
            # As the session workflow does it: nothing is read in between.
            started = await opened.sessions.start_run(session_id, NewRun(run_id="run-1"), epoch=epoch)
            result, _ = await opened.sessions.save_state_and_promote_staging(
                session_id,
                StateChange(steps=1, merge=MergeChanges(values={"n": 2})),
                StepCommit(step_id="run-1", run_id="run-1"),
                run=RunChange(status=RunStatus.COMPLETED) if ends else None,
                epoch=epoch,
            )
            return started, result

        self.both(session_id, act)

    @rule(session_id=SESSIONS, back=st.integers(0, 2), operation=OPERATIONS)
    def restore(self, session_id: str, back: int, operation: str | None) -> None:
        async def act(opened: OpenSessions) -> object:
            page = await opened.sessions.list_checkpoints(session_id)
            if len(page.items) <= back:
                return "none"
            chosen = page.items[back].id
            return await opened.sessions.restore_checkpoint(session_id, chosen, operation_id=operation)

        self.both(session_id, act)

    @rule(session_id=SESSIONS, keep=st.integers(1, 2))
    def prune(self, session_id: str, keep: int) -> None:
        self.both(session_id, lambda each: each.sessions.prune_checkpoints(session_id, keep_last=keep))

    # -- runs, children, tool calls

    @rule(session_id=SESSIONS, run=RUNS, expected=st.none() | RUNS, operation=OPERATIONS)
    def start(self, session_id: str, run: str, expected: str | None, operation: str | None) -> None:
        self.both(
            session_id,
            lambda each: each.sessions.start_run(
                session_id, NewRun(run_id=run), expect_current_run=expected, operation_id=operation
            ),
        )

    @rule(session_id=SESSIONS, run=RUNS, status=st.none() | st.sampled_from(RunStatus))
    def change_run(self, session_id: str, run: str, status: RunStatus | None) -> None:
        change = RunChange(status=status, step_count=3)
        self.both(session_id, lambda each: each.sessions.update_run(session_id, run, change))

    @rule(session_id=SESSIONS, aborts=st.booleans(), run=st.none() | RUNS)
    def stop(self, session_id: str, aborts: bool, run: str | None) -> None:
        async def act(opened: OpenSessions) -> object:
            kind = "abort" if aborts else "interrupt"
            outcome = await opened.sessions.request_stop(session_id, kind=kind, run_id=run)  # type: ignore[arg-type]
            return outcome, await opened.sessions.get_stop_request(session_id, "run-1")

        self.both(session_id, act)

    @rule(session_id=SESSIONS, child=st.sampled_from(["x", "y"]), status=STATUSES)
    def add_child(self, session_id: str, child: str, status: SessionStatus) -> None:
        ref = SubSessionRef(sub_session_id=child, status=status)
        self.both(session_id, lambda each: each.sessions.add_sub_session_refs(session_id, [ref]))

    @rule(session_id=SESSIONS, operation=OPERATIONS)
    def submit(self, session_id: str, operation: str | None) -> None:
        answer = ToolResultSubmission.model_validate({"tool_call_id": "call-9", "response": {"result": 1}})
        self.both(
            session_id,
            lambda each: each.sessions.submit_tool_result(session_id, answer, operation_id=operation),
        )


async def present(store: SessionStore, session_id: str) -> SessionState:
    """The state; of a session that is not there one that nothing accepts."""
    return await store.load_state(session_id) or SessionState(session_id=session_id)


def compare(opener: Callable[[], SessionOpener], *, examples: int, apart: bool = False) -> None:
    """Compare a store with memory's; each example gets an empty one."""
    examples, steps = (500, 50) if LONG else (examples, 30)
    # To make a failing example shorter takes minutes: only the campaign has them.
    phases = tuple(Phase) if LONG else (Phase.generate,)
    machine = type("Machine", (_SameAnswers,), {"opener": staticmethod(opener), "apart": apart})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=phases,
            print_blob=True,
            suppress_health_check=[
                HealthCheck.too_slow,
                HealthCheck.data_too_large,
                HealthCheck.filter_too_much,
            ],
        ),
    )


pytestmark = pytest.mark.timeout(3_600 if LONG else 120)


def test_sessions_apart_from_their_threads_answer_as_those_together() -> None:
    """Whether a unit holds both is nothing that a caller sees."""
    compare(lambda: sessions_over(memory_place(together=False)), examples=30, apart=True)


def test_a_store_that_recalls_what_it_wrote_answers_as_one_that_looks() -> None:
    """Whether a turn's commit reads the session again is nothing that a caller sees."""
    compare(lambda: sessions_over(memory_place(together=False), recalls=True), examples=30, apart=True)


def test_sqlite_answers_every_sequence_as_memory_does(data_directory: Path) -> None:
    """In a file."""
    compare(lambda: sessions_over(partial(sqlite_place, data_directory / an_id()), recalls=True), examples=4)


def test_redis_answers_every_sequence_as_memory_does(redis_url: str, unique: str) -> None:
    """On a real server."""
    compare(lambda: sessions_over(partial(redis_place, redis_url, f"{unique}{an_id()}:")), examples=6)


def test_postgres_answers_every_sequence_as_memory_does(postgres_dsn: str) -> None:
    """On a real server."""
    prefix = _postgres.own_prefix("storemodel")
    compare(
        lambda: sessions_over(partial(empty_postgres_place, postgres_dsn, prefix), recalls=True), examples=6
    )
