"""Work that a cancel must not leave half done."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

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
        if not running.cancelled():
            running.exception()  # told to nobody: who cancelled asked for no answer
        raise
