"""Tool calls that a client or a person must answer."""

import asyncio

import pytest

from helix_temporal.errors import (
    InvalidRequestError,
    RemoteClientToolUnsupportedError,
    SessionNotFoundError,
    TooLargeError,
)
from helix_temporal.models.limits import MAX_TEXT
from helix_temporal.models.states import (
    ClientToolResponse,
    CompletedClientToolCall,
    PendingClientToolCall,
    RemoteRef,
    SessionState,
    SessionStatus,
    SubSessionRef,
    SuspensionContext,
    ToolResultSubmission,
)
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    changed,
    image,
    loaded,
)

FAR = 2**52
"""A time far ahead."""


def answer(call: str = "call-1", result: object = "42", outcome: str = "result") -> ToolResultSubmission:
    """An answer to a call."""
    response = {"outcome": outcome, "result": result}
    return ToolResultSubmission.model_validate({"tool_call_id": call, "response": response})


async def waiting(
    store: SessionStore, session_id: str, *calls: str, deadline: int | None = FAR, kind: str = "client"
) -> SessionState:
    """A session that waits for answers to ``calls``."""
    state = await store.create_session(session_id)
    pending = {
        each: PendingClientToolCall.model_validate(
            {
                "tool_call_id": each,
                "tool_name": "ask",
                "kind": kind,
                "created_at": 1,
                "deadline_at": deadline,
            }
        )
        for each in calls
    }
    suspended = changed(
        state,
        status=SessionStatus.PAUSED,
        pending_client_tool_calls=pending,
        suspension_context=SuspensionContext(kind="client_tool", tool_call_ids=calls, suspended_at=1),
    )
    await store.save_state(session_id, suspended)
    return await loaded(store, session_id)


class ToolCallContract(SessionFixtures):
    """An answer is taken once."""

    async def test_an_answer_is_taken_once(self, store: SessionStore, session_id: str) -> None:
        """The second one learns when the first one came, and changes nothing (case 96)."""
        await waiting(store, session_id, "call-1", "call-2")
        first = await store.submit_tool_result(session_id, answer())
        assert (first.status, first.new_version) == ("submitted", 3)
        found = await loaded(store, session_id)
        assert found.version == 3
        assert found.pending_client_tool_calls["call-1"].response == ClientToolResponse(result="42")
        assert found.pending_client_tool_calls["call-1"].responded_at is not None
        assert found.pending_client_tool_calls["call-2"].response is None
        again = await store.submit_tool_result(session_id, answer(result="another"))
        assert again.status == "already_completed"
        assert again.completed_at == found.pending_client_tool_calls["call-1"].responded_at
        assert await loaded(store, session_id) == found

    async def test_an_answer_is_remembered_when_its_run_has_gone_on(
        self, store: SessionStore, session_id: str
    ) -> None:
        """A duplicate that comes late is still a duplicate (case 96)."""
        await waiting(store, session_id, "call-1")
        await store.submit_tool_result(session_id, answer())
        state = await loaded(store, session_id)
        await store.save_state(session_id, changed(state, pending_client_tool_calls={}))
        assert (await store.submit_tool_result(session_id, answer())).status == "already_completed"

    async def test_a_repeated_answer_is_still_submitted(self, store: SessionStore, session_id: str) -> None:
        """An attempt whose answer was lost is told what the first one did (case 96)."""
        await waiting(store, session_id, "call-1")
        first = await store.submit_tool_result(session_id, answer(), operation_id="operation")
        again = await store.submit_tool_result(session_id, answer(), operation_id="operation")
        assert again == first
        assert (await loaded(store, session_id)).version == 3

    async def test_nobody_waits_for_an_unknown_call(self, store: SessionStore, session_id: str) -> None:
        """The client is told, and nothing is kept (case 96)."""
        state = await waiting(store, session_id, "call-1")
        assert (await store.submit_tool_result(session_id, answer("call-9"))).status == "not_pending"
        assert await loaded(store, session_id) == state

    async def test_an_answer_after_its_deadline_is_too_late(
        self, store: SessionStore, session_id: str
    ) -> None:
        """By the store's clock (case 96)."""
        state = await waiting(store, session_id, "call-1", deadline=1)
        assert (await store.submit_tool_result(session_id, answer())).status == "expired"
        assert (await loaded(store, session_id)).pending_client_tool_calls == state.pending_client_tool_calls

    async def test_an_answer_at_its_deadline_is_too_late(self, store: SessionStore, session_id: str) -> None:
        """At its deadline a call has expired, for whoever answers and for whoever looks for late ones."""
        await waiting(store, session_id, "call-1", deadline=5_000)
        found = await store.find_expired_pending(5_000)
        assert [each.call.tool_call_id for each in found] == ["call-1"]
        assert [each.session_id for each in (await store.list_due(5_000)).items] == [session_id]
        assert await store.find_expired_pending(4_999) == []
        assert (await store.list_due(4_999)).items == ()

    async def test_an_answer_to_a_call_that_was_given_up_is_too_late(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Nobody answered it: it has expired, as a running session says, and was completed by nobody."""
        state = await waiting(store, session_id, "call-1")
        given_up = CompletedClientToolCall(tool_call_id="call-1", outcome="expired", completed_at=9)
        await store.save_state(
            session_id,
            changed(state, pending_client_tool_calls={}, completed_client_tool_calls={"call-1": given_up}),
        )
        assert (await store.submit_tool_result(session_id, answer())).status == "expired"

    async def test_a_call_without_a_deadline_waits_for_ever(
        self, store: SessionStore, session_id: str
    ) -> None:
        """People are on holiday (case 96)."""
        await waiting(store, session_id, "call-1", deadline=None)
        assert (await store.submit_tool_result(session_id, answer())).status == "submitted"

    @pytest.mark.parametrize(
        ("kind", "wrong", "right"),
        [
            ("approval", "result", "approved"),
            ("approval", "error", "denied"),
            ("client", "approved", "result"),
            ("client", "denied", "error"),
        ],
    )
    async def test_an_answer_is_of_the_kind_that_is_wanted(
        self, store: SessionStore, session_id: str, kind: str, wrong: str, right: str
    ) -> None:
        """No result is leave to run a tool, whatever it says, and an approval is no result."""
        await waiting(store, session_id, "call-1", kind=kind)
        state = await loaded(store, session_id)
        by = {"approval": "submit_approval", "client": "submit_tool_result"}[kind]
        with pytest.raises(InvalidRequestError, match=by):
            await store.submit_tool_result(session_id, answer(result="no", outcome=wrong))
        assert await loaded(store, session_id) == state
        assert (await store.submit_tool_result(session_id, answer(outcome=right))).status == "submitted"
        again = await store.submit_tool_result(session_id, answer(outcome=wrong))
        assert again.status == "already_completed"

    async def test_of_many_answers_exactly_one_is_taken(
        self, store: SessionStore, crowd: Crowd, session_id: str
    ) -> None:
        """Two windows of one user (case 97)."""
        await waiting(store, session_id, "call-1")
        outcomes = await asyncio.gather(
            *(next(crowd).submit_tool_result(session_id, answer(result=n)) for n in range(MANY))
        )
        statuses = [each.status for each in outcomes]
        assert statuses.count("submitted") == 1
        assert statuses.count("already_completed") == MANY - 1
        response = (await loaded(store, session_id)).pending_client_tool_calls["call-1"].response
        assert response == ClientToolResponse(result=statuses.index("submitted"))

    async def test_answers_to_many_calls_are_all_taken(
        self, store: SessionStore, crowd: Crowd, session_id: str
    ) -> None:
        """They come at once, and none makes another one stale (case 97)."""
        calls = [f"call-{n}" for n in range(8)]
        await waiting(store, session_id, *calls)
        outcomes = await asyncio.gather(
            *(next(crowd).submit_tool_result(session_id, answer(each, each)) for each in calls)
        )
        assert {each.status for each in outcomes} == {"submitted"}
        pending = (await loaded(store, session_id)).pending_client_tool_calls
        assert [pending[each].response for each in calls] == [
            ClientToolResponse(result=each) for each in calls
        ]

    async def test_an_answer_at_the_root_goes_to_the_owner(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Clients know the root alone; the call may be a sub-agent's (case 98)."""
        child = f"{session_id}-child"
        await waiting(store, child, "call-1")
        root = await store.create_session(session_id)
        await store.save_state(session_id, changed(root, client_tool_call_ownership={"call-1": child}))
        assert await store.resolve_tool_call_owner(session_id, "call-1") == child
        assert await store.resolve_tool_call_owner(session_id, "call-2") is None
        before = await image(store, session_id)
        assert (await store.submit_tool_result(session_id, answer())).status == "submitted"
        found = await loaded(store, child)
        assert found.pending_client_tool_calls["call-1"].response == ClientToolResponse(result="42")
        assert await image(store, session_id) == before
        assert (await store.submit_tool_result(session_id, answer())).status == "already_completed"

    async def test_an_answer_for_a_session_elsewhere_is_refused_at_once(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Nobody here can hand it on; a session that is merely gone is another matter (SU-05)."""
        child = f"{session_id}-child"
        root = await store.create_session(session_id)
        await store.save_state(session_id, changed(root, client_tool_call_ownership={"call-1": child}))
        with pytest.raises(SessionNotFoundError):
            await store.submit_tool_result(session_id, answer())
        remote = RemoteRef(endpoint_id="berlin", remote_session_id="r-1")
        await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id=child, remote=remote)])
        before = await image(store, session_id)
        with pytest.raises(RemoteClientToolUnsupportedError, match="berlin"):
            await store.submit_tool_result(session_id, answer())
        assert await image(store, session_id) == before

    async def test_an_answer_has_a_largest_size(self, store: SessionStore, session_id: str) -> None:
        """One mebibyte as JSON; what is larger belongs into a file (case 99)."""
        state = await waiting(store, session_id, "call-1")
        with pytest.raises(TooLargeError):
            await store.submit_tool_result(session_id, answer(result="x" * (MAX_TEXT - 1)))
        assert await loaded(store, session_id) == state
        largest = answer(result="x" * (MAX_TEXT - 2))
        assert (await store.submit_tool_result(session_id, largest)).status == "submitted"
        pending = (await loaded(store, session_id)).pending_client_tool_calls
        assert pending["call-1"].response == largest.response

    async def test_calls_past_their_deadline_are_found(self, store: SessionStore, session_id: str) -> None:
        """So that somebody gives up on them; not those that are answered, or may still be (case 96)."""
        await waiting(store, f"{session_id}-1", "late-1", "late-2", deadline=1_000)
        await waiting(store, f"{session_id}-2", "early", deadline=9_000)
        await waiting(store, f"{session_id}-3", "never", deadline=None)
        found = await store.find_expired_pending(5_000)
        assert {(each.session_id, each.call.tool_call_id) for each in found} == {
            (f"{session_id}-1", "late-1"),
            (f"{session_id}-1", "late-2"),
        }
        assert len(await store.find_expired_pending(5_000, limit=1)) == 1

    async def test_sessions_with_calls_past_their_deadline_are_listed_by_pages(
        self, store: SessionStore, session_id: str
    ) -> None:
        """The earliest deadline first, each session once: whoever wakes them goes on where he was."""
        await waiting(store, f"{session_id}-a", "late-1", "late-2", deadline=3_000)
        await waiting(store, f"{session_id}-b", "late", deadline=1_000)
        await waiting(store, f"{session_id}-c", "late", deadline=2_000)
        await waiting(store, f"{session_id}-d", "early", deadline=9_000)
        first = await store.list_due(5_000, limit=2)
        second = await store.list_due(5_000, limit=2, cursor=first.next_cursor)
        listed = [(each.session_id, each.due_at) for each in (*first.items, *second.items)]
        assert listed == [
            (f"{session_id}-b", 1_000),
            (f"{session_id}-c", 2_000),
            (f"{session_id}-a", 3_000),
        ]
        assert (first.has_more, second.has_more, second.next_cursor) == (True, False, None)
        assert {each.session_id for each in (await store.list_due()).items} == {
            f"{session_id}-{name}" for name in "abcd"
        }
