"""Whatever is handed to the session store: a typed error, and nothing anywhere has changed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from helix_temporal.errors import (
    HelixError,
    InvalidCursorError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    SessionNotFoundError,
    StaleStateError,
    TooLargeError,
)
from helix_temporal.models.checkpoints import JsonPatchOp, NewRun, RunChange, StagedChange, StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import (
    ClientToolResponse,
    CreateSession,
    ErrorInfo,
    MergeChanges,
    SessionState,
    SessionStatus,
    StateChange,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.paging import encode_cursor
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.sessions import RowSessions
from tests.unit.stores.sessions._stores import Together

ACTIVE, PAUSED = SessionStatus.ACTIVE, SessionStatus.PAUSED
STATE = SessionState(session_id="s")


def with_fields(model: Any, **fields: Any) -> Any:
    """A copy with values that nobody has looked at, as `model_copy` makes them."""
    return model.model_copy(update=fields)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@dataclass(frozen=True)
class Bad:
    """A call, and the error that it must give."""

    call: Callable[[RowSessions], Awaitable[object]]
    error: type[HelixError]


def save(**fields: Any) -> Callable[[RowSessions], Awaitable[object]]:
    return lambda store: store.save_state("s", with_fields(STATE, **fields))


IDS: dict[str, object] = {
    "none": None,
    "a number": 5,
    "bytes": b"x",
    "true": True,
    "empty": "",
    "too long": "x" * 257,
    "a NUL": "a\x00b",
    "a line": "a\nb",
    "half a pair": "\ud800",
}

ID_PLACES: dict[str, Callable[[RowSessions, Any], Awaitable[object]]] = {
    "a session to load": lambda store, bad: store.load_state(bad),
    "a session to look for": lambda store, bad: store.session_exists(bad),
    "a session to create": lambda store, bad: store.create_session(bad),
    "a session to save": lambda store, bad: store.save_state(bad, STATE),
    "a session to delete": lambda store, bad: store.delete_session(bad),
    "a session to read": lambda store, bad: store.get_messages(bad),
    "a session to list": lambda store, bad: store.list_checkpoints(bad),
    "the source of a fork": lambda store, bad: store.fork_session(bad, "t"),
    "the target of a fork": lambda store, bad: store.fork_session("s", bad),
    "an operation": lambda store, bad: store.increment_step_count("s", operation_id=bad),
    "a step to stage": lambda store, bad: store.stage_changes("s", bad, StagedChange(tool_call_id="c")),
    "a step to promote": lambda store, bad: store.promote_staging("s", bad),
    "a step to discard": lambda store, bad: store.discard_staging("s", bad),
    "a run to find": lambda store, bad: store.get_run("s", bad),
    "a run to change": lambda store, bad: store.update_run("s", bad, RunChange()),
    "a child": lambda store, bad: store.update_sub_session_ref("s", bad, ACTIVE),
    "a tool call": lambda store, bad: store.resolve_tool_call_owner("s", bad),
}

# No operation id is no mistake.
BAD_IDS = [(at, bad) for at in ID_PLACES for bad in IDS if (at, bad) != ("an operation", "none")]

TEXTS = {"a NUL": "a\x00b", "half a pair": "a\ud83d"}

TEXT_PLACES: dict[str, Callable[[RowSessions, str], Awaitable[object]]] = {
    "agent_type": lambda store, bad: save(agent_type=bad)(store),
    "user_id": lambda store, bad: save(user_id=bad)(store),
    "stream_id": lambda store, bad: save(stream_id=bad)(store),
    "current_run_id": lambda store, bad: save(current_run_id=bad)(store),
    "failure_reason": lambda store, bad: save(failure_reason=bad)(store),
    "tags": lambda store, bad: save(tags=("ok", bad))(store),
    "metadata": lambda store, bad: save(metadata={"k": bad})(store),
    "a key of metadata": lambda store, bad: save(metadata={bad: 1})(store),
    "custom state": lambda store, bad: save(custom_state={"a": [{"b": bad}]})(store),
    "a key of custom state": lambda store, bad: save(custom_state={bad: 1})(store),
    "output": lambda store, bad: save(output=[bad])(store),
    "error": lambda store, bad: save(error=with_fields(ErrorInfo(), message=bad))(store),
    "an unknown field": lambda store, bad: store.save_state(
        "s", SessionState.model_construct(None, session_id="s", version=1, novel=bad)
    ),
    "a reason": lambda store, bad: store.update_status("s", PAUSED, failure_reason=bad),
    "a reason to stop": lambda store, bad: store.request_stop("s", kind="abort", reason=bad),
    "a merge": lambda store, bad: store.merge_custom_state(
        "s", with_fields(MergeChanges(), values={"a": bad})
    ),
    "an append": lambda store, bad: store.merge_custom_state(
        "s", with_fields(MergeChanges(), appends={"a": [bad]})
    ),
    "a staged change": lambda store, bad: store.stage_changes(
        "s", "t", with_fields(StagedChange(tool_call_id="c"), merge_changes={"a": bad})
    ),
    "a state change": lambda store, bad: store.save_state_and_promote_staging(
        "s", with_fields(StateChange(), output=bad), StepCommit(step_id="t")
    ),
    "a message": lambda store, bad: store.append_messages(
        "s", [with_fields(Message(id="m", role="user"), content=bad)]
    ),
    "a tool result": lambda store, bad: store.submit_tool_result(
        "s",
        with_fields(
            ToolResultSubmission(tool_call_id="c", response=ClientToolResponse()),
            response=with_fields(ClientToolResponse(), result={"a": bad}),
        ),
    ),
    "a workflow": lambda store, bad: store.start_run("s", with_fields(NewRun(run_id="r"), workflow_id=bad)),
    "a child's agent": lambda store, bad: store.add_sub_session_refs(
        "s", [with_fields(SubSessionRef(sub_session_id="c"), agent_type=bad)]
    ),
}

VALUES = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "too deep": deep(70),
    "far too deep": deep(100_000),
    "too large a number": 2**70,
    "a number of 5,000 digits": 10**5000,
    "an object": object(),
    "a set": {1},
    "bytes": b"x",
    "a cycle": cycle(),
}

CALLS: dict[str, Bad] = {
    "a stale version": Bad(lambda store: store.save_state("s", STATE, expected_version=7), StaleStateError),
    "version true": Bad(
        lambda store: store.save_state("s", STATE, expected_version=True), InvalidRequestError
    ),
    "version 1.0": Bad(
        lambda store: store.save_state("s", STATE, expected_version=cast("int", 1.0)), InvalidRequestError
    ),
    "version 2**70": Bad(
        lambda store: store.compare_and_set_status("s", [ACTIVE], PAUSED, expected_version=2**70),
        InvalidRequestError,
    ),
    "version 0": Bad(lambda store: store.delete_session("s", expected_version=0), InvalidRequestError),
    "a state of another session": Bad(
        lambda store: store.save_state("s", SessionState(session_id="t")), InvalidRequestError
    ),
    "a dict for a state": Bad(
        lambda store: store.save_state("s", cast("SessionState", {"session_id": "s"})), InvalidRequestError
    ),
    "a fractional time": Bad(save(expires_at=1.5), InvalidRequestError),
    "a time before 1970": Bad(save(expires_at=-1), InvalidRequestError),
    "a count below 0": Bad(save(step_count=-1), InvalidRequestError),
    "a status that is none": Bad(
        lambda store: store.update_status("s", cast("SessionStatus", "sleeping")), InvalidRequestError
    ),
    "epoch -1": Bad(lambda store: store.increment_step_count("s", epoch=-1), InvalidRequestError),
    "epoch true": Bad(lambda store: store.increment_step_count("s", epoch=True), InvalidRequestError),
    "epoch 2**63": Bad(lambda store: store.increment_step_count("s", epoch=2**63), InvalidRequestError),
    "an expiry that is text": Bad(
        lambda store: store.compare_and_set_status("s", [ACTIVE], PAUSED, expires_at=cast("int", "5")),
        InvalidRequestError,
    ),
    "limit 0": Bad(lambda store: store.list_runs("s", limit=0), InvalidRequestError),
    "limit 10**9": Bad(lambda store: store.list_expired(limit=10**9), InvalidRequestError),
    "limit true": Bad(lambda store: store.list_checkpoints("s", limit=True), InvalidRequestError),
    "offset -1": Bad(lambda store: store.get_messages("s", offset=-1), InvalidRequestError),
    "an order that is none": Bad(
        lambda store: store.get_messages("s", order=cast("Any", "up")), InvalidRequestError
    ),
    "a cursor of garbage": Bad(lambda store: store.list_runs("s", cursor="%%%"), InvalidCursorError),
    "a cursor of text that no store holds": Bad(
        lambda store: store.list_runs("s", cursor=encode_cursor("run.desc.s", 1, "\0")), InvalidCursorError
    ),
    "a query's limit": Bad(
        lambda store: store.list_sessions(with_fields(SessionQuery(), limit=201)), InvalidRequestError
    ),
    "count -1": Bad(lambda store: store.truncate_messages("s", -1), InvalidRequestError),
    "count 1.0": Bad(lambda store: store.truncate_messages("s", cast("int", 1.0)), InvalidRequestError),
    "keep none": Bad(lambda store: store.prune_checkpoints("s", keep_last=0), InvalidRequestError),
    "a checkpoint id of a megabyte": Bad(lambda store: store.get_checkpoint("s", "x" * 2**20), TooLargeError),
    "two messages of one id": Bad(
        lambda store: store.append_messages(
            "s", [Message(id="m", role="user"), Message(id="m", role="user")]
        ),
        InvalidRequestError,
    ),
    "a run change without a run": Bad(
        lambda store: store.save_state_and_promote_staging(
            "s", StateChange(), StepCommit(step_id="t"), run=RunChange(step_count=1)
        ),
        InvalidRequestError,
    ),
    "a step of another thread": Bad(
        lambda store: store.save_state_and_promote_staging(
            "s",
            StateChange(),
            StepCommit(step_id="t"),
            append=StepAppend("other", 1, EMPTY, (encode_message(Message(id="m", role="user")),)),
        ),
        InvalidRequestError,
    ),
    "a state of 17 MiB": Bad(save(custom_state={"x": "y" * 17 * 2**20}), TooLargeError),
    "a merge to 17 MiB": Bad(
        lambda store: store.merge_custom_state("s", MergeChanges(values={"x": "y" * 17 * 2**20})),
        TooLargeError,
    ),
    "a staged change of 17 MiB": Bad(
        lambda store: store.stage_changes(
            "s", "t", StagedChange(tool_call_id="c", merge_changes={"x": "y" * 17 * 2**20})
        ),
        TooLargeError,
    ),
    "a patch of too many operations": Bad(
        lambda store: store.stage_changes(
            "s", "t", StagedChange(tool_call_id="c", patches=(JsonPatchOp(op="test", path=""),) * 10_001)
        ),
        TooLargeError,
    ),
    "a reason of 9 KiB": Bad(
        lambda store: store.update_status("s", PAUSED, failure_reason="x" * 9 * 1024), TooLargeError
    ),
    "an error of 9 KiB": Bad(
        lambda store: store.submit_tool_result(
            "s",
            with_fields(
                ToolResultSubmission(tool_call_id="c", response=ClientToolResponse()),
                response=with_fields(ClientToolResponse(), error="x" * 9 * 1024),
            ),
        ),
        InvalidRequestError,
    ),
    "a result of 1 MiB and a byte": Bad(
        lambda store: store.submit_tool_result(
            "s",
            ToolResultSubmission(tool_call_id="c", response=ClientToolResponse(result="x" * (2**20 - 1))),
        ),
        TooLargeError,
    ),
    "an unknown child": Bad(
        lambda store: store.update_sub_session_ref("s", "nobody", ACTIVE), SessionNotFoundError
    ),
}


class TestABadInput:
    @pytest.fixture
    async def place(self) -> Together:
        """A session with a state and a message."""
        place = Together()
        await place.store.create_session("s", CreateSession(custom_state={"a": 1}))
        await place.store.append_messages("s", [Message(id="first", role="user", content="hi")])
        return place

    async def refused(
        self, place: Together, call: Callable[[RowSessions], Awaitable[object]], error: type[HelixError]
    ) -> HelixError:
        """The error that the call gave, having changed nothing."""
        sessions, threads = dict(place.rows._sessions), place.hot.backup()
        with pytest.raises(error) as caught:
            await call(place.store)
        assert (place.rows._sessions, place.hot.backup()) == (sessions, threads)
        assert not caught.value.retryable
        assert len(str(caught.value)) < 500
        return caught.value

    @pytest.mark.parametrize("name", CALLS)
    async def test_is_refused(self, place: Together, name: str) -> None:
        """By an error that says what is wrong, before anything is written."""
        await self.refused(place, CALLS[name].call, CALLS[name].error)

    @pytest.mark.parametrize(("at", "bad"), BAD_IDS)
    async def test_id_is_refused(self, place: Together, at: str, bad: str) -> None:
        """Wherever an id is asked for (rows 8 to 15)."""
        await self.refused(place, lambda store: ID_PLACES[at](store, IDS[bad]), InvalidIdError)

    @pytest.mark.parametrize("bad", TEXTS)
    @pytest.mark.parametrize("at", TEXT_PLACES)
    async def test_text_is_refused(self, place: Together, at: str, bad: str) -> None:
        """PostgreSQL has no NUL, UTF-8 no lone surrogate: what one store can't hold, none takes."""
        await self.refused(place, lambda store: TEXT_PLACES[at](store, TEXTS[bad]), InvalidMessageError)

    @pytest.mark.parametrize("bad", VALUES)
    @pytest.mark.parametrize("field", ["custom_state", "metadata", "output"])
    async def test_value_is_refused(self, place: Together, field: str, bad: str) -> None:
        """What is no JSON, or none that comes back as it was (rows 21 to 29)."""
        value = VALUES[bad] if field == "output" else {"x": VALUES[bad]}
        await self.refused(place, save(**{field: value}), InvalidMessageError)

    async def test_says_nothing_of_its_content(self, place: Together) -> None:
        """Errors go into logs and histories."""
        error = await self.refused(
            place, save(custom_state={"password": "hunter2"}, step_count="hunter3"), InvalidRequestError
        )
        assert "hunter" not in str(error)
