"""Each turn is counted once: also one that never began its run, and one that is run again."""

import pytest

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.agents import Agent, AgentRegistry, ModelResponse, ScriptedModel
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import Backlog, TieredThreads
from helix_temporal.errors import ColdTierBehindError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import RunStepInput, SaveValuesInput, StepInput
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.telemetry import metrics
from helix_temporal.testing.faults import BlobFault, FaultyBlobs
from tests.unit._sync_scene import Scene


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Outcomes of the turns that were counted."""
    found: list[str] = []
    monkeypatch.setattr(metrics, "record_turn", lambda _agent, outcome, _since: found.append(outcome))
    monkeypatch.setattr(metrics, "find_meter", object)
    monkeypatch.setattr(metrics._Listening, "is_on", False)
    return found


async def test_a_turn_that_is_run_again_is_counted_at_its_end_alone(counted: list[str]) -> None:
    """A wiped hot tier makes all turns run again, and none of them fails."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    await scene.keeper.begin_run(scene.request("r1.1"), scene.record)
    assert counted == []
    await scene.keeper.begin_run(scene.request("r2"), scene.record)
    assert counted == [RunStatus.SUPERSEDED]


async def test_an_aborted_turn_that_had_not_begun_its_run_is_counted(counted: list[str]) -> None:
    """Its message could not be used, so there was no model call."""
    scene = Scene()
    await scene.open()
    await scene.open(reopen=scene.head, abandoned="r1")
    assert counted == [RunStatus.ABORTED]


async def test_an_aborted_turn_that_had_begun_is_counted_once(counted: list[str]) -> None:
    """By its run."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    await scene.open(reopen=scene.head, abandoned="r1")
    await scene.open(reopen=scene.head, abandoned="r1")
    assert counted == [RunStatus.ABORTED]


async def test_a_turn_that_is_aborted_after_its_end_is_counted_by_its_step(counted: list[str]) -> None:
    """Its answer stays in the thread."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    await scene.append("r1")
    await scene.open_again(turn_start=EMPTY, abandoned="r1")
    await scene.open_again(turn_start=EMPTY, abandoned="r2")  # which had not begun its run
    assert counted == []


@pytest.mark.parametrize(("is_whole", "expected"), [(True, []), (False, [RunStatus.INTERRUPTED])])
async def test_a_turn_that_is_cut_after_its_end_is_counted_by_its_step(
    counted: list[str], is_whole: bool, expected: list[str]
) -> None:
    """The answer is in the thread and the state is not yet committed, when somebody cancels."""
    scene = Scene()
    await scene.open()
    await scene.keeper.begin_run(scene.request("r1"), scene.record)
    if is_whole:
        await scene.append("r1")
    ended = SaveValuesInput(
        session_id="s", thread_id="s", epoch=scene.epoch, status=SessionStatus.INTERRUPTED, ends_run=True
    )
    await scene.keeper.save_end(ended)
    assert counted == expected


def first_step(text: str, head: Head) -> RunStepInput:
    """The first step of a turn."""
    inputs = (StepInput(id=text, text=text),)
    return RunStepInput(session_id="s", agent="main", epoch=1, head=head, inputs=inputs)


async def test_a_turn_that_is_refused_while_the_archive_is_away_is_counted_each_time(
    counted: list[str],
) -> None:
    """A board shows that nobody is served; its messages may wait, and have a turn of their own later."""
    blobs = FaultyBlobs(MemoryBlobs())
    threads = TieredThreads(MemoryThreads(), blobs, backlog=Backlog(max_bytes=1))
    model = ScriptedModel([ModelResponse(content="so"), ModelResponse(content="so")])
    stepper = Stepper(threads, AgentRegistry([Agent(name="main", model=model)]), Payloads(MemoryPayloads()))
    head = (await threads.open(OpenThread("s", 1, "o"))).header.head
    blobs.plan = lambda _: BlobFault.ERROR_BEFORE
    head = (await stepper.run(first_step("one", head))).head
    for _ in range(2):
        with pytest.raises(ColdTierBehindError):
            await stepper.run(first_step("two", head))
    blobs.plan = None
    await stepper.run(first_step("two", head))
    assert counted == ["completed", "refused", "refused", "completed"]
