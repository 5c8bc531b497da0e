"""What a page shows of a session, decided without HTML."""

import pytest

from helix_temporal.inspector import outlines
from helix_temporal.inspector.pages.conversation import cut_parts, find_shown
from helix_temporal.inspector.pages.tree import list_branches
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import ErrorInfo, SessionStatus
from helix_temporal.views.models import (
    ContextPart,
    ConversationCall,
    ConversationMessage,
    ConversationPage,
    ConversationTurn,
    ModelContext,
    ScheduleFacts,
    ScheduleRun,
    SegmentPlace,
    SessionBranch,
    SessionOverview,
    SessionView,
    ThreadPlace,
    TurnAttempt,
    WaitingFor,
)


def overview(session_id: str = "s", **given: object) -> SessionOverview:
    return SessionOverview.model_validate({"session_id": session_id, "status": SessionStatus.ACTIVE, **given})


def turn(number: int, messages: int, calls: int = 0, **given: object) -> ConversationTurn:
    """A turn whose messages each have so many calls; its first one is at 100 × number."""
    start = 100 * number
    said = tuple(
        ConversationMessage(
            message_id=f"m{start + at}",
            position=start + at,
            role="assistant",
            calls=tuple(
                ConversationCall(call_id=f"c{at}-{n}", name="t", position=start + at) for n in range(calls)
            ),
        )
        for at in range(messages)
    )
    return ConversationTurn.model_validate(
        {"number": number, "start": start, "stop": start + messages, "messages": said, **given}
    )


def attempt(**given: object) -> TurnAttempt:
    return TurnAttempt.model_validate({"run_id": "r", "turn": 1, "status": RunStatus.RUNNING, **given})


def test_a_session_runs_waits_or_is_idle() -> None:
    """The one word at the top of its page."""
    waits = WaitingFor(call_id="c", tool="refund", kind="approval")
    suspended = attempt(status=RunStatus.SUSPENDED_CLIENT_TOOL)
    assert outlines.mark_now(SessionView(overview=overview(), live_run=attempt())).word == "running"
    assert outlines.mark_now(SessionView(overview=overview(), live_run=suspended)).word == "waiting"
    assert outlines.mark_now(SessionView(overview=overview(), waiting=(waits,))).word == "waiting"
    assert outlines.mark_now(SessionView(overview=overview())).word == "idle"
    failed = overview(status=SessionStatus.FAILED)
    assert outlines.mark_now(SessionView(overview=failed)) == ("failed", "bad")


def test_a_session_is_called_by_what_people_know() -> None:
    """Its title; an id that we made for a sub-agent tells less than its agent's name."""
    assert outlines.name_session(overview("s", title="Refund", agent="support")) == "Refund"
    assert outlines.name_session(overview("s", agent="support")) == "s"
    assert outlines.name_session(overview("s>a>x9", agent="clerk", parent_session_id="s")) == "clerk"


def test_every_state_has_words() -> None:
    """A new one must not break a page that meets it first."""
    assert {outlines.mark_run(attempt(status=each)).word for each in RunStatus}
    assert {outlines.mark_session(overview(status=each)).word for each in SessionStatus}


def test_what_is_live_goes_on_behind_the_last_finished_turn() -> None:
    """Else a turn would come twice, or never."""
    page = ConversationPage(session_id="s", thread_id="s", turns=(turn(1, 4), turn(2, 3, unfinished=True)))
    assert find_shown(page) == 104
    assert find_shown(page.model_copy(update={"turns": page.turns[1:]})) == 200
    assert find_shown(page.model_copy(update={"turns": ()})) == 0


def test_an_error_is_told_with_its_type_once() -> None:
    """Some stores have the type in the message, some beside it."""
    told = [
        outlines.describe_error(ErrorInfo(type=kind, message=message))
        for kind, message in (("KeyError", "x"), ("", "KeyError: x"), ("KeyError", "KeyError: x"), ("A", ""))
    ]
    assert told == ["KeyError: x", "KeyError: x", "KeyError: x", "A"]


def test_attempts_that_were_thrown_away_are_told_apart() -> None:
    """They stand in their turn, dimmed; its own numbers are those of the kept one."""
    lost, kept = attempt(run_id="a", kept=False, status=RunStatus.ABORTED), attempt(run_id="b")
    assert outlines.split_attempts(turn(1, 1, attempts=(lost, kept))) == ((lost,), kept)
    assert outlines.split_attempts(turn(1, 1)) == ((), None)


def test_a_run_that_has_stored_nothing_yet_is_not_a_discarded_one() -> None:
    """While the first answer is being written, nothing was thrown away."""
    running, aborted = attempt(kept=False), attempt(kept=False, status=RunStatus.ABORTED)
    page = ConversationPage(session_id="s", thread_id="s", lost=(running, aborted))
    assert outlines.list_lost(page) == (aborted,)


def test_a_bar_is_as_wide_as_its_pieces_together() -> None:
    """Each has its share, none overlaps, and what is nothing has no piece."""
    pieces = outlines.slice_bar([("a", 30), ("b", 0), ("c", 10)])
    assert [(each.name, each.start, each.width) for each in pieces] == [("a", 0, 750), ("c", 750, 250)]
    assert outlines.slice_bar([("a", 0)]) == ()


def test_a_context_is_drawn_by_kinds_in_the_order_of_the_model() -> None:
    """Not in that of their sizes: the picture is of what the model reads first."""
    parts = [("message", 5), ("tools", 20), ("message", 15), ("instructions", 60)]
    context = ModelContext(
        session_id="s",
        step=1,
        answer=3,
        parts=tuple(ContextPart.model_validate({"kind": kind, "tokens": tokens}) for kind, tokens in parts),
    )
    drawn = [(each.name, each.amount) for each in outlines.slice_context(context)]
    assert drawn == [("instructions", 60), ("tools", 20), ("message", 20)]


def test_hundreds_of_segments_are_drawn_as_few() -> None:
    """A strip of a thousand pieces shows nothing; all their messages are in it all the same."""
    segments = [SegmentPlace(name=f"{n}", first=n, stop=n + 1, bytes=10) for n in range(1_000)]
    merged = outlines.merge_segments(segments)
    assert len(merged) <= 60
    assert (merged[0].first, merged[-1].stop) == (0, 1_000)
    assert sum(each.bytes for each in merged) == 10_000


def test_a_thread_is_drawn_with_what_only_the_hot_store_has() -> None:
    """What would be lost with it."""
    place = ThreadPlace(thread_id="t", messages=18, hot=True, archived=14, unfinished=2)
    strip = outlines.slice_thread(place, [SegmentPlace(name="x", first=0, stop=14, bytes=1)])
    assert [(each.name, each.amount) for each in strip] == [("x", 14), ("hot", 4), ("unfinished", 2)]


def test_a_turn_under_way_that_is_archived_is_drawn_once() -> None:
    """The archive may have messages of a turn that waits for people."""
    place = ThreadPlace(thread_id="t", messages=14, archived=16, unfinished=2)
    strip = outlines.slice_thread(place, [SegmentPlace(name="x", first=0, stop=16, bytes=1)])
    assert [(each.name, each.amount) for each in strip] == [("x", 14), ("unfinished", 2)]


def test_a_context_of_thousands_of_parts_lists_its_ends() -> None:
    """The instructions and the newest messages are what one looks for."""
    parts = tuple(ContextPart(kind="message", position=n, tokens=1) for n in range(1_000))
    shown, hidden = cut_parts(parts, 10)
    assert [each.position for each in shown] == [0, 1, 2, 3, 4, 995, 996, 997, 998, 999]
    assert len(hidden) == 990
    assert cut_parts(parts[:10], 10) == (parts[:10], ())


def test_a_tree_is_listed_from_the_top_down() -> None:
    """Each sub-agent below the session that called it."""
    leaf = SessionBranch(overview=overview("c"))
    tree = SessionBranch(
        overview=overview("a"),
        children=(
            SessionBranch(overview=overview("b"), children=(leaf,)),
            SessionBranch(overview=overview("d")),
        ),
    )
    rows = [(row.depth, row.branch.overview.session_id) for row in list_branches(tree)]
    assert rows == [(0, "a"), (1, "b"), (2, "c"), (1, "d")]


def test_a_schedule_is_judged_by_its_newest_run() -> None:
    """One that failed yesterday and went well since needs nobody."""
    well, failed = ScheduleRun(at=2), ScheduleRun(at=1, status="failed", failure="503")
    schedule = ScheduleFacts(schedule_id="s", kind="sweep", recent=(well, failed))
    assert outlines.mark_schedule(schedule).tone == "good"
    assert outlines.mark_schedule(schedule.model_copy(update={"recent": (failed, well)})).tone == "bad"
    assert outlines.mark_schedule(schedule.model_copy(update={"paused": True})).word == "paused"


@pytest.mark.parametrize("status", ["failed", "timed_out", "terminated", "canceled"])
def test_a_sweep_that_somebody_ended_is_not_on_schedule(status: str) -> None:
    """Its work is not done; the doctor says so as well."""
    schedule = ScheduleFacts(schedule_id="s", kind="sweep", recent=(ScheduleRun(at=1, status=status),))
    assert outlines.mark_schedule(schedule).tone == "bad"
