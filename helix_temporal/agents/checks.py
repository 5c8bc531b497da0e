"""Checks of what a user configures, and calls of a user's functions, async or not."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from helix_temporal.errors import InvalidConfigError

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What agents and tools may be called: providers and activity names take no more."""


def check_name(name: object, what: str) -> None:
    """Refuse a name that a provider or an activity type would not take.

    Raises:
        InvalidConfigError: It is not 1–64 of ``[A-Za-z0-9_-]``.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidConfigError(f"{what} name {str(name)[:80]!r}: 1-64 of A-Z a-z 0-9 _ - expected")


def check_count(value: object, what: str) -> None:
    """Refuse what is no positive integer.

    Raises:
        InvalidConfigError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidConfigError(f"{what} must be at least 1, got {value!r}")


def check_list(value: object, what: str) -> None:
    """Refuse what is no list, such as the one thing that would be in it.

    Raises:
        InvalidConfigError: It is none.
    """
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise InvalidConfigError(f"{what}: a list expected, got {type(value).__name__}")


def check_type(value: object, kind: type, what: str) -> None:
    """Refuse what is no instance of a class.

    Raises:
        InvalidConfigError: It is none.
    """
    if not isinstance(value, kind):
        raise InvalidConfigError(f"{what}: {kind.__name__} expected, got {type(value).__name__}")


def to_seconds(value: float | timedelta | None) -> float | None:
    """A time as a number of seconds; None stays None."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def check_seconds(value: object, what: str) -> None:
    """Refuse what is no positive, finite number of seconds.

    Raises:
        InvalidConfigError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise InvalidConfigError(f"{what} must be a positive number of seconds, got {value!r}")


async def call_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call an async function here and a plain one in a thread, so that it cannot stall heartbeats.

    Raises:
        RuntimeError: A plain one has raised ``StopIteration``, as a coroutine's does (PEP 479): no future
            takes one, and whoever waits for it would wait for ever.
    """
    if is_async(function):
        return await function(*args, **kwargs)

    def call() -> Any:
        try:
            return function(*args, **kwargs)
        except StopIteration as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise RuntimeError(f"{name} raised StopIteration") from error

    result = await asyncio.to_thread(call)
    # A plain function may hand on the coroutine of another one (functools.partial, lambdas).
    return await result if inspect.isawaitable(result) else result


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also for objects with an async ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is wanted
    )
