"""Forks: another session with the same past."""

import asyncio

import pytest

from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidRequestError,
    SessionExistsError,
)
from helix_temporal.models.states import CreateSession, SessionState, SessionStatus, SubSessionRef
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    Crowd,
    OpenSessions,
    SessionFixtures,
    checkpoints_of,
    ids_of,
    image,
    loaded,
    staged,
    started,
    talk,
)
from helix_temporal.testing.contracts._sessions_checkpoints import turns
from helix_temporal.testing.contracts._sessions_commit import suspension
from helix_temporal.testing.contracts._sessions_messages import a_tool_turn


class ForkContract(SessionFixtures):
    """Two sessions share a past and nothing else."""

    @pytest.fixture
    def fork_id(self, session_id: str) -> str:
        """An id for the fork."""
        return f"{session_id}-fork"

    @pytest.fixture
    async def made(self, opened: OpenSessions, session_id: str) -> list[str]:
        """The checkpoints of a session of three turns, two messages each."""
        options = CreateSession(agent_type="clerk", user_id="ann", tags=("t",), metadata={"m": "x"})
        await opened.sessions.create_session(session_id, options)
        return await turns(opened, session_id, 3)

    async def test_a_fork_has_the_state_and_the_messages(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """And says where it comes from; the source is not touched (case 125)."""
        before = await image(store, session_id)
        source = await loaded(store, session_id)
        fork = await store.fork_session(session_id, fork_id)
        assert fork == await loaded(store, fork_id)
        assert (fork.session_id, fork.version) == (fork_id, 1)
        assert fork.custom_state == {"n": 3}
        assert (fork.agent_type, fork.user_id, fork.tags, fork.metadata) == (
            "clerk",
            "ann",
            ("t",),
            {"m": "x"},
        )
        assert fork.forked_from is not None
        assert (fork.forked_from.session_id, fork.forked_from.head) == (session_id, source.head)
        assert fork.parent_session_id is None
        assert await ids_of(store, fork_id) == await ids_of(store, session_id)
        assert await image(store, session_id) == before

    async def test_a_fork_and_its_source_go_their_own_ways(
        self, opened: OpenSessions, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """Neither sees what the other does from then on (case 125)."""
        store = opened.sessions
        await store.fork_session(session_id, fork_id)
        before = await image(store, fork_id)
        await store.append_messages(session_id, talk(2, "source-"))
        await store.increment_step_count(session_id)
        assert await image(store, fork_id) == before
        before = await image(store, session_id)
        await store.append_messages(fork_id, talk(2, "fork-"))
        await store.increment_step_count(fork_id)
        await store.truncate_messages(fork_id, 2)
        assert await image(store, session_id) == before
        assert await store.delete_session(session_id)
        assert await ids_of(store, fork_id) == ["1-0", "1-1"]

    async def test_a_fork_takes_nothing_that_is_under_way(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """Runs, staging, pending calls, suspension, children and operations are the source's (case 125)."""
        await started(store, session_id, "run-1")
        await store.request_stop(session_id, kind="interrupt")
        await store.stage_changes(session_id, "next", staged("call", a=1))
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id="child")])
        await store.save_state(session_id, suspension(await loaded(store, session_id)))
        await store.increment_step_count(session_id, operation_id="operation")
        fork = await store.fork_session(session_id, fork_id)
        assert fork.status is SessionStatus.ACTIVE
        assert (fork.current_run_id, fork.suspension_context, fork.suspended_step_id) == (None, None, None)
        assert (fork.pending_client_tool_calls, fork.expires_at) == ({}, None)
        assert await store.list_staged(fork_id) == []
        assert (await store.list_runs(fork_id)).items == ()
        assert await store.get_current_run(fork_id) is None
        assert await store.list_sub_session_refs(fork_id) == []
        counted = await store.increment_step_count(fork_id, operation_id="operation")
        assert counted.new_version == 2

    async def test_a_fork_may_begin_at_a_checkpoint(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """With the state and the messages of then (case 125)."""
        fork = await store.fork_session(session_id, fork_id, at_checkpoint=made[1])
        assert (fork.custom_state, fork.step_count) == ({"n": 2}, 2)
        assert fork.forked_from is not None
        assert (fork.forked_from.checkpoint_id, fork.forked_from.head.position) == (made[1], 4)
        assert await ids_of(store, fork_id) == ["1-0", "1-1", "2-0", "2-1"]

    async def test_a_fork_may_begin_at_a_message(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """An edited message makes another conversation (case 125)."""
        fork = await store.fork_session(session_id, fork_id, at_message=2)
        assert fork.message_count == 2
        assert await ids_of(store, fork_id) == ["1-0", "1-1"]
        added = await store.append_messages(fork_id, talk(2, "other-"))
        assert added.first_index == 2

    async def test_a_repeated_fork_finds_the_first(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """An attempt whose answer was lost makes no second one, nor an error (case 125)."""
        first = await store.fork_session(session_id, fork_id, at_checkpoint=made[0])
        await store.append_messages(session_id, talk(2, "later-"))
        again = await store.fork_session(session_id, fork_id, at_checkpoint=made[0])
        assert again == first
        assert await ids_of(store, fork_id) == ["1-0", "1-1"]

    async def test_a_fork_is_not_made_over_another_session(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """Only the same fork is found again (case 125)."""
        state = await store.create_session(fork_id)
        with pytest.raises(SessionExistsError):
            await store.fork_session(session_id, fork_id)
        assert await loaded(store, fork_id) == state

    async def test_a_fork_of_another_source_is_not_found_again(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """The same new id for another source is a mistake that must be heard of (case 125)."""
        await store.fork_session(session_id, fork_id)
        await store.create_session("another")
        with pytest.raises(SessionExistsError):
            await store.fork_session("another", fork_id)

    async def test_a_fork_at_nothing_is_refused(
        self, store: SessionStore, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """And makes nothing (case 125)."""
        with pytest.raises(CheckpointNotFoundError):
            await store.fork_session(session_id, fork_id, at_checkpoint=made[0][:-6] + "ffffff")
        with pytest.raises(InvalidRequestError):
            await store.fork_session(session_id, fork_id, at_message=99)
        with pytest.raises(InvalidRequestError):
            await store.fork_session(session_id, fork_id, at_message=2, at_checkpoint=made[0])
        assert not await store.session_exists(fork_id)
        assert await ids_of(store, fork_id) == []

    async def test_a_fork_does_not_part_a_call_from_its_results(
        self, store: SessionStore, state: SessionState, session_id: str, fork_id: str
    ) -> None:
        """No provider would accept its messages (case 125)."""
        await store.append_messages(session_id, a_tool_turn())
        with pytest.raises(InvalidRequestError):
            await store.fork_session(session_id, fork_id, at_message=3)

    async def test_a_fork_of_many_attempts_is_one(
        self, store: SessionStore, crowd: Crowd, made: list[str], session_id: str, fork_id: str
    ) -> None:
        """Attempts overlap; all get the same session (case 125)."""
        forks = await asyncio.gather(*(next(crowd).fork_session(session_id, fork_id) for _ in range(8)))
        assert forks == [forks[0]] * 8
        assert await ids_of(store, fork_id) == await ids_of(store, session_id)

    async def test_a_fork_of_a_session_that_is_being_written_is_consistent(
        self, opened: OpenSessions, state: SessionState, session_id: str
    ) -> None:
        """Its messages are those of its state (case 126)."""
        store = opened.sessions
        await turns(opened, session_id, 1)

        async def fork(n: int) -> None:
            await asyncio.sleep(0)
            made = await store.fork_session(session_id, f"fork-{n}")
            assert await ids_of(store, f"fork-{n}") == [
                f"{turn}-{at}" for turn in range(1, made.message_count // 2 + 1) for at in range(2)
            ]
            assert made.custom_state == {"n": made.message_count // 2}

        async def write() -> None:
            await turns(opened, session_id, 2 * self.rounds, first=2)

        async def forks() -> None:
            for n in range(self.rounds):
                await fork(n)

        await asyncio.gather(write(), forks())
        assert len(await checkpoints_of(store, session_id)) == 2 * self.rounds + 1
