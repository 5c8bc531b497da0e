"""A request to take turns back whose open fails, at any call that it makes, is carried out once."""

import dataclasses
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import SessionActivities, StepLimits, Stepper
from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.rewinds import TakeBacks
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.agents import Agent, AgentRegistry, ScriptedModel
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.client._updates import root_error
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import ArchiveAccessError
from helix_temporal.models.handles import PlanTakeBackInput, PlanTakeBackResult, TakeBackRequest
from helix_temporal.models.messages import decode_message
from helix_temporal.models.sessions import CallPolicy, RewindResult
from helix_temporal.models.states import MergeChanges
from helix_temporal.models.steps import (
    OpenSessionInput,
    OpenSessionResult,
    ReopenHeads,
    RunStepInput,
    StepInput,
)
from helix_temporal.models.stored_messages import Head, Kind
from helix_temporal.session.inbox import Inbox
from helix_temporal.session.rewinds import PendingRewind
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.sessions.store import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.workflows.opening import CurrentThread, reopen_thread
from helix_temporal.workflows.rewinds import carry_out_rewind

PARROT = Agent(name="parrot", model=ScriptedModel(lambda request: request.messages[-1].text))
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MOST_CALLS = 200


class Breaks:
    """Lets the call of a number fail for good, before its effect or after it."""

    def __init__(self) -> None:
        self.left, self.after, self.hit = -1, False, False

    def arm(self, number: int, *, after: bool) -> None:
        """From now on."""
        self.left, self.after, self.hit = number, after, False

    def around(self, inner: Any) -> Any:
        """The store, failing; what it gives that is no call of one answer is let alone."""
        return _Breaking(self, inner)

    async def call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        """One call of a store."""
        self.left -= 1
        if self.left != -1:
            return await method(*args, **kwargs)
        self.hit = True
        if self.after:
            await method(*args, **kwargs)
        raise ArchiveAccessError("broken on purpose")


class _Breaking:
    def __init__(self, breaks: Breaks, inner: Any) -> None:
        self._breaks, self._inner = breaks, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in {"list", "scan"}:
            return found
        return lambda *args, **kwargs: self._breaks.call(found, *args, **kwargs)


class Scene:
    """A session's activities over stores that break, and its workflow's part in taking turns back."""

    def __init__(self, *, tiered: bool) -> None:
        backend, self.breaks = MemoryBackend(), Breaks()
        hot = self.breaks.around(MemoryThreads())
        blobs = self.breaks.around(MemoryBlobs())
        self.threads: ThreadStore = TieredThreads(hot, blobs) if tiered else HotThreads(hot)
        self.store = RowSessions(self.breaks.around(backend.sessions))
        agents, payloads = AgentRegistry([PARROT]), Payloads(MemoryPayloads())
        states = SessionSync(self.store, self.threads)
        stepper = Stepper(self.threads, agents, payloads, StepLimits(), states=states)
        self.sessions = SessionActivities(
            self.threads, agents, stepper, CallPolicy(), payloads, states=states
        )
        self.take_backs = TakeBacks(self.threads, payloads, self.store)
        self.talk: CurrentThread | None = None
        self.inbox, self.turns, self._clock = Inbox(), 0, itertools.count(1)

    # -- what the workflow calls

    async def _run(self, method: Any, request: Any) -> Any:
        environment = ActivityEnvironment()
        now = BEGAN + timedelta(seconds=next(self._clock))
        environment.info = dataclasses.replace(environment.info, scheduled_time=now)
        try:
            return await environment.run(method, request)
        except ApplicationError as error:
            raise root_error(error) from error

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """The activity."""
        opened: OpenSessionResult = await self._run(self.sessions.open, request)
        return opened

    async def plan_take_back(self, request: PlanTakeBackInput) -> PlanTakeBackResult:
        """The activity."""
        plan: PlanTakeBackResult = await self._run(self.take_backs.plan_take_back, request)
        return plan

    # -- a session

    async def begin(self, owner: str = "run-1") -> None:
        """A new execution, which knows nothing of those before."""
        request = OpenSessionInput(session_id="s", thread_id="s", agent="parrot", owner=owner)
        opened = await self.open(request)
        self.talk, self.inbox = CurrentThread(request, opened.handle, opened.facts), Inbox()

    @property
    def open_talk(self) -> CurrentThread:
        """What the present execution knows of its thread."""
        assert self.talk is not None
        return self.talk

    async def turn(self, text: str | None = None, *, message_id: str | None = None) -> None:
        """One that sets ``k`` in the state to its number, and says it."""
        self.turns += 1
        talk, name = self.open_talk, message_id or f"m{self.turns}"
        step = RunStepInput(
            session_id="s",
            agent="parrot",
            epoch=talk.handle.epoch,
            head=talk.head,
            inputs=(StepInput(id=name, text=text or f"turn {self.turns}"),),
            run_id=f"run-{self.turns}",
            values={"k": self.turns},
        )
        talk.note_step(await self._run(self.sessions.run_step, step))

    async def open_again(self) -> None:
        """As a turn does whose step finds another epoch."""
        head = self.open_talk.head
        calls: Any = self
        await reopen_thread(calls, self.open_talk, ReopenHeads(head=head, turn_start=head))

    async def ask(self, request: TakeBackRequest) -> RewindResult:
        """Take turns back as the workflow does."""
        rewind, calls = PendingRewind(request, seed=0), self
        await carry_out_rewind(calls, self.open_talk, self.inbox, rewind)  # type: ignore[arg-type]
        assert isinstance(rewind.result, RewindResult)
        return rewind.result

    async def users(self) -> list[str]:
        """What users said, in the finished turns."""
        page = await self.threads.read(ReadPage("s", limit=1000))
        return [decode_message(each).text for each in page.messages if each.kind == Kind.USER]

    async def state(self) -> tuple[dict[str, Any], Head]:
        """What the session store holds."""
        state = await self.store.load_state("s")
        assert state is not None
        return dict(state.custom_state), state.head

    async def head(self) -> Head:
        """Where the thread stands."""
        return (await self.threads.read_facts("s")).head


async def a_scene(*, tiered: bool) -> Scene:
    """Three turns, then somebody else changes the state."""
    scene = Scene(tiered=tiered)
    await scene.begin()
    for _ in range(3):
        await scene.turn()
    await scene.store.merge_custom_state("s", MergeChanges(values={"k": "changed since"}))
    return scene


async def checkpoint(scene: Scene, number: int) -> str:
    """The id of a turn's checkpoint."""
    page = await scene.store.list_checkpoints("s", limit=10)
    return page.items[3 - number].id


async def rewind(scene: Scene) -> TakeBackRequest:
    return TakeBackRequest(id="op", turns=-1)


async def restore(scene: Scene) -> TakeBackRequest:
    return TakeBackRequest(id="op", checkpoint=await checkpoint(scene, 2))


async def restore_here(scene: Scene) -> TakeBackRequest:
    return TakeBackRequest(id="op", checkpoint=await checkpoint(scene, 3))


async def regenerate(scene: Scene) -> TakeBackRequest:
    return TakeBackRequest(id="op", turns=-1, again=True)


TIERS = pytest.mark.parametrize("tiered", [False, True], ids=["one tier", "two tiers"])
AFTER = pytest.mark.parametrize("after", [False, True], ids=["nothing happened", "the answer was lost"])
KINDS = pytest.mark.parametrize("kind", [rewind, restore, restore_here, regenerate])


@TIERS
@KINDS
@pytest.mark.parametrize(
    ("after", "dies"),
    [(False, False), (True, True)],
    ids=["nothing happened, asked again", "the answer was lost, asked again of another execution"],
)
async def test_a_request_whose_open_fails_is_carried_out_once(
    tiered: bool, after: bool, kind: Any, dies: bool
) -> None:
    """Whichever call fails: the retry gives the first answer, and thread and state are where it says."""
    whole = await a_scene(tiered=tiered)
    wanted = await whole.ask(await kind(whole))
    expected = (await whole.users(), await whole.state())
    assert (wanted.done, expected[1][1]) == (True, await whole.head())
    number = 0
    for number in range(MOST_CALLS):
        scene = await a_scene(tiered=tiered)
        request = await kind(scene)
        scene.breaks.arm(number, after=after)
        failed = await scene.ask(request)
        if not scene.breaks.hit:
            break
        if dies:
            await scene.begin("run-2")
        again = await scene.ask(request) if dies or not failed.done else failed
        assert (again.done, again.head.position) == (True, wanted.head.position), number
        assert len(getattr(again, "messages", ())) == len(getattr(wanted, "messages", ())), number
        assert (await scene.users(), (await scene.state())[0]) == (expected[0], expected[1][0]), number
        assert (await scene.state())[1] == await scene.head() == scene.open_talk.head, number
        assert await scene.ask(request) == again, number
        await scene.turn("goes on")
        assert await scene.users() == [*expected[0], "goes on"], number
    assert 5 < number < MOST_CALLS - 1


@TIERS
@AFTER
@pytest.mark.parametrize("kind", [rewind, restore])
async def test_a_turn_between_the_failure_and_the_retry_stays(tiered: bool, after: bool, kind: Any) -> None:
    """Others talk to the session meanwhile: what was taken back is gone, and the retry takes nothing more."""
    number = 0
    for number in range(MOST_CALLS):
        scene = await a_scene(tiered=tiered)
        request = await kind(scene)
        scene.breaks.arm(number, after=after)
        await scene.ask(request)
        if not scene.breaks.hit:
            break
        await scene.open_again()
        was_cut = len(await scene.users()) < 3
        state = (await scene.state())[0]
        assert state == ({"k": 2} if was_cut else {"k": "changed since"}), number
        await scene.turn("between")
        again = await scene.ask(request)
        assert again.done, number
        if was_cut:
            assert await scene.users() == ["turn 1", "turn 2", "between"], number
    assert 5 < number < MOST_CALLS - 1


@TIERS
async def test_a_state_that_has_gone_back_is_not_brought_back_again(tiered: bool) -> None:
    """What was changed after a restore counts, however often the session is opened."""
    scene = await a_scene(tiered=tiered)
    await scene.ask(await restore_here(scene))
    assert (await scene.state())[0] == {"k": 3}
    await scene.store.merge_custom_state("s", MergeChanges(values={"k": "changed after"}))
    await scene.begin("run-2")
    await scene.open_again()
    assert (await scene.state())[0] == {"k": "changed after"}


@TIERS
async def test_a_checkpoint_that_was_removed_does_not_keep_its_session_from_being_opened(
    tiered: bool,
) -> None:
    """The open that was to restore it died; meanwhile somebody pruned it."""
    scene = await a_scene(tiered=tiered)
    request = await restore(scene)
    scene.store.restore_checkpoint, kept = _refuse, scene.store.restore_checkpoint  # type: ignore[method-assign]
    assert not (await scene.ask(request)).done
    scene.store.restore_checkpoint = kept  # type: ignore[method-assign]
    await scene.store.prune_checkpoints("s", keep_last=1)
    await scene.begin("run-2")
    assert await scene.users() == ["turn 1", "turn 2"]
    assert (await scene.state())[1] == await scene.head()


async def _refuse(*_: Any, **__: Any) -> Any:
    raise ArchiveAccessError("broken on purpose")
