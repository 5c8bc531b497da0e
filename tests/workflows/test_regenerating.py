"""Turns that are taken back and asked anew: again and again, in forks, and where an attempt fails."""

from collections.abc import Callable
from typing import Any

import pytest

from helix_temporal.client import SessionHandle
from helix_temporal.errors import ArchiveAccessError, InvalidRequestError
from helix_temporal.models.sessions import AskStatus
from tests.workflows._desk import Desk, calls
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_regeneration_that_was_itself_taken_back_is_not_done_again(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """It comes late: what it asked anew has gone, and whoever repeats it is told so."""
    handle = stand.sessions.session(sid, agent="main")
    await handle.ask("hello")
    await handle.regenerate(operation_id="first")
    second = await handle.regenerate(operation_id="second")
    with pytest.raises(InvalidRequestError, match="first"):
        await handle.regenerate(operation_id="first")
    assert (await handle.regenerate(operation_id="second")).answer == second.answer


async def test_a_fork_does_not_take_over_what_was_taken_back(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever names requests by their number names them alike in both: each thread has its own."""
    handle, fork = (stand.sessions.session(name, agent="main") for name in (sid, f"{sid}-fork"))
    await handle.ask("hello")
    await handle.regenerate(operation_id="1")
    await handle.fork(fork.session_id)
    asked = await fork.ask("and?")
    again = await fork.regenerate(operation_id="1")
    assert (again.text, asked.text) == ("3: and?", "3: and?")
    assert again.answer != asked.answer


@pytest.fixture
def opens_fail(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the next open fail for good as the last thing that it does."""
    streaming = stand.served.plugin.backends._streaming

    def arm() -> None:
        async def fail(*_: Any, **__: Any) -> None:
            monkeypatch.undo()
            raise ArchiveAccessError("broken on purpose")

        monkeypatch.setattr(streaming, "tell_opened", fail)

    return arm


async def test_a_request_whose_open_fails_is_carried_out_once(
    stand: Stand, sid: str, opens_fail: Callable[[], None]
) -> None:
    """The thread was cut, and nobody heard of it: others go on there, and the retry takes nothing more."""
    handle = stand.sessions.session(sid, agent="main")
    first = await handle.ask("one")
    await handle.ask("two")
    opens_fail()
    with pytest.raises(ArchiveAccessError):
        await handle.rewind_to_turn(-1, operation_id="op")
    between = await handle.ask("three")
    assert between.text == "3: three"
    again = await handle.rewind_to_turn(-1, operation_id="op")
    assert first.answer is not None
    assert (again.position, again.last_id) == (first.answer.position + 1, first.answer.id)
    assert [each.text for each in await stand.messages(sid) if each.role == "user"] == ["one", "three"]


async def test_a_request_that_failed_is_finished_by_its_retry(
    stand: Stand, sid: str, opens_fail: Callable[[], None]
) -> None:
    """Nobody came in between: what was to be asked anew is asked, once."""
    handle = stand.sessions.session(sid, agent="main")
    await handle.ask("one")
    await handle.ask("two")
    opens_fail()
    with pytest.raises(ArchiveAccessError):
        await handle.regenerate(operation_id="op")
    assert (await handle.regenerate(operation_id="op")).text == "3: two"
    assert (await handle.ask("three")).text == "5: three"
    assert [each.text for each in await stand.messages(sid) if each.role == "user"] == ["one", "two", "three"]


async def _waits_behind_one(stand: Stand, desk: Desk, sid: str) -> SessionHandle:
    """A finished turn, and one that waits for a client."""
    session = stand.sessions.session(sid, agent="people")
    await session.ask("one")
    desk.scripts[sid] = lambda request: calls("", name="locate")
    assert (await session.ask("where?")).status is AskStatus.SUSPENDED
    return session


async def test_a_turn_that_waits_is_the_newest_one_to_ask_anew(stand: Stand, desk: Desk, sid: str) -> None:
    """The answered turn before it was asked again, and the waiting one had gone without a word."""
    session = await _waits_behind_one(stand, desk, sid)
    again = await session.regenerate()
    assert (again.status, len(again.pending)) == (AskStatus.SUSPENDED, 1)
    status = await session.get_status()
    assert [each.id for each in status.pending] == [each.id for each in again.pending]
    desk.scripts[sid] = lambda request: f"got {request.messages[-1].text}"
    await session.submit_tool_result(again.pending[0], "here", wait=True, timeout=30)
    assert await stand.texts(sid) == ["one", "1: one", "where?", "", "here", "got here"]


async def test_a_turn_that_waits_is_the_newest_one_to_take_back(stand: Stand, desk: Desk, sid: str) -> None:
    """One goes, and what was answered stays."""
    session = await _waits_behind_one(stand, desk, sid)
    assert (await session.rewind_to_turn(-1)).position == 2
    assert await stand.texts(sid) == ["one", "1: one"]
    assert (await session.get_status()).pending == ()
    desk.scripts[sid] = lambda request: "fine"
    assert (await session.ask("two")).text == "fine"
    assert (await session.rewind_to_turn(-2)).position == 0
