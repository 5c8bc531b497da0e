"""A run's commit does not look again at a session that nobody has written since; else it does."""

from typing import Any

import pytest

from helix_temporal.errors import FencedError, IdempotencyConflictError, StoreUnavailableError
from helix_temporal.models.checkpoints import (
    CommitResult,
    NewRun,
    RunChange,
    RunRecorded,
    RunStatus,
    StagedChange,
    StepCommit,
)
from helix_temporal.models.states import MergeChanges, StateChange
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.sessions import RowSessions, loop
from tests.unit.stores.sessions._stores import Apart


@pytest.fixture
def place() -> Apart:
    return Apart()


@pytest.fixture
async def store(place: Apart) -> RowSessions:
    """A store that recalls, with a session in it."""
    store = place.another(recalls=True)
    await store.create_session("s")
    return store


async def begun(store: RowSessions, run_id: str = "r", **options: Any) -> None:
    """A run is recorded."""
    await store.start_run("s", NewRun(run_id=run_id), **options)


async def ended(store: RowSessions, run_id: str = "r", **options: Any) -> CommitResult:
    """Its turn is committed, as the session workflow does it."""
    result, _ = await store.save_state_and_promote_staging(
        "s",
        StateChange(steps=1, merge=MergeChanges(values={run_id: 1})),
        StepCommit(step_id=run_id, run_id=run_id, step_count=1),
        run=RunChange(status=RunStatus.COMPLETED),
        **options,
    )
    return result


async def image(store: RowSessions) -> list[Any]:
    """All that the turns left, without times."""
    state = await store.load_state("s")
    assert state is not None
    found = [
        state,
        *(await store.list_runs("s")).items,
        *(await store.list_checkpoints("s")).items,
        *await store.list_staged("s"),
    ]
    return [each.model_dump(exclude={"id", "at", "started_at", "ended_at", "updated_at"}) for each in found]


async def test_a_turn_is_two_calls_of_the_port(place: Apart, store: RowSessions) -> None:
    """Each is a round trip somewhere; what they leave is what four would have left."""
    other = Apart(place.clock)
    plain = other.another()
    await plain.create_session("s")
    for each, rows in ((store, place.rows), (plain, other.rows)):
        await begun(each, "r0")
        await ended(each, "r0")
        rows.calls.clear()
        await begun(each)
        await ended(each)
    assert place.rows.calls == ["commit", "commit"]
    assert other.rows.calls == ["view", "commit", "view", "commit"]
    assert await image(store) == await image(plain)


async def test_a_first_turn_is_three_calls(place: Apart, store: RowSessions) -> None:
    """What this process has not written it looks at, once."""
    place.rows.calls.clear()
    await begun(store)
    await ended(store)
    assert place.rows.calls == ["view", "commit", "commit"]


async def test_a_run_that_is_not_new_is_not_started_again(place: Apart, store: RowSessions) -> None:
    """A late attempt of an earlier turn gets its first answer, though newer turns are remembered."""
    first = await store.start_run("s", NewRun(run_id="r0"))
    await ended(store, "r0")
    for run_id in ("r1", "r2"):
        await begun(store, run_id)
        await ended(store, run_id)
    place.rows.calls.clear()
    again = await store.start_run("s", NewRun(run_id="r0"))
    assert place.rows.calls == ["commit", "view"]
    assert isinstance(first, RunRecorded)
    assert isinstance(again, RunRecorded)
    assert (again.new_version, again.run.status) == (first.new_version, RunStatus.COMPLETED)
    state = await store.load_state("s")
    assert state is not None
    assert state.current_run_id is None


async def test_what_was_staged_for_a_run_before_it_began_is_promoted(
    place: Apart, store: RowSessions
) -> None:
    """Nobody looked for it: the start finds that it is not as new as it seemed, and looks."""
    await begun(store, "r0")
    await store.stage_changes("s", "r1", StagedChange(tool_call_id="c", merge_changes={"tool": 1}))
    await ended(store, "r0")
    await begun(store, "r1")
    place.rows.calls.clear()
    assert (await ended(store, "r1")).promoted == 1
    state = await store.load_state("s")
    assert state is not None
    assert state.custom_state == {"r0": 1, "tool": 1, "r1": 1}


async def test_a_session_that_went_on_elsewhere_is_looked_at(place: Apart, store: RowSessions) -> None:
    """Sessions wander between workers: a commit that is sure to be refused is not sent."""
    await begun(store, "r0")
    await ended(store, "r0")
    place.rows.calls.clear()
    beyond = Head(position=2, last_id="m2")
    await store.start_run("s", NewRun(run_id="r1", start_head=beyond))
    assert place.rows.calls == ["view", "commit"]


async def test_what_was_written_long_ago_is_looked_at(
    place: Apart, store: RowSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's clock is known from the last look, and clocks drift apart."""
    await begun(store, "r0")
    await ended(store, "r0")
    monkeypatch.setattr(loop, "_NEW_FOR", 0.0)
    place.rows.calls.clear()
    await begun(store, "r1")
    assert place.rows.calls == ["view", "commit"]


async def test_a_run_is_the_next_one_whoever_started_the_last(place: Apart, store: RowSessions) -> None:
    """Turns are numbered without gaps, also where two processes take turns."""
    other = place.another(recalls=True)
    for number, each in enumerate((store, other, store, store, other, other, store)):
        await begun(each, f"r{number}")
        await ended(each, f"r{number}")
    runs = (await store.list_runs("s")).items
    assert [(run.run_id, run.turn) for run in runs] == [(f"r{n}", n + 1) for n in reversed(range(7))]
    assert (await store.list_checkpoints("s")).total == 7


async def test_what_another_process_wrote_meanwhile_is_seen(place: Apart, store: RowSessions) -> None:
    """The revision has moved, so the commit is made on a look."""
    await begun(store)
    other = place.another()
    await other.merge_custom_state("s", MergeChanges(values={"theirs": 1}))
    await other.stage_changes("s", "r", StagedChange(tool_call_id="c", merge_changes={"tool": 1}))
    place.rows.calls.clear()
    assert (await ended(store)).promoted == 1
    assert place.rows.calls == ["commit", "view", "commit"]
    state = await store.load_state("s")
    assert state is not None
    assert state.custom_state == {"theirs": 1, "tool": 1, "r": 1}
    assert await store.list_staged("s") == []


async def test_a_repeat_gets_the_first_answer_whoever_asks(place: Apart, store: RowSessions) -> None:
    """Another attempt of the turn, elsewhere, has committed it since the run was recorded here."""
    await begun(store)
    first = await ended(place.another())
    assert await ended(store) == first
    with pytest.raises(IdempotencyConflictError):
        await store.save_state_and_promote_staging(
            "s", StateChange(steps=7), StepCommit(step_id="r", run_id="r")
        )


async def test_an_answer_that_was_lost_is_not_recalled(place: Apart, store: RowSessions) -> None:
    """The commit may have happened: only a look can tell."""
    await begun(store)
    place.rows.lose_answers = 1
    with pytest.raises(StoreUnavailableError):
        await ended(store)
    place.rows.calls.clear()
    await ended(store)
    assert place.rows.calls == ["view"]
    assert (await store.list_checkpoints("s")).total == 1


async def test_who_is_refused_is_refused_for_what_is_stored(place: Apart, store: RowSessions) -> None:
    """A newer open has the session; what was remembered knows nothing of it."""
    await begun(store, epoch=5)
    other = place.another()
    await other.merge_custom_state("s", MergeChanges(values={"a": 1}), epoch=6)
    with pytest.raises(FencedError):
        await ended(store, epoch=5)
    place.rows.calls.clear()
    with pytest.raises(FencedError):
        await ended(store, epoch=4)
    assert place.rows.calls == ["view"]


async def test_a_session_that_was_deleted_and_made_again_is_not_taken_for_the_old_one(
    place: Apart, store: RowSessions
) -> None:
    """Its revision goes on, and nothing of the run is left."""
    await begun(store)
    other = place.another()
    await other.delete_session("s")
    await other.create_session("s")
    result, _ = await store.save_state_and_promote_staging(
        "s", StateChange(steps=1), StepCommit(step_id="r", run_id="r")
    )
    state = await store.load_state("s")
    assert state is not None
    assert (result.new_version, state.custom_state, state.current_run_id) == (2, {}, None)


async def test_a_large_session_is_looked_at(
    place: Apart, store: RowSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is for many sessions, and a read costs little beside what a large one writes."""
    monkeypatch.setattr(loop, "MAX_BYTES", 100)
    await begun(store)
    place.rows.calls.clear()
    await ended(store)
    assert place.rows.calls == ["view", "commit"]


async def test_an_operation_that_was_just_remembered_is_known(store: RowSessions) -> None:
    """An id stands for one request: under that of the start, another change must not pass for a new one."""
    await begun(store, operation_id="o")

    with pytest.raises(IdempotencyConflictError):
        await store.update_run("s", "r", RunChange(status=RunStatus.FAILED), operation_id="o")

    run = await store.get_run("s", "r")
    assert run is not None
    assert run.status is RunStatus.RUNNING
    await begun(store, operation_id="o")
