"""The end of a session: delete, and what late writers find."""

from collections.abc import Awaitable, Callable

import pytest

from helix_temporal.errors import (
    FencedError,
    SessionNotFoundError,
)
from helix_temporal.models.checkpoints import NewRun, RunChange
from helix_temporal.models.states import (
    ClientToolResponse,
    MergeChanges,
    SessionState,
    SessionStatus,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    SessionFixtures,
    commits,
    ids_of,
    image,
    said,
    staged,
    started,
    step,
    talk,
)

Operation = Callable[[SessionStore, str], Awaitable[object]]

MUTATIONS: dict[str, Operation] = {
    "save_state": lambda store, key: store.save_state(key, SessionState(session_id=key)),
    "update_status": lambda store, key: store.update_status(key, SessionStatus.PAUSED),
    "compare_and_set_status": lambda store, key: store.compare_and_set_status(
        key, [SessionStatus.ACTIVE], SessionStatus.PAUSED
    ),
    "merge_custom_state": lambda store, key: store.merge_custom_state(key, MergeChanges()),
    "increment_step_count": lambda store, key: store.increment_step_count(key),
    "increment_resume_count": lambda store, key: store.increment_resume_count(key),
    "finish_cleanup": lambda store, key: store.finish_cleanup(key),
    "append_messages": lambda store, key: store.append_messages(key, [said()]),
    "truncate_messages": lambda store, key: store.truncate_messages(key, 0),
    "stage_changes": lambda store, key: store.stage_changes(key, "step", staged("call", a=1)),
    "discard_staging": lambda store, key: store.discard_staging(key, "step"),
    "promote_staging": lambda store, key: store.promote_staging(key, "step"),
    "save_state_and_promote_staging": lambda store, key: store.save_state_and_promote_staging(
        key, SessionState(session_id=key), step()
    ),
    "restore_checkpoint": lambda store, key: store.restore_checkpoint(key, "cpv1-x-s1-t1-000000"),
    "prune_checkpoints": lambda store, key: store.prune_checkpoints(key, keep_last=1),
    "start_run": lambda store, key: store.start_run(key, NewRun(run_id="run")),
    "update_run": lambda store, key: store.update_run(key, "run", RunChange(step_count=1)),
    "request_stop": lambda store, key: store.request_stop(key, kind="abort"),
    "add_sub_session_refs": lambda store, key: store.add_sub_session_refs(
        key, [SubSessionRef(sub_session_id="child")]
    ),
    "update_sub_session_ref": lambda store, key: store.update_sub_session_ref(
        key, "child", SessionStatus.PAUSED
    ),
    "submit_tool_result": lambda store, key: store.submit_tool_result(
        key, ToolResultSubmission(tool_call_id="call", response=ClientToolResponse())
    ),
    "fork_session": lambda store, key: store.fork_session(key, "the fork"),
}


class DeleteContract(SessionFixtures):
    """A deletion is thorough, and nothing comes back."""

    async def _furnish(self, store: SessionStore, session_id: str) -> None:
        await store.create_session(session_id, operation_id="create", epoch=5)
        await store.append_messages(session_id, talk(4))
        await commits(store, session_id, 3)
        await store.stage_changes(session_id, "step-9", staged("call", a=1))
        await started(store, session_id, "run-1")
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id="child")])
        await store.increment_step_count(session_id, operation_id="count")
        await store.request_stop(session_id, kind="interrupt")

    async def test_everything_of_a_session_goes(self, store: SessionStore, session_id: str) -> None:
        """A deletion that a user asked for leaves nothing behind, and touches nobody else (case 9)."""
        other = f"{session_id}-other"
        await self._furnish(store, session_id)
        await self._furnish(store, other)
        before = await image(store, other)
        checkpoint = await store.get_latest_checkpoint(session_id)
        assert checkpoint is not None
        assert await store.delete_session(session_id)
        assert not await store.delete_session(session_id)
        assert await store.load_state(session_id) is None
        assert await store.get_checkpoint(session_id, checkpoint.id) is None
        assert await ids_of(store, session_id) == []
        assert {each async for each in store.iter_session_ids()} == {other}
        assert [each.session_id for each in (await store.list_sessions()).sessions] == [other]
        assert await image(store, other) == before

    async def test_a_new_session_under_the_old_id_starts_from_nothing(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Not one record, message or remembered operation of the old one is in it (cases 9 and 10)."""
        await self._furnish(store, session_id)
        await store.delete_session(session_id)
        made = await store.create_session(session_id, operation_id="create", epoch=5)
        assert (made.version, made.message_count, made.step_count) == (1, 0, 0)
        assert await image(store, session_id) == (made, [], [], [], (), [])
        counted = await store.increment_step_count(session_id, operation_id="count")
        assert (counted.value, counted.new_version) == (1, 2)
        assert await store.get_current_run(session_id) is None
        assert await store.get_stop_request(session_id, "run-1") is None
        result = await store.append_messages(session_id, talk(1))
        assert (result.first_index, result.count) == (0, 1)

    async def test_the_fence_survives_a_deletion(self, store: SessionStore, session_id: str) -> None:
        """A writer from before the deletion is still too late (case 10)."""
        await self._furnish(store, session_id)
        await store.delete_session(session_id)
        with pytest.raises(FencedError):
            await store.create_session(session_id, epoch=4)
        await store.create_session(session_id, epoch=5)

    async def test_a_session_that_was_deleted_is_not_begun_anew_by_who_does_not_want_that(
        self, store: SessionStore, session_id: str
    ) -> None:
        """A late writer that makes its session at first use."""
        await store.create_session(session_id, revive=False)
        await store.create_session(session_id, if_not_exists=True, revive=False)
        await store.delete_session(session_id)
        for _ in range(2):
            with pytest.raises(SessionNotFoundError, match="was deleted, and this call"):
                await store.create_session(session_id, if_not_exists=True, revive=False, operation_id="op")
        assert not await store.session_exists(session_id)
        await store.create_session(session_id)
        await store.create_session(session_id, if_not_exists=True, revive=False)

    @pytest.mark.parametrize("name", MUTATIONS)
    async def test_nothing_can_be_done_to_a_session_that_is_gone(
        self, store: SessionStore, session_id: str, name: str
    ) -> None:
        """Late writers learn that the session is deleted, and don't revive it (case 10)."""
        await store.create_session(session_id)
        await store.delete_session(session_id)
        with pytest.raises(SessionNotFoundError):
            await MUTATIONS[name](store, session_id)
        assert not await store.session_exists(session_id)

    @pytest.mark.parametrize("name", MUTATIONS)
    async def test_nothing_can_be_done_to_a_session_that_never_was(
        self, store: SessionStore, session_id: str, name: str
    ) -> None:
        """A typing error in an id makes no session (cases 10 and 18)."""
        with pytest.raises(SessionNotFoundError):
            await MUTATIONS[name](store, session_id)
        assert not await store.session_exists(session_id)
