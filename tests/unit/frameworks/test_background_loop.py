"""One event loop in the background, for calls that are not async."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest

from helix_temporal.errors import InvalidRequestError, RunningLoopError
from helix_temporal.frameworks.background_loop import BackgroundLoop, shared_loop


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    """A loop that ends with the test."""
    with BackgroundLoop("test-background") as opened:
        yield opened


async def where() -> tuple[asyncio.AbstractEventLoop, str]:
    """The loop and the thread that run this."""
    return asyncio.get_running_loop(), threading.current_thread().name


async def fail() -> None:
    """Raise."""
    raise KeyError("nothing there")


def test_all_calls_run_on_one_loop(loop: BackgroundLoop) -> None:
    """In a thread of its own, whichever thread calls: a store's connections belong to one loop."""
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: loop.run(where()), range(16)))
    assert len(found) == 1
    assert found.pop()[1] == "test-background"


def test_an_error_comes_to_the_caller(loop: BackgroundLoop) -> None:
    """As it was raised; the loop goes on."""
    with pytest.raises(KeyError, match="nothing there"):
        loop.run(fail())
    assert loop.run(asyncio.sleep(0, "done")) == "done"


async def test_a_running_loop_does_not_stand_still(loop: BackgroundLoop) -> None:
    """A synchronous call in it is refused, and says what to do; the coroutine does not start."""
    with pytest.raises(RunningLoopError, match="await the async form"):
        loop.run(where())
    ran_in, _ = await loop.call(where())
    assert ran_in is not asyncio.get_running_loop()


async def test_a_call_from_the_loop_itself_is_awaited(loop: BackgroundLoop) -> None:
    """Code that runs there may call what was written for elsewhere."""

    async def nested() -> bool:
        return (await loop.call(where()))[0] is asyncio.get_running_loop()

    assert await loop.call(nested())


async def test_a_cancel_reaches_the_work(loop: BackgroundLoop) -> None:
    """Nothing goes on that nobody waits for."""
    started, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    call = asyncio.create_task(loop.call(work()))
    assert await asyncio.to_thread(started.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(cancelled.wait, 10)


def test_a_close_ends_what_runs(loop: BackgroundLoop) -> None:
    """Whoever waits is told; the thread is gone, and no call starts another one."""
    started, ended = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loop.run, work())
        assert started.wait(10)
        loop.close()
        assert ended.is_set()
        with pytest.raises(CancelledError):
            waiting.result(10)
    assert "test-background" not in {each.name for each in threading.enumerate()}
    loop.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        loop.run(where())


def test_adapters_share_a_loop() -> None:
    """Those that use the same stores must use the same loop."""
    assert shared_loop() is shared_loop()


FORKING = """
import asyncio, os, sys
from pathlib import Path
from helix_temporal.errors import InvalidConfigError
from helix_temporal.frameworks.background_loop import BackgroundLoop
from helix_temporal.stores.sqlite import SqliteBackend

loop = BackgroundLoop()
backend = SqliteBackend(Path(sys.argv[1]))
loop.run(backend.sessions.view("s"))
child = os.fork()
if child == 0:
    try:
        assert loop.run(asyncio.sleep(0, "ran")) == "ran"
        try:
            loop.run(backend.sessions.view("s"))
        except InvalidConfigError:
            new = SqliteBackend(Path(sys.argv[1]))
            loop.run(new.sessions.view("s"))
            loop.run(new.close())
            loop.close()
            os._exit(0)
    finally:
        os._exit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
loop.run(backend.close())
loop.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_gets_a_loop_of_its_own(tmp_path: Path) -> None:
    """Threads stay behind.  Stores of the parent are refused in the child, and new ones work in both."""
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path / "helix.db")]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
