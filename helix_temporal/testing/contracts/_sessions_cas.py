"""Versions and status."""

import asyncio

import pytest

from helix_temporal.errors import (
    InvalidRequestError,
    SessionNotFoundError,
    StaleStateError,
)
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    MergeChanges,
    SaveResult,
    SessionState,
    SessionStatus,
)
from helix_temporal.stores.protocols.sessions import ANY_VERSION, SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    at_once,
    changed,
    commits,
    image,
    loaded,
    of_type,
    save_until_it_fits,
    staged,
    talk,
)

ACTIVE, PAUSED = SessionStatus.ACTIVE, SessionStatus.PAUSED


class VersionContract(SessionFixtures):
    """A state is replaced only by who knows the one before."""

    async def test_a_save_moves_the_version(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Each change has its number, and a time that does not go back (case 13)."""
        result = await store.save_state(session_id, changed(state, step_count=1), expected_version=1)
        found = await loaded(store, session_id)
        assert (result.new_version, found.version, found.step_count) == (2, 2, 1)
        assert found.created_at == state.created_at
        assert found.updated_at >= state.updated_at

    async def test_a_save_expects_the_version_that_it_was_read_with(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Nobody has to pass the version on by hand (case 13)."""
        await store.save_state(session_id, state)
        with pytest.raises(StaleStateError):
            await store.save_state(session_id, state)
        await store.save_state(session_id, state, expected_version=2)

    async def test_a_stale_save_changes_nothing(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The loser learns both versions, and may read and decide again (case 14)."""
        await store.append_messages(session_id, talk(2))
        await commits(store, session_id, 2)
        await store.stage_changes(session_id, "step-3", staged("call", a=1))
        before = await image(store, session_id)
        with pytest.raises(StaleStateError) as caught:
            await store.save_state(session_id, changed(state, step_count=9))
        assert {1, 3} <= set(caught.value.facts.values())
        assert await image(store, session_id) == before

    async def test_a_version_of_the_future_is_stale_too(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A store that was restored from a backup is noticed (case 14)."""
        with pytest.raises(StaleStateError):
            await store.save_state(session_id, state, expected_version=2)

    async def test_of_many_saves_exactly_one_wins(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Compare and replace is one step (case 15)."""
        states = [changed(state, custom_state={"writer": n}) for n in range(MANY)]
        outcomes = await at_once(next(crowd).save_state(session_id, each) for each in states)
        assert len(of_type(outcomes, StaleStateError)) == MANY - 1
        winner = next(n for n, each in enumerate(outcomes) if isinstance(each, SaveResult))
        found = await loaded(store, session_id)
        assert (found.version, found.custom_state) == (2, {"writer": winner})

    async def test_no_increment_is_lost(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Sixteen tasks that read, add and save add up (case 16)."""

        def add(state: SessionState) -> SessionState:
            return changed(state, step_count=state.step_count + 1)

        async def add_all() -> None:
            mine = next(crowd)
            for _ in range(self.rounds):
                await save_until_it_fits(mine, session_id, add)

        await asyncio.gather(*(add_all() for _ in range(16)))
        found = await loaded(store, session_id)
        assert (found.step_count, found.version) == (16 * self.rounds, 1 + 16 * self.rounds)

    async def test_a_blind_write_must_be_meant(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Only who says so overwrites what it has not read (case 17)."""
        await store.save_state(session_id, changed(state, step_count=1))
        with pytest.raises(StaleStateError):
            await store.save_state(session_id, changed(state, step_count=7))
        result = await store.save_state(
            session_id, changed(state, step_count=7), expected_version=ANY_VERSION
        )
        found = await loaded(store, session_id)
        assert (result.new_version, found.version, found.step_count) == (3, 3, 7)

    async def test_a_state_of_another_session_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The key beside the state and the one in it must agree (case 14)."""
        with pytest.raises(InvalidRequestError):
            await store.save_state(session_id, changed(state, session_id="another"))
        assert await loaded(store, session_id) == state

    async def test_merges_of_many_all_count(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """A merge needs no read before it, and none is lost (case 16)."""
        changes = [MergeChanges(values={f"key {n}": n}, appends={"list": [n]}) for n in range(MANY)]
        results = await asyncio.gather(
            *(next(crowd).merge_custom_state(session_id, each) for each in changes)
        )
        found = await loaded(store, session_id)
        assert sorted(found.custom_state.pop("list")) == list(range(MANY))  # type: ignore[arg-type, type-var]
        assert found.custom_state == {f"key {n}": n for n in range(MANY)}
        assert sorted(each.new_version for each in results) == list(range(2, MANY + 2))

    async def test_a_merge_sets_appends_and_removes(self, store: SessionStore, session_id: str) -> None:
        """What is not named stays; what was not as expected is told (case 16)."""
        state = await store.create_session(session_id)
        await store.save_state(session_id, changed(state, custom_state={"a": 1, "list": [1], "gone": 2}))
        changes = MergeChanges(
            values={"b": {"deep": [None]}}, appends={"list": [2, [3]], "new": [1]}, removes=("gone",)
        )
        result = await store.merge_custom_state(session_id, changes)
        assert (result.new_version, result.warnings) == (3, ())
        expected = {"a": 1, "b": {"deep": [None]}, "list": [1, 2, [3]], "new": [1]}
        assert (await loaded(store, session_id)).custom_state == expected

    async def test_counters_count_everybody(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Every caller gets a number of its own (case 16)."""
        steps = await asyncio.gather(*(next(crowd).increment_step_count(session_id) for _ in range(MANY)))
        resumes = await asyncio.gather(*(next(crowd).increment_resume_count(session_id) for _ in range(8)))
        assert sorted(each.value for each in steps) == list(range(1, MANY + 1))
        assert sorted(each.value for each in resumes) == list(range(1, 9))
        found = await loaded(store, session_id)
        assert (found.step_count, found.resume_count, found.version) == (MANY, 8, MANY + 9)


class StatusContract(SessionFixtures):
    """The status is set in one step with its comparison."""

    async def test_a_status_is_set_whatever_it_was(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Version and reason move with it (case 18)."""
        result = await store.update_status(
            session_id, SessionStatus.FAILED, failure_reason="parent_suspended"
        )
        found = await loaded(store, session_id)
        assert (result.new_version, found.version) == (2, 2)
        assert (found.status, found.failure_reason) == (SessionStatus.FAILED, "parent_suspended")
        assert found.updated_at >= state.updated_at

    async def test_an_expected_status_is_replaced(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The winner knows the new version and what was before (case 19)."""
        done = await store.compare_and_set_status(session_id, [ACTIVE, SessionStatus.INTERRUPTED], PAUSED)
        assert done == CasOk(new_version=2, previous_status=ACTIVE)
        found = await loaded(store, session_id)
        assert (found.status, found.version) == (PAUSED, 2)

    async def test_another_status_is_reported(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The loser learns what is stored, and nothing changed (case 20)."""
        await store.append_messages(session_id, talk(2))
        before = await image(store, session_id)
        refused = await store.compare_and_set_status(
            session_id, [PAUSED, SessionStatus.COMPLETED], SessionStatus.FAILED
        )
        assert refused == CasConflict(current_status=ACTIVE, current_version=1)
        assert await image(store, session_id) == before

    async def test_of_many_exactly_one_sets_the_status(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Sixty-four want to pause; one does, and the others see that it did (case 21)."""
        calls = [next(crowd).compare_and_set_status(session_id, [ACTIVE], PAUSED) for _ in range(64)]
        outcomes = await asyncio.gather(*calls)
        assert of_type(outcomes, CasOk) == [CasOk(new_version=2, previous_status=ACTIVE)]
        lost = CasConflict(current_status=PAUSED, current_version=2)
        assert of_type(outcomes, CasConflict) == [lost] * 63

    async def test_the_version_may_be_compared_too(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A session that was touched meanwhile is not ended by a clean-up (case 22)."""
        await store.increment_resume_count(session_id)
        refused = await store.compare_and_set_status(
            session_id, [ACTIVE], SessionStatus.FAILED, expected_version=1
        )
        assert refused == CasConflict(current_status=ACTIVE, current_version=2)
        done = await store.compare_and_set_status(
            session_id, [ACTIVE], SessionStatus.FAILED, expected_version=2
        )
        assert done == CasOk(new_version=3, previous_status=ACTIVE)

    async def test_the_same_status_is_a_change_too(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The rule has no exception: a success is a new version (case 23)."""
        done = await store.compare_and_set_status(session_id, [ACTIVE], ACTIVE)
        assert done == CasOk(new_version=2, previous_status=ACTIVE)

    async def test_neither_outcome_is_true_or_false(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Code that was written for a boolean answer fails loudly (case 24)."""
        outcomes = [
            await store.compare_and_set_status(session_id, [ACTIVE], PAUSED),
            await store.compare_and_set_status(session_id, [ACTIVE], PAUSED),
        ]
        assert [each.ok for each in outcomes] == [True, False]
        with pytest.raises(TypeError):
            bool(outcomes[0])
        with pytest.raises(TypeError):
            bool(outcomes[1])

    async def test_what_goes_with_a_status_is_set_with_it(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Reason, expiry and the mark for a clean-up are one change (case 19)."""
        await store.compare_and_set_status(
            session_id,
            [ACTIVE],
            SessionStatus.FAILED,
            failure_reason="session_expired",
            expires_at=77,
            cleanup_pending=True,
        )
        found = await loaded(store, session_id)
        assert (found.failure_reason, found.expires_at, found.cleanup_pending) == (
            "session_expired",
            77,
            True,
        )
        await store.compare_and_set_status(session_id, [SessionStatus.FAILED], SessionStatus.FAILED)
        assert (await loaded(store, session_id)).expires_at == 77
        await store.compare_and_set_status(
            session_id, [SessionStatus.FAILED], SessionStatus.FAILED, expires_at=None
        )
        assert (await loaded(store, session_id)).expires_at is None

    async def test_a_clean_up_is_finished_once(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A second attempt finds nothing to do, and makes no new version (case 19)."""
        await store.compare_and_set_status(session_id, [ACTIVE], SessionStatus.FAILED, cleanup_pending=True)
        assert (await store.finish_cleanup(session_id)).new_version == 3
        assert (await store.finish_cleanup(session_id)).new_version == 3
        assert not (await loaded(store, session_id)).cleanup_pending

    async def test_a_missing_session_is_not_a_conflict(self, store: SessionStore, session_id: str) -> None:
        """There is no status to report (case 18)."""
        with pytest.raises(SessionNotFoundError):
            await store.compare_and_set_status(session_id, [ACTIVE], PAUSED)

    async def test_a_save_and_a_status_never_both_win(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Both go out from the same version; one of them is told (case 25)."""
        for _ in range(2 * self.rounds):
            state = await loaded(store, session_id)
            saves = [next(crowd).save_state(session_id, changed(state, step_count=9)) for _ in range(4)]
            cas = [
                next(crowd).compare_and_set_status(
                    session_id, list(SessionStatus), PAUSED, expected_version=state.version
                )
                for _ in range(4)
            ]
            outcomes = await asyncio.gather(*saves, *cas, return_exceptions=True)
            assert len(of_type(outcomes, SaveResult)) + len(of_type(outcomes, CasOk)) == 1
            assert len(of_type(outcomes, StaleStateError)) + len(of_type(outcomes, CasConflict)) == 7
            assert (await loaded(store, session_id)).version == state.version + 1
