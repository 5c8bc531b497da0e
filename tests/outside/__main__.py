"""``python -m tests.outside --seeds 50 --seconds 120``: the chaos program for long, from the built wheel."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.outside._environment import Outside, make_outside


def _one(outside: Outside, seed: int, seconds: float, keep: Path | None) -> dict[str, Any]:
    output = outside.directory / f"report-{seed}.json"
    arguments = ["--seed", str(seed), "--seconds", str(seconds), "--output", str(output)]
    if keep is not None:
        (keep / str(seed)).mkdir(parents=True)
        arguments += ["--keep", str(keep.resolve() / str(seed))]
    done = outside.run("chaos", *arguments, seconds=seconds + 900)
    if not output.exists():
        ended = f"the program ended with {done.returncode}: {done.stderr[-2000:]}"
        return {"seed": seed, "violations": [ended]}
    report: dict[str, Any] = json.loads(output.read_text())
    return report


def main() -> int:
    """Not zero where something was violated; writes after each seed what has been found so far."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seconds", type=float, default=120, help="of faults, for each seed")
    parser.add_argument("--keep", type=Path, help="a new directory for ledgers and logs, by seed")
    parser.add_argument("--output", type=Path, default=Path("build/outside.json"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    reports: list[dict[str, Any]] = []
    found = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="helix-outside-") as directory:
        outside = make_outside(Path(directory), ["chaos"])
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            reports.append(_one(outside, seed, arguments.seconds, arguments.keep))
            found = sum(len(report["violations"]) for report in reports)
            sys.stderr.write(
                f"{len(reports)}/{arguments.seeds} seeds, {found} violations,"
                f" {(time.monotonic() - began) / 60:.0f} min\n"
            )
            arguments.output.write_text(json.dumps(reports, indent=1) + "\n")
    for report in reports:
        for violation in report["violations"]:
            sys.stdout.write(f"seed {report['seed']}: {violation}\n")
    sys.stdout.write(f"{len(reports)} seeds, {found} violations\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
