"""Turns that are asked anew, again and again, and in forks."""

import pytest

from helix_temporal.errors import InvalidRequestError
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
