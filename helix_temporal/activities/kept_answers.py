"""Model answers that wait in memory for their store, also where Temporal has given up their attempt."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from temporalio import activity

from helix_temporal.activities._runtime import STORE_AWAY_PAUSES, repeat_while_away, wait_for_drain_end
from helix_temporal.models.stored_messages import Head

_log = logging.getLogger(__name__)

R = TypeVar("R")

Step = tuple[str, int, Head]
"""The thread, the epoch and the head of a step: what all its attempts share."""

_ENDED_BY_SOMEBODY: Final = ("cancel_requested", "worker_shutdown", "paused", "reset")


class KeptAnswers:
    """Stores answers of models, each kept in memory while its store is away: it was paid for.

    Where Temporal gives the attempt up meanwhile, because it missed heartbeats while it was away itself, the
    attempt goes on: an append may come as late as it likes.  The next attempt of the same step waits for it,
    if this process has it; in another process it asks the model too, and the answer that stands first counts.
    """

    def __init__(self) -> None:
        self._storing: dict[Step, asyncio.Future[None]] = {}
        """Done once the newest attempt of a step has stored its answer, or has given it up."""

    async def store(self, step: Step, append: Callable[[], Awaitable[R]]) -> R:
        """What ``append`` gives, which is repeated while a store is away.

        Args:
            step: Whose answer it is.
            append: Appends the same answer each time: one whose reply was lost is found by that.

        Raises:
            StoreUnavailableError: It was away for two minutes.
            CancelledError: Somebody cancelled the attempt, or its worker has drained.
        """
        what = f"thread {step[0]!r}: the answer of the model"
        done = self._storing[step] = asyncio.get_running_loop().create_future()
        try:
            return await repeat_while_away(append, what, STORE_AWAY_PAUSES)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not _is_given_up():
                raise
            task.uncancel()
            _log.warning("%s is kept in memory, though Temporal has given up its attempt", what)
            return await _store_before_drain_end(repeat_while_away(append, what, STORE_AWAY_PAUSES))
        finally:
            done.set_result(None)
            if self._storing.get(step) is done:
                del self._storing[step]

    async def wait(self, step: Step) -> None:
        """Wait until an earlier attempt of the step has stored its answer, or has given it up."""
        storing = self._storing.get(step)
        if storing is not None:
            _log.info("thread %r: an earlier attempt has an answer, which is waited for", step[0])
            await asyncio.wait([storing])


async def _store_before_drain_end(work: Coroutine[Any, Any, R]) -> R:
    """What ``work`` gives.

    Raises:
        CancelledError: The worker has drained before: nobody else tells an attempt that was given up.
    """
    storing, ends = asyncio.create_task(work), asyncio.ensure_future(wait_for_drain_end.get()())
    try:
        await asyncio.wait([storing, ends], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends.cancel()
        if not storing.done():
            storing.cancel()
    return await storing


def _is_given_up() -> bool:
    """Whether Temporal cancelled the attempt since it heard nothing of it, and nobody wanted it to end."""
    details = activity.cancellation_details() if activity.in_activity() else None
    if details is None or any(getattr(details, name) for name in _ENDED_BY_SOMEBODY):
        return False
    return details.timed_out or details.not_found
