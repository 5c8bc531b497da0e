"""A step's commit that is broken off somewhere, and what must be true then."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.checkpoints import CommitResult, RunChange, RunStatus
from helix_temporal.models.messages import Message
from helix_temporal.models.states import MergeChanges, SessionState, StateChange
from helix_temporal.models.store_calls import AppendResult
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    changed,
    checkpoints_of,
    commits,
    image,
    loaded,
    messages_of,
    patch,
    staged,
    started,
    step,
    talk,
)
from helix_temporal.testing.contracts._sessions_commit import an_append
from helix_temporal.testing.contracts.session_store import OpenSessions

SEEDS = 5


@dataclass
class Faults:
    """Counts the points that a call passes, and breaks off at one of them.

    Attributes:
        armed: The point at which `at` fails, from 1; 0 for none.
        act: What happens there instead of an error.
    """

    armed: int = 0
    passed: int = 0
    act: Callable[[], Awaitable[None]] | None = None
    broken: bool = False

    def arm(self, point: int) -> None:
        """Break off at this point of what comes next."""
        self.armed, self.passed, self.broken = point, 0, False

    async def at(self, where: str) -> None:
        """A point of a call.

        Raises:
            StoreUnavailableError: This is the point.
        """
        self.passed += 1
        if self.passed != self.armed:
            return
        self.broken = True
        if self.act is None:
            raise StoreUnavailableError(f"broken off {where}, at point {self.passed}")
        await self.act()


@dataclass
class Story:
    """One commit, made of a seed: what there is before it, and what it changes."""

    seed: int
    session_id: str
    custom: dict[str, Any] = field(init=False)
    changes: int = field(init=False)
    messages: list[Message] = field(init=False)
    run: RunChange | None = field(init=False)
    operation_id: str | None = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.custom = {"text": "x" * chance.choice([0, 100, 20_000]), "seed": self.seed}
        self.changes = chance.choice([0, 1, 3])
        self.messages = talk(chance.choice([2, 4, 20]), "new-")
        ends = RunChange(status=RunStatus.COMPLETED, completion_reason="completed")
        self.run = chance.choice([None, RunChange(step_count=3), ends])
        self.operation_id = chance.choice([None, "operation"])

    async def prepare(self, opened: OpenSessions) -> "Attempt":
        """Make the session in which the commit will be made."""
        store = opened.sessions
        await store.create_session(self.session_id)
        await store.append_messages(self.session_id, talk(2))
        await commits(store, self.session_id, 1, first=100)
        await started(store, self.session_id, "run-1")
        for n in range(self.changes):
            change = staged(f"call-{n}", patch("add", f"/tool-{n}", n), at=n)
            await store.stage_changes(self.session_id, "step-1", change)
        state = await loaded(store, self.session_id)
        append = await an_append(opened.threads, self.session_id, *self.messages)
        return Attempt(self, state, append, await image(store, self.session_id))


@dataclass
class Attempt:
    """The same commit each time it is made."""

    story: Story
    state: SessionState
    append: StepAppend
    before: tuple[object, ...]

    async def commit(self, store: SessionStore) -> CommitResult:
        """Make it."""
        after = changed(self.state, step_count=7, custom_state=self.story.custom)
        result, _ = await store.save_state_and_promote_staging(
            self.story.session_id,
            after,
            step(stream_sequence=5),
            append=self.append,
            run=self.story.run,
            operation_id=self.story.operation_id,
        )
        return result

    async def happened(self, store: SessionStore) -> bool:
        """Whether all of it is there; False if nothing is.  Anything else is a failure."""
        session_id = self.story.session_id
        if await image(store, session_id) == self.before:
            return False
        found = await loaded(store, session_id)
        tools = {f"tool-{n}": n for n in range(self.story.changes)}
        assert found.custom_state == {**self.story.custom, **tools}
        assert (found.version, found.step_count) == (self.state.version + 1, 7)
        assert await messages_of(store, session_id) == talk(2) + self.story.messages
        assert found.head.position == 2 + len(self.story.messages)
        assert await store.list_staged(session_id) == []
        checkpoints = await checkpoints_of(store, session_id)
        assert len(checkpoints) == 2
        checkpoint = await store.get_checkpoint(session_id, checkpoints[-1])
        assert checkpoint is not None
        assert checkpoint.state == found
        await self._check_run(store)
        return True

    async def _check_run(self, store: SessionStore) -> None:
        run = await store.get_run(self.story.session_id, "run-1")
        assert run is not None
        change = self.story.run or RunChange()
        assert run.status == (change.status or RunStatus.RUNNING)
        assert run.step_count == (change.step_count or 0)
        current = await store.get_current_run(self.story.session_id)
        assert (current is None) == (change.status is RunStatus.COMPLETED)

    async def check_after(self, store: SessionStore, *, together: bool = True) -> None:
        """All or nothing, where state and messages lie together; then the repeat: one effect."""
        there = together and await self.happened(store)
        first = (await checkpoints_of(store, self.story.session_id))[1:]
        result = await self.commit(store)
        assert await self.happened(store)
        (made,) = (await checkpoints_of(store, self.story.session_id))[1:]
        assert (result.checkpoint_id, result.new_version) == (made, self.state.version + 1)
        assert result.promoted == self.story.changes
        assert not there or first == [made]
        assert await self.commit(store) == result


@dataclass
class AppendStory:
    """One append that changes the state, made of a seed."""

    seed: int
    session_id: str
    change: StateChange = field(init=False)
    messages: list[Message] = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.messages = talk(chance.choice([1, 2, 20]), "new-")
        self.change = StateChange(
            title=f"title {self.seed}",
            metadata=MergeChanges(values={"seed": self.seed}),
            merge=MergeChanges(appends={"log": ["x" * chance.choice([0, 100, 20_000])]}),
        )

    async def prepare(self, opened: OpenSessions) -> "AppendAttempt":
        """Make the session to which messages will be appended."""
        store = opened.sessions
        await store.create_session(self.session_id)
        await store.append_messages(self.session_id, talk(2))
        return AppendAttempt(self, await image(store, self.session_id))


@dataclass
class AppendAttempt:
    """The same append each time it is made."""

    story: AppendStory
    before: tuple[object, ...]

    async def commit(self, store: SessionStore) -> AppendResult:
        """Make it."""
        story = self.story
        return await store.append_messages(
            story.session_id, story.messages, change=story.change, operation_id="operation"
        )

    async def happened(self, store: SessionStore) -> bool:
        """Whether all of it is there; False if nothing is.  Anything else is a failure."""
        story = self.story
        if await image(store, story.session_id) == self.before:
            return False
        found = await loaded(store, story.session_id)
        assert story.change.merge is not None
        assert (found.title, found.metadata) == (story.change.title, {"seed": story.seed})
        assert (found.custom_state, found.version) == (story.change.merge.appends, 2)
        assert await messages_of(store, story.session_id) == talk(2) + story.messages
        return True

    async def check_after(self, store: SessionStore, *, together: bool = True) -> None:
        """All or nothing, where state and messages lie together; then the repeat: one effect."""
        if together:
            await self.happened(store)
        result = await self.commit(store)
        assert await self.happened(store)
        assert (result.first_index, result.new_version) == (2, 2)
        assert await self.commit(store) == result
        assert await self.happened(store)


AnyStory = type[Story] | type[AppendStory]
STORIES: tuple[AnyStory, ...] = (Story, AppendStory)


async def break_everywhere(
    clean: OpenSessions,
    broken: SessionStore,
    faults: Faults,
    seed: int,
    *,
    together: bool = True,
    story: AnyStory = Story,
) -> int:
    """Break the commit off at each of its points in turn, in a session of its own; how many points.

    Until one passes whole: how many there are can't be counted in advance, as the rules may repeat a call.
    """
    point = 0
    while True:
        point += 1
        faults.arm(0)
        attempt = await story(seed, f"{story.__name__}{seed}-{point}").prepare(clean)
        faults.arm(point)
        try:
            await attempt.commit(broken)
        except StoreUnavailableError:
            assert faults.broken
        else:
            # The rules may have repeated what was broken off.
            assert await attempt.happened(clean.sessions)
        broken_off = faults.broken
        faults.arm(0)
        await attempt.check_after(clean.sessions, together=together or not broken_off)
        if not broken_off:
            return point - 1
