"""The commit of a step: state, staged changes, checkpoint, run and messages at once or not at all."""

import asyncio
import time
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    PatchConflictError,
    StaleStateError,
    StateBehindThreadError,
    StepClosedError,
)
from helix_temporal.models.checkpoints import RunChange, RunStatus, StepCommit
from helix_temporal.models.messages import Message, decode_message, encode_message
from helix_temporal.models.states import (
    MergeChanges,
    PendingClientToolCall,
    SessionState,
    SessionStatus,
    StateChange,
    SuspensionContext,
)
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.stores.protocols.hot import HotHeader, HotTier, StepAppend
from helix_temporal.stores.protocols.sessions import ANY_VERSION, SessionStore
from helix_temporal.testing.builders import a_header
from helix_temporal.testing.builders import opened as opened_thread
from helix_temporal.testing.contracts._sessions_base import (
    Crowd,
    OpenSessions,
    SessionFixtures,
    at_once,
    changed,
    checkpoints_of,
    commits,
    image,
    loaded,
    messages_of,
    of_type,
    patch,
    staged,
    started,
    step,
    talk,
)


async def a_thread(threads: HotTier, session_id: str) -> HotHeader:
    """An empty thread, as somebody opened it now."""
    header = replace(a_header(session_id), epoch=time.time_ns() // 1000)
    return await opened_thread(threads, session_id, header)


async def an_append(threads: HotTier, session_id: str, *messages: Message) -> StepAppend:
    """These messages as a step at the present head of the session's thread, made if it is not there."""
    header = await threads.read_header(session_id) or await a_thread(threads, session_id)
    stored = tuple(encode_message(each) for each in messages)
    return StepAppend(session_id, header.epoch, header.head, stored[:-1], stored[-1], commits=True)


class CommitContract(SessionFixtures):
    """The one way in which a step becomes part of a session."""

    @pytest.fixture
    async def threads(self, opened: OpenSessions) -> HotTier:
        """The threads that lie with the sessions."""
        return opened.threads

    @pytest.fixture
    async def ready(self, store: SessionStore, session_id: str) -> SessionState:
        """A session with two messages, a run, and two changes staged for step-1."""
        await store.create_session(session_id)
        await store.append_messages(session_id, talk(2))
        await started(store, session_id, "run-1")
        for n in range(2):
            await store.stage_changes(
                session_id, "step-1", staged(f"call-{n}", patch("add", f"/tool-{n}", n), at=n)
            )
        return await loaded(store, session_id)

    async def test_all_parts_are_visible_together(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """State, messages, custom state, checkpoint, run and an empty staging (case 44)."""
        new = talk(4)[2:]
        result, appended = await store.save_state_and_promote_staging(
            session_id,
            changed(ready, step_count=1, custom_state={"mine": 1}),
            step(stream_sequence=17),
            append=await an_append(threads, session_id, *new),
            run=RunChange(step_count=1, status=RunStatus.COMPLETED, completion_reason="completed"),
        )
        assert appended is not None
        assert [decode_message(each) for each in appended.messages] == new
        assert (result.new_version, result.promoted, result.warnings) == (ready.version + 1, 2, ())
        assert result.head == appended.head
        found = await loaded(store, session_id)
        assert (found.version, found.step_count, found.head) == (result.new_version, 1, appended.head)
        assert found.custom_state == {"mine": 1, "tool-0": 0, "tool-1": 1}
        assert await messages_of(store, session_id) == talk(4)
        assert await store.list_staged(session_id) == []
        run = await store.get_run(session_id, "run-1")
        assert run is not None
        assert (run.status, run.step_count, run.completion_reason) == (RunStatus.COMPLETED, 1, "completed")
        assert await store.get_current_run(session_id) is None
        checkpoint = await store.get_checkpoint(session_id, result.checkpoint_id)
        assert checkpoint is not None
        assert checkpoint.state == found
        assert (checkpoint.run_id, checkpoint.step_id, checkpoint.step_count) == ("run-1", "step-1", 1)
        assert (checkpoint.stream_sequence, checkpoint.head) == (17, appended.head)
        assert (checkpoint.version, checkpoint.seq) == (result.new_version, 1)
        assert checkpoint.promoted_tool_call_ids == ("call-0", "call-1")

    async def test_messages_are_committed_as_messages(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """Whoever has no thread of its own gives what it has: the store knows where they belong."""
        new = talk(4)[2:]
        state = changed(ready, step_count=1)
        result, appended = await store.save_state_and_promote_staging(session_id, state, step(), messages=new)
        assert appended is not None
        assert (result.head, result.promoted) == (appended.head, 2)
        assert (await loaded(store, session_id)).head == result.head
        assert await messages_of(store, session_id) == talk(4)

    async def test_repeated_messages_are_committed_once(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """Also after others have followed; other messages under the same step are another commit."""
        new, state = talk(4)[2:], changed(ready, step_count=1)
        commit = store.save_state_and_promote_staging
        first, _ = await commit(session_id, state, step(), messages=new)
        assert (await commit(session_id, state, step(), messages=new))[0] == first
        await store.append_messages(session_id, talk(6)[4:])
        assert (await commit(session_id, state, step(), messages=new))[0] == first
        assert await messages_of(store, session_id) == talk(6)
        with pytest.raises(IdempotencyConflictError):
            await commit(session_id, state, step(), messages=talk(8)[6:])
        assert await messages_of(store, session_id) == talk(6)

    async def test_messages_of_a_refused_commit_are_not_there(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """A stale writer leaves no trace."""
        await store.save_state(session_id, ready)
        with pytest.raises(StaleStateError):
            await store.save_state_and_promote_staging(session_id, ready, step(), messages=talk(4)[2:])
        assert await messages_of(store, session_id) == talk(2)

    async def test_the_first_messages_of_a_session_make_its_thread(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Nobody has to open one first."""
        await store.create_session(session_id)
        await started(store, session_id, "run-1")
        change = StateChange(steps=1)
        result, _ = await store.save_state_and_promote_staging(session_id, change, step(), messages=talk(2))
        assert (await loaded(store, session_id)).head == result.head
        assert await messages_of(store, session_id) == talk(2)

    async def test_messages_of_many_commits_follow_each_other(
        self, store: SessionStore, crowd: Crowd, session_id: str
    ) -> None:
        """All are there, each step's together, whoever came between look and commit."""
        await store.create_session(session_id)
        pairs = [
            [Message(id=f"{n}-{side}", role=side, content="x") for side in ("user", "assistant")]
            for n in range(8)
        ]
        outcomes = await at_once(
            next(crowd).save_state_and_promote_staging(
                session_id, StateChange(steps=1), StepCommit(step_id=f"s{n}"), messages=pair
            )
            for n, pair in enumerate(pairs)
        )
        assert [each for each in outcomes if isinstance(each, BaseException)] == []
        found = await messages_of(store, session_id)
        got = [[found[at], found[at + 1]] for at in range(0, 16, 2)]
        assert sorted(got, key=lambda pair: pair[0].id) == pairs
        assert (await loaded(store, session_id)).step_count == 8

    async def test_append_and_messages_exclude_each_other(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Which of them would come first is nobody's guess."""
        append = await an_append(threads, session_id, *talk(4)[2:])
        with pytest.raises(InvalidRequestError, match="append and messages"):
            await store.save_state_and_promote_staging(
                session_id, ready, step(), append=append, messages=talk(4)[2:]
            )

    async def test_staged_changes_may_be_left_out(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """A suspended step keeps them for the commit that ends it (case 44)."""
        result, _ = await store.save_state_and_promote_staging(session_id, ready, step(promote=False))
        assert result.promoted == 0
        assert (await loaded(store, session_id)).custom_state == {}
        assert len(await store.list_staged(session_id, "step-1")) == 2

    async def test_a_commit_without_messages_needs_no_thread(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Threads may lie elsewhere (case 44)."""
        state = await store.create_session(session_id)
        result, appended = await store.save_state_and_promote_staging(session_id, state, step())
        assert appended is None
        assert result.new_version == 2

    async def test_a_change_that_builds_on_turns_that_the_state_lacks_is_refused(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """The store was restored from a backup: what the turns between changed would be lost silently."""
        change = StateChange(follows=ready.head.position + 1, merge=MergeChanges(values={"a": 1}))
        before = await image(store, session_id)
        with pytest.raises(StateBehindThreadError) as behind:
            await store.save_state_and_promote_staging(session_id, change, step())
        assert behind.value.facts["position"] == ready.head.position
        assert await image(store, session_id) == before
        there = change.model_copy(update={"follows": ready.head.position})
        await store.save_state_and_promote_staging(session_id, there, step())
        assert (await loaded(store, session_id)).custom_state["a"] == 1

    async def test_a_stale_commit_changes_no_part(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Not the messages, nor the run, the staging or the checkpoints (case 45)."""
        await store.merge_custom_state(session_id, MergeChanges(values={"faster": 1}))
        before = await image(store, session_id)
        with pytest.raises(StaleStateError):
            await store.save_state_and_promote_staging(
                session_id,
                ready,
                step(),
                append=await an_append(threads, session_id, *talk(2, "n")),
                run=RunChange(status=RunStatus.FAILED),
            )
        assert await image(store, session_id) == before

    async def test_a_commit_at_another_head_changes_no_part(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Where the messages cannot stand, the state does not change either (case 45)."""
        append = await an_append(threads, session_id, *talk(2, "n"))
        await store.append_messages(session_id, talk(1, "faster"))
        before = await image(store, session_id)
        with pytest.raises(HeadMovedError):
            await store.save_state_and_promote_staging(session_id, ready, step(), append=append)
        assert await image(store, session_id) == before

    async def test_a_repeated_commit_gets_the_first_answer(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Known by session, run and step alone, though the version has moved on (case 47)."""
        append = await an_append(threads, session_id, *talk(4)[2:])
        after = changed(ready, step_count=1)
        first = await store.save_state_and_promote_staging(session_id, after, step(), append=append)
        again = await store.save_state_and_promote_staging(session_id, after, step(), append=append)
        assert again[0] == first[0]
        await commits(store, session_id, 1, first=2)
        before = await image(store, session_id)
        late = await store.save_state_and_promote_staging(session_id, after, step(), append=append)
        assert late[0] == first[0]
        assert first[1] is not None
        assert late[1] is not None
        assert late[1].messages == first[1].messages
        assert await image(store, session_id) == before
        assert await messages_of(store, session_id) == talk(4)
        assert len(await checkpoints_of(store, session_id)) == 2

    async def test_a_step_is_not_committed_with_other_content(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """Two steps under one name are a mistake that must be heard of (case 48)."""
        await store.save_state_and_promote_staging(session_id, changed(ready, step_count=1), step())
        before = await image(store, session_id)
        with pytest.raises(IdempotencyConflictError):
            await store.save_state_and_promote_staging(
                session_id, changed(ready, step_count=2), step(), expected_version=ANY_VERSION
            )
        assert await image(store, session_id) == before

    async def test_a_step_of_another_run_is_another_step(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """Runs number their steps anew (case 48)."""
        first, _ = await store.save_state_and_promote_staging(session_id, ready, step())
        state = await loaded(store, session_id)
        other, _ = await store.save_state_and_promote_staging(session_id, state, step(run="run-2"))
        assert other.checkpoint_id != first.checkpoint_id

    async def test_of_many_commits_exactly_one_wins(
        self, store: SessionStore, crowd: Crowd, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Sixteen steps from one version: one is there, whole, and of the others nothing (case 49)."""
        append = await an_append(threads, session_id, *talk(2, "n"))
        assert append.answer is not None
        appends = [
            replace(append, inputs=(replace_id(append.inputs[0].id, n, append),), answer=None)
            for n in range(16)
        ]
        calls = [
            next(crowd).save_state_and_promote_staging(
                session_id,
                changed(ready, custom_state={"winner": n}),
                step(f"step-{n}", count=n),
                append=each,
            )
            for n, each in enumerate(appends)
        ]
        outcomes = await at_once(calls)
        won = [n for n, each in enumerate(outcomes) if isinstance(each, tuple)]
        lost: list[Exception] = of_type(outcomes, (StaleStateError, HeadMovedError))  # type: ignore[arg-type]
        assert (len(won), len(lost)) == (1, 15), outcomes
        found = await loaded(store, session_id)
        assert found.custom_state["winner"] == won[0]
        assert [each.id for each in await messages_of(store, session_id)] == ["m0", "m1", f"n0-{won[0]}"]
        assert len(await checkpoints_of(store, session_id)) == 1

    async def test_overlapping_attempts_of_a_commit_are_one(
        self, store: SessionStore, crowd: Crowd, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """An attempt that was given up may still be under way when the next one starts (case 47)."""
        append = await an_append(threads, session_id, *talk(4)[2:])
        calls = [
            next(crowd).save_state_and_promote_staging(session_id, ready, step(), append=append)
            for _ in range(8)
        ]
        outcomes = await asyncio.gather(*calls)
        assert [each[0] for each in outcomes] == [outcomes[0][0]] * 8
        assert (await loaded(store, session_id)).version == ready.version + 1
        assert await messages_of(store, session_id) == talk(4)
        assert len(await checkpoints_of(store, session_id)) == 1

    async def test_an_observer_never_sees_half_a_commit(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """A snapshot's messages are those of its checkpoint, whatever is being committed (case 50)."""
        count = 8 * self.rounds
        done = asyncio.Event()

        async def write() -> None:
            for n in range(count):
                await asyncio.sleep(0)
                state = await loaded(store, session_id)
                append = await an_append(threads, session_id, *talk(2, f"{n}-"))
                after = changed(state, custom_state={"n": n})
                await store.save_state_and_promote_staging(
                    session_id, after, step(f"step-{n}", count=n), append=append
                )
            done.set()

        async def watch() -> int:
            seen = 0
            while not (done.is_set() and seen):  # where all was written at once, at least the last one
                snapshot = await store.build_snapshot(session_id)
                await asyncio.sleep(0)
                if snapshot is None or snapshot.checkpoint_id is None:
                    continue
                seen += 1
                assert len(snapshot.messages) == snapshot.head.position == snapshot.state.message_count
                assert snapshot.messages[-1].id == snapshot.head.last_id
                assert snapshot.messages[-1].id == f"{snapshot.state.custom_state['n']}-1"
                assert (await loaded(store, session_id)).version >= snapshot.state.version
            return seen

        _, *seen = await asyncio.gather(write(), watch(), watch())
        assert all(seen)
        assert len(await messages_of(store, session_id)) == 2 + 2 * count

    async def test_a_change_that_races_with_its_commit_is_never_lost_in_silence(
        self, store: SessionStore, crowd: Crowd, ready: SessionState, session_id: str
    ) -> None:
        """It is in the checkpoint, or its tool was told that the step is closed (case 51)."""
        for round_ in range(self.rounds):
            name = f"race-{round_}"
            state = await loaded(store, session_id)
            changes = [staged(f"{name}-{n:02}", **{f"{name}-{n:02}": n}) for n in range(8)]
            calls = [next(crowd).stage_changes(session_id, name, each) for each in changes]
            commit = store.save_state_and_promote_staging(session_id, state, step(name))
            outcomes = await asyncio.gather(*calls[:4], commit, *calls[4:], return_exceptions=True)
            del outcomes[4]
            told = {
                each.tool_call_id
                for each, outcome in zip(changes, outcomes, strict=True)
                if isinstance(outcome, StepClosedError)
            }
            assert len(told) == len([each for each in outcomes if each is not None])
            checkpoint = await store.get_latest_checkpoint(session_id)
            assert checkpoint is not None
            counted = {each.tool_call_id for each in changes} & set(checkpoint.state.custom_state)
            assert counted.isdisjoint(told)
            assert counted | told == {each.tool_call_id for each in changes}
            assert await store.list_staged(session_id, name) == []

    async def test_a_suspension_is_one_commit(
        self, store: SessionStore, ready: SessionState, session_id: str
    ) -> None:
        """Pending calls, their context and the expiry are there together, for any process (case 52)."""
        suspended = suspension(ready)
        result, _ = await store.save_state_and_promote_staging(
            session_id, suspended, step(), run=RunChange(status=RunStatus.SUSPENDED_CLIENT_TOOL)
        )
        found = await loaded(store, session_id)
        custom = {"tool-0": 0, "tool-1": 1}
        same = {"version": result.new_version, "updated_at": found.updated_at, "head": found.head}
        assert found == changed(suspended, custom_state=custom, **same)
        run = await store.get_current_run(session_id)
        assert run is not None
        assert run.status is RunStatus.SUSPENDED_CLIENT_TOOL

    async def test_a_patch_that_fails_fails_the_commit(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """No message, no run, no checkpoint (case 53)."""
        await store.stage_changes(session_id, "step-1", staged("bad", patch("remove", "/nowhere"), at=9))
        before = await image(store, session_id)
        with pytest.raises(PatchConflictError):
            await store.save_state_and_promote_staging(
                session_id,
                changed(ready, step_count=1),
                step(),
                append=await an_append(threads, session_id, *talk(2, "n")),
                run=RunChange(step_count=1),
            )
        assert await image(store, session_id) == before

    async def test_a_large_commit_works_whole(
        self, store: SessionStore, threads: HotTier, ready: SessionState, session_id: str
    ) -> None:
        """Five megabytes of state and a thousand messages are one commit as well (case 54)."""
        new = talk(1_000, "n")
        large = {"blobs": ["x" * 1024] * 5 * 1024}
        await store.save_state_and_promote_staging(
            session_id,
            changed(ready, custom_state=large),
            step(),
            append=await an_append(threads, session_id, *new),
        )
        found = await loaded(store, session_id)
        assert found.custom_state == {**large, "tool-0": 0, "tool-1": 1}
        assert found.message_count == 1_002
        assert await messages_of(store, session_id) == talk(2) + new


def replace_id(message_id: str, number: int, append: StepAppend) -> StoredMessage:
    """The append's first input under an id of its own."""
    return append.inputs[0]._replace(id=f"{message_id}-{number}")


def suspension(state: SessionState) -> SessionState:
    """The state, waiting for a client."""
    call = PendingClientToolCall(
        tool_call_id="call-9", tool_name="ask", run_id="run-1", step_id="step-1", deadline_at=2**52
    )
    context = SuspensionContext(
        kind="client_tool", run_id="run-1", step_id="step-1", tool_call_ids=("call-9",), suspended_at=5
    )
    return changed(
        state,
        status=SessionStatus.PAUSED,
        pending_client_tool_calls={"call-9": call},
        suspension_context=context,
        suspended_step_id="step-1",
        expires_at=2**52,
    )
