"""Sessions whose threads are archived, and may be cold when somebody comes."""

import pytest

from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import StateChange
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.session_rows import RowsCommitted, SessionCommit
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import RowSessions
from tests.unit.stores.sessions._stores import Tiered


@pytest.fixture(params=[True, False], ids=["together", "apart"])
def place(request: pytest.FixtureRequest) -> Tiered:
    """With the hot threads beside the sessions, or elsewhere."""
    return Tiered(request.param)


def talk(*ids: str) -> list[Message]:
    return [Message(id=each, role="user", content=each) for each in ids]


async def ids_of(place: Tiered, session_id: str = "s") -> list[str]:
    return [each.id for each in (await place.store.get_messages(session_id, limit=200)).messages]


async def gone_cold(place: Tiered, session_id: str = "s") -> None:
    """The thread is in the archive alone, and this process has forgotten it."""
    header = await place.hot.read_header(session_id)
    assert header is not None
    await place.threads.flush(FlushThread(session_id, header.epoch))
    await place.threads.evict(session_id, header.epoch)
    assert await place.hot.read_header(session_id) is None
    place.store = RowSessions(place.rows, place.threads)


async def a_session(place: Tiered) -> str:
    """Two turns of two messages; the checkpoint of the first."""
    await place.store.create_session("s")
    made = ""
    for turn in ("1", "2"):
        await place.store.append_messages("s", talk(f"{turn}a", f"{turn}b"))
        state = await place.store.load_state("s")
        assert state is not None
        result, _ = await place.store.save_state_and_promote_staging("s", state, StepCommit(step_id=turn))
        assert result.head == Head(position=2 * int(turn), last_id=f"{turn}b")
        made = made or result.checkpoint_id
    return made


class TestAColdThread:
    async def test_is_read_from_the_archive(self, place: Tiered) -> None:
        """Readers make nothing hot."""
        await a_session(place)
        await gone_cold(place)
        assert await ids_of(place) == ["1a", "1b", "2a", "2b"]
        snapshot = await place.store.build_snapshot("s")
        assert snapshot is not None
        assert [each.id for each in snapshot.messages] == ["1a", "1b", "2a", "2b"]
        assert await place.hot.read_header("s") is None

    async def test_is_made_hot_by_an_append(self, place: Tiered) -> None:
        """And what is there already is found in it."""
        await a_session(place)
        await gone_cold(place)
        assert (await place.store.append_messages("s", talk("2b", "3a"))).first_index == 3
        await gone_cold(place)
        assert (await place.store.append_messages("s", talk("3b"), operation_id="op")).first_index == 5
        assert await ids_of(place) == ["1a", "1b", "2a", "2b", "3a", "3b"]

    async def test_that_went_cold_before_the_commit_is_made_hot_again(
        self, place: Tiered, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look and the unit of messages and state."""
        await a_session(place)
        commit, header = place.rows.commit, await place.hot.read_header("s")
        assert header is not None

        async def evict_first(change: SessionCommit) -> RowsCommitted | None:
            monkeypatch.undo()
            await place.threads.flush(FlushThread("s", header.epoch))
            await place.threads.evict("s", header.epoch)
            return await commit(change)

        monkeypatch.setattr(place.rows, "commit", evict_first)
        change = StateChange(title="t")
        result = await place.store.append_messages("s", talk("3a"), change=change)
        assert (result.first_index, result.new_version) == (4, 4)
        assert await ids_of(place) == ["1a", "1b", "2a", "2b", "3a"]

    async def test_is_made_hot_by_a_commit(self, place: Tiered) -> None:
        """A step that comes after an eviction is committed like any other."""
        await a_session(place)
        header = await place.hot.read_header("s")
        assert header is not None
        await gone_cold(place)
        step = StepAppend("s", header.epoch, header.head, (encode_message(talk("3a")[0]),), commits=True)
        result, appended = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="3"), append=step
        )
        assert appended is not None
        assert result.head == appended.head == Head(position=5, last_id="3a")
        assert await ids_of(place) == ["1a", "1b", "2a", "2b", "3a"]

    async def test_is_cut_by_a_restore(self, place: Tiered) -> None:
        """The archive goes back, too."""
        checkpoint = await a_session(place)
        await gone_cold(place)
        restored = await place.store.restore_checkpoint("s", checkpoint)
        assert restored.head == Head(position=2, last_id="1b")
        await gone_cold(place)
        assert await ids_of(place) == ["1a", "1b"]

    async def test_is_forked(self, place: Tiered) -> None:
        """Neither source nor fork need be hot for it."""
        await a_session(place)
        await gone_cold(place)
        await place.store.fork_session("s", "fork", at_message=2)
        assert await ids_of(place, "fork") == ["1a", "1b"]
        assert (await place.store.append_messages("fork", talk("x"))).first_index == 2
        assert await ids_of(place, "fork") == ["1a", "1b", "x"]
        assert await ids_of(place) == ["1a", "1b", "2a", "2b"]

    async def test_goes_with_its_session(self, place: Tiered) -> None:
        """And does not come back with a new one."""
        await a_session(place)
        await gone_cold(place)
        assert await place.store.delete_session("s")
        place.clock.at += 1
        await place.store.create_session("s")
        assert await ids_of(place) == []
        assert (await place.store.append_messages("s", talk("new"))).first_index == 0
