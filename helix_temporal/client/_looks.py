"""Look-ups that explain why somebody waits: each is short, shared by all who ask, and never an error."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio.service import RPCError

from helix_temporal._futures import discard_error
from helix_temporal.errors import HelixError

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

RPC: Final = timedelta(seconds=2)
"""So long the server may take for one answer."""
_BUDGET: Final = 6.0
"""Seconds that one diagnosis may take."""
_SHARED_SECONDS: Final = 1.0
"""So long what was looked up stands for all who ask: hundreds may run out of time at once."""


class SharedLooks:
    """What is looked up once for all who ask for the same at about the same time."""

    def __init__(self) -> None:
        self._looks: dict[tuple[object, ...], tuple[float, asyncio.Task[Any]]] = {}
        """Newest look-ups, with when they began."""

    async def look_up(
        self, key: tuple[object, ...], look_up: Callable[..., Coroutine[Any, Any, T]], *given: object
    ) -> T:
        """What ``look_up`` gives for these arguments, or has just given, or is about to give.

        Args:
            key: Of what is looked up.
            look_up: Does it.
            given: Its arguments.
        """
        now = time.monotonic()
        found = self._looks.get(key)
        if found is None or now - found[0] > _SHARED_SECONDS or _is_of_other_loop(found[1]):
            self._looks = {
                name: each for name, each in self._looks.items() if now - each[0] <= _SHARED_SECONDS
            }
            look = asyncio.create_task(look_up(*given))
            look.add_done_callback(discard_error)
            found = self._looks[key] = (now, look)
        shared: T = await asyncio.shield(found[1])
        return shared


def _is_of_other_loop(task: asyncio.Task[Any]) -> bool:
    return task.get_loop() is not asyncio.get_running_loop()


async def look_up_or(workflow_id: str, look: Awaitable[T], otherwise: T) -> T:
    """What a look gives; ``otherwise`` where it comes to nothing in time."""
    try:
        async with asyncio.timeout(_BUDGET):
            return await look
    except (RPCError, TimeoutError, HelixError):
        return otherwise
    except Exception as error:  # noqa: BLE001 (an interceptor or a converter of the user's may raise anything)
        _log.warning("%s: cannot look up why it does not answer: %s", workflow_id, type(error).__name__)
        return otherwise


def to_millis(moment: Any) -> int:
    """A time of the server, in ms."""
    return int(moment.ToMilliseconds())
