"""Stores that are away, as a worker's log tells it: one line when one is missed, one when it is back."""

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
