"""How commands read sessions: without a worker, from the stores that ``HELIX_…`` variables name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

import typer

from helix_temporal.agents import Agent
from helix_temporal.backends import Backends
from helix_temporal.cli._backends import run_with_backends
from helix_temporal.cli._ids import check_ids
from helix_temporal.cli._output import print_warning
from helix_temporal.cli._store_checks import StoreUse
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.models.filter_values import parse_pair, parse_time
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.views import SessionViews
from helix_temporal.views.filters import SessionFilter

R = TypeVar("R")
SessionId = Annotated[
    str,
    typer.Argument(
        metavar="SESSION_ID",
        help="The session; write -- before an id that begins with a dash.",
        callback=check_ids("session id"),
    ),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.")]
AgentName = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Of this agent.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="From then on: 30m, 2h, 7d (ago), yesterday, 2026-11-29."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Before then; as --since.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="With this tag; repeatable: all must be there."),
]
MetadataPairs = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="KEY=VALUE", help="With this pair in the metadata; repeatable."),
]
PageLimit = Annotated[int, typer.Option("--limit", metavar="ROWS", min=1, max=MAX_LIMIT, help="Of a page.")]
PageCursor = Annotated[
    str | None,
    typer.Option(
        "--cursor",
        metavar="CURSOR",
        help="Where to go on; the page before prints it.",
        show_default=False,
    ),
]
PAGE: Final = 50
"""Rows of a list, if nobody says how many."""


def read_sessions(
    read: Callable[[SessionViews], Awaitable[R]],
    use: StoreUse = StoreUse.THREADS,
    *,
    agents: Sequence[Agent] = (),
) -> R:
    """Read from the stores, and close them.

    Args:
        read: What to read; it may print as it goes.
        use: What it needs; of an archive alone the session can be read that is named.
        agents: For the instructions and tools of a context.

    Raises:
        InvalidConfigError: It needs a store that other processes have, too, and none is named.
    """
    named: Mapping[str, Agent] = {agent.name: agent for agent in agents}

    async def read_stores(backends: Backends) -> R:
        return await read(SessionViews(backends, agents=named))

    return run_with_backends(read_stores, use)


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


def parse_span(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """The times of --since and --until, in milliseconds since 1970.

    Raises:
        BadParameter: One is no time, or nothing is between them.
    """
    first, end = parse_option_time("--since", since), parse_option_time("--until", until)
    if first is not None and end is not None and first >= end:
        raise typer.BadParameter(f"{since} is not before {until}: nothing is between", param_hint="--since")
    return first, end


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """``key=value`` each.

    Raises:
        BadParameter: One has no ``=``.
    """
    found = {}
    for pair in pairs:
        try:
            key, value = parse_pair(pair)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--meta") from None
        found[key] = value
    return found


def describe_no_session(wanted: SessionFilter) -> str:
    """Why no session was found: a name that is misspelt must not look like an idle user or agent."""
    if wanted != SessionFilter(user_id=wanted.user_id, agent=wanted.agent):
        return "no session has all that was asked for"
    asked = [("user", wanted.user_id), ("agent", wanted.agent)]
    named = " and ".join(f"{name} {value!r}" for name, value in asked if value is not None)
    return f"there is no session of {named}; is the name right?" if named else "no sessions are stored here"


def warn_of_problem(problem: str | None) -> None:
    """End with status 3 where a part could not be read; what could be is printed already.

    Raises:
        Exit: There is a problem.
    """
    if problem:
        print_warning(problem)
        raise typer.Exit(ExitStatus.PARTLY)
