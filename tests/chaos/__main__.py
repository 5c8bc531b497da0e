"""``python -m tests.chaos --kills 500``: the long forms, on servers of their own."""

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig

from helix_temporal.devstack import Valkey, start_stack, start_valkey
from helix_temporal.settings import Settings
from tests._services import stack_environment
from tests.chaos._boundaries import At
from tests.chaos._cancels import CancelCampaign
from tests.chaos._child_ends import ChildEnds
from tests.chaos._children import ChildKillCampaign
from tests.chaos._exact import ExactKills
from tests.chaos._freezes import FreezeCampaign
from tests.chaos._kills import KillCampaign
from tests.chaos._oracle import Findings
from tests.chaos._points import all_points
from tests.chaos._redis import RedisCampaigns
from tests.chaos._report import Progress, Report
from tests.chaos._s3 import S3Campaigns
from tests.chaos._stage import Stage
from tests.chaos._streams import StreamKills
from tests.chaos._terminates import TerminateCampaign
from tests.chaos._traces import TraceKills
from tests.chaos._trees import TreeKills
from tests.chaos._wait_ends import WaitEnds
from tests.chaos._waits import WaitKills


@dataclass(frozen=True, slots=True)
class Run:
    """What all campaigns of one command share; ``valkey`` is one to wipe and kill."""

    settings: Settings
    directory: Path
    valkey: Valkey
    seed: int
    kills: int
    progress: Progress

    @property
    def share(self) -> int:
        """Of each scene of a campaign that has several, and of each smaller one: 37 of 150."""
        return max(self.kills // 4, 1)


async def _kills(run: Run) -> list[Report]:
    return [await KillCampaign(run.settings, run.directory, seed=run.seed).run(run.kills, run.progress)]


async def _traces(run: Run) -> list[Report]:
    return [await TraceKills(run.settings, run.directory, seed=run.seed).run(run.share, run.progress)]


async def _children(run: Run) -> list[Report]:
    campaign = ChildKillCampaign(run.settings, run.directory, seed=run.seed)
    ends = ChildEnds(run.settings, run.directory, seed=run.seed)
    trees = TreeKills(run.settings, run.directory, seed=run.seed, valkey=run.valkey)
    return [await part.run(run.share, run.progress) for part in (campaign, trees, ends)]


async def _waits(run: Run) -> list[Report]:
    campaigns = (
        WaitKills(run.settings, run.directory, seed=run.seed, suspend="wait", valkey=run.valkey),
        WaitKills(run.settings, run.directory, seed=run.seed, suspend="exit", valkey=run.valkey),
    )
    reports = [await each.run(run.share, run.progress) for each in campaigns]
    ends = WaitEnds(run.settings, run.directory, seed=run.seed)
    return [*reports, await ends.run(run.share, run.progress)]


async def _streams(run: Run) -> list[Report]:
    campaign = StreamKills(run.settings, run.directory, seed=run.seed)
    return [await campaign.run(run.share, run.progress)]


async def _exact(run: Run) -> list[Report]:
    return [
        await ExactKills(run.settings, run.directory, seed=run.seed, flush=flush).run(
            run.progress, at_most=2 * run.share
        )
        for flush in ("step", "exit")
    ]


async def _drains(run: Run) -> list[Report]:
    campaign = KillCampaign(run.settings, run.directory, seed=run.seed, graceful=True)
    return [await campaign.run(run.share, run.progress)]


async def _freezes(run: Run) -> list[Report]:
    campaign = FreezeCampaign(run.settings, run.directory, seed=run.seed)
    return [await campaign.run(run.kills, run.progress)]


async def _redis(run: Run) -> list[Report]:
    campaigns = RedisCampaigns(run.settings, run.valkey, run.directory, seed=run.seed)
    return [
        await campaigns.wiped_at_turns(60, run.progress),
        await campaigns.wiped_at_random(300, run.progress),
        await campaigns.rolled_back(20, run.progress),
        await campaigns.down(5, run.progress),
    ]


async def _cancels(run: Run) -> list[Report]:
    return [await CancelCampaign(run.settings, run.directory, seed=run.seed).run(run.progress)]


async def _terminates(run: Run) -> list[Report]:
    return [await TerminateCampaign(run.settings, run.directory, seed=run.seed).run(60, run.progress)]


async def _s3(run: Run) -> list[Report]:
    campaigns = S3Campaigns(run.settings, run.valkey, run.directory, seed=run.seed)
    return [await campaigns.down_at_exit(6, run.progress), await campaigns.flapping(200, run.progress)]


async def _points(run: Run) -> list[Report]:
    async with Stage.open(run.settings, run.directory) as stage:
        return [await all_points(stage, tuple(At), run.seed, run.progress, at_most=run.share)]


CAMPAIGNS: dict[str, Callable[[Run], Awaitable[list[Report]]]] = {
    "children": _children,
    "waits": _waits,
    "streams": _streams,
    "kills": _kills,
    "traces": _traces,
    "freezes": _freezes,
    "points": _points,
    "exact": _exact,
    "drains": _drains,
    "cancels": _cancels,
    "terminates": _terminates,
    "redis": _redis,
    "s3": _s3,
}
"""In this order: those with most to find first."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=150, help="workers to kill")
    parser.add_argument("--seed", type=int, default=None, help="of all random choices")
    parser.add_argument("--only", nargs="*", choices=sorted(CAMPAIGNS), help="some campaigns instead of all")
    parser.add_argument("--output", type=Path, default=Path("build/chaos.json"))
    args = parser.parse_args()
    args.seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    return args


async def _run(names: Sequence[str], run: Run, output: Path) -> list[Report]:
    reports: list[Report] = []
    began = time.monotonic()
    for number, name in enumerate(names, 1):
        passed = (time.monotonic() - began) / 60
        run.progress(f"{number}/{len(names)}: {name}, seed {run.seed}, after {passed:.0f} min", final=True)
        try:
            reports += await CAMPAIGNS[name](run)
        except Exception as error:  # noqa: BLE001 (the others are still to be run)
            traceback.print_exc()
            broke_off = f"broke off: {type(error).__name__}: {error}"
            reports.append(Report(name, run.seed, Findings(others=[broke_off])))
        _write(output, run.seed, reports, time.monotonic() - began)
    return reports


def _write(output: Path, seed: int, reports: Sequence[Report], seconds: float) -> None:
    """After each campaign: one that is cut short has left what it found."""
    output.parent.mkdir(parents=True, exist_ok=True)
    found = [report.as_json() for report in reports]
    written = {"seed": seed, "seconds": round(seconds), "campaigns": found}
    output.write_text(json.dumps(written, indent=2) + "\n")


def _be_quiet() -> None:
    """Workers say a lot about attempts that fail, which is what happens here all the time."""
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    telemetry = TelemetryConfig(logging=LoggingConfig(filter="off"))
    Runtime.set_default(Runtime(telemetry=telemetry))


def main() -> int:
    """Run the campaigns, print and write what they found; not zero if anything was found."""
    args = _arguments()
    _be_quiet()
    environment = stack_environment(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="helix-chaos-") as directory,
        start_stack(("temporal", "redis", "s3"), environment=environment) as stack,
        start_valkey(persistent=True, environment=environment) as valkey,
    ):
        settings = Settings.from_env(
            {**stack.get_environment(), "HELIX_TASK_QUEUE": "chaos", "HELIX_ALLOW_PLAINTEXT": "true"}
        )
        run = Run(settings, Path(directory), valkey, args.seed, args.kills, Progress(shown=True))
        reports = asyncio.run(_run(args.only or list(CAMPAIGNS), run, args.output))
    for report in reports:
        sys.stdout.write(
            "\n".join([report.line(), *(f"  {what}" for what in report.findings.all[:20])]) + "\n"
        )
    return 1 if any(report.findings.all for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
