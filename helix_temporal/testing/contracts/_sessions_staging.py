"""Staged changes: kept aside, then folded into the state all at once."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import PatchConflictError, StaleStateError, StepClosedError
from helix_temporal.models.checkpoints import JsonPatchOp, StagedRow
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    changed,
    commits,
    image,
    loaded,
    patch,
    staged,
    step,
)

DOCUMENT: dict[str, Any] = {"a": 1, "list": [1, 2, 3], "deep": {"x": {"y": 1}}, "a/b": 1, "m~n": 2}

PATCHES: dict[str, tuple[JsonPatchOp, dict[str, Any]]] = {
    "add a key": (patch("add", "/new", {"z": None}), {**DOCUMENT, "new": {"z": None}}),
    "add over a key": (patch("add", "/a", [2]), {**DOCUMENT, "a": [2]}),
    "add at an index": (patch("add", "/list/1", 9), {**DOCUMENT, "list": [1, 9, 2, 3]}),
    "add at the end": (patch("add", "/list/-", 9), {**DOCUMENT, "list": [1, 2, 3, 9]}),
    "add null": (patch("add", "/new", None), {**DOCUMENT, "new": None}),
    "replace": (patch("replace", "/deep/x", 5), {**DOCUMENT, "deep": {"x": 5}}),
    "replace all": (patch("replace", "", {"only": 1}), {"only": 1}),
    "remove a key": (patch("remove", "/deep/x/y"), {**DOCUMENT, "deep": {"x": {}}}),
    "remove an index": (patch("remove", "/list/0"), {**DOCUMENT, "list": [2, 3]}),
    "move": (
        patch("move", "/deep/z", source="/list"),
        {key: value for key, value in DOCUMENT.items() if key != "list"}
        | {"deep": {"x": {"y": 1}, "z": [1, 2, 3]}},
    ),
    "copy": (patch("copy", "/deep/z", source="/a"), {**DOCUMENT, "deep": {"x": {"y": 1}, "z": 1}}),
    "test": (patch("test", "/deep", {"x": {"y": 1}}), DOCUMENT),
    "a slash in a key": (patch("replace", "/a~1b", 7), {**DOCUMENT, "a/b": 7}),
    "a tilde in a key": (patch("replace", "/m~0n", 7), {**DOCUMENT, "m~n": 7}),
}

IMPOSSIBLE = {
    "missing path": patch("replace", "/nowhere/at/all", 1),
    "missing key": patch("remove", "/nowhere"),
    "index beyond the end": patch("add", "/list/9", 1),
    "failed test": patch("test", "/a", 2),
    "nothing to move": patch("move", "/b", source="/nowhere"),
    "into a number": patch("add", "/a/b", 1),
    "no longer an object": patch("replace", "", [1]),
}


class StagingContract(SessionFixtures):
    """A step's changes are prepared by many and take effect together."""

    @pytest.fixture
    async def document(self, store: SessionStore, session_id: str) -> SessionState:
        """A session with some custom state, at version 2."""
        state = await store.create_session(session_id)
        await store.save_state(session_id, changed(state, custom_state=DOCUMENT))
        return await loaded(store, session_id)

    async def test_a_staged_change_is_not_visible(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """A step that fails has changed nothing (case 34)."""
        await commits(store, session_id, 1)
        before = await loaded(store, session_id)
        checkpoint = await store.get_latest_checkpoint(session_id)
        change = staged("call", patch("replace", "/a", 2), at=7)
        await store.stage_changes(session_id, "step-2", change)
        assert await loaded(store, session_id) == before
        assert await store.get_latest_checkpoint(session_id) == checkpoint
        assert await store.list_staged(session_id) == [StagedRow(step_id="step-2", change=change)]

    async def test_a_call_that_is_made_again_replaces_its_change(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """A tool's second attempt does not count twice (case 35)."""
        await store.stage_changes(session_id, "step-1", staged("call", patch("add", "/list/-", 4), at=1))
        again = staged("call", patch("add", "/list/-", 5), at=2)
        await store.stage_changes(session_id, "step-1", again)
        assert [row.change for row in await store.list_staged(session_id, "step-1")] == [again]
        result = await store.promote_staging(session_id, "step-1")
        assert (result.promoted, result.new_version) == (1, 3)
        assert (await loaded(store, session_id)).custom_state["list"] == [1, 2, 3, 5]

    @pytest.mark.parametrize("name", PATCHES)
    async def test_patches_are_rfc_6902(
        self, store: SessionStore, document: SessionState, session_id: str, name: str
    ) -> None:
        """What other implementations send means the same here (case 36)."""
        operation, expected = PATCHES[name]
        await store.stage_changes(session_id, "step-1", staged("call", operation))
        await store.promote_staging(session_id, "step-1")
        assert (await loaded(store, session_id)).custom_state == expected

    async def test_two_tools_add_to_one_list(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """In the order of time, then of the call's id, whoever came first (case 37)."""
        for call, at in [("b", 2), ("c", 1), ("a", 2)]:
            await store.stage_changes(
                session_id, "step-1", staged(call, patch("add", "/list/-", call), at=at)
            )
        assert [row.change.tool_call_id for row in await store.list_staged(session_id)] == ["c", "a", "b"]
        await store.promote_staging(session_id, "step-1")
        assert (await loaded(store, session_id)).custom_state["list"] == [1, 2, 3, "c", "a", "b"]

    async def test_a_change_that_is_given_twice_counts_once(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """With patches the same change by key is for other readers (case 38)."""
        change = staged("call", patch("add", "/list/-", 4), list=[1, 2, 3, 4, 4])
        await store.stage_changes(session_id, "step-1", change)
        await store.promote_staging(session_id, "step-1")
        assert (await loaded(store, session_id)).custom_state["list"] == [1, 2, 3, 4]

    async def test_a_change_by_key_counts_without_patches(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """Tools need not know about patches (case 38)."""
        await store.stage_changes(session_id, "step-1", staged("call", a=2, b=None))
        await store.promote_staging(session_id, "step-1")
        assert (await loaded(store, session_id)).custom_state == {**DOCUMENT, "a": 2, "b": None}

    @pytest.mark.parametrize("name", IMPOSSIBLE)
    async def test_a_patch_that_fails_fails_all(
        self, store: SessionStore, document: SessionState, session_id: str, name: str
    ) -> None:
        """A lost update would be worse; what was staged is still there to look at (case 39)."""
        await store.stage_changes(session_id, "step-1", staged("call-1", patch("replace", "/a", 5), at=1))
        await store.stage_changes(session_id, "step-1", staged("call-2", IMPOSSIBLE[name], at=2))
        before = await image(store, session_id)
        with pytest.raises(PatchConflictError):
            await store.promote_staging(session_id, "step-1")
        assert await image(store, session_id) == before

    async def test_a_patch_that_fails_may_be_left_out(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """Only who asks for it, and is told which (case 39)."""
        await store.stage_changes(session_id, "step-1", staged("call-1", patch("add", "/list/-", 4), at=1))
        broken = staged("call-2", patch("add", "/list/-", 5), patch("remove", "/nowhere"), at=2)
        await store.stage_changes(session_id, "step-1", broken)
        result = await store.promote_staging(session_id, "step-1", on_conflict="warn")
        assert (result.promoted, len(result.warnings)) == (1, 1)
        assert "call-2" in result.warnings[0]
        assert (await loaded(store, session_id)).custom_state["list"] == [1, 2, 3, 4]
        assert await store.list_staged(session_id) == []

    async def test_a_second_promotion_does_nothing(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """Nothing is left to promote, and there is no new version (case 40)."""
        await store.stage_changes(session_id, "step-1", staged("call", patch("add", "/list/-", 4)))
        await store.promote_staging(session_id, "step-1")
        after = await image(store, session_id)
        again = await store.promote_staging(session_id, "step-1")
        assert (again.promoted, again.new_version) == (0, 3)
        assert await image(store, session_id) == after

    @pytest.mark.parametrize("commit", [False, True])
    async def test_only_changes_whose_result_is_named_count(
        self, store: SessionStore, document: SessionState, session_id: str, commit: bool
    ) -> None:
        """Other attempts of a tool may have left theirs; what came with no result counts always."""
        one, two = (staged(f"call/{name}", a=name).model_copy(update={"result": name}) for name in "xy")
        for change in (one, two, staged("other", b=1)):
            await store.stage_changes(session_id, "step-1", change)
        if commit:
            await store.save_state_and_promote_staging(session_id, document, step(results=("x",)))
        else:
            assert (await store.promote_staging(session_id, "step-1", results=("x",))).promoted == 2
        assert (await loaded(store, session_id)).custom_state == {**DOCUMENT, "a": "x", "b": 1}
        assert await store.list_staged(session_id) == []

    async def test_changes_of_which_none_counts_are_dropped(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """The state stays as it was, and nothing is left behind."""
        change = staged("call", a=2).model_copy(update={"result": "x"})
        await store.stage_changes(session_id, "step-1", change)
        assert (await store.promote_staging(session_id, "step-1", results=())).promoted == 0
        assert await loaded(store, session_id) == document
        assert await store.list_staged(session_id) == []

    async def test_staged_changes_are_dropped(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """After that nothing is promoted, and nothing is left to drop (case 40)."""
        await store.stage_changes(session_id, "step-1", staged("call-1", a=2))
        await store.stage_changes(session_id, "step-1", staged("call-2", a=3))
        assert await store.discard_staging(session_id, "step-1") == 2
        assert await store.discard_staging(session_id, "step-1") == 0
        assert (await store.promote_staging(session_id, "step-1")).promoted == 0
        assert await loaded(store, session_id) == document

    async def test_a_promotion_at_another_version_is_refused(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """What the caller has not seen is not built upon (case 40)."""
        await store.stage_changes(session_id, "step-1", staged("call", a=2))
        before = await image(store, session_id)
        with pytest.raises(StaleStateError):
            await store.promote_staging(session_id, "step-1", expected_version=1)
        assert await image(store, session_id) == before

    async def test_a_committed_step_is_closed(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """A tool that comes late learns that its change will never count (case 41)."""
        await store.stage_changes(session_id, "step-1", staged("call", a=2))
        await store.save_state_and_promote_staging(session_id, document, step())
        after = await image(store, session_id)
        with pytest.raises(StepClosedError):
            await store.stage_changes(session_id, "step-1", staged("late", a=3))
        with pytest.raises(StepClosedError):
            await store.stage_changes(session_id, "step-1", staged("call", a=3))
        assert await image(store, session_id) == after

    async def test_a_committed_change_may_be_repeated(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """An attempt whose answer was lost did what it was to do (case 41)."""
        await store.stage_changes(session_id, "step-1", staged("call", a=2))
        await store.save_state_and_promote_staging(session_id, document, step())
        after = await image(store, session_id)
        await store.stage_changes(session_id, "step-1", staged("call", a=2))
        assert await image(store, session_id) == after

    async def test_steps_don_t_meet(
        self, store: SessionStore, document: SessionState, session_id: str
    ) -> None:
        """One is promoted, the other stays staged (case 42)."""
        await store.stage_changes(session_id, "step-1", staged("call", a=2))
        other = staged("call", b=3)
        await store.stage_changes(session_id, "step-2", other)
        await store.promote_staging(session_id, "step-1")
        assert (await loaded(store, session_id)).custom_state == {**DOCUMENT, "a": 2}
        assert await store.list_staged(session_id) == [StagedRow(step_id="step-2", change=other)]
        assert await store.discard_staging(session_id, "step-2") == 1

    async def test_changes_of_two_steps_are_listed_in_one_order(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Calls of two steps may have one name and one time: each store lists them alike."""
        await store.create_session(session_id)
        for step_id in ("step-2", "step-1"):
            await store.stage_changes(session_id, step_id, staged("call", patch("add", "/a", 1), at=7))
        assert [row.step_id for row in await store.list_staged(session_id)] == ["step-1", "step-2"]

    async def test_many_tools_stage_at_once(
        self, store: SessionStore, crowd: Crowd, document: SessionState, session_id: str
    ) -> None:
        """All of them are in the step (case 43)."""
        changes = [staged(f"call-{n:02}", patch("add", "/list/-", n), at=n) for n in range(MANY)]
        await asyncio.gather(*(next(crowd).stage_changes(session_id, "step-1", each) for each in changes))
        assert [row.change for row in await store.list_staged(session_id)] == changes
        assert (await store.promote_staging(session_id, "step-1")).promoted == MANY
        assert (await loaded(store, session_id)).custom_state["list"] == [1, 2, 3, *range(MANY)]
