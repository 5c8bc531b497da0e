"""A worker that ends with a run in its cache: Python collects the run outside any workflow."""

import asyncio
import gc
import inspect

import pytest

from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_run_that_is_collected_in_the_middle_of_a_turn_does_nothing_more(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Whoever takes the run over replays it; the old object must not try to save or flush."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main"))
    await gate.reached.wait()
    found = gc.get_objects()
    runs = [
        each
        for each in found
        if inspect.iscoroutine(each)
        and each.__qualname__ == "AgentSession.run"
        and each.cr_frame is not None
        and each.cr_frame.f_locals["self"]._input.session_id == sid
    ]
    assert len(runs) == 1
    runs[0].close()  # what Python does to a coroutine that it collects; passes on what was raised in it
    await stand.handle(sid).terminate()
    gate.opened.set()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
