"""A test that hangs: where its tasks wait, and its end in order."""

import asyncio
import gc
import inspect
import sys
import traceback
from collections.abc import Iterator
from types import AsyncGeneratorType, FrameType
from typing import Any

import pytest

FIXTURE = "told_where_it_hangs"


def is_coroutine_test(item: pytest.Item) -> bool:
    """Whether an event loop runs it."""
    return isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj)


def limit_of(item: pytest.Item) -> float:
    """Seconds after which the test is given up; 0 for never."""
    marker = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout", None) or item.config.getini("timeout") or 0
    return float(marker.args[0] if marker and marker.args else given)


def give_up(loop: asyncio.AbstractEventLoop, item: pytest.Item) -> None:
    """Say what each task waits for, and cancel the test's own.

    The time limit of pytest shows only the loop.  It also ends all tasks at once, those of a Temporal worker
    before its shutdown, which then waits for them for ever.
    """
    sys.stderr.write(f"\n{item.nodeid} hangs:\n{where_tasks_wait(loop)}\n")
    name = item.obj.__name__ if isinstance(item, pytest.Function) else ""
    for task in asyncio.all_tasks(loop):
        if getattr(task.get_coro(), "__name__", "") == name:
            task.cancel("the test hangs")


def where_tasks_wait(loop: asyncio.AbstractEventLoop) -> str:
    """Each task with the line that it waits in and those that called it, innermost last."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "\n".join(f"{task.get_name()}:\n{_stack(task)}" for task in tasks)


def _stack(task: "asyncio.Task[Any]") -> str:
    lines = [f"  {task.get_coro()!r}"]
    for frame in _frames(task.get_coro()):
        lines += traceback.format_stack(frame, limit=1)
    return "\n".join(line.rstrip() for line in lines)


def _frames(waiting: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of all that it awaits."""
    while waiting is not None:
        frame = _first(waiting, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame
        following = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")
        if following is None and frame is None:
            # What an asynchronous context manager awaits names its generator nowhere else.
            following = next(
                (each for each in gc.get_referents(waiting) if isinstance(each, AsyncGeneratorType)), None
            )
        waiting = following


def _first(what: object, *names: str) -> Any:
    found = (getattr(what, name, None) for name in names)
    return next((each for each in found if each is not None), None)
