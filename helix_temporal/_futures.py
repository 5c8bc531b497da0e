"""Work that goes on when nobody waits for it any more."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def finish_before_cancel(work: Awaitable[T]) -> T:
    """What ``work`` gives; a cancel is passed on once it has ended, so that nothing goes on unseen."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:  # the first one is passed on
                continue
        discard_error(running)
        raise


def discard_error(done: asyncio.Future[Any]) -> None:
    """Let an error go that nobody waits for; otherwise asyncio logs it when the future is collected."""
    if not done.cancelled():
        done.exception()
