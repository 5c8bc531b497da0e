"""References to sub-agents whose calls are in the thread no more: whoever cut them, they say so."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.agents import ModelRequest
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.stores.sessions.store import RowSessions
from tests.workflows._desk import Answer
from tests.workflows._team import ask
from tests.workflows.conftest import Crew
from tests.workflows.test_children_ends import ended
from tests.workflows.test_children_exit import leaving, left, state_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_rewind_whose_open_failed_half_way_leaves_no_reference_at_work(
    crew: Crew, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt knows of the run no longer, and the save that would tell of the calls never comes."""
    crew.team.leads[sid] = lambda request: "fine"
    await crew.sessions.ask(sid, "hello", agent="asks-below")
    await crew.finish(sid)
    head = (await crew.sessions.session(sid).get_status()).head
    del crew.team.leads[sid]
    (call,) = await left(crew, sid, agent="asks-below")
    lists, failed = RowSessions.list_sub_session_refs, asyncio.Event()

    async def fails_once(store: RowSessions, session_id: str) -> list[SubSessionRef]:
        if session_id == sid and not failed.is_set():
            failed.set()
            raise StoreUnavailableError("on purpose")
        return await lists(store, session_id)

    monkeypatch.setattr(RowSessions, "list_sub_session_refs", fails_once)
    assert await leaving(crew).session(sid, agent="asks-below").rewind(head) == head
    await crew.handle(sid).terminate()
    assert failed.is_set()
    monkeypatch.undo()
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.INTERRUPTED]
    crew.team.leads[sid] = lambda request: "fine"
    assert (await leaving(crew).ask(sid, "anew", agent="asks-below", timeout=30)).text == "fine"
    for each in (sid, call.route[0]):
        assert [ref.status for ref in await crew.children(each)] == [SessionStatus.INTERRUPTED]
    for each in call.route:
        await ended(crew, each)
        assert (await state_of(crew, each)).pending_client_tool_calls == {}


async def test_a_sub_agent_whose_step_a_tool_took_back_is_not_shown_at_work(crew: Crew, sid: str) -> None:
    """It has answered; its answer is in no step, and nobody else would say so."""

    def astray_once(request: ModelRequest) -> Answer:
        if len(crew.team.heard[sid]) > 1:
            return "better"
        rewind = ToolCall(id="call_1", name="act", arguments={"what": "rewind"})
        answer = ask("one")
        return replace(answer, tool_calls=(*answer.tool_calls, rewind))

    crew.team.leads[sid] = astray_once
    result = await crew.sessions.ask(sid, "go", agent="new", timeout=30)
    assert (result.status, result.text) == (AskStatus.ANSWERED, "better")
    assert [each.status for each in await crew.children(sid)] == [SessionStatus.COMPLETED]
    await crew.finish(sid)
