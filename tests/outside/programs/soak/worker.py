"""A user's worker that measures itself: memory, sockets, and how late its event loop is.

Prints a line of JSON every ten seconds.
"""

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Final

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, tool
from helix_temporal.models.messages import ToolCall
from helix_temporal.settings import Settings
from helix_temporal.worker import serve

EVERY_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.02
ANSWER: Final = "An answer of usual length. " * 20


@tool
async def look_up(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(random.uniform(0, 0.05))
    return f"{what}: {ANSWER}"


class ShortModel:
    """Asks for a tool in every third turn."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One model call."""
        await asyncio.sleep(random.uniform(0.02, 0.2))
        last = request.messages[-1]
        if last.role == "user" and last.text.endswith("0"):
            return ModelResponse(tool_calls=(ToolCall(id="1", name="look_up", arguments={"what": "it"}),))
        return ModelResponse(ANSWER)


async def measure() -> None:
    """Say how this process does, for ever."""
    worst, late, said = 0.0, 0, time.monotonic()
    while True:
        began = time.monotonic()
        await asyncio.sleep(TICK_SECONDS)
        lag = time.monotonic() - began - TICK_SECONDS
        worst, late = max(worst, lag), late + (lag > 0.25)
        if began - said >= EVERY_SECONDS:
            figures = {
                "rss_mb": round(resident_mb(), 1),
                "sockets": sockets(),
                "worst_ms": round(worst * 1000),
            }
            sys.stdout.write(json.dumps(figures | {"over_250_ms": late}) + "\n")
            sys.stdout.flush()
            worst, late, said = 0.0, 0, began


def resident_mb() -> float:
    """Resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def sockets() -> int:
    """Open sockets."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += link.readlink().name.startswith("socket:")
        except FileNotFoundError:
            continue
    return found


async def main() -> None:
    """Serve and measure until killed."""
    measuring = asyncio.create_task(measure())
    await serve(Settings.from_env(os.environ), [Agent(name="desk", model=ShortModel(), tools=[look_up])])
    measuring.cancel()


if __name__ == "__main__":
    asyncio.run(main())
