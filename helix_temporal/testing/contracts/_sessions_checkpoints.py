"""Checkpoints: found, listed, gone back to, pruned."""

import asyncio

import pytest

from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidCursorError,
    InvalidRequestError,
    StaleStateError,
)
from helix_temporal.models.checkpoints import CheckpointId
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    Crowd,
    OpenSessions,
    SessionFixtures,
    at_once,
    changed,
    checkpoints_of,
    commits,
    ids_of,
    image,
    loaded,
    of_type,
    step,
    talk,
)
from helix_temporal.testing.contracts._sessions_commit import an_append, suspension


async def turns(opened: OpenSessions, session_id: str, count: int, *, first: int = 1) -> list[str]:
    """Commit ``count`` turns of two messages each; their checkpoints."""
    made = []
    for n in range(first, first + count):
        state = await loaded(opened.sessions, session_id)
        append = await an_append(opened.threads, session_id, *talk(2, f"{n}-"))
        after = changed(state, step_count=n, custom_state={"n": n})
        result, _ = await opened.sessions.save_state_and_promote_staging(
            session_id, after, step(f"step-{n}", count=n), append=append
        )
        made.append(result.checkpoint_id)
    return made


class CheckpointContract(SessionFixtures):
    """Every committed step can be found again."""

    @pytest.mark.parametrize("name", ["plain", "x-s5-t1-abcdef", "cpv1-x-s5-t1-abcdef", "-s1-t1-", "ü 🙂"])
    async def test_a_checkpoint_s_id_can_be_taken_apart(self, store: SessionStore, name: str) -> None:
        """Whatever the session's own id looks like (case 55)."""
        state = await store.create_session(name)
        result, _ = await store.save_state_and_promote_staging(name, state, step(count=42))
        parsed = CheckpointId.parse(result.checkpoint_id)
        assert (parsed.session_id, parsed.step_count) == (name, 42)
        found = await store.get_checkpoint(name, result.checkpoint_id)
        assert found is not None
        assert (found.id, found.at) == (result.checkpoint_id, parsed.at)

    async def test_the_latest_is_the_one_committed_last(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Not the one with the latest time: many are made in a millisecond, and clocks go back (case 56)."""
        made = await commits(store, session_id, 12)
        latest = await store.get_latest_checkpoint(session_id)
        assert latest is not None
        assert (latest.id, latest.seq) == (made[-1], 12)
        assert await checkpoints_of(store, session_id) == made

    async def test_the_latest_of_a_run_is_found(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A run that is resumed goes on where it stopped (case 56)."""
        first, _ = await store.save_state_and_promote_staging(session_id, state, step(run="one"))
        state = await loaded(store, session_id)
        await store.save_state_and_promote_staging(session_id, state, step("step-2", run="two"))
        found = await store.get_latest_checkpoint(session_id, run_id="one")
        assert found is not None
        assert found.id == first.checkpoint_id
        assert await store.get_latest_checkpoint(session_id, run_id="three") is None

    @pytest.mark.parametrize("order", ["asc", "desc"])
    async def test_pages_are_complete_while_others_are_added(
        self, store: SessionStore, state: SessionState, session_id: str, order: str
    ) -> None:
        """A reader neither skips nor repeats one that was there when it began (case 57)."""
        made = await commits(store, session_id, 120)
        seen: list[str] = []
        cursor = None
        while True:
            page = await store.list_checkpoints(session_id, limit=17, cursor=cursor, order=order)  # type: ignore[arg-type]
            assert len(page.items) == 17 or not page.has_more
            assert (page.total or 0) >= 120
            seen += [each.id for each in page.items]
            cursor = page.next_cursor
            assert (cursor is not None) == page.has_more
            if cursor is None or len(seen) > 200:
                break
            made += await commits(store, session_id, 1, first=len(made) + 1)
        if order == "desc":
            assert seen == made[119::-1]
        else:
            assert seen[:120] == made[:120]
            assert seen == made[: len(seen)]

    async def test_a_list_has_no_states(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """It is for people to choose from (case 57)."""
        made = await commits(store, session_id, 3)
        page = await store.list_checkpoints(session_id)
        assert [each.id for each in page.items] == made[::-1]
        assert [(each.seq, each.step_count, each.version) for each in page.items] == [
            (3, 3, 4),
            (2, 2, 3),
            (1, 1, 2),
        ]
        assert (page.total, page.has_more, page.next_cursor) == (3, False, None)

    @pytest.mark.parametrize("limit", [0, 201, -1])
    async def test_a_list_of_checkpoints_has_its_range(
        self, store: SessionStore, state: SessionState, session_id: str, limit: int
    ) -> None:
        """Not clamped (case 28)."""
        with pytest.raises(InvalidRequestError):
            await store.list_checkpoints(session_id, limit=limit)

    async def test_a_cursor_of_another_list_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """It would begin at some other place without saying so (case 57)."""
        await commits(store, session_id, 2)
        with pytest.raises(InvalidCursorError):
            await store.list_checkpoints(session_id, cursor="nonsense")

    async def test_a_checkpoint_of_another_session_is_not_found(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """An id that was guessed or mixed up shows nothing (case 58)."""
        await store.create_session("another")
        made = await commits(store, "another", 1)
        assert await store.get_checkpoint(session_id, made[0]) is None
        with pytest.raises(CheckpointNotFoundError):
            await store.restore_checkpoint(session_id, made[0])

    async def test_a_snapshot_has_the_messages_of_its_checkpoint(
        self, opened: OpenSessions, state: SessionState, session_id: str
    ) -> None:
        """What came later is not in it (case 59)."""
        made = await turns(opened, session_id, 2)
        await opened.sessions.append_messages(session_id, talk(2, "later"))
        snapshot = await opened.sessions.build_snapshot(session_id)
        assert snapshot is not None
        assert snapshot.checkpoint_id == made[-1]
        assert [each.id for each in snapshot.messages] == ["1-0", "1-1", "2-0", "2-1"]
        assert (snapshot.head.position, snapshot.state.custom_state) == (4, {"n": 2})

    async def test_a_session_goes_back_to_a_checkpoint(
        self, opened: OpenSessions, state: SessionState, session_id: str
    ) -> None:
        """State and messages are those of then; what was later stays to be looked at, marked (case 60)."""
        store = opened.sessions
        made = await turns(opened, session_id, 4)
        before = await store.get_checkpoint(session_id, made[1])
        assert before is not None
        restored = await store.restore_checkpoint(session_id, made[1], expected_version=5)
        assert restored == await loaded(store, session_id)
        assert (restored.version, restored.step_count, restored.custom_state) == (6, 2, {"n": 2})
        assert restored.head == before.head
        assert await ids_of(store, session_id) == ["1-0", "1-1", "2-0", "2-1"]
        page = await store.list_checkpoints(session_id, order="asc")
        marks = {each.id: each.superseded_by for each in page.items}
        assert {each: marks[each] for each in made} == dict(
            zip(made, [None, None, made[1], made[1]], strict=True)
        )

    async def test_a_session_goes_on_after_it_went_back(
        self, opened: OpenSessions, state: SessionState, session_id: str
    ) -> None:
        """The other future is built on what was restored (case 60)."""
        store = opened.sessions
        made = await turns(opened, session_id, 3)
        state = await store.restore_checkpoint(session_id, made[0])
        append = await an_append(opened.threads, session_id, *talk(2, "other-"))
        after = changed(state, custom_state={"n": "other"})
        result, _ = await store.save_state_and_promote_staging(
            session_id, after, step("step-2", run="run-2"), append=append
        )
        assert await ids_of(store, session_id) == ["1-0", "1-1", "other-0", "other-1"]
        latest = await store.get_latest_checkpoint(session_id)
        assert latest is not None
        assert (latest.id, latest.superseded_by) == (result.checkpoint_id, None)

    async def test_of_two_that_go_back_one_wins(
        self, opened: OpenSessions, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """The other one is told that the session has changed (case 60)."""
        store = opened.sessions
        made = await turns(opened, session_id, 4)
        outcomes = await at_once(
            next(crowd).restore_checkpoint(session_id, each, expected_version=5) for each in made[:3]
        )
        won = of_type(outcomes, SessionState)
        assert (len(won), len(of_type(outcomes, StaleStateError))) == (1, 2), outcomes
        found = await loaded(store, session_id)
        assert found == won[0]
        assert len(await ids_of(store, session_id)) == found.message_count

    async def test_an_unknown_checkpoint_changes_nothing(
        self, opened: OpenSessions, state: SessionState, session_id: str
    ) -> None:
        """Its id may have been pruned long ago (case 60)."""
        await turns(opened, session_id, 1)
        before = await image(opened.sessions, session_id)
        with pytest.raises(CheckpointNotFoundError):
            await opened.sessions.restore_checkpoint(session_id, CheckpointId.make(session_id, 1, 1))
        assert await image(opened.sessions, session_id) == before

    async def test_old_checkpoints_are_pruned(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The newest stay, and so does the order of those to come (case 61)."""
        made = await commits(store, session_id, 5)
        assert await store.prune_checkpoints(session_id, keep_last=2) == 3
        assert await store.prune_checkpoints(session_id, keep_last=2) == 0
        assert await checkpoints_of(store, session_id) == made[3:]
        made += await commits(store, session_id, 1, first=6)
        assert await checkpoints_of(store, session_id) == made[3:]
        latest = await store.get_latest_checkpoint(session_id)
        assert latest is not None
        assert latest.seq == 6

    async def test_a_pruned_step_is_still_known(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Its repeat does not commit it a second time (case 61)."""
        first, _ = await store.save_state_and_promote_staging(session_id, state, step())
        await commits(store, session_id, 2, first=2)
        await store.prune_checkpoints(session_id, keep_last=1)
        before = await image(store, session_id)
        again, _ = await store.save_state_and_promote_staging(session_id, state, step())
        assert again == first
        assert await image(store, session_id) == before

    async def test_the_checkpoint_of_a_suspension_is_kept(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The session will be resumed from it (case 61)."""
        result, _ = await store.save_state_and_promote_staging(session_id, suspension(state), step())
        made = await commits(store, session_id, 3, first=2)
        assert await store.prune_checkpoints(session_id, keep_last=1) == 2
        assert await checkpoints_of(store, session_id) == [result.checkpoint_id, made[-1]]

    async def test_commits_and_prunes_at_once_lose_nothing(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The newest is always there (case 61)."""

        async def prune() -> None:
            for _ in range(self.rounds):
                await store.prune_checkpoints(session_id, keep_last=1)
                assert await store.get_latest_checkpoint(session_id) is not None

        await commits(store, session_id, 1)
        await asyncio.gather(prune(), commits(store, session_id, 2 * self.rounds, first=2))
        latest = await store.get_latest_checkpoint(session_id)
        assert latest is not None
        assert latest.seq == 2 * self.rounds + 1
