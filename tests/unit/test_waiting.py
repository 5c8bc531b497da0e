"""What a test that hangs tells, and that it ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests._waiting import give_up, limit_of, where_tasks_wait


@contextlib.asynccontextmanager
async def a_place() -> AsyncIterator[None]:
    """Something whose clean-up hangs."""
    try:
        yield
    finally:
        await asyncio.Event().wait()


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


async def test_a_clean_up_that_hangs_is_shown_too() -> None:
    """Most tests that hang do so on their way out."""

    async def leaves() -> None:
        async with a_place():
            pass

    task = asyncio.create_task(leaves())
    await asyncio.sleep(0)
    told = where_tasks_wait(asyncio.get_running_loop())
    task.cancel()
    assert told.index("async with a_place()") < told.index("await asyncio.Event().wait()")


async def test_only_the_test_is_cancelled(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its clean-up needs the other tasks: a worker that lost its own never comes to an end."""
    other = asyncio.create_task(asyncio.sleep(0.01, "went on"))
    give_up(asyncio.get_running_loop(), request.node)
    with pytest.raises(asyncio.CancelledError, match="hangs"):
        await asyncio.sleep(60)
    assert await other == "went on"
    assert f"{request.node.nodeid} hangs" in capsys.readouterr().err


@pytest.mark.timeout(77)
async def test_the_limit_is_the_tests_own(request: pytest.FixtureRequest) -> None:
    """Some are allowed more than the others."""
    assert limit_of(request.node) == 77
    assert "told_where_it_hangs" in request.fixturenames
