"""Servers that are away, as a worker's log tells it: one line when one is missed, one when it is back."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from helix_temporal.activities._runtime import tell_store_away
from helix_temporal.errors import StoreUnavailableError, error_class

logger = logging.getLogger(__name__)

ANSWER_WITHIN: Final = 2.0
"""Seconds in which a store must answer to be there."""
LOOK_EVERY: Final = 2.0
"""Seconds between two looks while one is away."""

LOOK_AT_TEMPORAL_EVERY: Final = 10.0
"""Seconds between two looks."""
TEMPORAL_WITHIN: Final = 3.0
"""Seconds in which it must answer one of two questions to be there."""

FindSilence = Callable[[float], Awaitable[str]]
FindUnanswered = Callable[[float], Awaitable[Mapping[str, str]]]
"""Which stores do not answer within so many seconds, and what they say."""


class StoreOutages(Interceptor):
    """Looks, once an activity was not answered by a store, which stores are away, until all are back.

    An activity that goes on, since it keeps what was paid for, tells it as one that fails.  Nothing is asked
    while activities succeed.

    Args:
        find_unanswered: Asks the stores.
    """

    def __init__(self, find_unanswered: FindUnanswered) -> None:
        self._find_unanswered = find_unanswered
        self._since: dict[str, float] = {}
        self._watch: asyncio.Task[None] | None = None
        self._stops = False

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 — the name in the SDK
        """See how it ends."""
        return _WatchedActivity(next, self)

    def note_failure(self) -> None:
        """An activity was not answered by a store."""
        if self._stops or (self._watch is not None and not self._watch.done()):
            return
        self._watch = asyncio.create_task(self._watch_stores())

    async def stop(self) -> None:
        """Ask nothing any more: the stores are about to be closed."""
        self._stops = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _watch_stores(self) -> None:
        while True:
            found = await self._find_unanswered(ANSWER_WITHIN)
            self._tell_away(found)
            self._tell_back(found)
            # One that answers reads, and refused this call, is not away.
            await asyncio.sleep(LOOK_EVERY)
            if not found:
                return

    def _tell_away(self, found: Mapping[str, str]) -> None:
        missed: dict[str, list[str]] = {}
        now = time.monotonic()
        for name, why in found.items():
            if name not in self._since:
                self._since[name] = now
                missed.setdefault(why, []).append(name)
        for why, names in missed.items():
            logger.warning(
                "store away: %s: %s. What needs it is tried again until it is back", ", ".join(names), why
            )

    def _tell_back(self, found: Mapping[str, str]) -> None:
        back: dict[float, list[str]] = {}
        for name in self._since.keys() - found.keys():
            back.setdefault(self._since.pop(name), []).append(name)
        for since, names in back.items():
            logger.warning("store back: %s, after %.0f s", ", ".join(sorted(names)), time.monotonic() - since)


class TemporalOutage:
    """Looks every few seconds whether Temporal answers a worker: the SDK logs each of its own tries.

    Args:
        find_silence: Asks it: why it does not answer within so many seconds, or nothing.
    """

    def __init__(self, find_silence: FindSilence) -> None:
        self._find_silence = find_silence
        self._since: float | None = None

    async def watch(self) -> None:
        """Log once that it is away, and once that it is back; until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_AT_TEMPORAL_EVERY)
            began = time.monotonic()
            # One answer may be late, on a busy machine.
            why = await self._find_silence(TEMPORAL_WITHIN) and await self._find_silence(TEMPORAL_WITHIN)
            if why and self._since is None:
                self._since = began
                logger.warning(
                    "temporal away: %s. This worker connects by itself; turns wait, and an activity that is "
                    "not heard of for longer than its heartbeat time-out is run again",
                    why,
                )
            elif not why and self._since is not None:
                logger.warning("temporal back: after %.0f s", time.monotonic() - self._since)
                self._since = None


class _WatchedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, outages: StoreOutages) -> None:  # noqa: A002
        super().__init__(next)
        self._outages = outages

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        tell_store_away.set(self._outages.note_failure)
        try:
            return await super().execute_activity(input)
        except ApplicationError as error:
            kind = error_class(error.type or "")
            if kind is not None and issubclass(kind, StoreUnavailableError):
                self._outages.note_failure()
            raise
