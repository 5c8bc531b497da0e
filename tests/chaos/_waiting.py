"""Where every task of an event loop waits: what a campaign that hangs is asked."""

import asyncio
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


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
        waiting = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")


def _first(what: object, *names: str) -> Any:
    found = (getattr(what, name, None) for name in names)
    return next((each for each in found if each is not None), None)
