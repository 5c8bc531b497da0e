"""The context of a session's answer, by the session's id and with the viewer's rights."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import InvalidRequestError, NotFoundError
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, read_refusal, run_turn, use_tokens


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session with two turns, the second of three messages."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s", user_id="ann")
        await run_turn(made, "s", "r1", "hi", "hello")
        await run_turn(made, "s", "r2", "more", "done")
        yield made


async def test_a_context_is_that_of_a_step_of_a_turn(stores: Backends) -> None:
    """The page says which one, by the numbers that the conversation has."""
    await use_tokens(stores, "s", "r2", 30, at=1_000)
    context = await SessionViews(stores).get_context("s", 3)
    assert (context.session_id, context.turn, context.step, context.answer) == ("s", 2, 1, 3)
    messages = [each for each in context.parts if each.kind in {"message", "input"}]
    assert [(each.position, each.text) for each in messages] == [(0, "hi"), (1, "hello"), (2, "more")]


@pytest.mark.parametrize(
    ("position", "error"), [(0, InvalidRequestError), (4, NotFoundError), (99, NotFoundError)]
)
async def test_only_an_answer_has_a_context(stores: Backends, position: int, error: type[Exception]) -> None:
    """The address was typed, or the answer was taken back."""
    with pytest.raises(error):
        await SessionViews(stores).get_context("s", position)


async def test_contexts_of_sessions_that_are_not_ones_own_are_not_there(stores: Backends) -> None:
    """As if the session were not."""
    views = SessionViews(stores, admits=lambda session: session.user_id == "bob")
    missing = await read_refusal(views.get_context("no-such", 1))
    assert await read_refusal(views.get_context("s", 1)) == missing.replace("no-such", "s")
