"""Deadlines of operations on Redis: who is cancelled, and what its caller is told."""

import asyncio

import pytest

from helix_temporal.stores.redis._deadlines import Deadlines

SOON = 0.02
NEVER = 3600.0


async def waits(deadlines: Deadlines, seconds: float = NEVER) -> str:
    """An operation that takes so long."""
    with deadlines.one():
        await asyncio.sleep(seconds)
    return "done"


async def test_what_takes_too_long_is_a_timeout() -> None:
    """And nothing of it is left: its task can wait again."""
    deadlines = Deadlines(SOON)
    with pytest.raises(TimeoutError):
        await waits(deadlines)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert deadlines.running == {}
    assert await waits(deadlines, 0) == "done"


async def test_each_of_many_has_its_own_deadline() -> None:
    """One timer serves all: those that begin later must not be forgotten, and not end early."""
    deadlines = Deadlines(SOON)
    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(waits(deadlines, NEVER if number % 2 else 0)))
        await asyncio.sleep(SOON / 8)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[::2] == ["done"] * 10
    assert {type(each) for each in results[1::2]} == {TimeoutError}
    assert deadlines.running == {}


async def test_a_cancel_from_elsewhere_is_no_timeout() -> None:
    """A worker that shuts down must not take it for a store that is away, and try again."""
    deadlines = Deadlines(NEVER)
    task = asyncio.create_task(waits(deadlines))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert deadlines.running == {}


async def test_an_error_is_what_it_was() -> None:
    """Not everything that ends an operation is its deadline."""
    with pytest.raises(ZeroDivisionError), Deadlines(NEVER).one():
        raise ZeroDivisionError


def test_what_an_ended_loop_left_behind_bounds_nothing() -> None:
    """Each run of a program may have a loop of its own."""
    deadlines = Deadlines(SOON)

    async def left_behind() -> None:
        deadlines.one().__enter__()

    async def late() -> None:
        with pytest.raises(TimeoutError):
            await waits(deadlines)

    asyncio.run(left_behind())
    asyncio.run(late())
