"""What a check says, and how many of them are made side by side, each within its own time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._futures import discard_error
from helix_temporal.errors import HelixError, StoreUnavailableError

logger = logging.getLogger(__name__)

Status = Literal["ok", "warning", "failed"]
_AWAY: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED})
_ORDER: Final[tuple[Status, ...]] = ("ok", "warning", "failed")


class Check(BaseModel):
    """What was found at one place.

    Attributes:
        about: What was looked at: ``settings``, ``redis``, ``archive``, ``temporal`` and so on.
        name: What was checked of it, such as ``server``, ``clock`` or ``writes``.
        status: ``warning``: it works, and something is not as it should be.
        says: What was found.  Unless that is as it should be, also what was expected, and what to do.
        away: A server did not answer: nothing else is known of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    name: str
    status: Status
    says: str
    away: bool = False


class CheckReport(BaseModel):
    """All checks, in the order in which they are shown.

    Attributes:
        status: The worst of them.
        away: A server did not answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    checks: tuple[Check, ...]
    status: Status = "ok"
    away: bool = False

    @classmethod
    def of(cls, checks: Sequence[Check]) -> "CheckReport":
        """The report of these checks."""
        status = max((each.status for each in checks), key=_ORDER.index, default="ok")
        return cls(checks=tuple(checks), status=status, away=any(each.away for each in checks))


class Probe(NamedTuple):
    """Something to be looked at; ``look`` says what was found, or raises what is in its way."""

    about: str
    name: str
    look: Callable[[], Awaitable[Sequence[Check]]]


async def run_probes(probes: Sequence[Probe], within: float) -> list[Check]:
    """Look at everything at once; what hangs, or fails, is a check that failed, and stops no other.

    Args:
        probes: What to look at.
        within: Seconds for each.
    """
    found = await asyncio.gather(*(_run_probe(each, within) for each in probes))
    return [check for checks in found for check in checks]


async def _run_probe(probe: Probe, within: float) -> Sequence[Check]:
    # Not by `asyncio.timeout`: a query that is cancelled on a silent connection ends much later.
    looking = asyncio.ensure_future(probe.look())
    try:
        done, _ = await asyncio.wait({looking}, timeout=within)
    finally:
        looking.cancel()
        looking.add_done_callback(discard_error)
    if not done:
        said = f"no answer within {within:.0f} s; is the address right, and is it reachable from here?"
        return [Check(about=probe.about, name=probe.name, status="failed", says=said, away=True)]
    try:
        return looking.result()
    except Exception as error:  # noqa: BLE001 (a bug in one check must not hide the others)
        return [_describe_failure(probe, error)]


def _describe_failure(probe: Probe, error: Exception) -> Check:
    said = f"{type(error).__name__}: {error}"
    away = isinstance(error, StoreUnavailableError | ConnectionError | TimeoutError)
    if isinstance(error, RPCError):
        said, away = f"Temporal says {error.status.name}: {error.message}", error.status in _AWAY
    elif not isinstance(error, HelixError | OSError):
        # Its text may quote anything.
        logger.warning("a check failed by a bug", exc_info=error)
        said = f"{type(error).__name__} in the check itself: please report it"
    return Check(about=probe.about, name=probe.name, status="failed", says=said, away=away)
