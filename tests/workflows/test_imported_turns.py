"""Threads that were begun in version 1: their turns are listed, taken back and asked anew as any others."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.client import SessionHandle
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.testing.serving import session_worker
from tests.unit.coldtier._v1_files import snapshot
from tests.unit.coldtier.test_v1_steps import ADAPTERS, ANSWER, NOTE, USER, calls, results, rows
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand, make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.parametrize("adapter", ADAPTERS)]

SAID = [
    *(USER, ANSWER),
    *(USER, calls("a", "b"), results("a"), NOTE, results("b"), calls("c"), results("c"), ANSWER),
    *(USER, ANSWER),
]
"""Three turns; in the second a user speaks while tools run."""
ENDS = (2, 10, 12)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def legacy(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Stand]:
    """A worker that goes on where version 1 stopped."""
    name, desk = f"t{uuid.uuid4().hex[:12]}", Desk()
    settings = make_settings(temporal_address, redis_url, s3, name, read_v1=True, v1_prefix=f"{name}-v1")
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, desk.agents(), options=options) as running:
        yield Stand(running, desk)


@pytest_asyncio.fixture(loop_scope="session")
async def handle(legacy: Stand, sid: str, adapter: str) -> SessionHandle:
    """The session of a thread that lies in its archive as version 1 left it."""
    backends = legacy.served.plugin.backends
    assert backends.blobs is not None
    key = f"{backends.settings.v1_prefix}/messages/{sid}.json.gz"
    await backends.blobs.put(key, snapshot(rows(adapter, SAID)))
    return legacy.sessions.session(sid, agent="main")


async def ends(handle: SessionHandle) -> tuple[int, ...]:
    """Where its turns end."""
    return tuple([each.end.position for each in (await handle.list_turns()).items])


async def stands_together(legacy: Stand, session_id: str) -> None:
    """State and thread are at the same place."""
    state = await legacy.sessions.session(session_id).get_state()
    assert state is not None
    assert state.head == (await legacy.sessions.session(session_id).describe_thread()).head


async def test_turns_are_listed_before_and_after_the_import(legacy: Stand, handle: SessionHandle) -> None:
    """In words, and with the ids of what users said; no session is woken, and no thread taken over."""
    before = (await handle.list_turns()).items
    assert [each.end.position for each in before] == list(ENDS)
    assert [each.text for each in before] == ["said 0", "said 2", "said 10"]
    assert [each.answer for each in before] == ["said 1", "said 9", "said 11"]
    assert [each.message_ids for each in before] == [("m0",), ("m2", "m5"), ("m10",)]
    asked = await handle.ask("now")
    assert asked.text == "13: now"
    *old, new = (await handle.list_turns()).items
    assert tuple(old) == before
    assert (new.number, new.text, new.start) == (4, "now", before[-1].end)
    assert list((await handle.list_turns(start=10)).items) == [
        each.model_copy(update={"number": at}) for at, each in enumerate([old[2], new], 1)
    ]


async def test_a_rewind_goes_to_any_turn_of_the_import(legacy: Stand, handle: SessionHandle) -> None:
    """By count from either end, into the middle of what was taken over in one piece, and on from there."""
    sid = handle.session_id
    assert (await handle.rewind_to_turn(2)).position == 10
    assert await ends(handle) == ENDS[:2]
    with pytest.raises(InvalidRequestError, match="3 cannot stay"):
        await handle.rewind_to_turn(3)
    assert (await handle.rewind_to_turn(-1)).position == 2
    await stands_together(legacy, sid)
    await legacy.finish(sid)
    assert await ends(handle) == (2,)
    assert (await handle.ask("next")).text == "3: next"
    assert await ends(handle) == (2, 4)
    await stands_together(legacy, sid)
    assert await handle.rewind_to_turn(0) == EMPTY
    assert (await handle.list_turns()).items == ()


async def test_a_turn_of_the_import_is_asked_anew(legacy: Stand, handle: SessionHandle) -> None:
    """As messages of ours, all that its users said; what came before it stays as it was."""
    again = await handle.regenerate()
    assert (again.status, again.text) == (AskStatus.ANSWERED, "11: said 10")
    assert await ends(handle) == ENDS
    await handle.rewind_to_turn(-1)
    assert (await handle.regenerate()).text == "4: said 5"
    assert await ends(handle) == (2, 5)
    kept = await legacy.messages(handle.session_id)
    assert [each.role for each in kept] == ["foreign", "foreign", "user", "user", "assistant"]
    assert [each.text for each in kept[2:4]] == ["said 2", "said 5"]
    await stands_together(legacy, handle.session_id)


async def test_a_message_of_the_import_is_edited_in_a_fork(legacy: Stand, handle: SessionHandle) -> None:
    """It ends before the turn of that message; the original stays as it is."""
    target = f"{handle.session_id}-edit"
    edited = await handle.edit("m5", "another thing", target)
    assert edited.text == "3: another thing"
    assert await ends(legacy.sessions.session(target, agent="main")) == (2, 4)
    assert await ends(handle) == ENDS
    await legacy.finish(target)
