"""Serves sessions until SIGTERM or Ctrl-C; what is running then may finish first.

Addresses come from ``HELIX_…`` variables (docs/settings.md).  ``HELIX_AGENTS`` names the agents as
``module:attribute``, separated by commas; an attribute is an `Agent` or a list of them.  Modules are
looked for here, in the present directory and on ``PYTHONPATH``.  Without it the quickstart's agent is
served.
"""

import asyncio
import importlib
import logging
import os
import sys
from pathlib import Path

from helix_temporal.agents import Agent
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.worker import serve

QUICKSTART = Path(__file__).resolve().parent.parent / "examples" / "quickstart"


def load_agents(names: str) -> list[Agent]:
    """The agents that ``names`` names.

    Raises:
        InvalidConfigError: A name is not ``module:attribute``, or there is no agent there.
    """
    return [agent for name in names.split(",") if name.strip() for agent in _agents(name.strip())]


def _agents(name: str) -> list[Agent]:
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise InvalidConfigError(f"HELIX_AGENTS: {name!r} is not module:attribute")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise InvalidConfigError(f"HELIX_AGENTS: {name!r}: {error}") from error
    agents = [found] if isinstance(found, Agent) else found
    if not isinstance(agents, list | tuple) or not all(isinstance(agent, Agent) for agent in agents):
        raise InvalidConfigError(
            f"HELIX_AGENTS: {name!r} is {type(found).__name__}; an Agent or a list expected"
        )
    return list(agents)


def stores(settings: Settings) -> str:
    """Where threads will be, for the first line of the log; no secrets."""
    hot = "Redis" if settings.redis_url else "this process's memory only (HELIX_REDIS_URL is not set)"
    cold = settings.s3_bucket and f"s3://{settings.s3_bucket}/{settings.s3_prefix}"
    cold = cold or str(settings.cold_directory or "none (HELIX_S3_BUCKET is not set)")
    return f"hot threads: {hot}; archive: {cold}"


def main() -> None:
    """Serve until told to stop; a wrong setting or a server that would lose data ends it with status 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    sys.path[:0] = [str(Path.cwd()), str(QUICKSTART)]
    try:
        settings = Settings.from_env(os.environ)
        agents = load_agents(os.environ.get("HELIX_AGENTS") or "agent:support")
        names = ", ".join(agent.name for agent in agents)
        print(
            f"Worker for {names}: {settings.temporal_address}, task queue {settings.task_queue!r}", flush=True
        )
        print(f"  {stores(settings)}", flush=True)
        asyncio.run(serve(settings, agents))
    except HelixError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print("Stopped: what was running has finished.", flush=True)


if __name__ == "__main__":
    main()
