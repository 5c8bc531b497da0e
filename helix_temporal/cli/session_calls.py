"""``helix-temporal session calls``: tool calls across sessions, such as those that failed."""

import shlex
import sys
from typing import Annotated

import typer

from helix_temporal.cli._output import (
    AsJson,
    count_of,
    fold_text,
    format_json,
    format_time,
    print_heading,
    print_json_line,
    print_note,
    print_text,
)
from helix_temporal.cli._session_reads import (
    PAGE,
    AgentName,
    MetadataPairs,
    Since,
    Tags,
    Until,
    User,
    describe_no_session,
    parse_pairs,
    parse_span,
    read_sessions,
    warn_of_problem,
)
from helix_temporal.cli._store_checks import StoreUse
from helix_temporal.models.amounts import NOTHING, format_duration
from helix_temporal.models.visible import make_visible
from helix_temporal.views import SessionViews
from helix_temporal.views.calls import SearchProblems
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import FoundCall
from helix_temporal.views.words import CALL_WORDS


def calls(
    *,
    user: User = None,
    agent: AgentName = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="Of this tool.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Those that failed.")] = False,
    tag: Tags = None,
    meta: MetadataPairs = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(metavar="CALLS", min=1, help="End after so many.")] = PAGE,
    as_json: AsJson = False,
) -> None:
    """Find tool calls across sessions, those of the session that changed last first.

    --since and --until are about the time of the call, --tag and --meta about its session.  Of each call the
    command is printed that shows what the model was given when it made it, or the session's runs where the
    thread does not have the call any more.  --json prints one call a line.  Exit status 3 where not all of a
    session can be read.
    """
    wanted = SessionFilter(user_id=user, agent=agent, tags=tuple(tag or ()), metadata=parse_pairs(meta or ()))
    span = parse_span(since, until)
    problems = SearchProblems()
    read_sessions(
        lambda views: _print_calls(
            views, wanted, span, problems, tool=tool, failed=failed or None, limit=limit, as_json=as_json
        ),
        StoreUse.SESSIONS,
    )
    warn_of_problem(problems.describe())


async def _print_calls(
    views: SessionViews,
    wanted: SessionFilter,
    span: tuple[int | None, int | None],
    problems: SearchProblems,
    *,
    tool: str | None,
    failed: bool | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print each as it is found: to look through all sessions may take long."""
    printed = 0
    search = views.find_calls(
        wanted, tool=tool, failed=failed, since=span[0], until=span[1], problems=problems
    )
    async for found in search:
        if printed == limit:
            print_note(f"more than {limit}; --limit says how many are looked for")
            return
        if as_json:
            print_json_line(found)
        else:
            _print_call(found)
        printed += 1
        sys.stdout.flush()
    if printed == 0 and not as_json:
        print_note(await _describe_nothing(views, wanted))


async def _describe_nothing(views: SessionViews, wanted: SessionFilter) -> str:
    """Why no call was found: a user whose name is misspelt must not look like one without failures."""
    if (await views.list_sessions(wanted, limit=1)).sessions:
        return "no call has all that was asked for"
    return describe_no_session(wanted)


def _print_call(found: FoundCall) -> None:
    call = found.call
    facts = [format_time(found.at), call.name, CALL_WORDS[call.status], format_duration(call.duration_ms)]
    if call.attempts > 1:
        facts.append(count_of(call.attempts, "attempt"))
    print_heading("  ".join(each for each in facts if each != NOTHING))
    turn = "" if found.turn is None else f", turn {found.turn}"
    user = "" if found.user_id is None else f", user {found.user_id}"
    print_text(make_visible(f"session {found.session_id}{user}{turn}, {_describe_place(found)}"), indent=2)
    if call.arguments is not None:
        print_text(f"→ {fold_text(format_json(call.arguments))}", indent=2)
    result = call.error or (call.result if isinstance(call.result, str) else "")
    if call.result_due:
        print_text("its result goes to the model with the next step", indent=2)
    if result:
        print_text(f"← {fold_text(result)}", indent=2)
    print_text(find_command(found), indent=2)
    print_text("")


def _describe_place(found: FoundCall) -> str:
    """Where a call stands in its session's thread."""
    if found.in_thread:
        return f"message {found.message_position}"
    return "its message is not in the thread" if found.problem is None else "its message cannot be read"


def find_command(found: FoundCall) -> str:
    """The command that tells more: what the model was given; or the runs, where the thread has no message."""
    if found.in_thread:
        return context_command(found.session_id, found.message_position)
    return f"helix-temporal session turns {_quote_id(found.session_id)}"


def context_command(session_id: str, position: int) -> str:
    """The command, ready for a shell, that shows what the model was given before this message."""
    return f"helix-temporal session context --message {position} {_quote_id(session_id)}"


def _quote_id(session_id: str) -> str:
    """An id as an argument in a shell, where it is not taken for an option."""
    return f"{'-- ' if session_id.startswith('-') else ''}{shlex.quote(session_id)}"
