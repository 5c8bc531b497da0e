"""``helix-temporal session messages`` and ``turns``: a conversation, whole or live, and its turns."""

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated

import typer

from helix_temporal.cli._output import (
    AsJson,
    Table,
    format_number,
    format_time,
    print_json_line,
    print_note,
    print_output,
)
from helix_temporal.cli._session_reads import SessionId, read_sessions, warn_of_problem
from helix_temporal.cli.conversation_text import print_lost, print_turn
from helix_temporal.cli.live_silence import note_silence
from helix_temporal.cli.live_text import LiveText
from helix_temporal.cli.session_outputs import (
    TurnLine,
    TurnList,
    make_live_line,
    make_lost_turn,
    make_turn_line,
)
from helix_temporal.models.amounts import format_cost, format_duration
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.views import SessionViews
from helix_temporal.views.models import ConversationPage, ConversationTurn, TurnAttempt
from helix_temporal.views.words import RUN_WORDS

_PAGE = 20
"""Turns that are read at once."""


def messages(
    session_id: SessionId,
    *,
    turn: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="This turn alone, with whole texts, arguments and results."),
    ] = None,
    tail: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The last so many turns alone.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="The last turn, then what comes, until Ctrl-C."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a conversation by turns: messages, tool calls with their results, runs that were thrown away.

    Long texts are cut, and arguments and results folded to a line; --turn has them whole.  --json prints one
    turn a line, of a very long turn one part, with --follow one chunk of the stream a line.
    Exit status 3 where a part cannot be read, which is then said.
    """
    if turn is not None and (tail is not None or follow):
        raise typer.BadParameter("--turn names one turn; --tail and --follow are about the last ones")
    if follow:
        read_sessions(lambda views: _follow(views, session_id, tail or 1, as_json=as_json))
        return
    if turn is not None:
        problem = read_sessions(lambda views: _print_one(views, session_id, turn, as_json=as_json))
    elif tail is not None:
        problem = read_sessions(lambda views: _print_tail(views, session_id, tail, as_json=as_json))
    else:
        problem = read_sessions(lambda views: _print_conversation(views, session_id, as_json=as_json))
    warn_of_problem(problem)


async def _print_one(views: SessionViews, session_id: str, number: int, *, as_json: bool) -> str | None:
    """Print a turn with whole texts."""
    problem: str | None = None
    async for page in views.iterate_turn(session_id, number):
        _print_page(page, as_json=as_json, whole=True)
        problem = problem or page.problem
    return problem


async def _print_conversation(views: SessionViews, session_id: str, *, as_json: bool) -> str | None:
    """Print all turns, page by page from the first one."""
    problem: str | None = None
    newest: ConversationPage | None = None
    async for page in _iterate_pages(views, session_id):
        _print_page(page, as_json=as_json)
        problem, newest = problem or page.problem, page
    if newest is not None and problem is None:
        note_begun_turn(await find_begun_turn(views, newest))
    return problem


async def _iterate_pages(views: SessionViews, session_id: str) -> AsyncIterator[ConversationPage]:
    page = await views.read_turns(session_id, after=0, limit=_PAGE)
    yield page
    while page.after is not None:
        page = await views.read_turns(session_id, after=page.after, limit=_PAGE)
        yield page


async def _print_tail(views: SessionViews, session_id: str, turns: int, *, as_json: bool) -> str | None:
    """Print the last turns, oldest first; a page may have fewer than were asked for."""
    pages = await _read_tail(views, session_id, turns)
    for page in pages:
        _print_page(page, as_json=as_json)
    problem = next((page.problem for page in pages if page.problem), None)
    if problem is None:
        note_begun_turn(await find_begun_turn(views, pages[-1]))
    return problem


async def _read_tail(views: SessionViews, session_id: str, turns: int) -> list[ConversationPage]:
    page = await views.read_turns(session_id, limit=min(turns, _PAGE))
    pages, found = [page], _count_begun(page)
    while found < turns and page.before is not None:
        page = await views.read_turns(session_id, before=page.before, limit=min(turns - found, _PAGE))
        pages.append(page)
        found += _count_begun(page)
    return pages[::-1]


def _count_begun(page: ConversationPage) -> int:
    """Turns of a page, without a later part of one that begins before it."""
    return sum(1 for turn in page.turns if turn.part_of_turn.begins)


def _print_page(page: ConversationPage, *, as_json: bool, whole: bool = False) -> None:
    for turn in page.turns:
        if as_json:
            print_json_line(turn)
        else:
            print_turn(turn, whole=whole)
    for attempt in page.lost:
        if as_json:
            print_json_line(make_lost_turn(attempt))
        else:
            print_lost(attempt)
    sys.stdout.flush()


async def find_begun_turn(views: SessionViews, newest: ConversationPage) -> TurnAttempt | None:
    """The run under way of which the thread has no message yet, so that the newest page does not tell it."""
    page = await views.list_runs(newest.session_id, limit=1)
    run = page.runs[0] if page.runs else None
    if run is None or run.status is not RunStatus.RUNNING or any(turn.unfinished for turn in newest.turns):
        return None
    told = {attempt.run_id for turn in newest.turns for attempt in turn.attempts}
    return None if run.run_id in told else run


def note_begun_turn(run: TurnAttempt | None) -> None:
    """Say beside the data that a turn is under way."""
    if run is not None:
        since = format_time(run.started_at)
        print_note(
            f"turn {run.turn} is under way since {since}, and none of its messages is stored yet; "
            "session messages --follow shows it as it comes"
        )


async def _follow(views: SessionViews, session_id: str, turns: int, *, as_json: bool) -> None:
    """Print the last turns that are finished, then the stream from where the turn under way began.

    It ends where the session is deleted.
    """
    place = await views.find_live_place(session_id)
    if not as_json:
        for page in await _read_tail(views, session_id, turns):
            finished = tuple(turn for turn in page.turns if not turn.unfinished)
            _print_page(page.model_copy(update={"turns": finished}), as_json=False)
    live = LiveText()

    def tell_silence(seconds: int) -> None:
        if not as_json:
            sys.stdout.write(live.end_line())
            sys.stdout.flush()
        print_note(f"the turn runs, but nothing has come for more than {format_duration(seconds * 1000)}")

    async with (
        aclosing(views.follow_session(session_id, place)) as chunks,
        aclosing(note_silence(chunks, tell_silence)) as noted,
    ):
        async for stored in noted:
            if as_json:
                print_json_line(make_live_line(stored))
            else:
                sys.stdout.write(live.write_chunk(stored.chunk))
            # Each piece is seen when it comes, also by a pipe.
            sys.stdout.flush()
    if not as_json:
        sys.stdout.write(live.end_line())
        sys.stdout.flush()
    print_note(f"session {session_id!r} was deleted: nothing more will come")


# ---- turns ------------------------------------------------------------------------------------------


def turns(
    session_id: SessionId,
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=MAX_LIMIT, help="The last so many.")] = _PAGE,
    before: Annotated[
        int | None,
        typer.Option(metavar="POSITION", help="Those before this position; the list before says it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List turns of a session, oldest first: when, how it ended, what it used, and what was said."""
    found, begun = read_sessions(lambda views: _read_turn_list(views, session_id, limit, before))
    print_output(found, _print_turn_list, as_json=as_json)
    note_begun_turn(begun)
    if not (found.turns or found.lost or found.problem or begun or as_json):
        print_note("it has no turns")
    warn_of_problem(found.problem)


async def _read_turn_list(
    views: SessionViews, session_id: str, limit: int, before: int | None
) -> tuple[TurnList, TurnAttempt | None]:
    """The turns, and the one under way that is not among them yet."""
    begun: TurnAttempt | None = None
    is_newest = before is None
    turns: list[list[ConversationTurn]] = []
    lost: list[TurnAttempt] = []
    problem: str | None = None
    found = 0
    while True:
        page = await views.read_turns(session_id, before=before, limit=min(limit - found, _PAGE))
        turns = add_earlier_turns(turns, page.turns)
        found += _count_begun(page)
        lost[:0] = page.lost
        problem, before = problem or page.problem, page.before
        if is_newest and problem is None:
            begun, is_newest = await find_begun_turn(views, page), False
        if before is None or found >= limit or not page.turns:
            listed = TurnList(
                session_id=session_id,
                turns=tuple(make_turn_line(parts) for parts in turns),
                before=before,
                lost=tuple(lost),
                problem=problem,
            )
            return listed, begun


def add_earlier_turns(
    turns: Sequence[Sequence[ConversationTurn]], earlier: Iterable[ConversationTurn]
) -> list[list[ConversationTurn]]:
    """Turns by their parts, oldest first, with those of the page before."""
    found: list[list[ConversationTurn]] = []
    for part in [*earlier, *(part for parts in turns for part in parts)]:
        if found and not part.part_of_turn.begins:
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _name_status(turn: TurnLine) -> str | None:
    if turn.status is not None:
        return RUN_WORDS[RunStatus(turn.status)]
    return "under way" if turn.unfinished else None


def _print_turn_list(found: TurnList) -> None:
    Table("turn>", "begun", "status", "messages>", "tokens>", "cost>", "time>", "calls>", "said").print_rows(
        (
            turn.number,
            format_time(turn.at),
            _name_status(turn),
            format_number(turn.stop - turn.start),
            format_number(turn.tokens.total or None),
            format_cost(turn.cost_usd),
            format_duration(turn.duration_ms),
            f"{turn.tool_calls} ({turn.failed_calls} failed)" if turn.failed_calls else turn.tool_calls,
            turn.text,
        )
        for turn in found.turns
    )
    for attempt in found.lost:
        print_lost(attempt)
    if found.before is not None:
        print_note(f"more: --before {found.before}")
