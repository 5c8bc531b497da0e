"""Many sessions on one worker, each of which ends after some turns and is followed by another."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from helix_temporal.client import SessionClient
from helix_temporal.devstack import start_stack
from helix_temporal.models.sessions import AskStatus
from helix_temporal.settings import Settings
from helix_temporal.worker import connect


async def _talk(client: SessionClient, number: int, turns: int, until: float, counts: dict[str, int]) -> None:
    life = 0
    while time.monotonic() < until:
        name, life = f"soak-{number}-{life}", life + 1
        for turn in range(turns):
            if time.monotonic() > until:
                break
            try:
                result = await client.ask(name, f"question {turn}", agent="desk", timeout=120)
            except TimeoutError as error:
                sys.stderr.write(f"{error}\n")
                counts["not answered"] += 1
                return
            counts["answered" if result.status is AskStatus.ANSWERED else "not answered"] += 1
        await client.session(name).close()
        counts["sessions"] += 1


async def _run(arguments: argparse.Namespace, environment: dict[str, str]) -> dict[str, int]:
    settings = Settings.from_env(environment)
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    counts = {"answered": 0, "not answered": 0, "sessions": 0}
    until = time.monotonic() + 60 * arguments.minutes
    await asyncio.gather(
        *(_talk(sessions, number, arguments.turns, until, counts) for number in range(arguments.sessions))
    )
    return counts


def _report(lines: list[dict[str, Any]], counts: dict[str, int], minutes: float) -> dict[str, Any]:
    thirds = [lines[len(lines) * part // 3 : len(lines) * (part + 1) // 3] for part in range(3)]
    means = [round(sum(line["rss_mb"] for line in third) / max(len(third), 1), 1) for third in thirds]
    return {
        "minutes": minutes,
        **counts,
        "rss_mb_each_minute": [line["rss_mb"] for line in lines[::6]],
        "rss_mb_mean_of_each_third": means,
        "sockets_most": max(line["sockets"] for line in lines),
        "loop_worst_ms": max(line["worst_ms"] for line in lines[1:] or lines),
        "loop_over_250_ms": sum(line["over_250_ms"] for line in lines[1:]),
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--turns", type=int, default=30, help="of a session before it is closed")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helix-soak-") as directory, start_stack() as stack:
        environment = {**os.environ, **stack.get_environment()}
        program = str(Path(sys.executable).with_name("helix-temporal"))
        subprocess.run([program, "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
        said = Path(directory) / "said"
        with said.open("wb") as out, (Path(directory) / "log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "soak.worker"], env=environment, stdout=out, stderr=log
            )
            try:
                counts = asyncio.run(_run(arguments, environment))
            finally:
                ended = worker.poll()
                worker.kill()
                worker.wait()
                if ended is not None:
                    last = (Path(directory) / "log").read_text()[-2000:]
                    sys.stderr.write(f"the worker ended with {ended}: {last}\n")
        lines = [json.loads(line) for line in said.read_text().splitlines() if line.startswith("{")]
    report = json.dumps(_report(lines, counts, arguments.minutes), indent=1)
    if arguments.output:
        arguments.output.write_text(report)
    sys.stdout.write(report + "\n")
    return bool(counts["not answered"])


if __name__ == "__main__":
    sys.exit(main())
