"""A page's conversation over HTTP with a real session: ask, watch, answer what it waits for."""

import json

import pytest
from starlette.requests import Request

from helix_temporal.models.states import SessionProperties
from helix_temporal.web import create_sse_app
from tests.unit._web import connected, http_client, served
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_waits import LOCATE, WIPE, asks_once
from tests.workflows.test_waits_exit import left

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_page_asks_and_is_shown_the_answer(stand: Stand, sid: str) -> None:
    """All that a chat needs, without a word of Temporal."""
    app = create_sse_app(stand.sessions, agent="main")
    async with served(app) as port, http_client(port) as http:
        sent = await http.post(f"/sessions/{sid}/messages", json={"text": "hello", "message_id": "m1"})
        assert (sent.status_code, sent.json()) == (202, {"message_id": "m1"})
        async with connected(port, f"/sessions/{sid}/events?until=turn&message_id=m1") as page:
            names = [event.name async for event in page.events()]
        history = (await http.get(f"/sessions/{sid}/messages")).json()
    assert names[0] == "run_started"
    assert names[-2:] == ["run_ended", "end"]
    assert [message["content"] for message in history["items"]] == ["hello", "1: hello"]


async def test_a_message_that_is_sent_twice_counts_once(stand: Stand, sid: str) -> None:
    """A page that lost the answer to its request sends it again."""
    app = create_sse_app(stand.sessions, agent="main")
    async with served(app) as port, http_client(port) as http:
        for _ in range(2):
            await http.post(f"/sessions/{sid}/messages", json={"text": "hello", "message_id": "m1"})
        async with connected(port, f"/sessions/{sid}/events?until=turn&message_id=m1") as page:
            assert [event.name async for event in page.events()][-1] == "end"
    assert await stand.texts(sid) == ["hello", "1: hello"]


async def test_a_page_answers_what_its_session_waits_for(stand: Stand, desk: Desk, sid: str) -> None:
    """The browser knows where its user is; the model goes on with that."""
    desk.scripts[sid] = asks_once(LOCATE)
    app = create_sse_app(stand.sessions, agent="people")
    async with served(app) as port, http_client(port) as http:
        await http.post(f"/sessions/{sid}/messages", json={"text": "where", "message_id": "m1"})
        replies = []
        async with connected(port, f"/sessions/{sid}/events?until=turn&message_id=m1") as page:
            async for event in page.events():
                if event.name == "suspended":
                    (call,) = json.loads(event.data)["calls"]
                    answer = {"call": call["id"], "result": "here"}
                    for _ in range(2):
                        taken = await http.post(f"/sessions/{sid}/tool-results", json=answer)
                        replies.append(taken.json()["status"])
            # Its answer is there before the step that asked has come back to the workflow.
            assert (await http.get(f"/sessions/{sid}/pending")).json() == {"pending": []}
    assert replies == ["submitted", "already_completed"]
    assert (await stand.texts(sid))[-1] == "here"


async def test_a_session_that_nobody_started_needs_an_agent(stand: Stand, sid: str) -> None:
    """Whoever serves pages of sessions that run must not start any."""
    app = create_sse_app(stand.sessions)
    async with served(app) as port, http_client(port) as http:
        sent = await http.post(f"/sessions/{sid}/messages", json={"text": "hello"})
    assert (sent.status_code, sent.json()["error"]) == (404, "SessionNotFoundError")


async def test_a_message_for_an_expired_session_is_refused(stand: Stand, desk: Desk, sid: str) -> None:
    """An approval, too: the session has ended, which is no failure of the server."""
    desk.scripts[sid] = asks_once(WIPE)
    (call,) = await left(stand, sid)
    await stand.sessions.session(sid).set_properties(SessionProperties(expires_at=1))
    app = create_sse_app(stand.sessions, agent="people")
    approval = {"approval_id": call.id, "approved": True}
    async with served(app) as port, http_client(port) as http:
        sent = await http.post(f"/sessions/{sid}/messages", json={"text": "hello"})
        approved = await http.post(f"/sessions/{sid}/approvals", json=approval)
    assert (sent.status_code, sent.json()["error"]) == (410, "SessionExpiredError")
    assert (approved.status_code, approved.json()["error"]) == (410, "SessionExpiredError")


async def test_a_result_is_not_taken_for_an_approval(stand: Stand, desk: Desk, sid: str) -> None:
    """An application that lets a user answer, and not approve, tells the two by their addresses."""
    desk.scripts[sid] = asks_once(WIPE)
    (call,) = await left(stand, sid)

    async def may_answer(request: Request, session_id: str) -> bool:
        return not request.url.path.endswith("/approvals")

    app = create_sse_app(stand.client(suspend="exit"), agent="people", authorise=may_answer)
    async with served(app) as port, http_client(port) as http:
        approval = {"approval_id": call.id, "approved": True}
        assert (await http.post(f"/sessions/{sid}/approvals", json=approval)).status_code == 403
        for said in ({"result": "no thanks"}, {"result": ""}, {}):
            refused = await http.post(f"/sessions/{sid}/tool-results", json={"call": call.id, **said})
            assert refused.status_code == 400
            assert "submit_approval" in refused.text
    assert desk.contexts[sid] == []
