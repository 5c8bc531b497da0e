"""The session store is restored from a backup while the thread has gone on in the archive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.agents import ModelRequest, ToolContext, ToolOutcome
from helix_temporal.devstack import S3Endpoint
from helix_temporal.models.sessions import Receipt, SessionInput, SessionOptions, UserMessage
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from helix_temporal.testing.tables import own_tables
from tests.workflows._backups import Backup, FilesBackup, PostgresBackup, RedisBackup
from tests.workflows._desk import Answer, Desk, Gate, first_tools_then
from tests.workflows._embedded import EmbeddedSession
from tests.workflows.conftest import Stand, make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

PLACES = ("postgres beside redis", "postgres", "redis", "sqlite")
"""Where the state is; the thread is archived in S3 in all of them."""


@dataclass(frozen=True)
class Place:
    """Stores, and a backup of the one that has the state."""

    settings: Settings
    backup: Backup


@pytest.fixture
async def place(
    temporal_address: str,
    redis_url: str,
    postgres_dsn: str,
    s3: S3Endpoint,
    tmp_path: Path,
    sid: str,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Place]:
    """One pairing of stores."""
    chosen, prefix = getattr(request, "param", PLACES[0]), f"t{sid.replace('-', '')}_"
    postgres: dict[str, Any] = {"postgres_dsn": postgres_dsn, "table_prefix": prefix}
    changes: dict[str, Any] = postgres if "postgres" in chosen else {}
    if chosen == "sqlite":
        changes = {"data_directory": tmp_path / "data"}
    redis = redis_url if "redis" in chosen else None
    settings = make_settings(temporal_address, redis, s3, f"{sid}-q", **changes)
    async with own_tables(postgres_dsn, prefix=prefix):
        backups: dict[str, Backup] = {
            "redis": RedisBackup(settings),
            "sqlite": FilesBackup(tmp_path / "data"),
        }
        yield Place(settings, backups.get(chosen) or PostgresBackup(settings))


@asynccontextmanager
async def served(place: Place, desk: Desk) -> AsyncIterator[Stand]:
    """A worker over those stores, where a tool counts up: each call sets one more key."""
    options, numbers = SessionOptions(idle_timeout=60), iter(range(1, 100))

    def act(what: str, _: ToolContext) -> ToolOutcome:
        number = next(numbers)
        return ToolOutcome(what, state={f"k{number}": number, "last": number})

    desk.acts = dict.fromkeys(desk.scripts, act)
    async with session_worker(
        place.settings, desk.agents(), options=options, workflows=[EmbeddedSession]
    ) as running:
        yield Stand(running, desk)


async def custom_state(stand: Stand, session_id: str) -> dict[str, Any]:
    """The stored custom state, which stands where the thread stands."""
    backends = stand.served.plugin.backends
    state = await backends.sessions.load_state(session_id)
    assert state is not None
    assert state.head == (await backends.threads.read_facts(session_id)).head
    return dict(state.custom_state)


async def state_notes(stand: Stand, session_id: str) -> list[Receipt]:
    """Close the session; what its receipts say of the state."""
    await stand.sessions.session(session_id).close()
    result = await stand.sessions.session(session_id).result()
    return [each for each in result.receipts if each.name == "state"]


async def three_turns(stand: Stand, place: Place, session_id: str) -> None:
    """Of one execution, in each of which a tool changes the state; the backup is from after the first."""
    await stand.sessions.ask(session_id, "one", agent="main")
    await place.backup.take()
    await stand.sessions.ask(session_id, "two")
    await stand.sessions.ask(session_id, "three")


@pytest.mark.parametrize("place", PLACES, indirect=True)
async def test_what_tools_changed_and_their_store_lost_within_the_turn_is_told(
    place: Place, sid: str
) -> None:
    """Their results are in the thread; the store went back before the turn was committed."""
    desk, gate = Desk(), Gate()
    script = desk.scripts[sid] = first_tools_then("done", "x")

    async def answers_late(request: ModelRequest) -> Answer:
        if request.messages[-1].role == "tool":
            await gate.passing()
        return script(request)

    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await place.backup.take()
        desk.scripts[sid] = answers_late
        asking = asyncio.create_task(stand.sessions.ask(sid, "two"))
        await asyncio.wait_for(gate.reached.wait(), 30)
        await place.backup.put_back()
        gate.opened.set()
        answer = await asking
        assert answer.text == "done"
        assert await custom_state(stand, sid) == {"k1": 1, "last": 1}
        (note,) = await state_notes(stand, sid)
        assert note.detail.startswith("StateBehindThreadError: of 1 tools")


@pytest.mark.parametrize("place", PLACES, indirect=True)
async def test_a_state_several_turns_behind_gets_what_each_of_them_changed(place: Place, sid: str) -> None:
    """Tools changed it in turns that the backup does not have; the thread has them, and so has the state."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        await place.backup.take()
        await stand.sessions.ask(sid, "two", agent="main")
        await stand.sessions.ask(sid, "three")
        await stand.finish(sid)
        await place.backup.put_back()
        del desk.scripts[sid]
        assert (await stand.sessions.ask(sid, "four", agent="main")).text == "13: four"
        assert await custom_state(stand, sid) == {"k1": 1, "k2": 2, "k3": 3, "last": 3}
        (note,) = await state_notes(stand, sid)
        assert note.ok
        assert "2 turns" in note.detail


@pytest.mark.parametrize("place", PLACES[:3], indirect=True)
async def test_a_session_that_is_open_meanwhile_brings_its_state_forward_with_its_next_turn(
    place: Place, sid: str
) -> None:
    """Nobody opens it again after the restore; the next commit sees what it would have been built on."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        await three_turns(stand, place, sid)
        await place.backup.put_back()
        del desk.scripts[sid]
        assert (await stand.sessions.ask(sid, "four")).text == "13: four"
        assert await custom_state(stand, sid) == {"k1": 1, "k2": 2, "k3": 3, "last": 3}
        notes = await state_notes(stand, sid)
        assert [each.ok for each in notes if "brought forward" in each.detail] == [True]


async def test_what_tools_of_the_last_turn_changed_is_reported_where_it_is_lost(
    place: Place, sid: str
) -> None:
    """The workflow was terminated before a step could bring it to the thread, and the store restored."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        await three_turns(stand, place, sid)
        await stand.handle(sid).terminate()
        await place.backup.put_back()
        del desk.scripts[sid]
        await stand.sessions.ask(sid, "four", agent="main")
        assert await custom_state(stand, sid) == {"k1": 1, "k2": 2, "last": 2}
        (note,) = await state_notes(stand, sid)
        assert not note.ok
        assert note.detail.startswith("StateBehindThreadError: ")
        assert "what 1 of them changed" in note.detail


@pytest.mark.parametrize("place", PLACES, indirect=True)
@pytest.mark.parametrize("ended", ["closed", "terminated"])
async def test_what_tools_of_a_single_lost_turn_changed_comes_back_or_is_reported(
    place: Place, sid: str, ended: str
) -> None:
    """The backup lacks the newest turn alone; at the end of its execution the thread got what it changed."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await place.backup.take()
        await stand.sessions.ask(sid, "two")
        if ended == "closed":
            await stand.finish(sid)
        else:
            await stand.handle(sid).terminate()
        await place.backup.put_back()
        await stand.sessions.ask(sid, "three", agent="main")
        state, notes = await custom_state(stand, sid), await state_notes(stand, sid)
        if ended == "closed":
            assert (state, notes) == ({"k1": 1, "k2": 2, "k3": 3, "last": 3}, [])
            return
        assert state == {"k1": 1, "k3": 3, "last": 3}
        (note,) = notes
        assert not note.ok
        assert note.detail.startswith("StateBehindThreadError: ")
        assert "what 1 of them changed" in note.detail


@pytest.mark.parametrize("place", ["redis", "sqlite"], indirect=True)
@pytest.mark.parametrize("ended", [False, True])
async def test_what_a_state_that_is_made_again_lacks_is_reported(place: Place, sid: str, ended: bool) -> None:
    """Its store was wiped: the thread's slice has all but what tools of the newest turn had staged."""
    desk = Desk()
    desk.scripts[sid] = first_tools_then("done", "x")
    async with served(place, desk) as stand:
        await place.backup.take()
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.sessions.ask(sid, "two")
        if ended:
            await stand.handle(sid).terminate()
        await place.backup.put_back()
        await stand.sessions.ask(sid, "three", agent="main")
        state = await custom_state(stand, sid)
        notes = await state_notes(stand, sid)
        assert {"k1", "k3"} <= set(state)
        assert ("k2" in state) is not ended, notes
        if ended:
            (note,) = notes
            assert not note.ok
            assert "StateBehindThreadError" in note.detail
        else:
            assert notes == []


async def test_values_of_the_application_come_back_with_their_turns(place: Place, sid: str) -> None:
    """Also those that it changed after its last turn, which went to the stores when the session ended."""
    desk = Desk()
    async with served(place, desk) as stand:

        async def asked(*texts: str) -> dict[str, Any]:
            handle = await stand.served.client.start_workflow(
                EmbeddedSession.run,
                SessionInput(session_id=sid, agent="main", options=SessionOptions(idle_timeout=60)),
                id=f"embedded-{sid}",
                task_queue=place.settings.task_queue,
            )
            for text in texts:
                await handle.signal(EmbeddedSession.set_value, text)
                await handle.execute_update("ask", UserMessage(id=f"m-{text}", text=text))
            found = await handle.query(EmbeddedSession.values)
            await handle.execute_update("close")
            await handle.result()
            return found

        await asked("one")
        await place.backup.take()
        await asked("two", "three")
        await place.backup.put_back()
        values = await asked("four")
        assert values == {"one": True, "two": True, "three": True, "four": True, "turns": 4}
        assert await custom_state(stand, sid) == values
