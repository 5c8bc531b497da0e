"""What a campaign that hangs tells."""

import asyncio

from tests.chaos._waiting import where_tasks_wait


async def test_every_task_tells_the_innermost_line_that_it_waits_in() -> None:
    """The outermost one alone, which a task shows by itself, is the same for all sessions of a campaign."""
    never = asyncio.Event()

    async def inner() -> None:
        await never.wait()

    async def outer() -> None:
        await inner()

    task = asyncio.create_task(outer(), name="the one that hangs")
    await asyncio.sleep(0)
    told = where_tasks_wait(asyncio.get_running_loop())
    task.cancel()
    assert "the one that hangs" in told
    assert told.index("await inner()") < told.index("await never.wait()")
