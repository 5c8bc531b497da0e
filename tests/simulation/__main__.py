"""The campaign: ``python -m tests.simulation --seeds 100000``; one seed again: ``--seed 17 --trace``.

Of a violation that names threads, ``--neighbours`` runs the seed's story of several threads on one worker;
of one that names messages taken back, ``--joined`` that of programs that share a session; of one that names
records, ``--records`` that of programs that keep them.
"""

import argparse
import json
import os
import sys
import warnings
from functools import partial
from pathlib import Path

from tests.simulation._campaign import Figures, run_campaign
from tests.simulation._joined import simulate_joined
from tests.simulation._neighbours import simulate_neighbours
from tests.simulation._recorded import simulate_recorded
from tests.simulation._run import Verdict, simulate

REPORT = Path("build/simulate.json")


def main() -> int:
    """Run as the arguments say; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--neighbours", action="store_true", help="with --seed: several threads")
    parser.add_argument("--joined", action="store_true", help="with --seed: programs that share a session")
    parser.add_argument("--records", action="store_true", help="with --seed: programs that keep records")
    parser.add_argument("--trace", action="store_true", help="print what happens in it, step by step")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        warnings.simplefilter("ignore", RuntimeWarning)
        asides = {"neighbours": simulate_neighbours, "joined": simulate_joined, "records": simulate_recorded}
        named = (aside for name, aside in asides.items() if getattr(arguments, name))
        story = next(named, simulate)
        return _one(story(arguments.seed, trace=_out if arguments.trace else None))
    progress = partial(_progress, set())
    figures = run_campaign(arguments.seeds, start=arguments.start, jobs=arguments.jobs, progress=progress)
    _out("")
    _report(figures)
    return 1 if figures.failed else 0


def _one(verdict: Verdict) -> int:
    _out(f"seed {verdict.seed}: {verdict.why or 'all promises kept'}")
    return 1 if verdict.why else 0


def _progress(told: set[int], figures: Figures) -> None:
    for seed in figures.violations.keys() - told:
        _out(f"seed {seed}: {figures.violations[seed]}")
        told.add(seed)
    rate = figures.seeds / max(figures.seconds, 0.001)
    end = "\r" if sys.stdout.isatty() else "\n"
    if sys.stdout.isatty() or figures.seeds % 1000 == 0:
        sys.stdout.write(f"{figures.seeds} seeds, {figures.failed} violations, {rate:.0f} seeds/s{end}")
        sys.stdout.flush()
    if figures.seeds % 1000 == 0:
        # What was run so far counts, should the rest be interrupted.
        _write(figures)


def _report(figures: Figures) -> None:
    for what, count in sorted(figures.seen.items()):
        _out(f"  {count:>9}  {what}")
    for seed, why in figures.violations.items():
        _out(f"seed {seed}: {why}\n    again: python -m tests.simulation --seed {seed} --trace")
    _out(f"{figures.seeds} seeds in {figures.seconds:.0f} s: {figures.failed} violations")
    _write(figures)


def _write(figures: Figures) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures.as_json(), indent=2) + "\n")


def _out(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
