"""``helix-temporal session list``, ``show``, ``tree`` and ``usage``: sessions, and what they used."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from helix_temporal.cli._output import (
    AsJson,
    Progress,
    Table,
    count_of,
    format_json,
    format_number,
    format_time,
    print_facts,
    print_heading,
    print_json_line,
    print_note,
    print_output,
    print_text,
)
from helix_temporal.cli._session_reads import (
    PAGE,
    AgentName,
    MetadataPairs,
    PageCursor,
    PageLimit,
    SessionId,
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
from helix_temporal.models.amounts import NOTHING, format_cost, format_duration
from helix_temporal.models.states import SessionStatus
from helix_temporal.views import SessionViews
from helix_temporal.views.filters import Need, SessionFilter
from helix_temporal.views.models import (
    SessionBranch,
    SessionList,
    SessionOverview,
    SessionView,
    UsageSums,
    WaitingFor,
)
from helix_temporal.views.queries import ListProblems
from helix_temporal.views.tree import list_branches
from helix_temporal.views.words import (
    RUN_WORDS,
    StatusName,
    describe_error,
    describe_failure,
    find_named_status,
    find_progress,
    name_progress,
    name_status,
)

_COLUMNS: Final = ("session", "status", "agent", "user", "steps>", "changed", "title")


# ---- list -------------------------------------------------------------------------------------------


def list_sessions(
    *,
    user: User = None,
    agent: AgentName = None,
    status: Annotated[
        list[StatusName] | None,
        typer.Option(metavar="STATUS", help=f"In this status: {', '.join(StatusName)}; repeatable."),
    ] = None,
    tag: Tags = None,
    meta: MetadataPairs = None,
    since: Since = None,
    until: Until = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Those that wait for a client, a person or a sub-agent.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Those whose last turn failed.")] = False,
    behind: Annotated[bool, typer.Option("--behind", help="Those that the archive lacks a part of.")] = False,
    roots: Annotated[bool, typer.Option("--roots", help="No sessions of sub-agents.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All, not one page; with --json one object a line.")
    ] = False,
    limit: PageLimit = PAGE,
    cursor: PageCursor = None,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest change first; --since and --until are about that change.

    A page prints on standard error how to see the next one.  Exit status 3 where damaged ones are left out.
    """
    first, end = parse_span(since, until)
    wanted = SessionFilter(
        user_id=user,
        agent=agent,
        status=tuple(map(find_named_status, status or ())),
        tags=tuple(tag or ()),
        metadata=parse_pairs(meta or ()),
        since=first,
        until=end,
        need=_choose_need(waiting=waiting, failed=failed, behind=behind),
        roots=roots,
    )
    use = StoreUse.SESSIONS if behind else StoreUse.LISTS
    if not everything:
        page = read_sessions(lambda views: views.list_sessions(wanted, limit=limit, cursor=cursor), use)
        print_output(page, lambda found: _print_page(found, wanted), as_json=as_json)
        warn_of_problem(page.problem)
        return
    if cursor is not None:
        raise typer.BadParameter("--all begins with the newest", param_hint="--cursor")
    warn_of_problem(read_sessions(lambda views: _print_all(views, wanted, as_json=as_json), use))


def _choose_need(*, waiting: bool, failed: bool, behind: bool) -> Need | None:
    given: dict[Need, bool] = {"waiting": waiting, "failed": failed, "behind": behind}
    asked: list[Need] = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise typer.BadParameter(f"give one of them: {', '.join(f'--{name}' for name in asked)}")
    return asked[0] if asked else None


def _print_page(page: SessionList, wanted: SessionFilter) -> None:
    Table(*_COLUMNS).print_rows(_row_of(each) for each in page.sessions)
    if not (page.sessions or page.problem):
        print_note(describe_no_session(wanted))
    if page.next_cursor is not None:
        print_note(f"more: --cursor {page.next_cursor}")


async def _print_all(views: SessionViews, wanted: SessionFilter, *, as_json: bool) -> str | None:
    """Print all as they come; memory stays flat, and what is read is out if a store goes away.

    Returns:
        Why not all are printed.
    """
    table, rows = Table(*_COLUMNS), list[Sequence[object]]()
    progress, problems = Progress("sessions"), ListProblems()
    try:
        async for each in views.iterate_sessions(wanted, problems=problems):
            progress.add()
            if as_json:
                print_json_line(each)
                continue
            rows.append(_row_of(each))
            if len(rows) == PAGE:
                table.print_rows(rows)
                rows.clear()
        if not as_json and progress.count == 0 and not problems.damaged:
            print_note(describe_no_session(wanted))
    finally:
        table.print_rows(rows)
        sys.stdout.flush()
    return problems.describe()


def _row_of(session: SessionOverview) -> Sequence[object]:
    return (
        session.session_id,
        name_status(session.status),
        session.agent,
        session.user_id,
        format_number(session.steps),
        format_time(session.updated_at),
        session.title,
    )


# ---- show -------------------------------------------------------------------------------------------


def show(session_id: SessionId, *, as_json: AsJson = False) -> None:
    """Print where a session stands: whom it waits for, its last run, tokens, cost, and how it is stored.

    No worker is asked.  Exit status 3 where a part of it cannot be read, which is then said.
    """
    found = read_sessions(lambda views: views.get_session(session_id))
    print_output(found, _print_session, as_json=as_json)
    warn_of_problem(found.problem)


def _print_session(view: SessionView) -> None:
    session = view.overview
    print_facts(
        (name, value)
        for name, value in [
            ("session", session.session_id),
            ("title", session.title),
            ("status", name_progress(view, find_progress(view))),
            ("agent", session.agent),
            ("user", session.user_id),
            ("tags", ", ".join(session.tags)),
            ("metadata", format_json(session.metadata) if session.metadata else ""),
            ("mode", view.mode),
            ("created", format_time(session.created_at)),
            ("changed", format_time(session.updated_at)),
            ("expires", session.expires_at and format_time(session.expires_at)),
            ("turns", _format_known(view.turns)),
            ("steps", format_number(session.steps)),
            ("messages", _describe_messages(view)),
            ("run", _describe_run(view)),
            ("failure", describe_failure(view)),
            ("last error", _describe_last_error(view)),
            ("output", None if view.output is None else format_json(view.output)),
            ("parent", session.parent_session_id),
            ("root", view.root_session_id),
            ("forked from", view.forked_from),
            ("sub-agents", ", ".join(view.children)),
            ("tokens", _describe_tokens(view.usage)),
            ("cost", format_cost(view.usage.cost_usd)),
            ("thread", _describe_place(view)),
        ]
        if value
    )
    for call in view.waiting:
        print_heading(f"waits for {_WHOM[call.kind]}")
        print_facts(_facts_of_waiting(call))


_WHOM: Final = {
    "client": "a client's result",
    "approval": "an approval",
    "sub_agent": "a sub-agent",
}


def _facts_of_waiting(call: WaitingFor) -> Iterable[tuple[str, object]]:
    yield "  tool", call.tool
    yield "  call", call.call_id
    yield "  arguments", format_json(call.arguments)
    yield "  since", format_time(call.since)
    if call.until is not None:
        yield "  until", format_time(call.until)
    if call.turn is not None:
        yield "  turn", call.turn
    if call.sub_session_id:
        yield "  session", call.sub_session_id


def _describe_last_error(view: SessionView) -> str:
    """The error of an earlier failure, where the session went on since."""
    if view.error is None or view.overview.status is SessionStatus.FAILED:
        return ""
    return describe_error(view.error)


def _describe_run(view: SessionView) -> str:
    run = view.live_run
    if run is None:
        return ""
    return f"{run.run_id}, turn {run.turn}, {RUN_WORDS[run.status]}, since {format_time(run.started_at)}"


def _format_known(number: int | None) -> str:
    return "unknown" if number is None else format_number(number)


def _describe_messages(view: SessionView) -> str:
    unfinished = 0 if view.place is None else view.place.unfinished
    told = f", {unfinished:,} of them of the turn under way" if unfinished else ""
    return f"{_format_known(view.messages)}{told}"


def _describe_place(view: SessionView) -> str:
    place = view.place
    if place is None:
        return view.thread_id
    where = "unknown whether hot or cold" if place.hot is None else "hot" if place.hot else "cold"
    archived = "" if place.archived is None else f", {place.archived:,} archived"
    size = "size unknown" if place.bytes is None else f"{place.bytes:,} bytes"
    return f"{place.thread_id}: {where}{archived}, {size}"


# ---- tree -------------------------------------------------------------------------------------------


def tree(session_id: SessionId, *, as_json: AsJson = False) -> None:
    """Print a session with its sub-agents' sessions.

    Tokens and cost of each are its own together with those of all sessions below it; steps are its own alone.
    """
    found = read_sessions(lambda views: views.get_tree(session_id))
    print_output(found, _print_tree, as_json=as_json)


def _print_tree(root: SessionBranch) -> None:
    branches = list_branches(root)
    rows = [
        (
            f"{'  ' * depth}{branch.overview.session_id}",
            name_status(branch.overview.status),
            branch.overview.agent,
            format_number(branch.overview.steps),
            format_number(branch.sums.tokens.total or None),
            format_cost(branch.sums.cost_usd),
            branch.overview.title,
        )
        for depth, branch in branches
    ]
    Table("session", "status", "agent", "steps>", "tokens>", "cost>", "title").print_rows(rows)
    hidden = sum(branch.hidden for _, branch in branches)
    left_out = sum(branch.left_out for _, branch in branches)
    if hidden or left_out:
        print_note(f"{hidden} more may not be seen, {left_out} more are left out")
    partly = sum(not branch.usage.complete for _, branch in branches)
    if partly:
        why = "too many entries to add up, or they cannot be read"
        print_note(f"not all tokens and costs of {count_of(partly, 'session')} are in the sums: {why}")


# ---- usage ------------------------------------------------------------------------------------------


def usage(
    session_id: SessionId,
    *,
    descendants: Annotated[
        bool, typer.Option("--descendants", help="Also of its sub-agents' sessions, and theirs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print tokens, calls, time and cost of a session, by model and by tool."""
    found = read_sessions(
        lambda views: views.get_usage(session_id, descendants=descendants), StoreUse.SESSIONS
    )
    print_output(found, _print_usage, as_json=as_json)


def _print_usage(sums: UsageSums) -> None:
    print_facts(
        [
            ("sessions", format_number(len(sums.session_ids) or 1)),
            ("tokens", _describe_tokens(sums)),
            ("cost", format_cost(sums.cost_usd)),
            ("model calls", format_number(sums.model_calls or None)),
            ("tool calls", f"{sums.calls:,} ended, {sums.failed_calls:,} failed"),
            ("of sub-agents", format_number(sums.sub_agent_calls)),
            ("time", format_duration(sums.duration_ms or None)),
            ("first", format_time(sums.first_at)),
            ("last", format_time(sums.last_at)),
        ]
    )
    if sums.by_model:
        print_text("")
        Table("model", "input>", "cached>", "output>", "reasoning>").print_rows(
            (name, *map(format_number, (each.input, each.cached, each.output, each.reasoning)))
            for name, each in sorted(sums.by_model.items())
        )
    if sums.by_tool:
        print_text("")
        Table("tool", "calls>", "failed>", "time>").print_rows(
            (name, *map(format_number, (each.calls, each.failed)), format_duration(each.duration_ms or None))
            for name, each in sorted(sums.by_tool.items())
        )
    if not sums.complete:
        print_note("too many entries to add up: tokens and model calls of the session itself alone")
    for kind, numbers in sorted(sums.custom.items()):
        print_facts((f"{kind}.{name}", f"{number:,}") for name, number in sorted(numbers.items()))


def _describe_tokens(sums: UsageSums) -> str:
    tokens = sums.tokens
    if not tokens.total:
        return NOTHING
    return f"{tokens.total:,}: {tokens.input:,} in ({tokens.cached:,} cached), {tokens.output:,} out"
