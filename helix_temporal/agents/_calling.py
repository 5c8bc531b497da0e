"""Calling a user's function, whatever its colour."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an async function here and a plain one in a thread, so that it cannot stall heartbeats."""
    if is_async(function):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(function, *args, **kwargs)
    # A plain function may hand on the coroutine of another one (functools.partial, lambdas).
    return await result if inspect.isawaitable(result) else result


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also for objects with an async ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    )
