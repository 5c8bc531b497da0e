"""What sessions, attempts and errors are called."""

from helix_temporal.inspector import labels
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.views.children import MAX_CHILDREN
from helix_temporal.views.models import ConversationPage, SessionView
from tests.unit.inspector._shown import attempt, overview, turn


def test_a_session_is_called_by_what_people_know() -> None:
    """Its title; an id that we made for a sub-agent tells less than its agent's name."""
    assert labels.name_session(overview("s", title="Refund", agent="support")) == "Refund"
    assert labels.name_session(overview("s", agent="support")) == "s"
    assert labels.name_session(overview("s>a>x9", agent="clerk", parent_session_id="s")) == "clerk"


def test_attempts_that_were_thrown_away_are_told_apart() -> None:
    """They stand in their turn, dimmed; its own numbers are those of the kept one."""
    lost, kept = attempt(run_id="a", kept=False, status=RunStatus.ABORTED), attempt(run_id="b")
    assert labels.split_attempts(turn(1, 1, attempts=(lost, kept))) == ((lost,), kept)
    assert labels.split_attempts(turn(1, 1)) == ((), None)


def test_a_turn_is_open_until_its_end_is_recorded() -> None:
    """Its messages are all there a moment before: drawn for good then, it would say "running" for ever."""
    done = turn(1, 1, attempts=(attempt(status=RunStatus.COMPLETED),))
    running = turn(2, 1, attempts=(attempt(turn=2),))
    unnumbered = turn(2, 1).model_copy(update={"number": None})
    page = ConversationPage(session_id="s", thread_id="s", turns=(done,))
    assert labels.list_open(page) == ()
    assert labels.list_open(page.model_copy(update={"turns": (done, running)})) == (running,)
    assert labels.list_open(page.model_copy(update={"turns": (done, unnumbered)})) == (unnumbered,)
    assert labels.list_open(page.model_copy(update={"turns": (running, done)})) == ()
    assert not labels.is_running(running, running.attempts[0])


def test_where_nobody_records_runs_no_turn_waits_for_one() -> None:
    """Stores without sessions have none."""
    turns = tuple(turn(each, 1).model_copy(update={"number": None}) for each in (1, 2))
    assert labels.list_open(ConversationPage(session_id="s", thread_id="s", turns=turns)) == ()


def test_a_run_that_has_stored_nothing_yet_is_not_a_discarded_one() -> None:
    """While the first answer is being written, nothing was thrown away."""
    running, aborted = attempt(kept=False), attempt(kept=False, status=RunStatus.ABORTED)
    page = ConversationPage(session_id="s", thread_id="s", lost=(running, aborted))
    assert labels.list_lost(page) == (aborted,)


def test_more_sub_agents_than_are_looked_at_are_not_counted_as_all() -> None:
    """A page looks at 500; a planner that calls thousands has a tab that says so."""
    session = SessionView(overview=overview(), children=tuple(f"c{n}" for n in range(MAX_CHILDREN)))
    assert labels.count_children(session) == "500+"
    assert labels.count_children(session.model_copy(update={"children": ("c",)})) == "1"
