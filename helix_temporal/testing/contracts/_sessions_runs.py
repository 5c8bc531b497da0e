"""Runs, requests to stop one, and children."""

import asyncio

import pytest

from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunRecorded, RunStartRefused, RunStatus
from helix_temporal.models.states import ErrorInfo, RemoteRef, SessionState, SessionStatus, SubSessionRef
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    image,
    loaded,
    of_type,
    started,
)

DONE = RunChange(status=RunStatus.COMPLETED, completion_reason="completed")


async def finished(store: SessionStore, session_id: str, run_id: str) -> None:
    """Start a run and end it."""
    await started(store, session_id, run_id)
    await store.update_run(session_id, run_id, DONE)


class RunContract(SessionFixtures):
    """One run at a time, and each has its record."""

    async def test_a_run_is_started_and_found(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """It is the session's current one, with all that the caller said of it (case 94)."""
        new = NewRun(
            run_id="run-1",
            start_sequence=2**53 + 1,
            start_head=Head(position=2, last_id="m1"),
            workflow_id="w",
            workflow_run_id="r",
        )
        outcome = await store.start_run(session_id, new)
        assert isinstance(outcome, RunRecorded)
        assert outcome.run.model_dump(include=set(NewRun.model_fields)) == new.model_dump()
        assert (outcome.run.session_id, outcome.run.turn, outcome.run.status) == (session_id, 1, "running")
        assert await store.get_run(session_id, "run-1") == outcome.run
        assert await store.get_current_run(session_id) == outcome.run
        found = await loaded(store, session_id)
        assert (found.current_run_id, found.version) == ("run-1", 2)
        assert outcome.new_version == 2

    async def test_a_live_session_starts_no_other_run(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """One writer: the second caller learns which run is there (case 92)."""
        await started(store, session_id, "run-1")
        before = await image(store, session_id)
        refused = await store.start_run(session_id, NewRun(run_id="run-2"))
        assert isinstance(refused, RunStartRefused)
        assert (refused.reason, refused.current_run_id) == ("already_running", "run-1")
        assert refused.current_status is SessionStatus.ACTIVE
        assert await image(store, session_id) == before

    async def test_a_suspended_run_is_live(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """It waits for a person; another turn would overtake it (case 92)."""
        await started(store, session_id, "run-1")
        suspended = RunChange(status=RunStatus.SUSPENDED_CLIENT_TOOL)
        run = await store.update_run(session_id, "run-1", suspended)
        assert (run.status, run.ended_at) == (RunStatus.SUSPENDED_CLIENT_TOOL, None)
        assert await store.get_current_run(session_id) == run
        refused = await store.start_run(session_id, NewRun(run_id="run-2"))
        assert isinstance(refused, RunStartRefused)
        resumed = await store.update_run(session_id, "run-1", RunChange(status=RunStatus.RUNNING))
        assert resumed.status is RunStatus.RUNNING

    async def test_a_plan_that_was_overtaken_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Another run began and ended between plan and start: its turn must not be lost (case 92)."""
        await finished(store, session_id, "run-1")
        await finished(store, session_id, "run-2")
        before = await image(store, session_id)
        refused = await store.start_run(session_id, NewRun(run_id="run-3"), expect_current_run="run-1")
        assert isinstance(refused, RunStartRefused)
        assert refused.reason == "other_run"
        assert await image(store, session_id) == before
        await started(store, session_id, "run-3", expect_current_run="run-2")

    async def test_a_session_that_was_ended_meanwhile_is_not_started(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Who planned with an active session does not wake a failed one (case 92)."""
        await store.update_status(session_id, SessionStatus.FAILED, failure_reason="session_expired")
        before = await image(store, session_id)
        refused = await store.start_run(
            session_id, NewRun(run_id="run-1"), expect_status=[SessionStatus.ACTIVE]
        )
        assert isinstance(refused, RunStartRefused)
        assert (refused.reason, refused.current_status) == ("status", SessionStatus.FAILED)
        assert await image(store, session_id) == before

    async def test_of_many_runs_exactly_one_starts(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Sixteen callers plan alike; fifteen learn who was first (case 93)."""
        calls = [next(crowd).start_run(session_id, NewRun(run_id=f"run-{n}")) for n in range(16)]
        outcomes = await asyncio.gather(*calls)
        (winner,) = of_type(outcomes, RunRecorded)
        refused = of_type(outcomes, RunStartRefused)
        assert {each.current_run_id for each in refused} == {winner.run.run_id}
        assert len((await store.list_runs(session_id)).items) == 1
        assert (await loaded(store, session_id)).version == 2

    async def test_a_run_that_is_started_again_is_the_same(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A repeat without an operation id is known by the run's own (case 93)."""
        first = await started(store, session_id, "run-1")
        again = await started(store, session_id, "run-1")
        assert again.run == first.run
        assert len((await store.list_runs(session_id)).items) == 1

    async def test_every_turn_has_its_run(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Numbered from 1 without gaps, newest first, and none of them is current (case 94)."""
        for n in range(1, 8):
            await finished(store, session_id, f"run-{n}")
        page = await store.list_runs(session_id, limit=4)
        assert [each.turn for each in page.items] == [7, 6, 5, 4]
        assert (page.total, page.has_more) == (7, True)
        rest = await store.list_runs(session_id, limit=4, cursor=page.next_cursor)
        assert [each.run_id for each in rest.items] == ["run-3", "run-2", "run-1"]
        assert not rest.has_more
        assert {each.status for each in (*page.items, *rest.items)} == {RunStatus.COMPLETED}
        assert await store.get_current_run(session_id) is None
        assert (await loaded(store, session_id)).current_run_id is None

    async def test_runs_are_listed_from_a_turn_on(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A link to one turn among thousands reads it alone; nothing is counted for it."""
        for n in range(1, 8):
            await finished(store, session_id, f"run-{n}")
        page = await store.list_runs(session_id, limit=2, through_turn=5, count=False)
        assert [each.turn for each in page.items] == [5, 4]
        assert (page.total, page.has_more) == (None, True)
        rest = await store.list_runs(session_id, limit=9, cursor=page.next_cursor, count=False)
        assert [each.turn for each in rest.items] == [3, 2, 1]
        beyond = await store.list_runs(session_id, limit=1, through_turn=99, count=False)
        assert [each.turn for each in beyond.items] == [7]
        before = await store.list_runs(session_id, through_turn=0, count=False)
        assert (before.items, before.has_more) == ((), False)
        with pytest.raises(InvalidRequestError):
            await store.list_runs(session_id, through_turn=-1)

    async def test_a_run_ends_once(self, store: SessionStore, state: SessionState, session_id: str) -> None:
        """With its reason and time; a repeat is accepted, another end is not (case 94)."""
        await started(store, session_id, "run-1")
        change = RunChange(
            status=RunStatus.FAILED,
            step_count=3,
            completion_reason="failed",
            error=ErrorInfo(type="ModelError", message="no answer"),
        )
        ended = await store.update_run(session_id, "run-1", change)
        assert (ended.status, ended.step_count, ended.completion_reason) == ("failed", 3, "failed")
        assert ended.error == change.error
        assert ended.ended_at is not None
        assert ended.ended_at >= ended.started_at > 0
        assert await store.update_run(session_id, "run-1", change) == ended
        with pytest.raises(InvalidRequestError):
            await store.update_run(session_id, "run-1", RunChange(status=RunStatus.RUNNING))
        assert await store.get_run(session_id, "run-1") == ended

    async def test_an_unknown_run_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """There is nothing to change (case 94)."""
        assert await store.get_run(session_id, "nowhere") is None
        with pytest.raises(InvalidRequestError):
            await store.update_run(session_id, "nowhere", DONE)


class StopContract(SessionFixtures):
    """A request to stop belongs to one run."""

    async def test_a_request_reaches_the_current_run(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Whichever process owns it finds the request there (case 95)."""
        await started(store, session_id, "run-1")
        outcome = await store.request_stop(session_id, kind="interrupt", reason="the user left")
        assert outcome.recorded
        assert outcome.request is not None
        found = (outcome.request.run_id, outcome.request.kind, outcome.request.reason)
        assert found == ("run-1", "interrupt", "the user left")
        assert await store.get_stop_request(session_id, "run-1") == outcome.request
        assert (await loaded(store, session_id)).version == 2

    async def test_an_interrupt_may_rise_to_an_abort(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """And never falls back (case 95)."""
        await started(store, session_id, "run-1")
        await store.request_stop(session_id, kind="interrupt")
        await store.request_stop(session_id, kind="abort")
        outcome = await store.request_stop(session_id, kind="interrupt")
        assert outcome.recorded
        assert outcome.request is not None
        assert outcome.request.kind == "abort"

    async def test_a_request_without_a_run_is_told_so(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """It is not kept for the next run (case 95)."""
        assert not (await store.request_stop(session_id, kind="interrupt")).recorded
        await started(store, session_id, "run-1")
        assert await store.get_stop_request(session_id, "run-1") is None

    async def test_a_request_for_a_run_that_is_over_stops_nobody(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The user meant that run, not the next one (case 95)."""
        await started(store, session_id, "run-1")
        await store.request_stop(session_id, kind="abort")
        await store.update_run(session_id, "run-1", DONE)
        assert await store.get_stop_request(session_id, "run-1") is None
        await started(store, session_id, "run-2")
        assert not (await store.request_stop(session_id, kind="abort", run_id="run-1")).recorded
        assert await store.get_stop_request(session_id, "run-2") is None

    async def test_requests_at_once_are_one(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """An abort among them wins (case 95)."""
        await started(store, session_id, "run-1")
        await asyncio.gather(
            *(
                next(crowd).request_stop(session_id, kind="abort" if n == 7 else "interrupt")
                for n in range(MANY)
            )
        )
        request = await store.get_stop_request(session_id, "run-1")
        assert request is not None
        assert request.kind == "abort"


class SubSessionContract(SessionFixtures):
    """A session knows its children."""

    async def test_children_are_kept_in_their_order(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """With all that is known of them, remote ones included (case 9)."""
        refs = [
            SubSessionRef(
                sub_session_id="zoe",
                agent_type="helper",
                run_id="run-1",
                parent_tool_call_id="call-1",
                wait_mode="background",
                remote=RemoteRef(endpoint_id="e", remote_session_id="r", last_forwarded_sequence=2**53 + 1),
                created_at=5,
                updated_at=6,
            ),
            SubSessionRef(sub_session_id="adam", created_at=1, updated_at=1),
        ]
        await store.add_sub_session_refs(session_id, refs)
        found = await store.list_sub_session_refs(session_id)
        assert [each.sub_session_id for each in found] == ["zoe", "adam"]
        assert found[0].remote == refs[0].remote
        assert (found[0].run_id, found[0].wait_mode) == ("run-1", "background")
        assert (await loaded(store, session_id)).version == 1

    async def test_a_child_that_is_added_again_is_replaced(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """In its old place; an attempt that is repeated adds nobody (case 9)."""
        names = ["a", "b", "c"]
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id=each) for each in names])
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id="b", agent_type="new")])
        found = await store.list_sub_session_refs(session_id)
        assert [(each.sub_session_id, each.agent_type) for each in found] == [
            ("a", ""),
            ("b", "new"),
            ("c", ""),
        ]

    async def test_a_child_s_status_is_set(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Its own session may lie elsewhere (case 9)."""
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id="child")])
        ref = await store.update_sub_session_ref(session_id, "child", SessionStatus.COMPLETED)
        assert ref.status is SessionStatus.COMPLETED
        assert await store.list_sub_session_refs(session_id) == [ref]
        with pytest.raises(SessionNotFoundError):
            await store.update_sub_session_ref(session_id, "nobody", SessionStatus.COMPLETED)

    async def test_children_of_many_tasks_are_all_there(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Parallel tools each start one (case 9)."""
        refs = [SubSessionRef(sub_session_id=f"child-{n}") for n in range(MANY)]
        await asyncio.gather(*(next(crowd).add_sub_session_refs(session_id, [each]) for each in refs))
        found = await store.list_sub_session_refs(session_id)
        assert {each.sub_session_id for each in found} == {each.sub_session_id for each in refs}
