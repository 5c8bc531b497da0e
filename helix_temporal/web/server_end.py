"""Whether the server around the application has begun to stop, for responses that have no end of their own.

uvicorn waits for open responses, without a limit unless it is given one, and only then runs the shutdown of
the lifespan.  It tells applications nothing; but the handler that it sets for signals is a method of the
server, and that says whether it should exit.  Other servers cannot be asked, and some of them wait without a
limit, too: granian, and hypercorn since Python 3.12, as `asyncio.Server.wait_closed` waits for connections.
"""

import asyncio
import signal
from typing import Final

_LOOK: Final = 0.5
"""Seconds between two looks."""


def is_server_stopping() -> bool:
    """Whether a uvicorn that was started as servers are, in a main thread, has been told to end."""
    handlers = (signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT))
    return any(getattr(getattr(each, "__self__", None), "should_exit", False) is True for each in handlers)


async def wait_for_server_end() -> None:
    """Returns when the server has been told to end; never under a server that cannot be asked."""
    while True:
        # First: a response that begins meanwhile has sent its head by then.
        await asyncio.sleep(_LOOK)
        if is_server_stopping():
            return
