"""All checks of a deployment."""

import asyncio
from collections.abc import Mapping
from typing import Final

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.doctor.checks import Check, CheckReport, Probe, make_check, run_probes
from helix_temporal.doctor.schedules import make_schedule_probe
from helix_temporal.doctor.settings import check_settings
from helix_temporal.doctor.shared import Shared
from helix_temporal.doctor.stores import list_store_probes
from helix_temporal.doctor.temporal import list_temporal_probes
from helix_temporal.doctor.versions import check_versions
from helix_temporal.errors import HelixError
from helix_temporal.settings import Settings
from helix_temporal.worker import connect_without_metrics

WITHIN: Final = 10.0
"""Seconds for one check, unless it is said otherwise."""
_CLOSE_WITHIN: Final = 5.0


async def check_deployment(
    environment: Mapping[str, str], *, within: float = WITHIN, writes: bool = False, temporal: bool = True
) -> CheckReport:
    """Check everything that the variables name; nothing is changed, and no secret is told.

    Args:
        environment: ``HELIX_…`` variables.
        within: Seconds for each check.
        writes: Also try writes, on objects of its own that are removed.
        temporal: Whether sessions run in Temporal; without it only stores are checked.
    """
    try:
        settings = Settings.from_env(environment)
        backends = Backends(settings)
    except HelixError as error:
        said = f"{error}; correct it: no other check can be made"
        wrong = make_check("settings", "read", "failed", said)
        return CheckReport.of([check_versions(), wrong])
    client = Shared[Client](lambda: _connect(settings))
    probes = list_store_probes(backends, settings, writes=writes)
    if temporal:
        probes += [*list_temporal_probes(client, settings), make_schedule_probe(client, settings)]
    try:
        found = await run_probes(probes, within)
    finally:
        client.stop()
        await _close(backends)
    return CheckReport.of([check_versions(), *check_settings(settings), *_merge_silence(probes, found)])


async def _connect(settings: Settings) -> Client:
    return (await connect_without_metrics(settings))[0]


async def _close(backends: Backends) -> None:
    """Close the stores; one that hangs is left to the end of the process."""
    closing = asyncio.ensure_future(backends.close())
    await asyncio.wait({closing}, timeout=_CLOSE_WITHIN)
    closing.cancel()


def _merge_silence(probes: list[Probe], found: list[Check]) -> list[Check]:
    """Of a server that is away one line, where all who asked it say the same."""
    told = set[tuple[str, str]]()
    kept = []
    for each in found:
        silence = (each.server, each.says)
        if not each.away or silence not in told:
            kept.append(each)
        told.add(silence)
    order = list(dict.fromkeys(each.about for each in probes))
    return sorted(kept, key=lambda each: order.index(each.about) if each.about in order else len(order))
