"""Does something to many threads, some at a time; one that fails, whatever it raises, stops no other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import HelixError, StoreUnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

GIVES_UP_AFTER: Final = 16
"""A pass ends when a store did not answer for so many threads in a row: it is away, and asking takes long."""


class Visits(Generic[T, R]):
    """One pass over threads, in one page or several.

    Args:
        visit: What is done to a thread; repeated while a store does not answer, so it may happen twice.
        fail: The result of one that failed, of the thread and why.
        parallel: Threads at a time.
        seconds: A thread that takes longer has failed, as if a store had not answered: those behind it wait.
    """

    def __init__(
        self,
        visit: Callable[[T], Awaitable[R]],
        fail: Callable[[T, str], R],
        *,
        parallel: int,
        seconds: float,
    ) -> None:
        self._visit, self._fail, self._seconds = visit, fail, seconds
        self._slots, self._unanswered = asyncio.Semaphore(parallel), 0
        self._has_answer = False
        self._silence: StoreUnavailableError | None = None

    async def visit_all(self, threads: Sequence[T]) -> list[R]:
        """Visit them; the results in their order.

        Raises:
            StoreUnavailableError: A store answered for none of 16 in a row, though asked several times, or
                did not do so in time.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._visit_one(each)) for each in threads]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [each.result() for each in tasks]

    def check_answered(self) -> None:
        """At the end of a pass: refuse one in which a store was asked, and answered for no thread at all.

        Raises:
            StoreUnavailableError: What was said of the last one.
        """
        if self._silence is not None and not self._has_answer:
            raise self._silence

    async def _visit_one(self, thread: T) -> R:
        async with self._slots:
            limit = asyncio.timeout(self._seconds)
            try:
                async with limit:
                    result = await repeat_unanswered(lambda: self._visit(thread))
            except StoreUnavailableError as error:
                return self._note_silence(thread, _describe(error), error)
            except HelixError as error:
                result = self._fail(thread, _describe(error))
            except Exception as error:
                if limit.expired():
                    why = f"not done within {self._seconds:.0f} s"
                    return self._note_silence(thread, why, StoreUnavailableError(f"a thread was {why}"))
                logger.warning("a visit of a thread failed by a bug", exc_info=error)
                # Any exception may quote what it was given: its text is in the traceback alone.
                result = self._fail(thread, type(error).__name__)
            self._unanswered, self._has_answer = 0, True
            return result

    def _note_silence(self, thread: T, why: str, error: StoreUnavailableError) -> R:
        """The result of a thread for which a store did not answer; of many in a row it is raised."""
        self._unanswered, self._silence = self._unanswered + 1, error
        if self._unanswered >= GIVES_UP_AFTER:
            raise error
        return self._fail(thread, why)


def _describe(error: HelixError) -> str:
    return f"{type(error).__name__}: {error}"[:500]
