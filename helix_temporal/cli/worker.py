"""``helix-temporal worker``: serve sessions of agents."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from helix_temporal.cli._agents import load_agents
from helix_temporal.cli._serving import run_service
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.worker import serve


def worker(
    agents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE[:NAME]...",
            help="Where the agents are; by default HELIX_AGENTS, with commas.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve sessions of agents until SIGTERM or Ctrl-C; what is running then may finish first.

    Without a NAME all agents of the module are served.  Modules are looked for in this directory and on
    PYTHONPATH.  Addresses of Temporal and the stores come from HELIX_… variables.
    """
    names = agents or [name.strip() for name in os.environ.get("HELIX_AGENTS", "").split(",") if name.strip()]
    run_service(_serve_agents(names))


async def _serve_agents(names: list[str]) -> None:
    settings = Settings.from_env(os.environ)
    if not names:
        raise InvalidConfigError("no agents: give MODULE[:NAME], or HELIX_AGENTS")
    sys.path.insert(0, str(Path.cwd()))
    agents = load_agents(names)
    told = ", ".join(agent.name for agent in agents)
    print(f"Worker for {told}: {settings.temporal_address}, task queue {settings.task_queue!r}", flush=True)
    await serve(settings, agents)
