"""A session's runs as a person sees them, also those that were thrown away."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import InvalidCursorError, InvalidRequestError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.views.models import RunList
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, read_refusal, run_turn, use_tokens


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session whose second turn was tried twice, and whose last one was taken back and asked anew."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s", user_id="ann")
        await run_turn(made, "s", "r1", "hi", "hello")
        await run_turn(made, "s", "r2", status=RunStatus.ABORTED)
        await run_turn(made, "s", "r3", "more", "done")
        await run_turn(made, "s", "r4", "wrong", "question")
        await made.sessions.truncate_messages("s", 4)
        await run_turn(made, "s", "r5", "right", "answer")
        yield made


def told(page: RunList) -> list[tuple[str, int, bool]]:
    """Of each run its id, its number, and whether it is in the thread."""
    return [(each.run_id, each.turn, each.kept) for each in page.runs]


WHOLE = [("r5", 5, True), ("r4", 4, False), ("r3", 3, True), ("r2", 2, False), ("r1", 1, True)]


async def test_all_runs_are_told_newest_first(stores: Backends) -> None:
    """Also those that left nothing: they were paid for, and somebody asks where they went."""
    page = await SessionViews(stores).list_runs("s")
    assert told(page) == WHOLE
    newest = page.runs[0]
    assert (newest.start, newest.status, newest.workflow_id) == (4, RunStatus.COMPLETED, "w")
    assert newest.started_at is not None
    assert newest.ended_at is not None
    assert page.next_cursor is None


async def test_pages_tell_what_one_page_tells(stores: Backends) -> None:
    """Whether a run's messages were taken back is seen by newer runs, which stand on earlier pages."""
    views = SessionViews(stores)
    found: list[tuple[str, int, bool]] = []
    page = await views.list_runs("s", limit=1)
    while page.next_cursor is not None:
        found += told(page)
        page = await views.list_runs("s", limit=1, cursor=page.next_cursor)
    assert [*found, *told(page)] == WHOLE


async def test_a_turn_taken_back_without_a_new_one_is_not_kept(stores: Backends) -> None:
    """No newer run says so: the thread does, which ends where the run began."""
    await stores.sessions.truncate_messages("s", 4)
    assert told(await SessionViews(stores).list_runs("s"))[:3] == [
        ("r5", 5, False),
        ("r4", 4, False),
        ("r3", 3, True),
    ]


async def test_a_run_has_its_model_calls(stores: Backends) -> None:
    """Also one that was thrown away."""
    runs = (await SessionViews(stores).list_runs("s")).runs
    await use_tokens(stores, "s", "r2", 30, at=runs[3].started_at or 0)
    page = await SessionViews(stores).list_runs("s")
    assert [[call.tokens.input for call in each.model_calls] for each in page.runs] == [[], [], [], [30], []]


@pytest.mark.parametrize("cursor", ["", "x", ".", "5.", "x.y", "٣.y", "5.y", f"{'9' * 400}.y"])
async def test_a_cursor_of_anything_else_is_refused(stores: Backends, cursor: str) -> None:
    """It comes in an address that anybody may have changed."""
    with pytest.raises(InvalidCursorError):
        await SessionViews(stores).list_runs("s", cursor=cursor)


@pytest.mark.parametrize("limit", [0, 201])
async def test_a_page_has_so_many_runs(stores: Backends, limit: int) -> None:
    """More would be read at once."""
    with pytest.raises(InvalidRequestError):
        await SessionViews(stores).list_runs("s", limit=limit)


async def test_runs_of_sessions_that_are_not_ones_own_are_not_there(stores: Backends) -> None:
    """As if the session were not."""
    views = SessionViews(stores, admits=lambda session: session.user_id == "bob")
    missing = await read_refusal(views.list_runs("no-such"))
    assert await read_refusal(views.list_runs("s")) == missing.replace("no-such", "s")
