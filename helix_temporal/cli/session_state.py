"""``helix-temporal session state`` and ``checkpoints``: the application's values, now and before."""

import json
from typing import Annotated

import typer

from helix_temporal.cli._output import (
    AsJson,
    Table,
    format_json,
    format_number,
    format_time,
    print_facts,
    print_note,
    print_output,
    print_text,
)
from helix_temporal.cli._session_reads import PAGE, PageCursor, PageLimit, SessionId, read_sessions
from helix_temporal.cli._store_checks import StoreUse
from helix_temporal.views.models import (
    CheckpointList,
    CheckpointOverview,
    Difference,
    StateAt,
    StateComparison,
)
from helix_temporal.views.words import TAKEN_BACK, name_status

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def state(
    session_id: SessionId,
    *,
    at: Annotated[
        str | None, typer.Option(metavar="CHECKPOINT", help="At this checkpoint; by default now.")
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(metavar="CHECKPOINT", help="Print what has changed since this checkpoint instead."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the application's values, now or at a checkpoint, or where they differ from those at another.

    The command "session checkpoints" lists the checkpoints.
    """
    if diff is None:
        found = read_sessions(lambda views: views.get_state(session_id, at))
        print_output(found, _print_state, as_json=as_json)
    else:
        compared = read_sessions(lambda views: views.compare_states(session_id, diff, at))
        print_output(compared, _print_comparison, as_json=as_json)


def _print_state(found: StateAt) -> None:
    print_facts(
        [("session", found.session_id), ("at", _describe(found.checkpoint)), ("version", found.version)]
    )
    print_text(json.dumps(found.values, indent=2, ensure_ascii=False, sort_keys=True))


def _print_comparison(found: StateComparison) -> None:
    print_facts([("from", _describe(found.before)), ("to", _describe(found.after))])
    for difference in found.differences:
        print_text(_describe_difference(difference))
    if not found.differences:
        print_note("no difference")
    if found.cut:
        print_note(f"{found.cut:,} more differences are left out")


def _describe_difference(difference: Difference) -> str:
    before, after = format_json(difference.before), format_json(difference.after)
    shown = {"added": after, "removed": before, "changed": f"{before} → {after}"}[difference.change]
    return f"{_SIGNS[difference.change]} {difference.path or '/'}: {shown}"


def _describe(checkpoint: CheckpointOverview | None) -> str:
    if checkpoint is None:
        return "now"
    return f"{checkpoint.checkpoint_id}, step {checkpoint.step}, {format_time(checkpoint.at)}"


def checkpoints(
    session_id: SessionId,
    *,
    limit: PageLimit = PAGE,
    cursor: PageCursor = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a session, newest first: the states after its steps, to which it can go back.

    VERSION is the state's.  STEP counts the session's steps, MESSAGES those in the thread by then, and
    CHANGES the tool calls whose changes of the state were stored with this checkpoint.
    """
    found = read_sessions(
        lambda views: views.list_checkpoints(session_id, limit=limit, cursor=cursor), StoreUse.SESSIONS
    )
    print_output(found, _print_checkpoints, as_json=as_json)


def _print_checkpoints(found: CheckpointList) -> None:
    Table("checkpoint", "time", "version>", "step>", "status", "messages>", "changes>").print_rows(
        (
            each.checkpoint_id,
            format_time(each.at),
            each.version,
            each.step,
            TAKEN_BACK if each.superseded_by else name_status(each.status),
            format_number(each.position),
            format_number(len(each.tool_calls)),
        )
        for each in found.checkpoints
    )
    if not found.checkpoints:
        print_note("it has no checkpoints")
    if found.next_cursor is not None:
        print_note(f"more: --cursor {found.next_cursor}")
