"""A session with its sub-agents' sessions, and what all of them used."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.models.states import CreateSession
from helix_temporal.views.children import MAX_CHILDREN
from helix_temporal.views.models import SessionBranch
from helix_temporal.views.sessions import SessionViews
from helix_temporal.views.tree import MAX_DEPTH
from tests.unit.views._backends import (
    PLACES,
    add_child,
    create,
    open_stores,
    read_refusal,
    refer_to,
    use_tokens,
)


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """Empty ones."""
    async with open_stores(request.param, tmp_path) as made:
        yield made


def ids_in(branch: SessionBranch) -> list[str]:
    """Of all sessions of a tree, parents before their children."""
    return [branch.overview.session_id, *(each for child in branch.children for each in ids_in(child))]


async def test_a_tree_has_all_sessions_below_one_and_their_sums(stores: Backends) -> None:
    """What a question cost is what its sub-agents cost, and theirs."""
    await create(stores, "a")
    await add_child(stores, "a", "b")
    await add_child(stores, "a", "c")
    await add_child(stores, "c", "d")
    await use_tokens(stores, "a", "r", 1, at=1_000)
    await use_tokens(stores, "b", "r", 10, at=3_000)
    await use_tokens(stores, "c", "r", 100, at=2_000)
    await use_tokens(stores, "d", "r", 1_000, at=4_000)
    tree = await SessionViews(stores).get_tree("a")
    b, c = tree.children
    assert ids_in(tree) == ["a", "b", "c", "d"]
    assert [each.usage.tokens.input for each in (tree, b, c)] == [1, 10, 100]
    assert [each.sums.tokens.input for each in (tree, b, c)] == [1_111, 10, 1_100]
    assert tree.sums.session_ids == ("a", "b", "c", "d")
    assert (tree.sums.first_at, tree.sums.last_at, tree.sums.complete) == (1_000, 4_000, True)
    assert tree.sums.by_model["m"].input == 1_111
    assert ids_in(await SessionViews(stores).get_tree("c")) == ["c", "d"]


async def test_a_child_that_its_caller_does_not_refer_to_is_found(stores: Backends) -> None:
    """A caller that lost its worker may never have written the reference."""
    await create(stores, "a")
    await create(stores, "b", parent_session_id="a")
    await create(stores, "c")
    await refer_to(stores, "a", "c", "deleted")
    tree = await SessionViews(stores).get_tree("a")
    assert ids_in(tree) == ["a", "c", "b"]
    assert (tree.hidden, tree.left_out) == (0, 0)


async def test_references_in_a_circle_end(stores: Backends) -> None:
    """An application may write any reference; a page must not read for ever."""
    await create(stores, "a")
    await add_child(stores, "a", "b")
    await refer_to(stores, "b", "a", "b")
    assert ids_in(await SessionViews(stores).get_tree("a")) == ["a", "b"]
    assert ids_in(await SessionViews(stores).get_tree("b")) == ["b", "a"]


async def test_children_that_may_not_be_seen_are_counted(stores: Backends) -> None:
    """Neither they nor what is below them is shown, and the sums say that they are not of all."""
    await create(stores, "a", user_id="ann")
    await add_child(stores, "a", "b", user_id="ann")
    await add_child(stores, "a", "c", user_id="bob")
    await add_child(stores, "c", "d", user_id="ann")
    await use_tokens(stores, "c", "r", 100, at=2_000)
    views = SessionViews(stores, admits=lambda session: session.user_id == "ann")
    tree = await views.get_tree("a")
    assert ids_in(tree) == ["a", "b"]
    assert (tree.hidden, tree.sums.tokens.input, tree.sums.complete) == (1, 0, False)
    missing = await read_refusal(views.get_tree("no-such"))
    assert await read_refusal(views.get_tree("c")) == missing.replace("no-such", "c")


async def test_a_tree_is_only_so_deep(stores: Backends) -> None:
    """An agent that calls itself; the last one shown says that there is more."""
    await create(stores, "s1")
    for depth in range(2, MAX_DEPTH + 3):
        await add_child(stores, f"s{depth - 1}", f"s{depth}")
    tree = await SessionViews(stores).get_tree("s1")
    assert ids_in(tree) == [f"s{depth}" for depth in range(1, MAX_DEPTH + 1)]
    deepest = tree
    while deepest.children:
        (deepest,) = deepest.children
    assert (deepest.left_out, tree.left_out, tree.sums.complete) == (1, 0, False)


async def test_a_tree_has_only_so_many_sessions(tmp_path: Path) -> None:
    """A session that called thousands: the page shows the first ones, and how many there are more."""
    async with open_stores("memory", tmp_path) as stores:
        await create(stores, "a")
        for number in range(MAX_CHILDREN + 210):
            options = CreateSession(parent_session_id="a")
            await stores.sessions.create_session(f"c{number:04}", options)
        await refer_to(stores, "a", *(f"c{number:04}" for number in range(20)))
        tree = await SessionViews(stores).get_tree("a")
    assert len(ids_in(tree)) == MAX_CHILDREN
    assert ids_in(tree)[1:3] == ["c0000", "c0001"]
    assert tree.left_out == 211
