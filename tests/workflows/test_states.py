"""The session store follows the thread, wherever both are: state, runs, requests to stop, what was lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.agents import ModelRequest, ToolContext, ToolOutcome
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionInterruptedError, StoreUnavailableError
from helix_temporal.models.checkpoints import Run, StagedChange
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.states import MergeChanges, SessionState, SessionStatus
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.serving import session_worker
from helix_temporal.testing.tables import own_tables
from tests.workflows._desk import Answer, Desk, Gate, calls, first_tools_then
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_reset import reset, task_ends

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

NO_S3 = dict.fromkeys(("s3_endpoint", "s3_bucket", "s3_access_key", "s3_secret_key"))
PAIRINGS = ("redis and postgres", "redis alone", "postgres alone", "sqlite alone", "memory alone")


@pytest.fixture
async def place(
    temporal_address: str,
    redis_url: str,
    postgres_dsn: str,
    s3: S3Endpoint,
    tmp_path: Path,
    sid: str,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Settings]:
    """Settings for one pairing of stores."""
    prefix = f"t{sid.replace('-', '')}_"
    postgres = {"postgres_dsn": postgres_dsn, "table_prefix": prefix}
    changes: dict[str, dict[str, Any]] = {
        "redis and postgres": {**postgres, "redis_url": redis_url},
        "redis and postgres, flushed at exit": {
            **postgres,
            "redis_url": redis_url,
            "flush": "exit",
        },
        "redis alone": {"redis_url": redis_url},
        "postgres alone": {**postgres, **NO_S3},
        "sqlite alone": {**NO_S3, "data_directory": tmp_path / "data"},
        "memory alone": {**NO_S3},
    }
    chosen = changes[getattr(request, "param", "redis and postgres")]
    settings = make_settings(temporal_address, chosen.pop("redis_url", None), s3, f"{sid}-q", **chosen)
    async with own_tables(postgres_dsn, prefix=prefix):
        yield settings


async def damaged(settings: Settings, session_id: str) -> None:
    """A session's state in PostgreSQL is another than was written."""
    connection = await asyncpg.connect(settings.postgres_dsn)
    try:
        table = f"{settings.table_prefix}states"
        done = await connection.execute(
            f"UPDATE \"{table}\" SET body = 'x' WHERE session_id = $1", session_id
        )
        assert done == "UPDATE 1"
    finally:
        await connection.close()


@asynccontextmanager
async def served(settings: Settings, desk: Desk, **options: Any) -> AsyncIterator[Stand]:
    """A worker over those stores."""
    options = {"idle_timeout": 60, **options}
    async with session_worker(settings, desk.agents(), options=SessionOptions(**options)) as running:
        yield Stand(running, desk)


async def state_of(stand: Stand, session_id: str) -> SessionState:
    """The stored state, which is there."""
    store = stand.served.plugin.backends.sessions
    assert store is not None
    found: SessionState | None = await store.load_state(session_id)
    assert found is not None
    return found


async def under_way(store: SessionStore, session_id: str) -> Run:
    """The run of the turn whose model is being called: it is recorded beside the call."""
    async with asyncio.timeout(30):
        while (run := await store.get_current_run(session_id)) is None:  # noqa: ASYNC110 (the store has no event)
            await asyncio.sleep(0.01)
    return run


async def agree(stand: Stand, session_id: str, turns: int) -> SessionState:
    """State and thread stand at the same place, and each turn has its run and its checkpoint."""
    store = stand.served.plugin.backends.sessions
    assert store is not None
    state = await state_of(stand, session_id)
    assert state.head == (await stand.served.plugin.backends.threads.read_facts(session_id)).head
    runs = await store.list_runs(session_id)
    assert [(run.turn, run.status.value) for run in runs.items] == [
        (turn, "completed") for turn in range(turns, 0, -1)
    ]
    checkpoints = await store.list_checkpoints(session_id)
    assert checkpoints.total == turns
    assert checkpoints.items[0].head == state.head
    return state


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_every_pairing_of_stores_keeps_state_beside_the_thread(place: Settings, sid: str) -> None:
    """One setting apart: the same session, the same state, also after it went to rest and came back."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        for number in range(2):
            asked = await stand.sessions.ask(sid, f"q{number}", agent="main")
            assert asked.text == "done"
        state = await agree(stand, sid, turns=2)
        assert (state.status, state.step_count, state.agent_type) == (SessionStatus.ACTIVE, 4, "main")
        await stand.finish(sid)
        assert (await state_of(stand, sid)).status is SessionStatus.COMPLETED
        await stand.sessions.ask(sid, "again", agent="main")
        assert (await agree(stand, sid, turns=3)).status is SessionStatus.ACTIVE


async def test_a_plain_turn_is_one_activity_still(place: Settings, sid: str) -> None:
    """Eleven events a turn, with a session store as without."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.at_rest(sid)
        before = len(await stand.events(sid))
        await stand.sessions.ask(sid, "two", agent="main")
        await stand.at_rest(sid)
        assert len(await stand.events(sid)) - before <= 12


async def test_how_a_session_ends_is_in_its_state(place: Settings, sid: str) -> None:
    """Interrupted by a cancel, with the run that was under way; failed with its error."""
    desk, gate = Desk(), Gate()
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        desk.scripts[sid] = gate.then()
        asked = asyncio.create_task(stand.sessions.ask(sid, "two"))
        await gate.reached.wait()
        await stand.handle(sid).cancel()
        assert (await asked).status is AskStatus.INTERRUPTED
        gate.opened.set()
        with pytest.raises(SessionInterruptedError):
            await stand.sessions.session(sid).result()
        state = await state_of(stand, sid)
        assert (state.status, state.current_run_id) == (SessionStatus.INTERRUPTED, None)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        runs = await store.list_runs(sid)
        assert [run.status.value for run in runs.items] == ["interrupted", "completed"]


async def test_a_stop_that_is_asked_of_the_store_ends_the_turn_after_its_step(
    place: Settings, sid: str
) -> None:
    """A program that knows only the store can stop a run, whichever worker has it."""
    desk, gate = Desk(), Gate()

    async def script(request: Any) -> Any:
        await gate.passing()
        return calls("x")

    desk.scripts[sid] = script
    async with served(place, desk) as stand:
        asked = asyncio.create_task(stand.sessions.ask(sid, "go", agent="main"))
        await gate.reached.wait()
        store = stand.served.plugin.backends.sessions
        assert store is not None
        await under_way(store, sid)
        assert (await store.request_stop(sid, kind="interrupt")).recorded
        gate.opened.set()
        result = await asked
        assert (result.status, result.exit_reason) == (AskStatus.INTERRUPTED, "interrupted")
        runs = await store.list_runs(sid)
        assert [run.status.value for run in runs.items] == ["interrupted"]
        assert (await state_of(stand, sid)).current_run_id is None


async def test_an_abort_leaves_no_run_and_nothing_staged(place: Settings, sid: str) -> None:
    """The turn is cut from the thread, its run is over, and the next turn is the next one."""
    desk, gate = Desk(), Gate()
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        desk.scripts[sid] = gate.then()
        asked = asyncio.create_task(stand.sessions.ask(sid, "two"))
        await gate.reached.wait()
        store = stand.served.plugin.backends.sessions
        assert store is not None
        run = await under_way(store, sid)
        await store.stage_changes(sid, run.run_id, StagedChange(tool_call_id="c", merge_changes={"a": 1}))
        await stand.sessions.session(sid).stop(abort=True)
        assert (await asked).status is AskStatus.INTERRUPTED
        gate.opened.set()
        over = await store.get_run(sid, run.run_id)
        assert over is not None
        assert over.status.value == "aborted"
        assert await store.list_staged(sid) == []
        del desk.scripts[sid]
        await stand.sessions.ask(sid, "three")
        state = await state_of(stand, sid)
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head
        assert "a" not in state.custom_state


async def test_what_tools_staged_is_promoted_with_the_turn(place: Settings, sid: str) -> None:
    """Invisible until then; and what others merged meanwhile stays."""
    desk, gate = Desk(), Gate()
    desk.scripts[sid] = gate.then()
    async with served(place, desk) as stand:
        asked = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main"))
        await gate.reached.wait()
        store = stand.served.plugin.backends.sessions
        assert store is not None
        run = await under_way(store, sid)
        await store.stage_changes(sid, run.run_id, StagedChange(tool_call_id="c", merge_changes={"a": 1}))
        await store.merge_custom_state(sid, MergeChanges(values={"b": 2}))
        assert (await state_of(stand, sid)).custom_state == {"b": 2}
        gate.opened.set()
        await asked
        assert (await state_of(stand, sid)).custom_state == {"a": 1, "b": 2}


async def test_what_a_tool_changes_of_the_state_counts_once(place: Settings, sid: str) -> None:
    """With the turn, however many attempts the tool took; the next turn's values are with it."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x", "y")

    def act(what: str, context: ToolContext) -> ToolOutcome:
        if context.attempt == 1:
            desk.contexts[sid].append(context)
        return ToolOutcome(what, state={what: 1, "last": what})

    desk.acts[sid] = act
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        assert (await state_of(stand, sid)).custom_state == {"x": 1, "y": 1, "last": "y"}
        await stand.sessions.ask(sid, "two")
        await stand.finish(sid)
        assert (await state_of(stand, sid)).custom_state == {"x": 1, "y": 1, "last": "y"}


async def test_a_turn_whose_commit_was_lost_is_committed_by_the_next_open(
    place: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died between the thread and the state: the thread has the turn, so the turn counts."""
    desk = Desk()
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        reached = asyncio.Event()

        async def never(*_: object) -> None:
            reached.set()
            raise StoreUnavailableError("the database is away")

        with monkeypatch.context() as patched:
            patched.setattr(SessionSync, "finish_turn", never)
            asked = asyncio.create_task(stand.sessions.ask(sid, "two"))
            await reached.wait()
            await stand.handle(sid).terminate()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        assert (await state_of(stand, sid)).message_count == 2
        answer = await stand.sessions.ask(sid, "three", agent="main")
        assert answer.text == "5: three"
        state = await state_of(stand, sid)
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head
        store = stand.served.plugin.backends.sessions
        assert store is not None
        runs = await store.list_runs(sid)
        assert [run.status.value for run in runs.items] == ["completed"] * 3
        assert len(desk.requests[sid]) == 3


@pytest.mark.parametrize("place", ["redis and postgres, flushed at exit"], indirect=True)
async def test_a_state_that_is_ahead_of_its_thread_goes_back_and_says_so(place: Settings, sid: str) -> None:
    """Redis lost what only it had: the newest checkpoint that the thread still holds counts."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        kept = await state_of(stand, sid)
        await stand.sessions.ask(sid, "two", agent="main")
        await stand.handle(sid).terminate()
        async with Redis.from_url(place.redis_url or "") as redis:
            keys = [key async for key in redis.scan_iter(match=f"{place.redis_prefix}*")]
            await redis.delete(*keys)
        assert (await state_of(stand, sid)).message_count == 4
        await stand.sessions.ask(sid, "three", agent="main")
        status = await stand.sessions.session(sid).get_status()
        state = await state_of(stand, sid)
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head
        assert state.message_count == 4
        assert kept.message_count == 2
        assert await stand.texts(sid) == ["one", "1: one", "three", "3: three"]
        await stand.sessions.session(sid).close()
        result = await stand.sessions.session(sid).result()
        notes = [each for each in result.receipts if each.name == "state"]
        assert len(notes) == 1
        assert not notes[0].ok
        assert "ThreadBehindStateError" in notes[0].detail
        assert status.turns >= 1


@pytest.mark.parametrize("place", ["redis alone"], indirect=True)
async def test_a_state_that_its_store_lost_is_made_again(place: Settings, sid: str) -> None:
    """Redis is wiped in the middle of a session: the archive has the thread, its slice the state."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        async with Redis.from_url(place.redis_url or "") as redis:
            keys = [key async for key in redis.scan_iter(match=f"{place.redis_prefix}*")]
            await redis.delete(*keys)
        await stand.sessions.ask(sid, "two")
        state = await state_of(stand, sid)
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head
        assert state.message_count == 4


async def test_a_rewind_takes_the_state_along(place: Settings, sid: str) -> None:
    """The thread is cut at an earlier head: the state of that turn is the present one."""
    async with served(place, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        first = await state_of(stand, sid)
        await stand.sessions.ask(sid, "two")
        assert await stand.sessions.session(sid).rewind(first.head) == first.head
        state = await state_of(stand, sid)
        assert state.head == first.head
        await stand.sessions.ask(sid, "three")
        state = await state_of(stand, sid)
        assert state.head == (await stand.served.plugin.backends.threads.read_facts(sid)).head


async def test_a_rewind_takes_the_values_of_the_application_along(place: Settings, sid: str) -> None:
    """What a turn that is gone had changed must not come back with the next one, or at the end."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    numbers = iter((1, 2))
    desk.acts[sid] = lambda what, _: ToolOutcome(what, state={"k": next(numbers)})
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        first = await state_of(stand, sid)
        await stand.sessions.ask(sid, "two")
        assert (await state_of(stand, sid)).custom_state == {"k": 2}
        await stand.sessions.session(sid).rewind(first.head)
        del desk.scripts[sid]
        await stand.sessions.ask(sid, "three")
        await stand.finish(sid)
        assert (await state_of(stand, sid)).custom_state == {"k": 1}


@pytest.mark.parametrize("how", ["rewind", "regenerate"])
async def test_before_the_first_turn_a_state_holds_nothing_of_it(place: Settings, sid: str, how: str) -> None:
    """No checkpoint is from before it: what the first turn had changed goes with its messages."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    desk.acts[sid] = lambda what, _: ToolOutcome(what, state={"k": 1})
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        assert (await state_of(stand, sid)).custom_state == {"k": 1}
        del desk.scripts[sid]
        if how == "rewind":
            assert await stand.sessions.session(sid).rewind_to_turn(0) == EMPTY
        else:
            await stand.sessions.session(sid).regenerate()
        assert (await state_of(stand, sid)).custom_state == {}
        await stand.sessions.ask(sid, "two")
        await stand.finish(sid)
        assert (await state_of(stand, sid)).custom_state == {}


async def test_what_the_session_saw_is_not_written_over_what_others_wrote_since(
    place: Settings, sid: str
) -> None:
    """A tool's change shows the session the whole state; none of it is the session's to write."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    desk.acts[sid] = lambda what, _: ToolOutcome(what, state={"tool": 1})
    async with served(place, desk) as stand:
        store = stand.served.plugin.backends.sessions
        assert store is not None
        await stand.sessions.ask(sid, "one", agent="main")
        await store.merge_custom_state(sid, MergeChanges(values={"theirs": 1, "tool": 5}))
        del desk.scripts[sid]
        await stand.sessions.ask(sid, "two")
        await store.merge_custom_state(sid, MergeChanges(values={"theirs": 2}))
        await stand.finish(sid)
        assert (await state_of(stand, sid)).custom_state == {"theirs": 2, "tool": 5}


async def test_a_step_that_a_tool_takes_back_changes_nothing_of_the_state(place: Settings, sid: str) -> None:
    """The step is asked again; what its tools had staged belongs to no call of the thread."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x", "y")
    first = iter((True, True))

    def act(what: str, context: ToolContext) -> ToolOutcome:
        again = next(first, False)
        return ToolOutcome(what, state={f"{what}{again}": 1}, rewind=again and what == "y")

    desk.acts[sid] = act
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        assert (await state_of(stand, sid)).custom_state == {"xFalse": 1, "yFalse": 1}


async def test_what_a_tool_staged_in_an_attempt_that_failed_after_it_is_not_in_the_state(
    place: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is told that the tool failed: the state says the same as the thread."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")

    def act(what: str, context: ToolContext) -> ToolOutcome:
        if context.attempt == 1:
            return ToolOutcome("x" * 10_000, state={"paid": True})
        raise ValueError("the till is closed")

    async def refused(*_: object) -> None:
        raise StoreUnavailableError("the payloads are away")

    desk.acts[sid] = act
    async with served(place, desk) as stand:
        monkeypatch.setattr(ToolRunner, "_build_result", refused)
        await stand.sessions.ask(sid, "one", agent="main")
        messages = await stand.messages(sid)
        assert [each.is_error for each in messages if each.role == "tool"] == [True]
        assert (await state_of(stand, sid)).custom_state == {}


async def test_the_state_has_what_the_result_in_the_thread_had_changed(place: Settings, sid: str) -> None:
    """After a reset the turn goes on where its thread stands, with what its tools had changed so far."""
    desk, gate, numbers = Desk(), Gate(), count(1)

    async def act(what: str, context: ToolContext) -> ToolOutcome:
        if what == "y":
            await gate.passing()
        number = next(numbers)
        return ToolOutcome(f"{what}{number}", state={what: f"{what}{number}"})

    def script(request: ModelRequest) -> Answer:
        asked = sum(len(each.tool_calls) for each in request.messages)
        return calls("xy"[asked]) if asked < 2 else "done"

    desk.acts[sid], desk.scripts[sid] = act, script
    async with served(place, desk) as stand:
        asked = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main"))
        await gate.reached.wait()
        gate.reached.clear()
        await reset(stand, sid, (await task_ends(stand, sid))[1])
        await gate.reached.wait()
        gate.opened.set()
        await asked
        results = [each.text for each in await stand.messages(sid) if each.role == "tool"]
        assert (await state_of(stand, sid)).custom_state == {text[0]: text for text in results}
        assert len(desk.contexts[sid]) == 3, "only the one without a result ran again"
