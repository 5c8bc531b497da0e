"""Large content beside a thread: gone once the turn that took it is over and archived."""

from typing import Any

import pytest

from helix_temporal.activities.payloads import References
from helix_temporal.agents import ModelRequest
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.sessions import AskStatus
from tests.workflows._desk import Answer, Desk, calls
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "." * 10_000


async def list_payloads(stand: Stand, session_id: str) -> list[str]:
    """Names of what is kept beside a session's thread."""
    tiered = stand.served.plugin.backends.tiered
    prefix = tiered.layout.payload_prefix(session_id)
    return [each.key async for each in tiered.blobs.list(prefix)]


def two_rounds_of_tools(request: ModelRequest) -> Answer:
    """Two steps with large results, then an answer."""
    spoken = sum(1 for each in request.messages if each.role == "assistant")
    return calls(LONG) if spoken < 2 else "done"


async def test_a_turn_with_tools_leaves_nothing_beside_the_thread(stand: Stand, desk: Desk, sid: str) -> None:
    """Neither the user's text, which its first step took, nor results of steps between."""
    desk.scripts[sid] = two_rounds_of_tools
    assert (await stand.sessions.ask(sid, "first" + LONG, agent="main")).text == "done"
    assert [len(each) > len(LONG) - 1 for each in await stand.texts(sid)] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    assert await list_payloads(stand, sid) == []


@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_a_turn_that_waited_leaves_nothing_beside_the_thread(
    stand: Stand, desk: Desk, sid: str, suspend: str
) -> None:
    """Its text was put aside again when the session was opened for the answer."""
    desk.scripts[sid] = lambda request: (
        calls("here", name="locate") if request.messages[-1].role == "user" else "done"
    )
    client = stand.client(suspend=suspend)
    asked = await client.ask(sid, "first" + LONG, agent="people", message_id="m")
    (call,) = asked.pending
    if suspend == "exit":
        await client.session(sid).result()
    reply = await client.session(sid).submit_tool_result(call, "there" + LONG, wait=True, timeout=30)
    assert reply.result is not None
    assert reply.result.text == "done"
    assert await list_payloads(stand, sid) == []


@pytest.mark.parametrize("suspend", ["wait", "exit"])
async def test_a_turn_that_is_given_up_leaves_nothing_beside_the_thread(
    stand: Stand, desk: Desk, sid: str, suspend: str
) -> None:
    """It ends without an answer."""
    desk.scripts[sid] = lambda request: (
        calls("here", name="locate") if request.messages[-1].text.startswith("first") else "fine"
    )
    client = stand.client(suspend=suspend, while_suspended="supersede")
    await client.ask(sid, "first" + LONG, agent="people", message_id="m")
    assert (await client.ask(sid, "never mind", agent="people")).text == "fine"
    assert await list_payloads(stand, sid) == []


async def test_a_worker_that_dies_before_it_could_tidy_up_leaves_it_to_the_next_attempt(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one finds the step standing."""
    drop, tries = References.drop, list[str]()

    async def dies_once(self: References, *given: Any) -> None:
        tries.append(sid)
        if len(tries) == 1:
            raise StoreUnavailableError("killed")
        await drop(self, *given)

    monkeypatch.setattr(References, "drop", dies_once)
    asked = await stand.sessions.ask(sid, "first" + LONG, agent="main")
    assert asked.status is AskStatus.ANSWERED
    assert len(tries) == 2
    assert await list_payloads(stand, sid) == []
