"""A state that was restored turns behind its thread is brought forward, or what is missing is said."""

from typing import Any

from helix_temporal.models.checkpoints import StagedChange
from helix_temporal.models.sessions import Receipt
from helix_temporal.models.states import MergeChanges
from helix_temporal.models.steps import RunStepInput
from helix_temporal.session.record import _changes_after_step
from tests.unit._sync_scene import Scene


def step_of(scene: Scene, run_id: str, values: dict[str, Any]) -> dict[str, Any]:
    """What the slice says after the application has changed these values; None removes one."""
    merged = {**scene.record.values, **values}
    now = {key: value for key, value in merged.items() if value is not None}
    request = RunStepInput(
        session_id="s", agent="main", epoch=scene.epoch, head=scene.head, inputs=(), run_id=run_id
    )
    changes = _changes_after_step(scene.record, request, scene.head.position, tuple(values), now)
    return {"values": now, "changed": tuple(values), "changes": changes}


async def said(scene: Scene, run_id: str, **values: Any) -> None:
    """A whole turn before which the application changes these values."""
    await scene.turn(run_id, **step_of(scene, run_id, values))


async def begun() -> Scene:
    """A session of one turn, in which ``a`` became 1."""
    scene = Scene()
    await scene.open()
    await said(scene, "r1", a=1, gone=1)
    return scene


def only(notes: tuple[Receipt, ...]) -> Receipt:
    (note,) = notes
    return note


async def test_an_open_brings_a_restored_state_forward_whole() -> None:
    """Three turns were lost with the database; what each of them changed is in the thread's slice."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2", b=2)
    await said(scene, "r3", gone=None)
    await said(scene, "r4", c=4)
    scene.restore(backup)
    note = only(await scene.open())
    state = await scene.state()
    assert (state.head, state.custom_state) == (scene.head, {"a": 1, "b": 2, "c": 4})
    assert state.step_count == 4
    assert note.ok
    assert "3 turns" in note.detail
    assert await scene.open() == ()


async def test_what_the_backup_has_from_others_stays() -> None:
    """The session writes what its turns changed since, and nothing that it only knows."""
    scene = await begun()
    await scene.store.merge_custom_state("s", MergeChanges(values={"a": 7, "theirs": 1}))
    backup = scene.backup()
    await said(scene, "r2", b=2)
    await said(scene, "r3")
    scene.restore(backup)
    await scene.open()
    assert (await scene.state()).custom_state == {"a": 7, "theirs": 1, "gone": 1, "b": 2}


async def test_a_session_that_goes_on_over_a_restored_store_is_brought_forward_by_its_next_turn() -> None:
    """Nobody opens it meanwhile: the commit itself must see that the state is not the one it builds on."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2", b=2)
    await said(scene, "r3", c=3)
    scene.restore(backup)
    request = scene.request("r4")
    await scene.keeper.begin_run(request, scene.record)
    appended = await scene.append("r4", **step_of(scene, "r4", {"d": 4}))
    finished = await scene.keeper.finish_turn(request, appended, scene.record)
    state = await scene.state()
    assert state.custom_state == {"a": 1, "gone": 1, "b": 2, "c": 3, "d": 4}
    assert (state.head, state.step_count, state.current_run_id) == (scene.head, 4, None)
    assert only(finished.notes).ok
    again = await scene.keeper.finish_turn(request, appended, scene.record)
    assert again.notes == ()


async def test_turns_whose_changes_are_not_known_are_counted_in_the_receipts() -> None:
    """A thread from before changes were kept: the open goes on, and says what it could not know."""
    scene = await begun()
    backup = scene.backup()
    for number in (2, 3, 4):
        await scene.turn(f"r{number}", values={"n": number}, changed=("n",), changes=None)
    scene.restore(backup)
    note = only(await scene.open())
    assert (await scene.state()).custom_state == {"a": 1, "gone": 1, "n": 4}
    assert not note.ok
    assert note.detail.startswith("StateBehindThreadError: ")
    assert "3 turns" in note.detail
    assert "what 2 of them changed" in note.detail


async def test_changes_beyond_the_bound_are_counted_in_the_receipts() -> None:
    """What is known of them is brought forward all the same."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2", b=2)
    await said(scene, "r3", c=3)
    assert scene.record.changes is not None
    forgotten = scene.record.changes.model_copy(update={"since": 4, "at": {"c": 4}})
    scene.record = scene.record.model_copy(update={"changes": forgotten})
    await said(scene, "r4")
    scene.restore(backup)
    note = only(await scene.open())
    assert (await scene.state()).custom_state == {"a": 1, "gone": 1, "c": 3}
    assert not note.ok
    assert "what 1 of them changed" in note.detail


async def test_what_tools_of_the_newest_turn_changed_is_missed_where_the_store_has_lost_it() -> None:
    """No values have it yet: only the next turn would have brought them."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2")
    changed = step_of(scene, "r3", {})
    staged = changed["changes"].model_copy(update={"staged": ("name",)})
    await scene.turn("r3", **{**changed, "changes": staged})
    scene.restore(backup)
    note = only(await scene.open())
    assert "what 1 of them changed" in note.detail


async def test_what_tools_staged_and_the_store_still_has_is_promoted_once() -> None:
    """A list that a tool adds to must not be added to twice."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2", b=2)
    scene.restore(backup)
    request = scene.request("r3")
    await scene.keeper.begin_run(request, scene.record)
    await scene.store.stage_changes(
        "s", "r3", StagedChange(tool_call_id="c", merge_changes={"list": [1]}, result="name")
    )
    changed = step_of(scene, "r3", {})
    staged = changed["changes"].model_copy(update={"staged": ("name",)})
    appended = await scene.append("r3", **{**changed, "changes": staged})
    finished = await scene.keeper.finish_turn(request, appended, scene.record)
    assert only(finished.notes).ok
    assert finished.values == {"a": 1, "gone": 1, "b": 2, "list": [1]}


async def test_a_turn_that_was_cut_changes_nothing_of_a_state_that_is_brought_forward() -> None:
    """It is not in the thread, though the slice still names its changes."""
    scene = await begun()
    backup = scene.backup()
    await said(scene, "r2", b=2)
    head = scene.head
    await said(scene, "r3", c=3)
    scene.restore(backup)
    scene.epoch += 1
    await scene.open(reopen=head)
    await scene.open()
    state = await scene.state()
    assert (state.head, state.custom_state) == (head, {"a": 1, "gone": 1, "b": 2})


async def test_a_commit_that_was_lost_alone_is_no_news() -> None:
    """The worker died between thread and state, as workers do: nothing had to be put right."""
    scene = await begun()
    await scene.keeper.begin_run(scene.request("r2"), scene.record)
    await scene.append("r2", **step_of(scene, "r2", {"b": 2}))
    assert await scene.open() == ()
    assert (await scene.state()).custom_state == {"a": 1, "gone": 1, "b": 2}


async def test_a_state_that_was_made_again_lacks_nothing() -> None:
    """Its store was wiped: it is made from the slice, which is no state of an earlier turn."""
    scene = await begun()
    await said(scene, "r2", b=2)
    scene.backend.sessions.clear()
    request = scene.request("r3")
    await scene.keeper.begin_run(request, scene.record)
    appended = await scene.append("r3", **step_of(scene, "r3", {"c": 3}))
    assert (await scene.keeper.finish_turn(request, appended, scene.record)).notes == ()
    assert (await scene.state()).custom_state == {"a": 1, "gone": 1, "b": 2, "c": 3}
