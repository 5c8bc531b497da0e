"""The session store's part in a session, where threads lose turns, tools come late and others write too."""

import contextlib

import pytest

from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.runs import CutRun, give_up_run
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.tools import ToolRunner
from helix_temporal.agents import ToolOutcome, tool
from helix_temporal.errors import FencedError, StoreUnavailableError
from helix_temporal.models.base import JsonObject
from helix_temporal.models.checkpoints import JsonPatchOp, RunStatus, StagedChange
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import MergeChanges, SessionState, SessionStatus
from helix_temporal.models.steps import (
    SaveValuesInput,
    ToolInput,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.waiting import WaitingCall
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.sessions.store import RowSessions
from tests.unit._sync_scene import Scene


async def test_a_staged_patch_that_cannot_be_applied_does_not_keep_its_turn_from_counting() -> None:
    """The answer was paid for and is in the thread: what does not fit is left out, the rest counts."""
    scene = Scene()
    await scene.open()
    request = scene.request("r1")
    await scene.keeper.begin_run(request, scene.record)
    bad = StagedChange(tool_call_id="bad", patches=(JsonPatchOp(op="remove", path="/none"),))
    await scene.store.stage_changes("s", "r1", bad)
    await scene.store.stage_changes("s", "r1", StagedChange(tool_call_id="good", merge_changes={"x": 1}))
    appended = await scene.append("r1")
    values = (await scene.keeper.finish_turn(request, appended, scene.record)).values
    state = await scene.state()
    assert values == {"x": 1}
    assert (state.head, state.current_run_id, state.custom_state) == (appended.head, None, {"x": 1})
    assert (await scene.keeper.finish_turn(request, appended, scene.record)).values == {"x": 1}
    assert await scene.store.list_staged("s") == []


async def test_an_open_gets_past_a_staged_patch_that_cannot_be_applied() -> None:
    """Else every open of the session would fail for ever."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    bad = StagedChange(tool_call_id="bad", patches=(JsonPatchOp(op="remove", path="/none"),))
    await scene.store.stage_changes("s", "r1", bad)
    appended = await scene.append("r1")
    await scene.open()
    assert (await scene.state()).head == appended.head


async def test_an_abort_that_comes_after_the_commit_takes_the_state_back() -> None:
    """The thread is cut where the turn began, so the state must not hold what the turn changed."""
    scene = Scene()
    await scene.open()
    first = await scene.turn("r1", values={"k": 1}, changed=("k",))
    await scene.turn("r2", values={"k": 2}, changed=("k",))
    assert (await scene.state()).custom_state == {"k": 2}
    await scene.open(reopen=first.head, abandoned="r2")
    state = await scene.state()
    assert (state.head, state.custom_state) == (first.head, {"k": 1})


async def test_what_a_tool_staged_in_a_step_that_was_taken_back_is_dropped() -> None:
    """Its call is in no thread; the calls of the turn's earlier steps stand."""
    scene = Scene()
    await scene.open()
    first = await scene.turn("r1")
    await scene.keeper.begin_run(scene.request("r2"), scene.record)
    await scene.keeper.stage_changes(scene.tool("r2", first.head.position, "early"), {"early": 1})
    await scene.keeper.stage_changes(scene.tool("r2", first.head.position + 2, "late"), {"late": 1})
    await scene.open(reopen=first.head)
    await scene.turn("r2")
    assert (await scene.state()).custom_state == {"early": 1}


async def test_a_late_attempt_of_a_tool_stages_nothing() -> None:
    """Since then its session was opened again: the step that asked for it may be gone."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    late = scene.tool("r1", 2, epoch=scene.epoch)
    await scene.open(reopen=EMPTY)
    with pytest.raises(FencedError):
        await scene.keeper.stage_changes(late, {"x": 1})
    assert await scene.store.list_staged("s") == []


async def test_a_tool_stages_into_a_state_that_its_store_had_lost() -> None:
    """The tool has done its work: the model must not be told that it failed."""
    scene = Scene()
    await scene.open()
    first = await scene.turn("r1", values={"k": 1}, changed=("k",))
    await scene.store.delete_session("s")
    await scene.keeper.stage_changes(scene.tool("r2", first.head.position + 2, epoch=scene.epoch), {"x": 1})
    await scene.turn("r2")
    assert (await scene.state()).custom_state == {"k": 1, "x": 1}


async def test_a_state_that_was_lost_has_the_metadata_of_its_session_again() -> None:
    """Whoever asks next need not know them: lists by a tenant would lose the session."""
    scene = Scene()
    scene.record = scene.record.model_copy(update={"metadata": {"tenant": "acme"}})
    await scene.open()
    await scene.turn("r1")
    await scene.store.delete_session("s")
    await scene.open()
    assert (await scene.state()).metadata == {"tenant": "acme"}


async def test_the_state_of_an_imported_thread_has_the_agent_that_opens_it() -> None:
    """The record of an import names no agent, and lists by agent must find the session."""
    scene = Scene()
    scene.record = SessionRecord(values={"k": 1})
    await scene.open()
    state = await scene.state()
    assert (state.agent_type, state.custom_state) == ("main", {"k": 1})


async def test_the_end_of_a_session_keeps_what_others_merged() -> None:
    """The application's values are those it changed; what it never saw is not its to remove."""
    scene = Scene()
    await scene.open()
    await scene.turn("r1", values={"a": 1, "gone": 1}, changed=("a", "gone"))
    await scene.store.merge_custom_state("s", MergeChanges(values={"b": 2}))
    ended = SaveValuesInput(
        thread_id="s",
        epoch=scene.epoch,
        session_id="s",
        status="completed",
        values={"a": 3},
        changed=("a", "gone"),
    )
    await scene.keeper.save_end(ended)
    assert (await scene.state()).custom_state == {"a": 3, "b": 2}


async def test_a_turn_whose_run_was_superseded_leaves_nothing_staged() -> None:
    """Whoever died half way through a turn left changes that belong to no turn."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    await scene.keeper.stage_changes(scene.tool("r1", 2), {"x": 1})
    await scene.open()
    assert await scene.store.list_staged("s") == []


async def test_an_open_that_dies_as_it_tells_of_a_run_left_behind_tells_again() -> None:
    """A page would show the turn at work for ever: who is asked next knows only of runs under way."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    told: list[str] = []

    async def tell(run_id: str) -> None:
        told.append(run_id)
        if len(told) == 1:
            raise StoreUnavailableError("killed here")

    with pytest.raises(StoreUnavailableError):
        await scene.open(tell=tell)
    await scene.open(tell=tell)
    await scene.open(tell=tell)
    assert told == ["r1", "r1"]


async def test_a_tool_that_has_run_waits_for_a_store_that_is_away() -> None:
    """Its few attempts are over in a second, and each would do the tool's work again."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    ran: list[str] = []

    class Away(SessionSync):
        left = 2

        async def stage_changes(self, request: ToolInput, changes: JsonObject) -> str:
            """Away for two attempts."""
            self.left -= 1
            if self.left >= 0:
                raise StoreUnavailableError("the database is away")
            return await super().stage_changes(request, changes)

    @tool
    def act() -> ToolOutcome:
        """Do something."""
        ran.append("act")
        return ToolOutcome("done", state={"x": 1})

    keeper = Away(scene.store, scene.threads)
    runner = ToolRunner(scene.threads, Payloads(scene.backend.payloads), states=keeper)
    await runner.run(act, scene.tool("r1", 2, epoch=scene.epoch))
    assert ran == ["act"]
    assert [row.change.merge_changes for row in await scene.store.list_staged("s")] == [{"x": 1}]


async def test_a_state_that_is_too_large_to_travel_does_not_end_the_session() -> None:
    """Tools and others may fill it beyond what a step can carry: it is kept, and no longer shown."""
    scene = Scene()
    await scene.open()
    large = MergeChanges(values={"large": "x" * 100_000})
    await scene.store.merge_custom_state("s", large)
    request = scene.request("r1")
    await scene.keeper.begin_run(request, scene.record)
    await scene.keeper.stage_changes(scene.tool("r1", 2), {"x": 1})
    appended = await scene.append("r1")
    assert (await scene.keeper.finish_turn(request, appended, scene.record)).values is None
    assert set((await scene.state()).custom_state) == {"large", "x"}


async def test_a_commit_of_an_old_epoch_does_not_slip_in_while_the_state_is_opened() -> None:
    """The thread was cut already, and what the late attempt commits is in no thread."""
    scene = Scene()
    await scene.open()
    first = await scene.turn("r1", values={"k": 1}, changed=("k",))
    request = scene.request("r2")
    await scene.keeper.begin_run(request, scene.record)
    appended = await scene.append("r2", values={"k": 2}, changed=("k",))
    late, record = scene.keeper, scene.record

    class Slow(RowSessions):
        async def load_state(self, session_id: str) -> SessionState | None:
            """The late attempt commits just after the look."""
            found = await super().load_state(session_id)
            with contextlib.suppress(FencedError):
                await late.finish_turn(request, appended, record)
            return found

    scene.keeper = SessionSync(Slow(scene.backend.sessions), scene.threads)
    await scene.open(reopen=first.head, abandoned="r2")
    state = await scene.state()
    assert (state.head, state.custom_state) == (first.head, {"k": 1})


async def test_a_step_that_asks_too_late_leaves_no_question_behind() -> None:
    """Its session was cancelled meanwhile: nobody waits for the answer, and nobody may open it again."""
    scene = Scene()
    await scene.open()
    request = scene.request("r1")
    await scene.keeper.begin_run(request, scene.record)
    asks = Message(id="asks", role="assistant", tool_calls=(ToolCall(id="c", name="ask_user", arguments={}),))
    head, waiting = Head(position=2, last_id="asks"), (WaitingCall(id="q", since=1),)
    await scene.keeper.suspended.save_waiting("s", scene.epoch, "r1", asks, head, waiting)
    ends = SaveValuesInput(
        thread_id="s", session_id="s", epoch=scene.epoch, values=None, status="interrupted", ends_run=True
    )
    await scene.keeper.save_end(ends)
    state = await scene.state()
    assert (state.status, state.pending_client_tool_calls) == (SessionStatus.INTERRUPTED, {})
    with pytest.raises(FencedError):
        await scene.keeper.suspended.save_waiting("s", scene.epoch, "r1", asks, head, waiting)


async def test_a_run_is_live_until_it_has_ended() -> None:
    """Also one that this store never heard of: it may have lost it."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    assert await scene.keeper.is_live("s", "r1")
    assert await scene.keeper.is_live("s", "unknown")
    await give_up_run(scene.store, CutRun("s", "r1", RunStatus.SUPERSEDED, scene.epoch, "support"))
    assert not await scene.keeper.is_live("s", "r1")


async def test_a_state_does_not_follow_a_thread_that_went_back_since_it_was_opened() -> None:
    """What the state stands at was taken for cut, since an older copy of the thread does not have it."""
    scene = Scene()
    await scene.open()
    before = scene.backend.threads.backup()
    await scene.turn("r1", values={"a": 1})
    stands = await scene.state()
    await scene.append("r2")
    with pytest.raises(StoreUnavailableError, match="it is opened again"):
        await scene.open(thread_then=before)
    assert (await scene.state()).head == stands.head
