"""How long an activity may take: said where it is defined, read by `helix_temporal.workflows.call`."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

Limits = Literal["store", "heartbeat", "model", "maintenance"]
"""``store``: one operation on a store.  ``heartbeat``: one that may move many objects, and heartbeats.
``model``: as long as a model call, or the deletion of a large session, and heartbeats.
``maintenance``: hours, and heartbeats."""

_LIMITS: Final = "__helix_limits__"


def limited_as(limits: Limits) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Say which time limits an activity has; without it they are those of ``store``."""

    def mark(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        setattr(function, _LIMITS, limits)
        return function

    return mark


def limits_of(method: Callable[..., object]) -> Limits:
    """The time limits that an activity was defined with."""
    limits: Limits = getattr(method, _LIMITS, "store")
    return limits
