"""What a check says, and how many of them are made side by side, each within its own time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._futures import discard_error
from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.base import storable_text

logger = logging.getLogger(__name__)

Status = Literal["ok", "warning", "failed"]
_AWAY: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED})
_ORDER: Final[tuple[Status, ...]] = ("ok", "warning", "failed")


class Check(BaseModel):
    """What one check found.

    Attributes:
        about: What was checked: ``settings``, ``redis``, ``archive``, ``temporal`` and so on.
        name: Which part of it.
        status: ``warning`` if it works, but somebody should look at it.
        says: What was found.  If the status is not ``ok``, also what was expected and what to do.
        away: A server did not answer, so nothing else is known of this part.
        server: The server that did not answer; empty if all did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    name: str
    status: Status
    # Paths and servers may have text that JSON cannot hold.
    says: Annotated[str, AfterValidator(storable_text)]
    away: bool = False
    server: str = ""


def make_check(about: str, name: str, status: Status, says: str) -> Check:
    """What a check found to which every server answered."""
    return Check(about=about, name=name, status=status, says=says)


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
        status = _ORDER[max((_ORDER.index(each.status) for each in checks), default=0)]
        return cls(checks=tuple(checks), status=status, away=any(each.away for each in checks))


class Probe(NamedTuple):
    """Something to be looked at.

    Attributes:
        about, name: As in the checks that come of it.
        look: Says what was found, or raises what is in its way.
        server: Which one is asked; empty where ``about`` names it.
    """

    about: str
    name: str
    look: Callable[[], Awaitable[Sequence[Check]]]
    server: str = ""


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
        return [_fail(probe, said, away=True)]
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
    return _fail(probe, said, away=away)


def _fail(probe: Probe, says: str, *, away: bool) -> Check:
    server = (probe.server or probe.about) if away else ""
    return Check(about=probe.about, name=probe.name, status="failed", says=says, away=away, server=server)
