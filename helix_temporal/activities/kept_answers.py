"""Model answers that wait in memory for their store, also where Temporal has given up their attempt."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from helix_temporal.activities._runtime import (
    STORE_AWAY_PAUSES,
    find_cancellation,
    is_given_up,
    repeat_while_away,
    wait_for_drain_end,
)
from helix_temporal.models.stored_messages import Head

_log = logging.getLogger(__name__)

R = TypeVar("R")

Step = tuple[str, int, Head]
"""The thread, the epoch and the head of a step: what all its attempts share."""


class _Storing:
    """An answer that is being stored: the next attempt of its step waits for it, or ends it."""

    def __init__(self) -> None:
        self.done, self.unwanted = asyncio.Event(), asyncio.Event()


class KeptAnswers:
    """Stores answers of models, each kept in memory while its store is away: it was paid for.

    Where Temporal gives the attempt up meanwhile, because it missed heartbeats while it was away itself, the
    attempt goes on: an append may come as late as it likes.  The next attempt of the same step waits for it,
    if this process has it; in another process it asks the model too, and the answer that stands first counts.
    """

    def __init__(self) -> None:
        self._storing: dict[Step, _Storing] = {}
        """By the newest attempt of each step."""

    async def store(self, step: Step, append: Callable[[], Awaitable[R]]) -> R:
        """What ``append`` gives, which is repeated while a store is away.

        Args:
            step: Whose answer it is.
            append: Appends the same answer each time: one whose reply was lost is found by that.

        Raises:
            StoreUnavailableError: It was away for two minutes.
            CancelledError: Somebody cancelled the attempt, or the next one; or its worker has drained.
        """
        what = f"thread {step[0]!r}: the answer of the model"
        mine = self._storing[step] = _Storing()
        try:
            return await repeat_while_away(append, what, STORE_AWAY_PAUSES)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not is_given_up():
                raise
            task.uncancel()
            _log.warning("%s is kept in memory, though Temporal has given up its attempt", what)
            return await _store_while_wanted(repeat_while_away(append, what, STORE_AWAY_PAUSES), mine)
        finally:
            mine.done.set()
            if self._storing.get(step) is mine:
                del self._storing[step]

    async def wait(self, step: Step) -> None:
        """Wait until an earlier attempt of the step has stored its answer, or has given it up.

        Whoever cancels this attempt means the earlier one as well, of which Temporal knows no more: a turn
        that was taken back must not stand in the thread afterwards.
        """
        storing = self._storing.get(step)
        if storing is None:
            return
        _log.info("thread %r: an earlier attempt has an answer, which is waited for", step[0])
        try:
            await storing.done.wait()
        except asyncio.CancelledError:
            if _is_cancelled_by_somebody():
                storing.unwanted.set()
            raise


async def _store_while_wanted(work: Coroutine[Any, Any, R], storing: _Storing) -> R:
    """What ``work`` gives.

    Raises:
        CancelledError: The worker has drained before, or nobody wants it any more: whoever cancels, cancels
            the next attempt, since this one was given up.
    """
    task = asyncio.create_task(work)
    ends = [asyncio.ensure_future(wait_for_drain_end.get()()), asyncio.ensure_future(storing.unwanted.wait())]
    try:
        await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in ends:
            each.cancel()
        if not task.done():
            task.cancel()
    return await task


def _is_cancelled_by_somebody() -> bool:
    details = find_cancellation()
    return details is not None and details.cancel_requested
