"""``helix-temporal worker``: serve sessions of agents."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Annotated, Final

import typer

from helix_temporal.agents import Agent
from helix_temporal.cli._errors import exit_on_error, is_foreseen
from helix_temporal.cli._services import run_service
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings
from helix_temporal.worker import end_on_sigterm, serve

_HINT_OF_IMPORTS: Final = "; a module of agents runs nothing while it is imported (if __name__ == '__main__')"


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
    PYTHONPATH.  Addresses of Temporal and the stores come from HELIX_… variables; what of them is away is
    waited for.
    HELIX_MAX_CONCURRENT_ACTIVITIES says how many model calls, tools and store operations run at once: 1,000
    by default.
    """
    end_on_sigterm()
    names = agents or [name.strip() for name in os.environ.get("HELIX_AGENTS", "").split(",") if name.strip()]
    with exit_on_error():
        settings = Settings.from_env(os.environ)
        if not names:
            raise InvalidConfigError("no agents are named; give MODULE[:NAME], or set HELIX_AGENTS")
        sys.path.insert(0, str(Path.cwd()))
        # Before there is an event loop: a module may run one of its own while it is imported.
        found = load_agents(names)
    served = ", ".join(agent.name for agent in found)
    print(
        f"Starting a worker for {served}: {settings.temporal_address}, task queue {settings.task_queue!r}, "
        f"process {os.getpid()}",
        flush=True,
    )
    run_service(serve(settings, found))


def load_agents(names: Sequence[str]) -> list[Agent]:
    """The agents that ``module`` or ``module:attribute`` name, each once.

    An attribute is an `Agent` or a list of them.  Without one all agents are taken that the module has under
    a name of its own or in lists.

    Raises:
        InvalidConfigError: There is no such module or attribute, or no agent there.
    """
    found: dict[int, Agent] = {}
    for name in names:
        for agent in _import_agents(name):
            found[id(agent)] = agent
    return list(found.values())


def _import_agents(name: str) -> list[Agent]:
    module_name, colon, attribute = name.partition(":")
    if not module_name or (colon and not attribute):
        raise InvalidConfigError(f"agents: {name!r} is not MODULE or MODULE:NAME")
    if module_name.endswith(".py") or "/" in module_name or module_name.startswith("."):
        parts = PurePath(module_name.removesuffix(".py")).parts
        meant = ".".join(part for part in parts if part not in {".", "..", "/"})
        named = f", which is {meant!r} where Python finds it" if meant else ""
        raise InvalidConfigError(f"agents: {name!r} is a path; name the module{named}")
    try:
        module = importlib.import_module(module_name)
        values = [getattr(module, attribute)] if attribute else list(vars(module).values())
    except ModuleNotFoundError as error:
        raise InvalidConfigError(f"agents: {name!r}: {error}{_importer_of(error, module_name)}") from error
    except AttributeError as error:
        raise InvalidConfigError(f"agents: {name!r}: {error}") from error
    except Exception as error:
        if not is_foreseen(error):
            raise
        # What is wrong in an agent says itself what to do.
        hint = "" if isinstance(error, InvalidConfigError) else _HINT_OF_IMPORTS
        raise InvalidConfigError(
            f"agents: {name!r}: it cannot be imported: {type(error).__name__}: {error}{hint}"
        ) from error
    agents = [agent for value in values for agent in _agents_in(value)]
    if agents:
        return agents
    if not attribute:
        raise InvalidConfigError(f"agents: {name!r} has no Agent; name a module that has one")
    kind = type(values[0]).__name__
    raise InvalidConfigError(f"agents: {name!r} is {kind}; an Agent or a list of agents expected")


def _importer_of(error: ModuleNotFoundError, module_name: str) -> str:
    """Where a module is imported that is not there, unless it is the one that was named."""
    if error.name is None or module_name.split(".", maxsplit=1)[0] == error.name.split(".")[0]:
        return ""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "importlib" not in each.filename]
    return f", which {frames[-1].filename}, line {frames[-1].lineno}, imports"


def _agents_in(value: object) -> list[Agent]:
    if isinstance(value, Agent):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(each, Agent) for each in value):
        return list(value)
    return []
