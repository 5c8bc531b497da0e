"""``python -m tests.chaos --kills 500``: the long forms, on servers of their own."""

import argparse
import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from helix_temporal.devstack import start_stack
from helix_temporal.settings import Settings
from tests._services import stack_environment
from tests.chaos._cancels import CancelCampaign
from tests.chaos._kills import KillCampaign
from tests.chaos._report import Progress, Report

Campaign = Callable[[Settings, Path, argparse.Namespace, Progress], Awaitable[Report]]


async def _kills(settings: Settings, directory: Path, args: argparse.Namespace, progress: Progress) -> Report:
    return await KillCampaign(settings, directory, seed=args.seed).run(args.kills, progress)


async def _cancels(
    settings: Settings, directory: Path, args: argparse.Namespace, progress: Progress
) -> Report:
    return await CancelCampaign(settings, directory, seed=args.seed).run(progress)


CAMPAIGNS: dict[str, Campaign] = {"kills": _kills, "cancels": _cancels}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=150, help="workers to kill")
    parser.add_argument("--seed", type=int, default=None, help="of all random choices")
    parser.add_argument("--only", nargs="*", choices=sorted(CAMPAIGNS), help="some campaigns instead of all")
    parser.add_argument("--output", type=Path, default=Path("build/chaos.json"))
    args = parser.parse_args()
    args.seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    return args


async def _run(args: argparse.Namespace, settings: Settings, directory: Path) -> list[Report]:
    progress = Progress(shown=True)
    reports = []
    for name in args.only or CAMPAIGNS:
        progress(f"{name}, seed {args.seed}", final=True)
        reports.append(await CAMPAIGNS[name](settings, directory, args, progress))
    return reports


def main() -> int:
    """Run the campaigns, print and write what they found; not zero if anything was found."""
    args = _arguments()
    environment = stack_environment(os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="helix-chaos-") as directory,
        start_stack(("temporal", "redis", "s3"), environment=environment) as stack,
    ):
        settings = Settings.from_env(
            {**stack.env(), "HELIX_TASK_QUEUE": "chaos", "HELIX_ALLOW_PLAINTEXT": "true"}
        )
        reports = asyncio.run(_run(args, settings, Path(directory)))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    written = {"seed": args.seed, "campaigns": [report.as_json() for report in reports]}
    args.output.write_text(json.dumps(written, indent=2) + "\n")
    for report in reports:
        sys.stdout.write(
            "\n".join([report.line(), *(f"  {what}" for what in report.findings.all[:20])]) + "\n"
        )
    return 1 if any(report.findings.all for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
