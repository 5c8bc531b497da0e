"""``python -m bench.faults``: start servers, run each framework in its environment, print the table."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.faults.environments import (
    ROOT,
    EnvironmentMissingError,
    ensure_environment,
    list_frameworks,
    list_versions,
)
from bench.faults.table import TITLES, Result, render_table, write_table
from helix_temporal.devstack import start_stack

PAGE: Final = ROOT / "docs" / "frameworks.md"
FRAMEWORK_SECONDS: Final = 3600


def main() -> int:
    """Not zero where a framework could not be run."""
    arguments = parse_arguments()
    names = arguments.only or sorted(list_frameworks(), key=list(TITLES).index)
    began = time.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {what}\n")

    missing = False
    with _servers() as servers:
        for name in names:
            say(f"{name} …")
            result = run_framework(name, servers, arguments, say)
            missing = missing or result.missing is not None
            keep_result(arguments.out, result)
    table = render_table(read_results(arguments.out))
    sys.stdout.write(f"{table}\n")
    if arguments.write:
        write_table(PAGE, table)
    return int(missing)


def read_results(path: Path) -> list[Result]:
    """What is known of all frameworks, of this run or an earlier one, in the table's order."""
    found = [Result(**each) for each in json.loads(path.read_text("utf-8"))] if path.exists() else []
    return sorted(found, key=lambda each: list(TITLES).index(each.framework))


def keep_result(path: Path, result: Result) -> None:
    """Put a framework's result in the place of its earlier one; those of others stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    others = [each for each in read_results(path) if each.framework != result.framework]
    path.write_text(json.dumps([asdict(each) for each in (*others, result)], indent=1) + "\n", "utf-8")


def parse_arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list_frameworks(), help="some frameworks")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000], help="items of long sessions")
    parser.add_argument("--fill-seconds", type=float, default=180.0, help="at most, for a long session")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "faults.json")
    return parser.parse_args()


def run_framework(name: str, servers: Mapping[str, str], arguments: argparse.Namespace, say: Any) -> Result:
    """A framework's rows, or why there are none."""
    shown = list_versions(name)
    try:
        python = ensure_environment(name, say)
    except EnvironmentMissingError as error:
        return Result(name, shown, [], str(error))
    sizes = [str(size) for size in arguments.sizes]
    done = subprocess.run(
        [
            str(python),
            "-m",
            "bench.faults.run",
            name,
            "--sizes",
            *sizes,
            "--fill-seconds",
            str(arguments.fill_seconds),
        ],
        cwd=ROOT,
        env=_plain_environment() | dict(servers),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=FRAMEWORK_SECONDS,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return Result(name, shown, rows, f"ended with {done.returncode}" if done.returncode else None)


def _plain_environment() -> dict[str, str]:
    """Without settings of ours, and without reports to anybody."""
    ours = ("HELIX_", "PYTHONPATH", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}


@contextlib.contextmanager
def _servers() -> Iterator[dict[str, str]]:
    """PostgreSQL that syncs each commit to the disk, as all do that have something to lose, and Redis."""
    given = {name: value for name, value in os.environ.items() if name.endswith("_BINARY") or name == "PATH"}
    with tempfile.TemporaryDirectory(prefix="helix-faults-", ignore_cleanup_errors=True) as name:
        # The server runs as somebody else where we are root.
        Path(name).chmod(0o755)
        with (
            start_stack(["postgres"], directory=Path(name), environment=given) as durable,
            start_stack(["redis"], environment=given) as stack,
        ):
            yield {
                "FAULTS_POSTGRES": durable.postgres.dsn,
                "FAULTS_REDIS": stack.get_environment("redis")["HELIX_REDIS_URL"],
            }


if __name__ == "__main__":
    sys.exit(main())
