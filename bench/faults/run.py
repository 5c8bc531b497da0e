"""All faults of one framework, in its environment: ``python -m bench.faults.run FRAMEWORK``.

The servers are in ``FAULTS_POSTGRES`` and ``FAULTS_REDIS``; the rows go to standard output as JSON.
"""

import argparse
import asyncio
import importlib
import importlib.metadata
import json
import os
import sys

from bench.faults.trials import Trial, run_trials


async def main(framework: str, sizes: list[int], fill_seconds: float) -> None:
    """A row for each store, as soon as it is known."""
    for subject in importlib.import_module(f"bench.faults.frameworks.{framework}").SUBJECTS:
        address = "" if subject.place == "memory" else os.environ[f"FAULTS_{subject.place.upper()}"]
        sys.stderr.write(f"  {subject.name} …\n")
        cells = await run_trials(Trial(framework, subject, address, sizes, fill_seconds))
        row = {"store": subject.name, "place": subject.place, "ours": subject.ours, "cells": cells}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.faults.run", description=__doc__)
    parser.add_argument("framework")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--fill-seconds", type=float, default=180.0)
    given = parser.parse_args()
    asyncio.run(main(given.framework, given.sizes, given.fill_seconds))
