"""How commands read sessions: without a worker, from the stores that ``HELIX_…`` variables name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from helix_temporal.agents import Agent
from helix_temporal.backends import Backends
from helix_temporal.cli._backends import run_with_backends
from helix_temporal.cli._output import print_warning
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.cli.times import parse_time
from helix_temporal.errors import InvalidConfigError
from helix_temporal.views import SessionViews

R = TypeVar("R")

SessionId = Annotated[
    str,
    typer.Argument(metavar="SESSION_ID", help="The session; write -- before an id that begins with a dash."),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.")]
AgentName = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Of this agent.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From then on: 30m, 2h, 7d (ago), yesterday, 2026-11-29."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before then; as --since.")]
PAGE: Final = 50
"""Rows of a list, if nobody says how many."""


def read_sessions(read: Callable[[SessionViews], Awaitable[R]], *, agents: Sequence[Agent] = ()) -> R:
    """Read from the stores, and close them.

    Args:
        read: What to read; it may print as it goes.
        agents: For the instructions and tools of a context.

    Raises:
        InvalidConfigError: No store is named that other processes have, too.
    """
    named: Mapping[str, Agent] = {agent.name: agent for agent in agents}

    async def read_stores(backends: Backends) -> R:
        _check_database_exists(backends.settings.sqlite_file)
        return await read(SessionViews(backends, agents=named))

    return run_with_backends(read_stores)


def _check_database_exists(file: Path | None) -> None:
    """A misspelt directory must not read as sessions that were deleted, and reading makes no database.

    Raises:
        InvalidConfigError: There is none.
    """
    if file is not None and not file.exists():
        raise InvalidConfigError(f"there is no database at {file}; HELIX_DATA_DIRECTORY names the directory")


def parse_option_time(option: str, text: str | None) -> int | None:
    """The time that an option gives, in milliseconds since 1970.

    Raises:
        BadParameter: It is no time.
    """
    if text is None:
        return None
    try:
        return parse_time(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def warn_of_problem(problem: str | None) -> None:
    """End with status 3 where a part could not be read; what could be is printed already.

    Raises:
        Exit: There is a problem.
    """
    if problem:
        print_warning(problem)
        raise typer.Exit(ExitStatus.PARTLY)
