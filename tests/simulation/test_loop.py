"""The simulated event loop does what asyncio promises, in virtual time."""

import asyncio
import random

import pytest

from tests.simulation._loop import SimLoop, StuckError


def a_loop(seed: int = 1) -> SimLoop:
    return SimLoop(random.Random(seed))  # type: ignore[abstract]


def test_an_hour_takes_no_time() -> None:
    """Time-outs of minutes are simulated thousands of times."""
    loop = a_loop()
    before = loop.time()
    loop.run(asyncio.sleep(3600))
    assert loop.time() - before >= 3600


def test_a_timeout_strikes() -> None:
    """Steps give up on an archive that does not answer."""

    async def late() -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        except TimeoutError:
            return "timed out"
        return "in time"

    assert a_loop().run(late()) == "timed out"


def test_a_gather_gives_results_in_order() -> None:
    """Segments are read side by side."""

    async def one(number: int) -> int:
        await asyncio.sleep(1 / (number + 1))
        return number

    async def many() -> list[int]:
        return await asyncio.gather(*(one(number) for number in range(5)))

    assert a_loop().run(many()) == [0, 1, 2, 3, 4]


def test_the_order_of_tasks_depends_on_the_seed() -> None:
    """Code that relies on who was first must fail for some seed."""

    async def order() -> str:
        said: list[str] = []

        async def say(word: str) -> None:
            await asyncio.sleep(0)
            said.append(word)

        await asyncio.gather(*(say(word) for word in "abcd"))
        return "".join(said)

    assert len({a_loop(seed).run(order()) for seed in range(50)}) > 10


def test_a_semaphore_bounds() -> None:
    """At most so many at once, whatever the order."""

    async def most() -> int:
        limit, inside, seen = asyncio.Semaphore(2), 0, 0

        async def enter() -> None:
            nonlocal inside, seen
            async with limit:
                inside += 1
                seen = max(seen, inside)
                await asyncio.sleep(0.1)
                inside -= 1

        await asyncio.gather(*(enter() for _ in range(6)))
        return seen

    assert a_loop().run(most()) == 2


def test_a_thread_gives_its_result_later() -> None:
    """Large objects are hashed in threads."""

    async def offload() -> int:
        return await asyncio.to_thread(sum, [1, 2, 3])

    assert a_loop().run(offload()) == 6


def test_a_dead_lock_is_seen() -> None:
    """A run in which nobody can go on must not hang."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="nothing is left"):
        a_loop().run(wait())


def test_a_live_lock_is_seen() -> None:
    """A run that does not end must not hang either."""

    async def spin() -> None:
        while True:  # noqa: ASYNC110 (a live-lock is wanted)
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="does not end"):
        SimLoop(random.Random(1), max_callbacks=1000).run(spin())  # type: ignore[abstract]


def test_a_dropped_process_fails_no_test() -> None:
    """It stands still, and the collector closes it: what it awaits on its way out comes to nothing."""

    async def hold_lock() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)

    async def drop() -> None:
        holding = asyncio.create_task(hold_lock())
        await asyncio.sleep(1)
        assert not holding.done()

    a_loop().run(drop())
