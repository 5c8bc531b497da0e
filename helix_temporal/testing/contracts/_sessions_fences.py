"""Fences, and operations that are repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from helix_temporal.errors import (
    FencedError,
    IdempotencyConflictError,
    StaleStateError,
)
from helix_temporal.models.checkpoints import NewRun, RunChange
from helix_temporal.models.states import (
    MergeChanges,
    SessionState,
    SessionStatus,
    SubSessionRef,
)
from helix_temporal.stores.protocols.sessions import ANY_VERSION, SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    Crowd,
    SessionFixtures,
    changed,
    commits,
    image,
    loaded,
    said,
    staged,
    started,
    step,
    talk,
)

ACTIVE, PAUSED = SessionStatus.ACTIVE, SessionStatus.PAUSED


@dataclass(frozen=True)
class Doing:
    """A mutation of a session that `_furnished` made; each by epoch and operation id."""

    call: Callable[[SessionStore, str, int | None, str | None], Awaitable[object]]


async def _furnished(store: SessionStore, session_id: str) -> None:
    """A session in which each of `MUTATIONS` can be done."""
    await store.create_session(session_id)
    await store.append_messages(session_id, talk(4))
    await commits(store, session_id, 2)
    await store.stage_changes(session_id, "staged", staged("call", a=1))
    await started(store, session_id, "over")
    await store.update_run(session_id, "over", RunChange.model_validate({"status": "completed"}))
    await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id="child")])


async def _save(store: SessionStore, key: str, epoch: int | None, operation: str | None) -> object:
    state = changed(SessionState(session_id=key), version=3, step_count=9)
    return await store.save_state(
        key, state, expected_version=ANY_VERSION, epoch=epoch, operation_id=operation
    )


async def _commit(store: SessionStore, key: str, epoch: int | None, operation: str | None) -> object:
    state = SessionState(session_id=key, custom_state={"committed": True})
    return await store.save_state_and_promote_staging(
        key, state, step("staged"), expected_version=ANY_VERSION, epoch=epoch, operation_id=operation
    )


async def _restore(store: SessionStore, key: str, epoch: int | None, operation: str | None) -> object:
    page = await store.list_checkpoints(key, limit=1, order="asc")
    return await store.restore_checkpoint(key, page.items[0].id, epoch=epoch, operation_id=operation)


WITH_OPERATION: dict[str, Doing] = {
    "save_state": Doing(_save),
    "update_status": Doing(
        lambda store, key, epoch, op: store.update_status(key, PAUSED, epoch=epoch, operation_id=op)
    ),
    "compare_and_set_status": Doing(
        lambda store, key, epoch, op: store.compare_and_set_status(
            key, [ACTIVE], PAUSED, epoch=epoch, operation_id=op
        )
    ),
    "merge_custom_state": Doing(
        lambda store, key, epoch, op: store.merge_custom_state(
            key, MergeChanges(appends={"list": [1]}), epoch=epoch, operation_id=op
        )
    ),
    "increment_step_count": Doing(
        lambda store, key, epoch, op: store.increment_step_count(key, epoch=epoch, operation_id=op)
    ),
    "increment_resume_count": Doing(
        lambda store, key, epoch, op: store.increment_resume_count(key, epoch=epoch, operation_id=op)
    ),
    "append_messages": Doing(
        lambda store, key, epoch, op: store.append_messages(
            key, [said("more", message_id="more")], epoch=epoch, operation_id=op
        )
    ),
    "truncate_messages": Doing(
        lambda store, key, epoch, op: store.truncate_messages(key, 2, epoch=epoch, operation_id=op)
    ),
    "promote_staging": Doing(
        lambda store, key, epoch, op: store.promote_staging(key, "staged", epoch=epoch, operation_id=op)
    ),
    "save_state_and_promote_staging": Doing(_commit),
    "restore_checkpoint": Doing(_restore),
    "start_run": Doing(
        lambda store, key, epoch, op: store.start_run(key, NewRun(run_id="new"), epoch=epoch, operation_id=op)
    ),
    "update_run": Doing(
        lambda store, key, epoch, op: store.update_run(
            key, "over", RunChange(step_count=3), epoch=epoch, operation_id=op
        )
    ),
}
"""What takes an operation id."""

FENCED: dict[str, Doing] = {
    **WITH_OPERATION,
    "stage_changes": Doing(
        lambda store, key, epoch, op: store.stage_changes(key, "next", staged("call", a=1), epoch=epoch)
    ),
    "discard_staging": Doing(lambda store, key, epoch, op: store.discard_staging(key, "staged", epoch=epoch)),
    "prune_checkpoints": Doing(
        lambda store, key, epoch, op: store.prune_checkpoints(key, keep_last=1, epoch=epoch)
    ),
    "add_sub_session_refs": Doing(
        lambda store, key, epoch, op: store.add_sub_session_refs(
            key, [SubSessionRef(sub_session_id="another")], epoch=epoch
        )
    ),
    "update_sub_session_ref": Doing(
        lambda store, key, epoch, op: store.update_sub_session_ref(key, "child", PAUSED, epoch=epoch)
    ),
    "delete_session": Doing(lambda store, key, epoch, op: store.delete_session(key, epoch=epoch)),
}
"""What takes an epoch."""


class FenceContract(SessionFixtures):
    """A writer that was replaced changes nothing any more."""

    @pytest.mark.parametrize("name", FENCED)
    async def test_an_older_epoch_is_refused(self, store: SessionStore, session_id: str, name: str) -> None:
        """It belongs to somebody who was replaced, however late it comes (case 62)."""
        await _furnished(store, session_id)
        await store.increment_resume_count(session_id, epoch=7)
        before = await image(store, session_id)
        with pytest.raises(FencedError):
            await FENCED[name].call(store, session_id, 6, None)
        with pytest.raises(FencedError):
            await FENCED[name].call(store, session_id, 6, "operation")
        assert await image(store, session_id) == before

    @pytest.mark.parametrize("name", sorted(set(FENCED) - {"delete_session"}))
    async def test_the_same_epoch_goes_on_and_a_higher_one_is_the_fence_from_then_on(
        self, store: SessionStore, session_id: str, name: str
    ) -> None:
        """Whatever the new writer does first, the old one is too late (cases 62 and 63)."""
        await _furnished(store, session_id)
        await store.increment_resume_count(session_id, epoch=7)
        await store.increment_resume_count(session_id, epoch=7)
        await FENCED[name].call(store, session_id, 9, None)
        with pytest.raises(FencedError):
            await store.increment_resume_count(session_id, epoch=8)
        await store.increment_resume_count(session_id, epoch=9)

    async def test_a_store_that_asks_for_no_fences_takes_writes_without(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Who has no other writer need not number itself (case 63)."""
        await store.increment_resume_count(session_id, epoch=7)
        assert (await store.increment_resume_count(session_id)).value == 2

    async def test_an_epoch_may_be_as_large_as_a_clock(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Epochs are microseconds since 1970, told apart to the last digit (case 62)."""
        await store.increment_resume_count(session_id, epoch=2**62 + 1)
        with pytest.raises(FencedError):
            await store.increment_resume_count(session_id, epoch=2**62)
        await store.increment_resume_count(session_id, epoch=2**62 + 1)


class OperationContract(SessionFixtures):
    """An operation that is repeated has one effect and one answer."""

    @pytest.mark.parametrize("name", WITH_OPERATION)
    async def test_a_repeat_gets_the_first_answer(
        self, store: SessionStore, session_id: str, name: str
    ) -> None:
        """At once or however late, it is no second change, nor a stale one (cases 26 and 47)."""
        await _furnished(store, session_id)
        first = await WITH_OPERATION[name].call(store, session_id, None, "operation")
        after = await image(store, session_id)
        assert await WITH_OPERATION[name].call(store, session_id, None, "operation") == first
        assert await image(store, session_id) == after
        await store.merge_custom_state(session_id, MergeChanges(values={"later": 1}))
        await store.update_status(session_id, SessionStatus.INTERRUPTED)
        after = await image(store, session_id)
        assert await WITH_OPERATION[name].call(store, session_id, None, "operation") == first
        assert await image(store, session_id) == after

    @pytest.mark.parametrize("name", WITH_OPERATION)
    async def test_overlapping_attempts_are_one(
        self, store: SessionStore, crowd: Crowd, session_id: str, name: str
    ) -> None:
        """An attempt that was given up may still be under way when the next one starts (case 26)."""
        await _furnished(store, session_id)
        calls = [WITH_OPERATION[name].call(next(crowd), session_id, None, "operation") for _ in range(4)]
        outcomes = await asyncio.gather(*calls)
        after = await image(store, session_id)
        assert outcomes == [outcomes[0]] * 4
        assert await WITH_OPERATION[name].call(store, session_id, None, "operation") == outcomes[0]
        assert await image(store, session_id) == after

    @pytest.mark.parametrize("name", [each for each in WITH_OPERATION if each != "update_status"])
    async def test_an_operation_id_is_not_used_twice(
        self, store: SessionStore, session_id: str, name: str
    ) -> None:
        """The same id for something else is a mistake that must be heard of (case 48)."""
        await _furnished(store, session_id)
        await store.update_status(session_id, SessionStatus.ACTIVE, operation_id="operation")
        before = await image(store, session_id)
        with pytest.raises(IdempotencyConflictError):
            await WITH_OPERATION[name].call(store, session_id, None, "operation")
        assert await image(store, session_id) == before

    async def test_an_operation_is_its_content_too(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Other arguments under the same id are another request (case 48)."""
        await store.merge_custom_state(session_id, MergeChanges(values={"a": 1}), operation_id="operation")
        with pytest.raises(IdempotencyConflictError):
            await store.merge_custom_state(
                session_id, MergeChanges(values={"a": 2}), operation_id="operation"
            )
        assert (await loaded(store, session_id)).custom_state == {"a": 1}

    async def test_operations_of_two_sessions_are_two(self, store: SessionStore, session_id: str) -> None:
        """An id counts within its session (case 26)."""
        await store.create_session(session_id)
        await store.create_session(f"{session_id}-other")
        first = await store.increment_step_count(session_id, operation_id="operation")
        other = await store.increment_step_count(f"{session_id}-other", operation_id="operation")
        assert (first.value, other.value) == (1, 1)

    async def test_a_refused_operation_is_not_remembered(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """What had no effect may be tried again (case 26)."""
        with pytest.raises(StaleStateError):
            await store.save_state(session_id, state, expected_version=9, operation_id="operation")
        assert (await store.update_status(session_id, PAUSED, operation_id="operation")).new_version == 2

    async def test_old_operations_are_forgotten(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """They are kept for as long as anybody may repeat them, not for ever (case 26)."""
        await store.increment_step_count(session_id, operation_id="operation")
        assert await store.purge_operations(older_than_ms=3_600_000) == 0
        again = await store.increment_step_count(session_id, operation_id="operation")
        assert again.value == 1
        await asyncio.sleep(0.02)  # the store's clock counts milliseconds
        assert await store.purge_operations(older_than_ms=1) == 1
        again = await store.increment_step_count(session_id, operation_id="operation")
        assert again.value == 2
