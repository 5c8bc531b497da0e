"""What a worker waits for before it serves: Temporal and its stores, as far as they are merely away.

What is away comes back by itself: a restart would heal nothing.  What is wrong, such as a password, a missing
bucket or tables of another version, does not, and ends the start at once.
"""

import asyncio
import itertools
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from helix_temporal._retries import retry_pause
from helix_temporal.backends import Backends
from helix_temporal.errors import HelixError, StoreUnavailableError

logger = logging.getLogger(__name__)

Check = Callable[[], Awaitable[None]]
"""Passes, or raises `StoreUnavailableError` where a server is away, and another error where it is wrong."""

SAY_EVERY: Final = 60.0
"""Seconds between two lines of the log about the same server."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
_ATTEMPT: Final = 30.0
"""Seconds that one check may take."""
ARCHIVE_WITHIN: Final = 15.0
"""Seconds for which a start waits for an archive that is not required: its name server may be silent."""
_LATER_ATTEMPT: Final = 300.0
"""Seconds that its check may take when nobody waits: some fifty requests of a slow server."""


async def wait_for_servers(
    checks: Mapping[str, Check], away: dict[str, str], attempt: float | None = None
) -> None:
    """Repeat checks until each has passed; all at once, so that each server that is away is named.

    Args:
        checks: By the server's name.
        away: Meanwhile has those that are away, and what was found there.
        attempt: Seconds that one check may take; None for half a minute.

    Raises:
        HelixError: Something is wrong, and waiting for the others would not help.
    """
    limit = _ATTEMPT if attempt is None else attempt
    waiting = [asyncio.ensure_future(_wait_for_server(*each, away, limit)) for each in checks.items()]
    try:
        await asyncio.gather(*waiting)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _wait_for_server(name: str, check: Check, away: dict[str, str], limit: float) -> None:
    began, said = time.monotonic(), float("-inf")
    try:
        for attempt in itertools.count():
            why = await _try_check(check, limit)
            if not why:
                break
            away[name] = why
            if time.monotonic() - said >= SAY_EVERY:
                since = f", for {time.monotonic() - began:.0f} s" if attempt else ""
                said = time.monotonic()
                logger.warning("waiting for %s, which is away%s: %s", name, since, why)
            await asyncio.sleep(retry_pause(attempt, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE))
        if name in away:
            logger.info("%s is there, after %.0f s", name, time.monotonic() - began)
    finally:
        away.pop(name, None)


async def _try_check(check: Check, limit: float) -> str:
    """Why a server is away; empty if its check passes."""
    try:
        async with asyncio.timeout(limit):
            await check()
    except TimeoutError:
        return f"did not answer within {limit:.0f} s"
    except StoreUnavailableError as error:
        if _is_of_certificate(error):
            raise
        return str(error)
    return ""


def _is_of_certificate(error: BaseException | None) -> bool:
    """Whether a server is there and shows a certificate that is not trusted, which waiting does not heal."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


async def check_now_or_later(backends: Backends) -> "asyncio.Task[None] | None":
    """Check an archive that is not required; one that is away, or slow, is not used before it has passed.

    Returns:
        What goes on with the check; None where it has passed.

    Raises:
        HelixError: What it says is wrong.
    """
    try:
        async with asyncio.timeout(ARCHIVE_WITHIN):
            await backends.check_archive()
    except StoreUnavailableError as away:
        backends.refuse_archive(away)
    except TimeoutError:
        slow = f"the archive has not passed its check within {ARCHIVE_WITHIN:.0f} s; it is checked again"
        backends.refuse_archive(StoreUnavailableError(slow))
    else:
        return None
    return asyncio.create_task(check_later(backends))


async def check_later(backends: Backends) -> None:
    """Wait for an archive that was away when its worker started; one that turns out to be wrong stays unused.

    Its worker then says so by its probes, and each call that needs the archive raises the error.
    """
    try:
        await wait_for_servers({"archive": backends.check_archive}, {}, _LATER_ATTEMPT)
    except HelixError as error:
        backends.refuse_archive(error)
        logger.error(  # noqa: TRY400 (the error says it all)
            "the archive is not used, start the worker again once that is mended: %s: %s",
            type(error).__name__,
            error,
        )
