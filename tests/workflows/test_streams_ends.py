"""Whatever becomes of a turn, who watches sees its end and how it ended, with a session store or without."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from helix_temporal.agents import ModelRequest, ModelResponse, TextDelta
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionInterruptedError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.streams import RunEnded
from helix_temporal.stores.streams.turns import read_kept_chunks
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, Gate, calls
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_failures import permanent

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["with a session store", "without a session store"]
)
async def shown(
    temporal_address: str, redis_url: str, s3: S3Endpoint, request: pytest.FixtureRequest
) -> AsyncIterator[Stand]:
    """A worker, with the state in a store of its own or in the thread's slice alone."""
    changes = {} if request.param == "with a session store" else {"session_store": "none"}
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}", **changes)
    desk, options = Desk(), SessionOptions(idle_timeout=60)
    async with session_worker(settings, desk.agents(), options=options) as served:
        yield Stand(served, desk)


async def end_of(stand: Stand, session_id: str, message_id: str) -> RunEnded:
    """The last chunk that the turn of a message shows: reading ends there by itself."""
    async with asyncio.timeout(20):
        seen = [each async for each in stand.sessions.stream(session_id, message_id=message_id)]
    ended = seen[-1].chunk
    assert isinstance(ended, RunEnded)
    return ended


async def until_words_of(stand: Stand, session_id: str, message_id: str) -> None:
    """Wait until the turn of a message shows words of its answer."""
    seen = contextlib.aclosing(stand.sessions.stream(session_id, message_id=message_id))
    async with asyncio.timeout(20), seen as chunks:
        async for each in chunks:
            if each.chunk.type == "text_delta":
                return


async def ends_in(stand: Stand, session_id: str) -> list[str]:
    """How the turns that the stream shows have ended, in order."""
    info = await stand.sessions.streams.get_info(session_id)
    assert info is not None
    seen = contextlib.aclosing(read_kept_chunks(stand.sessions.streams, session_id, info.last_sequence))
    async with asyncio.timeout(20), seen as chunks:
        return [each.chunk.status async for each in chunks if isinstance(each.chunk, RunEnded)]


async def test_a_turn_that_fails(shown: Stand, sid: str) -> None:
    """A page must not show a turn at work whose model has failed for good."""
    shown.desk.scripts[sid] = permanent
    asked = await shown.sessions.ask(sid, "go", agent="main", message_id="m1", timeout=20)
    assert asked.status is AskStatus.FAILED
    ended = await end_of(shown, sid, "m1")
    assert (ended.status, ended.exit_reason, ended.in_thread) == ("failed", "failed", False)


async def test_a_turn_that_fails_after_a_step(shown: Stand, sid: str) -> None:
    """What that step has left in the thread is cut when the session is opened again."""
    shown.desk.scripts[sid] = lambda request: (
        calls("x") if request.messages[-1].role == "user" else permanent(request)
    )
    await shown.sessions.ask(sid, "go", agent="main", message_id="m1", timeout=20)
    ended = await end_of(shown, sid, "m1")
    assert (ended.status, ended.in_thread) == ("failed", False)


async def test_a_turn_that_is_cancelled(shown: Stand, sid: str) -> None:
    """Only the workflow knows of it; the activity that saves its end tells."""
    gate = Gate()
    shown.desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(shown.sessions.ask(sid, "go", agent="main", message_id="m1"))
    await gate.reached.wait()
    await shown.handle(sid).cancel()
    assert (await asked).status is AskStatus.INTERRUPTED
    gate.opened.set()
    ended = await end_of(shown, sid, "m1")
    assert (ended.status, ended.exit_reason, ended.in_thread) == ("interrupted", "cancelled", False)


async def test_a_turn_that_is_aborted(shown: Stand, sid: str) -> None:
    """It leaves no trace in the thread, and none on the page."""
    gate = Gate()
    shown.desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(shown.sessions.ask(sid, "go", agent="main", message_id="m1"))
    await gate.reached.wait()
    await shown.sessions.session(sid).stop(abort=True)
    await asked
    gate.opened.set()
    ended = await end_of(shown, sid, "m1")
    assert (ended.status, ended.in_thread) == ("aborted", False)


async def test_a_turn_whose_execution_was_terminated(shown: Stand, sid: str) -> None:
    """Nobody could tell then; the next execution does, before it begins a turn of its own."""
    gate = Gate()
    shown.desk.scripts[sid] = lambda request: calls("x")

    async def act(what: str, context: object) -> str:
        await gate.passing()
        return what

    shown.desk.acts[sid] = act
    await shown.sessions.send(sid, "go", agent="main", message_id="m1")
    await gate.reached.wait()
    await shown.handle(sid).terminate("on purpose")
    gate.opened.set()
    del shown.desk.scripts[sid], shown.desk.acts[sid]
    await shown.sessions.ask(sid, "again", agent="main", message_id="m2")
    ended = await end_of(shown, sid, "m1")
    assert (ended.status, ended.in_thread) == ("superseded", False)
    assert (await end_of(shown, sid, "m2")).status == "completed"


async def test_a_turn_whose_execution_was_terminated_while_its_first_answer_streams(
    shown: Stand, sid: str
) -> None:
    """Nothing of it is in the thread: where no session store knows of it, the stream alone does."""
    gate = Gate()

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        yield TextDelta("first ")
        await gate.passing()
        yield TextDelta("last")
        yield ModelResponse("first last")

    async def answers(request: ModelRequest) -> AsyncIterator[Any]:
        yield ModelResponse("hi")

    shown.desk.streams[sid] = speak
    await shown.sessions.send(sid, "go", agent="streaming", message_id="m1")
    await until_words_of(shown, sid, "m1")
    watching = asyncio.create_task(end_of(shown, sid, "m1"))
    await shown.handle(sid).terminate("on purpose")
    shown.desk.streams[sid] = answers
    await shown.sessions.ask(sid, "again", agent="streaming", message_id="m2")
    gate.opened.set()
    ended = await watching
    assert (ended.status, ended.exit_reason, ended.in_thread) == ("superseded", "superseded", False)
    assert (await end_of(shown, sid, "m2")).status == "completed"
    # Nor is it told again, or of a turn that has ended, by who opens the session after that.
    await shown.finish(sid)
    await shown.sessions.ask(sid, "once more", agent="streaming", message_id="m3")
    assert await ends_in(shown, sid) == ["superseded", "completed", "completed"]


async def test_a_session_that_ends_at_rest_has_nothing_to_tell(shown: Stand, sid: str) -> None:
    """Its turn has ended long ago, and well."""
    await shown.sessions.ask(sid, "go", agent="main", message_id="m1")
    before = await shown.sessions.streams.get_info(sid)
    await shown.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await shown.sessions.session(sid).result()
    assert (await end_of(shown, sid, "m1")).status == "completed"
    after = await shown.sessions.streams.get_info(sid)
    assert before is not None
    assert after is not None
    assert after.last_sequence == before.last_sequence
