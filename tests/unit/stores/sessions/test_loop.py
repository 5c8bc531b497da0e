"""View, decide, commit: how few calls that is, and what happens when the commit is not plain sailing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.errors import (
    FencedError,
    IdempotencyConflictError,
    SessionNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus, StagedChange, StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import CountResult, CreateSession, MergeChanges, SessionStatus, StateChange
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.memory import MemorySessions
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend
from helix_temporal.stores.protocols.session_rows import RowsCommitted, SessionCommit, StoredState
from helix_temporal.stores.sessions import RowSessions, loop
from helix_temporal.stores.sessions import staging as staging_part
from tests.unit.stores.sessions._stores import Together


@pytest.fixture
def place() -> Together:
    return Together()


async def a_step(place: Together, session_id: str, *ids: str) -> StepAppend:
    header = await place.hot.read_header(session_id)
    assert isinstance(header, HotHeader)
    rows = [encode_message(Message(id=each, role="user", content=each)) for each in ids[:-1]]
    answer = encode_message(Message(id=ids[-1], role="assistant", content="yes"))
    return StepAppend(session_id, header.epoch, header.head, tuple(rows), answer, commits=True)


class TestATurnCommit:
    async def test_is_two_calls_of_the_port(self, place: Together) -> None:
        """State, messages, checkpoint, staged changes and run: each call is a round trip somewhere."""
        await place.store.create_session("s")
        await place.store.append_messages("s", [Message(id="hi", role="user", content="hi")])
        await place.store.start_run("s", NewRun(run_id="r"))
        await place.store.stage_changes("s", "t", StagedChange(tool_call_id="c", merge_changes={"a": 1}))
        step = await a_step(place, "s", "q", "a")
        place.rows.calls.clear()
        result, appended = await place.store.save_state_and_promote_staging(
            "s",
            StateChange(steps=1, merge=MergeChanges(values={"b": 2})),
            StepCommit(step_id="t", run_id="r", step_count=1),
            append=step,
            run=RunChange(status=RunStatus.COMPLETED),
            epoch=5,
            operation_id="o",
        )
        assert place.rows.calls == ["view", "commit"]
        assert appended is not None
        assert result.head == appended.head == Head(position=3, last_id="a")
        state = await place.store.load_state("s")
        assert state is not None
        assert (state.custom_state, state.head, state.current_run_id) == ({"a": 1, "b": 2}, result.head, None)

    async def test_that_is_repeated_with_another_answer_gets_the_first(self, place: Together) -> None:
        """Two attempts each paid for an answer; the one that stands is the one that both return."""
        await place.store.create_session("s")
        await place.store.append_messages("s", [Message(id="hi", role="user", content="hi")])
        step = await a_step(place, "s", "q", "first")
        late = await a_step(place, "s", "q", "second")
        change, commit = StateChange(steps=1), StepCommit(step_id="t")
        first, _ = await place.store.save_state_and_promote_staging("s", change, commit, append=step)
        again, appended = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1, output="another"), commit, append=late
        )
        assert again == first
        assert appended is not None
        assert [row.id for row in appended.messages] == ["q", "first"]

    async def test_takes_the_answer_that_stands_already(self, place: Together) -> None:
        """An attempt died between append and commit: its answer counts, and the head is its head."""
        await place.store.create_session("s")
        await place.store.append_messages("s", [Message(id="hi", role="user", content="hi")])
        step = await a_step(place, "s", "q", "first")
        late = await a_step(place, "s", "q", "second")
        await place.threads.append(step)
        result, appended = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), append=late
        )
        assert appended is not None
        assert appended.head == result.head == Head(position=3, last_id="first")

    async def test_names_the_head_of_an_answer_that_came_between(self, place: Together) -> None:
        """A late attempt appended after the look: the state goes with the thread as it is."""
        await place.store.create_session("s")
        await place.store.append_messages("s", [Message(id="hi", role="user", content="hi")])
        rival, step = await a_step(place, "s", "q", "rival"), await a_step(place, "s", "q", "mine")

        def be_faster(_: SessionCommit) -> None:
            place.hot.append_now(rival)

        place.rows.before_commit = be_faster
        result, appended = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), append=step
        )
        assert appended is not None
        assert appended.head == result.head == Head(position=3, last_id="rival")
        state = await place.store.load_state("s")
        assert state is not None
        assert (state.head, state.version) == (result.head, result.new_version)
        checkpoint = await place.store.get_checkpoint("s", result.checkpoint_id)
        assert checkpoint is not None
        assert checkpoint.head == checkpoint.state.head == result.head

    async def test_that_is_repeated_names_the_head_of_what_stands(self, place: Together) -> None:
        """Not that of the answer which lost, though the commit was made with it."""
        await place.store.create_session("s")
        await place.store.append_messages("s", [Message(id="hi", role="user", content="hi")])
        rival, step = await a_step(place, "s", "q", "rival"), await a_step(place, "s", "q", "mine")

        def be_faster(_: SessionCommit) -> None:
            place.hot.append_now(rival)

        place.rows.before_commit = be_faster
        given: Any = ("s", StateChange(steps=1), StepCommit(step_id="t"))
        first, _ = await place.store.save_state_and_promote_staging(*given, append=step)
        again, appended = await place.store.save_state_and_promote_staging(*given, append=step)
        assert appended is not None
        assert again.head == appended.head == first.head


class TestAnUnclearCommit:
    async def test_is_repeated_by_its_operation(self, place: Together) -> None:
        """The answer was lost after the commit; the repeat gets the answer and no second effect."""
        await place.store.create_session("s")
        place.rows.lose_answers = 1
        with pytest.raises(StoreUnavailableError):
            await place.store.increment_step_count("s", operation_id="o")
        assert await place.store.increment_step_count("s", operation_id="o") == CountResult(
            value=1, new_version=2
        )
        assert await place.store.increment_step_count("s") == CountResult(value=2, new_version=3)

    async def test_of_a_step_is_repeated_by_its_name(self, place: Together) -> None:
        """Steps have a key of their own and need no operation id."""
        state = await place.store.create_session("s")
        place.rows.lose_answers = 1
        with pytest.raises(StoreUnavailableError):
            await place.store.save_state_and_promote_staging("s", state, StepCommit(step_id="t"))
        result, _ = await place.store.save_state_and_promote_staging("s", state, StepCommit(step_id="t"))
        assert result.new_version == 2
        latest = await place.store.get_latest_checkpoint("s")
        assert latest is not None
        assert latest.id == result.checkpoint_id

    async def test_of_a_create_gives_the_state_as_it_was_made(self, place: Together) -> None:
        """However far the session has gone since."""
        place.rows.lose_answers = 1
        with pytest.raises(StoreUnavailableError):
            await place.store.create_session("s", operation_id="o")
        await place.store.update_status("s", SessionStatus.PAUSED)
        again = await place.store.create_session("s", operation_id="o")
        assert (again.version, again.status) == (1, SessionStatus.ACTIVE)


class TestACommitThatIsOvertaken:
    async def test_decides_again(self, place: Together) -> None:
        """Nothing of what the faster one wrote is lost."""
        await place.store.create_session("s")
        rival = place.another()
        race = asyncio.gather(
            *(store.merge_custom_state("s", MergeChanges(appends={"l": [n]}))
              for n in range(8) for store in (place.store, rival))
        )  # fmt: skip
        await race
        state = await place.store.load_state("s")
        assert state is not None
        assert sorted(state.custom_state["l"]) == sorted([*range(8)] * 2)  # type: ignore[arg-type, type-var]

    async def test_gives_up_in_the_end(self, place: Together, monkeypatch: pytest.MonkeyPatch) -> None:
        """A passing error: the caller's retry policy says for how long it goes on."""
        await place.store.create_session("s")
        monkeypatch.setattr(loop, "TRIES", 3)

        def overtake(change: SessionCommit) -> None:
            held = place.rows._sessions["s"]
            place.rows._sessions["s"] = type(held)(held.revision + 1, held.max_epoch, held.stored, held.rows)

        place.rows.before_commit = overtake
        with pytest.raises(StoreUnavailableError, match="overtaken 3 times"):
            await place.store.increment_step_count("s")


class TestAnOperation:
    async def test_answers_even_a_writer_that_was_fenced(self, place: Together) -> None:
        """It did happen, under an epoch that was good then."""
        await place.store.create_session("s")
        first = await place.store.increment_step_count("s", epoch=5, operation_id="o")
        await place.store.increment_step_count("s", epoch=6)
        assert await place.store.increment_step_count("s", epoch=5, operation_id="o") == first

    async def test_of_a_refused_compare_and_set_is_refused_again(self, place: Together) -> None:
        """The first answer counts, though the status would fit by now."""
        await place.store.create_session("s")
        first = await place.store.compare_and_set_status(
            "s", [SessionStatus.PAUSED], SessionStatus.FAILED, operation_id="o"
        )
        await place.store.update_status("s", SessionStatus.PAUSED)
        again = await place.store.compare_and_set_status(
            "s", [SessionStatus.PAUSED], SessionStatus.FAILED, operation_id="o"
        )
        assert again == first
        assert not again.ok

    async def test_with_other_arguments_is_refused_without_a_trace(self, place: Together) -> None:
        """Not even the fence moves."""
        await place.store.create_session("s")
        await place.store.update_status("s", SessionStatus.PAUSED, operation_id="o")
        with pytest.raises(IdempotencyConflictError):
            await place.store.update_status("s", SessionStatus.FAILED, operation_id="o", epoch=9)
        await place.store.increment_step_count("s", epoch=8)


class TestAStoreThatRequiresEpochs:
    async def test_refuses_writers_without_one(self, place: Together) -> None:
        """A program that forgot its fence is told at its first write, not after a split brain."""
        store = place.another(require_epoch=True)
        with pytest.raises(FencedError):
            await store.create_session("s")
        await store.create_session("s", epoch=1)
        with pytest.raises(FencedError):
            await store.append_messages("s", [Message(id="m", role="user", content="x")])

    async def test_takes_requests_from_outside(self, place: Together) -> None:
        """Clients that stop a run or answer a call have no epoch."""
        store = place.another(require_epoch=True)
        await store.create_session("s", epoch=1)
        await store.start_run("s", NewRun(run_id="r"), epoch=1)
        assert (await store.request_stop("s", kind="abort")).recorded


class TestADamagedState:
    async def test_is_an_error_and_stays_as_it_is(self, place: Together) -> None:
        """Nothing guesses what it may have been, and nothing writes over it."""
        state = await place.store.create_session("s")
        held = place.rows._sessions["s"]
        damaged = type(held)(
            held.revision, held.max_epoch, StoredState(state, b'{"session_id": 5}'), held.rows
        )
        place.rows._sessions["s"] = damaged
        with pytest.raises(StoreCorruptError):
            await place.store.load_state("s")
        with pytest.raises(StoreCorruptError):
            await place.store.update_status("s", SessionStatus.PAUSED)
        assert place.rows._sessions["s"] == damaged


async def test_a_missing_session_is_named(place: Together) -> None:
    """Programs that come from elsewhere look for these very words."""
    with pytest.raises(SessionNotFoundError, match="Session not found"):
        await place.store.update_status("nobody", SessionStatus.PAUSED)


class TestAListOfAllThatIsStaged:
    @pytest.mark.parametrize("many", [2, 3, 4, 7, 100])
    async def test_is_complete_over_pages(
        self, place: Together, monkeypatch: pytest.MonkeyPatch, many: int
    ) -> None:
        """Also where calls of several steps have one name and one time."""
        monkeypatch.setattr(staging_part, "_MANY", many)
        await place.store.create_session("s")
        times = {"c": 1, "d": 1, "e": 2, "f": 3}
        for step_id in ("one", "two", "three"):
            for call, at in times.items():
                change = StagedChange(tool_call_id=call, merge_changes={call: at}, timestamp=at)
                await place.store.stage_changes("s", step_id, change)
        rows = await place.store.list_staged("s")
        assert len(rows) == 12
        assert [row.change.timestamp for row in rows] == sorted([*times.values()] * 3)
        assert {row.step_id for row in rows if row.change.tool_call_id == "d"} == {"one", "two", "three"}


class _Forgetful(MemorySessions):
    """Before the next commit, something else happens."""

    def __init__(self) -> None:
        super().__init__()
        self.before = list[Callable[[], Awaitable[object]]]()

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        """As `SessionRows.commit`."""
        if self.before:
            await self.before.pop()()
        return await super().commit(change)


async def test_a_change_is_decided_anew_where_the_session_was_lost_and_made_again_meanwhile() -> None:
    """The new one has the revision that was seen of the old one: Redis was wiped in between."""
    rows = _Forgetful()
    store, other = RowSessions(rows), RowSessions(rows)
    await store.create_session("s", CreateSession(user_id="old"))

    async def lose_and_begin() -> None:
        rows.clear()
        await other.create_session("s", CreateSession(user_id="new"))

    rows.before.append(lose_and_begin)
    await store.merge_custom_state("s", MergeChanges(values={"k": 1}))
    state = await other.load_state("s")
    assert state is not None
    assert (state.user_id, state.custom_state) == ("new", {"k": 1})
