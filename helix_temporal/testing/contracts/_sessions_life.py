"""The life of a session: create, load, exists, and what a state keeps."""

from typing import Any, Final

import pytest

from helix_temporal.errors import (
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    SessionExistsError,
)
from helix_temporal.models.states import (
    ClientToolResponse,
    CompletedClientToolCall,
    CreateSession,
    ErrorInfo,
    ForkOrigin,
    MergeChanges,
    PendingClientToolCall,
    SessionState,
    SessionStatus,
    SuspendedChildWait,
    SuspensionContext,
    TracingContext,
    WorkspaceRef,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    at_once,
    changed,
    ids_of,
    loaded,
    of_type,
    said,
    staged,
)

HOSTILE_IDS = (
    "../x",
    "a/b",
    "/etc/passwd",
    "..",
    ".",
    "%2e%2e",
    "a b",
    " ",
    "a:b",
    "{}",
    "{a}b",
    "*",
    "~2f",
    "con",
    "é",
    "e\u0301",
    "🙂" * 100,
    "x" * 256,
    "x" * 255 + "y",
    "'; drop table x; --",
    '"',
    "\\",
    "A",
    "a",
)

TRICKY: dict[str, Any] = {
    "empty list": [],
    "empty dict": {},
    "large": 2**53 + 1,
    "largest": 2**64 - 1,
    "smallest": -(2**63),
    "float": 1.0,
    "integer": 1,
    "exponent": 1e300,
    "none": None,
    "nested": {"none": None, "list": [None, [], {}, [[1]]], "bool": [True, False]},
    "text": "ü 🙂 \ufeff \u2028 \uffff \x7f \x01",
    "": "an empty key",
    "a.b/c~d": "a key for patches",
    "__proto__": 1,
}


_CALL: Final = PendingClientToolCall(
    tool_call_id="call-1",
    tool_name="ask",
    input=TRICKY,
    kind="approval",
    approval_id="approval-1",
    run_id="run-1",
    step_id="step-1",
    created_at=1,
    deadline_at=2**53 + 1,
    response=ClientToolResponse(outcome="denied", result=[1, {}], error="no"),
    responded_at=3,
)
_COMPLETED: Final = CompletedClientToolCall(
    tool_call_id="call-0", outcome="expired", completed_at=9, result_hash="abc"
)
_SUSPENSION: Final = SuspensionContext(
    kind="approval",
    run_id="run-1",
    step_id="step-1",
    tool_call_ids=("call-1",),
    assistant_message_position=3,
    completed_tool_results={"call-0": {"ok": True}},
    resume_payload={"go": "on"},
    suspended_at=11,
)
_WAIT: Final = SuspendedChildWait(
    sub_session_id="the child",
    tool_call_id="call-1",
    agent_type="helper",
    child_kind="remote",
    since=12,
    resolved=True,
    result={"done": None},
)
_TRACING: Final = TracingContext(
    trace_id="0af7", span_id="b7ad", trace_flags="01", trace_state="k=v", vendor={"x": "y"}
)
_ORIGIN: Final = ForkOrigin(session_id="origin", checkpoint_id="cp", head=Head(position=1, last_id="x"), at=5)


def a_full_state(state: SessionState) -> SessionState:
    """Every field with a value that is not its default."""
    return changed(
        state,
        agent_type="clerk ü",
        user_id="user\\1",
        title="Über alles 🙂",
        thread_id="the thread",
        status=SessionStatus.FAILED,
        failure_reason="parent_suspended",
        mode="persistent",
        step_count=7,
        resume_count=2**53 + 1,
        head=Head(position=4, last_id="m3"),
        current_run_id="run-1",
        stream_id="stream-1",
        custom_state=TRICKY,
        output={"answer": [42, 1.0, None]},
        error=ErrorInfo(type="ModelError", message="it did not answer"),
        tags=("b", "a", "b"),
        metadata={"tenant": "acme", "deep": {"er": [1]}},
        parent_session_id="the parent",
        root_session_id="the root",
        forked_from=_ORIGIN,
        pending_client_tool_calls={"call-1": _CALL},
        completed_client_tool_calls={"call-0": _COMPLETED},
        client_tool_call_ownership={"call-1": "the child"},
        suspension_context=_SUSPENSION,
        suspended_awaiting_children=(_WAIT,),
        suspended_step_id="step-1",
        tracing_context=_TRACING,
        expires_at=2**53 + 1,
        workspaces=(WorkspaceRef(provider_id="docker", workspace_id="w1"),),
        cleanup_pending=True,
    )


class LifeContract(SessionFixtures):
    """Sessions come, are there, and go."""

    async def test_a_session_is_created_and_found(self, store: SessionStore, session_id: str) -> None:
        """What create returned is what everybody reads from then on (case 1)."""
        options = CreateSession(
            agent_type="clerk",
            user_id="user-1",
            mode="standard",
            custom_state=TRICKY,
            tags=("a", "b"),
            metadata={"tenant": "acme"},
            parent_session_id="parent",
            root_session_id="root",
            stream_id="stream",
            expires_at=5,
            workspaces=(WorkspaceRef(provider_id="docker", workspace_id="w"),),
        )
        made = await store.create_session(session_id, options)
        assert made.model_dump(include=set(CreateSession.model_fields)) == options.model_dump()
        assert (made.session_id, made.version, made.message_count) == (session_id, 1, 0)
        assert made.created_at == made.updated_at > 1_600_000_000_000
        assert await store.load_state(session_id) == made
        assert await store.session_exists(session_id)

    async def test_a_session_is_not_created_over_another(self, store: SessionStore, session_id: str) -> None:
        """Two clients with one id must not overwrite each other (case 2)."""
        first = await store.create_session(session_id, CreateSession(agent_type="one"))
        with pytest.raises(SessionExistsError):
            await store.create_session(session_id, CreateSession(agent_type="two"))
        assert await store.load_state(session_id) == first

    async def test_a_session_that_is_there_may_be_asked_for(
        self, store: SessionStore, session_id: str
    ) -> None:
        """``if_not_exists`` returns what is stored, unchanged (case 2)."""
        first = await store.create_session(session_id, CreateSession(agent_type="one"))
        found = await store.create_session(session_id, CreateSession(agent_type="two"), if_not_exists=True)
        assert found == first
        assert await store.load_state(session_id) == first

    async def test_a_repeated_create_gets_the_same_session(
        self, store: SessionStore, session_id: str
    ) -> None:
        """An attempt whose answer was lost is not told that the session exists (case 3)."""
        options = CreateSession(agent_type="clerk")
        first = await store.create_session(session_id, options, operation_id="op")
        again = await store.create_session(session_id, options, operation_id="op")
        assert again == first
        assert (await loaded(store, session_id)).version == 1

    async def test_of_many_creates_exactly_one_succeeds(
        self, store: SessionStore, crowd: Crowd, session_id: str
    ) -> None:
        """Look and create is one step (case 4)."""
        options = [CreateSession(agent_type=f"clerk {n}") for n in range(MANY)]
        outcomes = await at_once(next(crowd).create_session(session_id, each) for each in options)
        won, lost = of_type(outcomes, SessionState), of_type(outcomes, SessionExistsError)
        assert [each for each in outcomes if each not in [*won, *lost]] == []
        assert (len(won), len(lost)) == (1, MANY - 1)
        assert await loaded(store, session_id) == won[0]

    async def test_an_unknown_session_is_no_error_to_readers(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Looking for something is allowed (case 5)."""
        assert await store.load_state(session_id) is None
        assert not await store.session_exists(session_id)
        page = await store.get_messages(session_id)
        assert (page.messages, page.total, page.has_more) == ((), 0, False)
        assert await store.get_latest_checkpoint(session_id) is None
        assert await store.get_checkpoint(session_id, "cpv1-x-s1-t1-000000") is None
        assert await store.build_snapshot(session_id) is None

    async def test_objects_belong_to_their_callers(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Whoever changes what it loaded or saved changes nothing that is stored (case 6)."""
        mine = changed(state, custom_state={"list": [1]})
        await store.save_state(session_id, mine)
        mine.custom_state["list"] = "changed after the save"
        theirs = await loaded(store, session_id)
        theirs.custom_state["more"] = "changed after the load"
        assert (await loaded(store, session_id)).custom_state == {"list": [1]}

    async def test_every_field_comes_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A backend may not lose, round or reorder anything (case 7)."""
        full = a_full_state(state)
        assert set(full.model_dump(exclude_defaults=True)) >= set(SessionState.model_fields) - {
            "version",
            "schema_version",
        }
        await store.save_state(session_id, full)
        found = await loaded(store, session_id)
        assert found == changed(full, version=2, updated_at=found.updated_at)
        assert str(found.custom_state) == str(TRICKY) or found.custom_state == TRICKY
        assert type(found.custom_state["float"]) is float
        assert type(found.custom_state["integer"]) is int

    async def test_a_full_state_goes_back_to_defaults(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """What is taken away is not left in a column (case 7)."""
        await store.save_state(session_id, a_full_state(state))
        bare = SessionState(session_id=session_id, mode="persistent", version=2, created_at=state.created_at)
        await store.save_state(session_id, bare)
        found = await loaded(store, session_id)
        assert found == changed(bare, version=3, updated_at=found.updated_at)

    @pytest.mark.parametrize("text", ["nul \x00", "half \ud83d a pair"])
    @pytest.mark.parametrize("field", ["user_id", "agent_type", "stream_id", "tags", "metadata"])
    async def test_text_that_a_store_cannot_hold_is_refused_by_all(
        self, store: SessionStore, session_id: str, field: str, text: str
    ) -> None:
        """All backends refuse alike, before anything is stored (case 7)."""
        value: object = {"tags": [text], "metadata": {"key": text}}.get(field, text)
        with pytest.raises(InvalidMessageError):
            await store.create_session(session_id, CreateSession.model_validate({field: value}))
        assert not await store.session_exists(session_id)

    async def test_a_newer_programs_fields_survive(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """During a rolling deploy the older version must not strip what the newer one wrote (case 8)."""
        newer = SessionState.model_validate(
            {**state.model_dump(), "from_the_future": {"list": [1, None]}, "andMore": "text"}
        )
        await store.save_state(session_id, newer)
        await store.merge_custom_state(session_id, MergeChanges(values={"a": 1}))
        await store.update_status(session_id, SessionStatus.PAUSED)
        found = await loaded(store, session_id)
        assert found.model_extra == {"from_the_future": {"list": [1, None]}, "andMore": "text"}

    async def test_mode_is_written_once(self, store: SessionStore, session_id: str) -> None:
        """A standard session never becomes a persistent one (case 12)."""
        state = await store.create_session(session_id)
        await store.save_state(session_id, changed(state, mode="standard"))
        state = await loaded(store, session_id)
        await store.save_state(session_id, changed(state, step_count=1))
        state = await loaded(store, session_id)
        with pytest.raises(InvalidRequestError):
            await store.save_state(session_id, changed(state, mode="persistent"))
        assert await loaded(store, session_id) == state

    @pytest.mark.parametrize("hostile", HOSTILE_IDS)
    async def test_any_id_is_just_an_id(self, store: SessionStore, hostile: str) -> None:
        """No id reaches another session, a path or a query (case 11)."""
        await store.create_session("bystander", CreateSession(agent_type="bystander"))
        await store.create_session(hostile, CreateSession(agent_type="hostile"))
        await store.append_messages(hostile, [said("hello", message_id=hostile)])
        await store.stage_changes(hostile, hostile, staged(hostile, a=1))
        assert [each.step_id for each in await store.list_staged(hostile, hostile)] == [hostile]
        assert (await loaded(store, hostile)).agent_type == "hostile"
        assert await ids_of(store, hostile) == [hostile]
        assert {each async for each in store.iter_session_ids()} == {"bystander", hostile}
        assert await store.delete_session(hostile)
        assert {each async for each in store.iter_session_ids()} == {"bystander"}
        assert (await loaded(store, "bystander")).agent_type == "bystander"

    @pytest.mark.parametrize("bad", ["", "x" * 257, "nul\x00", "line\nfeed", "half\ud83d"])
    async def test_bad_ids_are_refused(self, store: SessionStore, bad: str) -> None:
        """What no backend could hold safely is refused by all of them (case 11)."""
        with pytest.raises(InvalidIdError):
            await store.create_session(bad)
        with pytest.raises(InvalidIdError):
            await store.load_state(bad)
        with pytest.raises(InvalidIdError):
            await store.delete_session(bad)
