"""States and checkpoints as a person sees them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import CheckpointNotFoundError, InvalidCursorError
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, read_refusal, run_turn


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session with three turns, each of which changed the state."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s", custom_state={"cart": ["tea"]}, user_id="ann")
        await run_turn(made, "s", "r1", "hi", "hello", merge={"cart": ["tea", "milk"]})
        await run_turn(made, "s", "r2", "more", "done", merge={"cart": ["tea", "milk"], "paid": False})
        await run_turn(made, "s", "r3", "pay", "paid", merge={"paid": True})
        yield made


async def test_a_state_is_shown_as_it_is_and_as_it_was(stores: Backends) -> None:
    """Whoever looks for the step that broke something looks at the state behind each."""
    views = SessionViews(stores)
    now = await views.get_state("s")
    assert now.values == {"cart": ["tea", "milk"], "paid": True}
    assert now.checkpoint is None
    assert now.version == (await stores.sessions.load_state("s")).version  # type: ignore[union-attr]
    third, second, first = (await views.list_checkpoints("s")).checkpoints
    assert [(each.run_id, each.position) for each in (first, second, third)] == [
        ("r1", 2),
        ("r2", 4),
        ("r3", 6),
    ]
    then = await views.get_state("s", first.checkpoint_id)
    assert then.values == {"cart": ["tea", "milk"]}
    assert then.checkpoint == first
    assert then.version == first.version


async def test_checkpoints_come_by_pages(stores: Backends) -> None:
    """A session that lives for months has thousands of them."""
    views = SessionViews(stores)
    page = await views.list_checkpoints("s", limit=2)
    assert [each.run_id for each in page.checkpoints] == ["r3", "r2"]
    rest = await views.list_checkpoints("s", limit=2, cursor=page.next_cursor)
    assert [each.run_id for each in rest.checkpoints] == ["r1"]
    assert rest.next_cursor is None
    with pytest.raises(InvalidCursorError):
        await views.list_checkpoints("s", cursor="x")


async def test_two_states_are_compared(stores: Backends) -> None:
    """Two checkpoints, or one and the present state."""
    views = SessionViews(stores)
    _, second, first = (await views.list_checkpoints("s")).checkpoints
    between = await views.compare_states("s", first.checkpoint_id, second.checkpoint_id)
    assert [(each.path, each.change, each.after) for each in between.differences] == [
        ("/paid", "added", False)
    ]
    assert (between.before, between.after) == (first, second)
    since = await views.compare_states("s", second.checkpoint_id)
    assert [(each.path, each.before, each.after) for each in since.differences] == [("/paid", False, True)]
    assert since.after is None


@pytest.mark.parametrize("checkpoint_id", ["other", "no-such", "x\0", "x" * 5_000, ""])
async def test_a_checkpoint_that_is_not_there_is_told(stores: Backends, checkpoint_id: str) -> None:
    """Somebody typed it, or it was pruned; another session's is none either."""
    await stores.sessions.create_session("t", CreateSession(custom_state={"secret": 1}))
    theirs = await run_turn(stores, "t", "r9", "hi", "hello")
    wanted = theirs if checkpoint_id == "other" else checkpoint_id
    views = SessionViews(stores)
    with pytest.raises(CheckpointNotFoundError, match="list the checkpoints"):
        await views.get_state("s", wanted)
    with pytest.raises(CheckpointNotFoundError):
        await views.compare_states("s", wanted)


async def test_states_of_sessions_that_are_not_ones_own_are_not_there(stores: Backends) -> None:
    """By a checkpoint's id no more than by the session's."""
    checkpoint = (await SessionViews(stores).list_checkpoints("s")).checkpoints[0].checkpoint_id
    views = SessionViews(stores, admits=lambda session: session.user_id == "bob")
    refused = {
        await read_refusal(views.get_state("s")),
        await read_refusal(views.get_state("s", checkpoint)),
        await read_refusal(views.compare_states("s", checkpoint)),
        await read_refusal(views.list_checkpoints("s")),
    }
    missing = await read_refusal(views.get_state("no-such"))
    assert refused == {missing.replace("'no-such'", "'s'")}


async def test_without_a_session_store_a_session_has_no_checkpoints(tmp_path: Path) -> None:
    """Its thread is all there is of it."""
    async with open_stores("memory", tmp_path, session_store="none") as stores:
        await stores.threads.open(OpenThread("s", 1, "owner"))
        views = SessionViews(stores)
        assert (await views.list_checkpoints("s")).checkpoints == ()
        assert (await views.get_state("s")).values == {}
        with pytest.raises(CheckpointNotFoundError):
            await views.get_state("s", "c")
