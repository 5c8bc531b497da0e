"""What was asked in turns that left nothing in the thread: it is in the stream alone, while that is kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_temporal import Backends
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.streams import RunStarted, TextChunk
from helix_temporal.views import lost_questions
from helix_temporal.views.models import TurnAttempt
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, run_turn


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session that nobody has talked to."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s")
        yield made


async def lose(stores: Backends, turn: int, *texts: str, status: RunStatus = RunStatus.ABORTED) -> None:
    """A turn whose model call failed: its run and its chunks, and nothing in the thread."""
    assert stores.streams is not None
    info = await stores.streams.get_info("s")
    after = 0 if info is None else info.last_sequence
    await stores.sessions.start_run("s", NewRun(run_id=f"r{turn}", start_sequence=after))
    writer = await stores.streams.create_writer("s", agent_id=f"r{turn}")
    await writer.write(RunStarted(turn=turn, texts=texts))
    await writer.write(TextChunk(delta="half of it"))
    await stores.sessions.update_run("s", f"r{turn}", RunChange(status=status))


async def read_lost(stores: Backends) -> list[TurnAttempt]:
    """All attempts that left nothing, in turns and beside them."""
    page = await SessionViews(stores).read_turns("s")
    inside = [each for turn in page.turns for each in turn.attempts if not each.kept]
    return sorted([*page.lost, *inside], key=lambda each: each.turn)


@pytest.mark.parametrize("status", [RunStatus.ABORTED, RunStatus.FAILED])
async def test_the_question_of_a_turn_that_left_nothing_is_told(stores: Backends, status: RunStatus) -> None:
    """Whoever is on call sees the error of the model, and wants to know what brought it about."""
    await lose(stores, 1, "Where is it?", "And when?", status=status)
    (attempt,) = await read_lost(stores)
    assert attempt.asked == ("Where is it?", "And when?")
    found = await SessionViews(stores).find_lost_attempt("s", 1)
    assert found is not None
    assert found.asked == attempt.asked


async def test_each_attempt_has_its_own_question_also_where_another_turn_stands(stores: Backends) -> None:
    """People ask again in other words."""
    await lose(stores, 1, "one")
    await lose(stores, 2, "two")
    await run_turn(stores, "s", "r3", "three", "an answer")
    assert [each.asked for each in await read_lost(stores)] == [("one",), ("two",)]


async def test_without_the_stream_nothing_is_told(stores: Backends) -> None:
    """It is kept for a while; another one that has begun since tells of other turns."""
    await lose(stores, 1, "one")
    assert stores.streams is not None
    await stores.streams.delete_stream("s")
    assert [each.asked for each in await read_lost(stores)] == [()]
    writer = await stores.streams.create_writer("s", agent_id="r9")
    await writer.write(RunStarted(turn=9, texts=("another's",)))
    assert [each.asked for each in await read_lost(stores)] == [()]


async def _refuse(*_: Any, **__: Any) -> Any:
    raise StoreUnavailableError("away")


async def _say_nothing(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("read", [_refuse, _say_nothing])
async def test_a_stream_that_cannot_be_read_keeps_no_page(
    stores: Backends, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides nothing."""
    await lose(stores, 1, "one")
    assert stores.streams is not None
    monkeypatch.setattr(lost_questions, "_PATIENCE", 0.01)
    monkeypatch.setattr(stores.streams, "create_resumable_reader", read)
    assert [each.asked for each in await read_lost(stores)] == [()]
