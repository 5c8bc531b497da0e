"""Activities of the session store, each run as two attempts of one: the first one's answer, one effect."""

import dataclasses
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.stores import CheckpointActivities, SessionStoreActivities
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

NOTE = {"id": "m1", "role": "user", "content": "one"}
STAGED = {"tool_call_id": "c1", "merge_changes": {"total": 12}}
CHILD = {"sub_session_id": "child", "parent_session_id": "s", "agent_type": "helper"}


class Caller:
    """Runs activities as a worker does: inputs and results go through Temporal's converter."""

    def __init__(self) -> None:
        backend = MemoryBackend()
        self.store = RowSessions(backend.sessions, HotThreads(backend.threads))
        self._groups = (SessionStoreActivities(self.store), CheckpointActivities(self.store))
        self._number = 0
        self.functions: dict[str, Callable[..., Any]] = {}
        for group in self._groups:
            for attribute in dir(group):
                function = getattr(group, attribute)
                found = getattr(function, "__temporal_activity_definition", None)
                if found is not None:
                    self.functions[found.name] = function

    async def once(self, name: str, **fields: Any) -> Any:
        """The answer of the next activity's only attempt."""
        self._number += 1
        return await self._attempt(name, fields)

    async def twice(self, name: str, **fields: Any) -> Any:
        """The answer of both attempts of the next activity; the store stands as after the first."""
        self._number += 1
        first = await self._attempt(name, fields)
        stood = await self.standing()
        assert await self._attempt(name, fields) == first
        assert await self.standing() == stood
        return first

    async def standing(self) -> Any:
        """Everything that an effect would change."""
        states = [await self.store.load_state(each) async for each in self.store.iter_session_ids()]
        texts = (await self.store.get_messages("s")).messages
        return states, texts, await self.store.list_runs("s"), await self.store.list_staged("s")

    async def _attempt(self, name: str, fields: dict[str, Any]) -> Any:
        function = self.functions[name]
        hints = get_type_hints(_unwrapped(function))
        kind, result = hints["request"], hints["return"]
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, activity_id=str(self._number))
        converter = pydantic_data_converter.payload_converter
        request = converter.from_payload(converter.to_payload(kind.model_validate(fields)), kind)
        answer = await environment.run(function, request)
        assert converter.from_payload(converter.to_payload(answer), result) == answer
        return answer


def _unwrapped(function: Any) -> Any:
    """The activity itself, without what types its errors."""
    return getattr(function, "__wrapped__", function)


@pytest.fixture
async def call() -> Caller:
    """A caller with a session ``s``."""
    caller = Caller()
    await caller.once("helix.sessions.create", session_id="s")
    return caller


CALLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "helix.sessions.create": (("helix.sessions.create", {"session_id": "t"}),),
    "helix.sessions.load": (("helix.sessions.load", {"session_id": "s"}),),
    "helix.sessions.save_state": (
        ("helix.sessions.save_state", {"session_id": "s", "state": {"session_id": "s", "tags": ["a"]}}),
    ),
    "helix.sessions.update_status": (
        ("helix.sessions.update_status", {"session_id": "s", "status": "paused"}),
    ),
    "helix.sessions.compare_and_set_status": (
        (
            "helix.sessions.compare_and_set_status",
            {"session_id": "s", "expected": ["active"], "new": "paused"},
        ),
    ),
    "helix.sessions.merge_custom_state": (
        (
            "helix.sessions.merge_custom_state",
            {"session_id": "s", "changes": {"appends": {"list": [1]}}},
        ),
    ),
    "helix.sessions.fork": (("helix.sessions.fork", {"session_id": "s", "new_session_id": "f"}),),
    "helix.sessions.append_messages": (
        ("helix.sessions.append_messages", {"session_id": "s", "messages": [NOTE]}),
    ),
    "helix.sessions.get_messages": (
        ("helix.sessions.append_messages", {"session_id": "s", "messages": [NOTE]}),
        ("helix.sessions.get_messages", {"session_id": "s"}),
    ),
    "helix.sessions.truncate_messages": (
        ("helix.sessions.append_messages", {"session_id": "s", "messages": [NOTE]}),
        ("helix.sessions.truncate_messages", {"session_id": "s", "count": 0}),
    ),
    "helix.sessions.start_run": (("helix.sessions.start_run", {"session_id": "s", "run": {"run_id": "r"}}),),
    "helix.sessions.update_run": (
        ("helix.sessions.start_run", {"session_id": "s", "run": {"run_id": "r"}}),
        (
            "helix.sessions.update_run",
            {"session_id": "s", "run_id": "r", "change": {"status": "completed"}},
        ),
    ),
    "helix.sessions.current_run": (
        ("helix.sessions.start_run", {"session_id": "s", "run": {"run_id": "r"}}),
        ("helix.sessions.current_run", {"session_id": "s"}),
    ),
    "helix.sessions.list_runs": (("helix.sessions.list_runs", {"session_id": "s"}),),
    "helix.sessions.request_stop": (
        ("helix.sessions.start_run", {"session_id": "s", "run": {"run_id": "r"}}),
        ("helix.sessions.request_stop", {"session_id": "s", "run_id": "r"}),
    ),
    "helix.sessions.get_stop_request": (
        ("helix.sessions.start_run", {"session_id": "s", "run": {"run_id": "r"}}),
        ("helix.sessions.get_stop_request", {"session_id": "s", "run_id": "r"}),
    ),
    "helix.sessions.add_sub_session_refs": (
        ("helix.sessions.add_sub_session_refs", {"session_id": "s", "refs": [CHILD]}),
    ),
    "helix.sessions.update_sub_session_ref": (
        ("helix.sessions.add_sub_session_refs", {"session_id": "s", "refs": [CHILD]}),
        (
            "helix.sessions.update_sub_session_ref",
            {"session_id": "s", "sub_session_id": "child", "status": "completed"},
        ),
    ),
    "helix.sessions.list_sub_session_refs": (
        ("helix.sessions.add_sub_session_refs", {"session_id": "s", "refs": [CHILD]}),
        ("helix.sessions.list_sub_session_refs", {"session_id": "s"}),
    ),
    "helix.sessions.increment_step_count": (("helix.sessions.increment_step_count", {"session_id": "s"}),),
    "helix.sessions.increment_resume_count": (
        ("helix.sessions.increment_resume_count", {"session_id": "s"}),
    ),
    "helix.sessions.list": (("helix.sessions.list", {}),),
    "helix.sessions.list_expired": (("helix.sessions.list_expired", {}),),
    "helix.checkpoints.stage": (
        ("helix.checkpoints.stage", {"session_id": "s", "step_id": "1", "change": STAGED}),
    ),
    "helix.checkpoints.list_staged": (
        ("helix.checkpoints.stage", {"session_id": "s", "step_id": "1", "change": STAGED}),
        ("helix.checkpoints.list_staged", {"session_id": "s", "step_id": "1"}),
    ),
    "helix.checkpoints.promote": (
        ("helix.checkpoints.stage", {"session_id": "s", "step_id": "1", "change": STAGED}),
        ("helix.checkpoints.promote", {"session_id": "s", "step_id": "1"}),
    ),
    "helix.checkpoints.commit": (
        ("helix.checkpoints.stage", {"session_id": "s", "step_id": "1", "change": STAGED}),
        (
            "helix.checkpoints.commit",
            {"session_id": "s", "change": {"steps": 1}, "step": {"step_id": "1", "step_count": 1}},
        ),
    ),
    "helix.checkpoints.latest": (("helix.checkpoints.latest", {"session_id": "s"}),),
    "helix.checkpoints.snapshot": (
        ("helix.checkpoints.commit", {"session_id": "s", "change": {"steps": 1}, "step": {"step_id": "1"}}),
        ("helix.checkpoints.snapshot", {"session_id": "s"}),
    ),
    "helix.checkpoints.list": (("helix.checkpoints.list", {"session_id": "s"}),),
}
"""Each activity, last, after what it needs."""

DIFFERENT = {
    # A repeat finds nothing left, which its answer says; its effect is one all the same.
    "helix.sessions.delete",
    "helix.checkpoints.discard",
    "helix.checkpoints.prune",
    # Tested with what they need below.
    "helix.sessions.submit_tool_result",
    "helix.checkpoints.get",
    "helix.checkpoints.restore",
}


def test_every_activity_is_tested_here() -> None:
    """One that is added must be one that can be repeated."""
    assert set(Caller().functions) == CALLS.keys() | DIFFERENT


@pytest.mark.parametrize("name", CALLS)
async def test_two_attempts_have_one_effect_and_one_answer(call: Caller, name: str) -> None:
    """A reply that was lost is given again, not made anew."""
    *before, (last, fields) = CALLS[name]
    for each, given in before:
        await call.once(each, **given)
    await call.twice(last, **fields)


async def test_a_checkpoint_is_read_and_restored_once(call: Caller) -> None:
    """The state after a restore is one version further, whatever the attempts."""
    fields = {"session_id": "s", "change": {"steps": 1}, "step": {"step_id": "1", "step_count": 1}}
    committed = await call.once("helix.checkpoints.commit", **fields)
    key = {"session_id": "s", "checkpoint_id": committed.checkpoint_id}
    found = await call.twice("helix.checkpoints.get", **key)
    restored = await call.twice("helix.checkpoints.restore", **key)
    assert found.checkpoint.id == committed.checkpoint_id
    assert restored.version == committed.new_version + 1


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("helix.sessions.delete", {}),
        ("helix.checkpoints.discard", {"step_id": "1"}),
        ("helix.checkpoints.prune", {"keep_last": 1}),
    ],
)
async def test_removing_again_removes_nothing_more(call: Caller, name: str, fields: dict[str, Any]) -> None:
    """Its second answer counts what is left to remove: nothing."""
    await call.once("helix.checkpoints.stage", session_id="s", step_id="1", change=STAGED)
    for number in (2, 3):
        step = {"step_id": str(number), "step_count": number}
        await call.once("helix.checkpoints.commit", session_id="s", change={"steps": 1}, step=step)
    first = await call.once(name, session_id="s", **fields)
    stood = await call.standing()
    again = await call.once(name, session_id="s", **fields)
    assert (list(first.model_dump().values()), list(again.model_dump().values())) == ([1], [0])
    assert await call.standing() == stood


async def test_a_tool_result_for_nothing_is_an_answer_not_an_error(call: Caller) -> None:
    """Submissions come from clients: whatever they say is decided, and the same for both attempts."""
    submission = {"tool_call_id": "c", "response": {"ok": True}}
    await call.twice("helix.sessions.submit_tool_result", session_id="s", submission=submission)


@pytest.mark.parametrize(
    ("name", "fields", "kind"),
    [
        ("helix.sessions.save_state", {"state": {"session_id": "s", "version": 7}}, "StaleStateError"),
        ("helix.sessions.create", {}, "SessionExistsError"),
        (
            "helix.sessions.update_status",
            {"session_id": "nobody", "status": "paused"},
            "SessionNotFoundError",
        ),
        ("helix.checkpoints.commit", {"step": {"step_id": "1"}}, "InvalidRequestError"),
    ],
)
async def test_errors_are_typed_and_final(call: Caller, name: str, fields: dict[str, Any], kind: str) -> None:
    """A workflow decides by the type, and Temporal does not try again what cannot become better."""
    with pytest.raises(ApplicationError) as caught:
        await call.once(name, **{"session_id": "s", **fields})
    assert (caught.value.type, caught.value.non_retryable) == (kind, True)


async def test_an_append_passes_on_all_that_is_asked_for(call: Caller) -> None:
    """Two attempts are one change."""
    change = {"title": "t", "metadata": {"values": {"a": 1}}, "merge": {"appends": {"log": [1]}}}
    result = await call.twice(
        "helix.sessions.append_messages", session_id="s", messages=[NOTE], change=change, expected_version=1
    )
    assert (result.first_index, result.new_version) == (0, 2)
    state = await call.store.load_state("s")
    assert state is not None
    assert (state.title, state.metadata, state.custom_state) == ("t", {"a": 1}, {"log": [1]})
    other = {**NOTE, "content": "other"}
    result = await call.twice(
        "helix.sessions.append_messages", session_id="s", messages=[other], on_duplicate="keep_first"
    )
    assert (result.first_index, result.new_version) == (0, None)
    page = await call.once("helix.sessions.list", include=["custom_state"])
    assert [(each.title, each.custom_state) for each in page.sessions] == [("t", {"log": [1]})]
    with pytest.raises(ApplicationError) as caught:
        await call.once("helix.sessions.append_messages", session_id="s", messages=[NOTE], expected_version=1)
    assert caught.value.type == "StaleStateError"


async def test_a_page_of_sessions_that_is_too_big_for_a_history_is_refused(call: Caller) -> None:
    """Custom states may be large; whoever reaches the store lists them there."""
    changes = {"values": {"text": "secret" * 100_000}}
    await call.once("helix.sessions.merge_custom_state", session_id="s", changes=changes)
    await call.once("helix.sessions.list")
    with pytest.raises(ApplicationError, match=r"page of sessions: .* bytes") as caught:
        await call.once("helix.sessions.list", include=["custom_state"])
    assert caught.value.type == "TooLargeError"
    assert "secret" not in str(caught.value)


async def test_what_is_too_big_for_a_history_is_refused_without_its_content(call: Caller) -> None:
    """The error says how big, not what."""
    note = {**NOTE, "content": "secret" * 100_000}
    await call.once("helix.sessions.append_messages", session_id="s", messages=[note])
    with pytest.raises(ApplicationError, match="bytes") as caught:
        await call.once("helix.sessions.get_messages", session_id="s")
    assert caught.value.type == "TooLargeError"
    assert "secret" not in str(caught.value)
