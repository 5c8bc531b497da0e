"""What a page shows of much: a part of it, in an order."""

import pytest

from helix_temporal.inspector.pages.conversation import cut_parts, find_shown
from helix_temporal.views.models import (
    ContextPart,
    ConversationPage,
    SessionBranch,
)
from helix_temporal.views.tree import list_branches
from tests.unit.inspector._shown import overview, turn


def test_what_is_live_goes_on_behind_the_last_finished_turn() -> None:
    """Else a turn would come twice, or never."""
    page = ConversationPage(session_id="s", thread_id="s", turns=(turn(1, 4), turn(2, 3, unfinished=True)))
    assert find_shown(page) == 104
    assert find_shown(page.model_copy(update={"turns": page.turns[1:]})) == 200
    assert find_shown(page.model_copy(update={"turns": ()})) == 0


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


@pytest.mark.parametrize(
    ("finish", "told"),
    [(None, None), ("stop", None), ("tool_calls", None), ("length", "length"), ("refusal", "refusal")],
)
def test_an_answer_that_its_model_did_not_end_says_why(finish: str | None, told: str | None) -> None:
    """What every answer has is no news."""
    said = turn(1, 1).messages[0].model_copy(update={"finish": finish})
    assert said.cut_short_by == told
