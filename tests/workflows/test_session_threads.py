"""A session has one thread: whoever does not name it means that one, and another one is refused."""

import uuid
from typing import Any

import pytest
import pytest_asyncio
from temporalio.service import ServiceClient

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.sessions import AskStatus
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "x" * 20_000
"""Travels by reference, as a question and as an answer."""


@pytest_asyncio.fixture(loop_scope="session")
async def tid(stand: Stand, sid: str) -> str:
    """The thread of the session ``sid``, with one turn and another id than its session's."""
    thread_id = f"thread-{uuid.uuid4().hex[:8]}"
    result = await stand.sessions.ask(sid, "one", agent="main", thread_id=thread_id)
    assert result.text == "1: one"
    return thread_id


@pytest_asyncio.fixture(loop_scope="session")
async def ended(stand: Stand, sid: str, tid: str) -> str:
    """The same of a session that has ended."""
    await stand.finish(sid)
    return tid


async def test_an_ask_goes_on_with_the_thread_that_the_session_has(
    stand: Stand, sid: str, ended: str
) -> None:
    """Who asks again need not know the thread's name, and loses nothing of what was said."""
    result = await stand.sessions.ask(sid, "two", agent="main")
    assert result.text == "3: two"
    assert (await stand.sessions.session(sid).get_status()).thread_id == ended
    await stand.finish(sid)
    assert (await stand.sessions.session(sid).get_status()).thread_id == ended
    assert (await stand.sessions.ask(sid, "three", agent="main", thread_id=ended)).text == "5: three"


async def test_a_message_that_is_sent_goes_into_the_thread_that_the_session_has(
    stand: Stand, sid: str, ended: str
) -> None:
    """`send` cannot even name one."""
    await stand.sessions.send(sid, "two", agent="main")
    await stand.sessions.session(sid).close()
    result = await stand.sessions.session(sid).result()
    assert (result.thread_id, result.receipts[0].ok) == (ended, True)
    assert await stand.texts(ended) == ["one", "1: one", "two", "3: two"]


@pytest.mark.parametrize("has_ended", [False, True])
async def test_usage_is_that_of_the_thread_that_the_session_has(
    stand: Stand, sid: str, tid: str, has_ended: bool
) -> None:
    """Asked of the session: nothing of it is zero without a word."""
    if has_ended:
        await stand.finish(sid)
    used = await stand.sessions.session(sid).get_usage()
    assert used.steps == 1


async def test_turns_are_taken_back_in_the_thread_that_the_session_has(
    stand: Stand, sid: str, ended: str
) -> None:
    """A session that has ended is opened for it, as for a question."""
    again = await stand.sessions.session(sid, agent="main").regenerate()
    assert again.text == "1: one"
    await stand.finish(sid)
    assert (await stand.sessions.session(sid, agent="main").rewind_to_turn(-1)).position == 0
    await stand.finish(sid)
    assert await stand.texts(ended) == []


async def test_a_checkpoint_is_restored_in_the_thread_that_the_session_has(
    stand: Stand, sid: str, tid: str
) -> None:
    """The thread and the state go back together."""
    await stand.sessions.ask(sid, "two")
    checkpoint = (await stand.sessions.session(sid).list_checkpoints()).items[0]
    await stand.finish(sid)
    head = await stand.sessions.session(sid, agent="main").restore_checkpoint(checkpoint.id)
    assert head == checkpoint.head
    assert (await stand.sessions.session(tid).describe_thread()).head == head


async def test_the_session_goes_on_with_its_thread_over_continue_as_new(stand: Stand, sid: str) -> None:
    """A later run of the execution knows the thread that the first one found."""
    thread_id, client = f"{sid}-thread", stand.client(max_turns_per_run=1)
    await client.ask(sid, "one", agent="main", thread_id=thread_id)
    await stand.finish(sid)
    for number, text in enumerate(("two", "three", "four"), start=1):
        assert (await client.ask(sid, text, agent="main")).text == f"{2 * number + 1}: {text}"


@pytest.mark.parametrize("runs", [True, False])
async def test_a_long_text_reaches_the_thread_that_the_session_has(
    stand: Stand, sid: str, tid: str, *, runs: bool
) -> None:
    """Asked or sent, without the thread's name; the answer is as long, and comes back whole."""
    if not runs:
        await stand.finish(sid)
    result = await stand.sessions.ask(sid, LONG, agent="main")
    assert (result.status, result.text) == (AskStatus.ANSWERED, f"3: {LONG}")
    if not runs:
        await stand.finish(sid)
    await stand.sessions.send(sid, f"{LONG}!", agent="main")
    await stand.finish(sid)
    assert (await stand.texts(tid))[4:] == [f"{LONG}!", f"5: {LONG}!"]


async def test_a_long_answer_is_read_from_the_thread_that_the_session_has(
    stand: Stand, desk: Desk, sid: str, tid: str
) -> None:
    """A short question, asked anew, and its message sent again once it was answered."""
    desk.scripts[sid] = lambda _: LONG
    assert (await stand.sessions.ask(sid, "two", message_id="two")).text == LONG
    assert (await stand.sessions.ask(sid, "two", message_id="two")).text == LONG
    assert (await stand.sessions.session(sid).regenerate()).text == LONG
    assert (await stand.texts(tid))[-1] == LONG


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("other", ["another", "the session's"])
async def test_another_thread_is_refused(stand: Stand, sid: str, tid: str, *, runs: bool, other: str) -> None:
    """The error says which one the session has; nothing is made, and the session serves on."""
    if not runs:
        await stand.finish(sid)
    named = f"{sid}-other" if other == "another" else sid
    with pytest.raises(InvalidRequestError, match=tid):
        await stand.sessions.ask(sid, "two", agent="main", thread_id=named, timeout=20)
    with pytest.raises(InvalidRequestError, match=tid):
        await stand.sessions.ask(sid, LONG, agent="main", thread_id=named, timeout=20)
    assert (await stand.sessions.ask(sid, "two", agent="main", thread_id=tid)).text == "3: two"


async def test_the_thread_of_a_session_that_named_none_is_its_own(stand: Stand, sid: str) -> None:
    """It has one, too, by the session's id: another one is refused as well."""
    await stand.sessions.ask(sid, "one", agent="main")
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=sid):
            await stand.sessions.ask(sid, "two", agent="main", thread_id=f"{sid}-other", timeout=20)
        assert (await stand.sessions.ask(sid, "two", agent="main", thread_id=sid)).text is not None
        await stand.finish(sid)


async def test_an_ask_asks_the_server_once(
    stand: Stand, sid: str, tid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks for the thread before; a session that has ended costs the call that starts it besides."""
    called: list[str] = []
    service = type(stand.served.client.service_client)
    assert issubclass(service, ServiceClient)
    call = service._rpc_call

    async def counted(self: ServiceClient, rpc: str, *given: Any, **options: Any) -> Any:
        # Others ask as well: workers, whether Temporal is there, and what earlier tests have left.
        if sid in f"{given} {options}":
            called.append(rpc)
        return await call(self, rpc, *given, **options)

    monkeypatch.setattr(service, "_rpc_call", counted)
    own = f"{sid}-own"
    await stand.sessions.ask(own, "one", agent="main")
    for session_id in (own, sid):
        called.clear()
        await stand.sessions.ask(session_id, "two")
        assert called == ["update_workflow_execution"]
        await stand.finish(session_id)
        called.clear()
        await stand.sessions.ask(session_id, "three", agent="main")
        assert called == ["update_workflow_execution", "execute_multi_operation"]
    await stand.finish(own)
    assert (await stand.texts(tid))[-1] == "5: three"
