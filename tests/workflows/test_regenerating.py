"""Turns that are taken back and asked anew: again and again, in forks, and where an attempt fails."""

from collections.abc import Callable
from typing import Any

import pytest

from helix_temporal.errors import ArchiveAccessError, InvalidRequestError
from tests.workflows._desk import Desk
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

        monkeypatch.setattr(streaming, "opened", fail)

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
