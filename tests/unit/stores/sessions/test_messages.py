"""Appends: what is there already, where the thread stands, and how little is asked to find out."""

import asyncio

import pytest

from helix_temporal.errors import IdempotencyConflictError, SessionNotFoundError, StaleStateError
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.states import SessionStatus, StateChange
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.session_rows import RowsCommitted, SessionCommit
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.sessions import RowSessions
from tests.unit.stores.sessions._stores import Apart, Together


@pytest.fixture(params=[Together, Apart])
def place(request: pytest.FixtureRequest) -> Together | Apart:
    """Threads beside the sessions, or elsewhere."""
    made: Together | Apart = request.param()
    return made


def said(*ids: str, text: str = "hi") -> list[Message]:
    return [Message(id=each, role="user", content=text) for each in ids]


async def updated_at(store: RowSessions) -> int:
    state = await store.load_state("s")
    assert state is not None
    return state.updated_at


async def ids_of(store: RowSessions, session_id: str = "s") -> list[str]:
    return [each.id for each in (await store.get_messages(session_id, limit=200)).messages]


class TestAnAppendAfterAnother:
    async def test_looks_at_the_session_and_appends_at_once(self, place: Together | Apart) -> None:
        """One look and one append, beside each other: no reading of what this process wrote itself."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        place.rows.calls.clear()
        result = await place.store.append_messages("s", said("b", "c"))
        assert (result.first_index, result.count, result.head) == (1, 2, Head(position=3, last_id="c"))
        assert place.rows.calls == ["view"]
        assert await ids_of(place.store) == ["a", "b", "c"]

    async def test_that_lets_the_session_rise_is_one_commit_more(self, place: Together | Apart) -> None:
        """Together it is the same unit; elsewhere it follows the messages."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        place.clock.at += 5
        place.rows.calls.clear()
        await place.store.append_messages("s", said("b", "c"))
        assert place.rows.calls == ["view", "commit"]
        state = await place.store.load_state("s")
        assert state is not None
        assert (state.updated_at, state.version) == (int(place.clock.at * 1000), 1)

    async def test_looks_at_nothing_where_the_store_recalls(self, place: Together | Apart) -> None:
        """What this process wrote last it knows; whoever wrote since is found by the commit."""
        store, other = place.another(recalls=True), place.another()
        await store.create_session("s")
        await store.append_messages("s", said("a"))
        place.clock.at += 5
        await store.append_messages("s", said("b"))
        place.rows.calls.clear()
        await store.append_messages("s", said("c", "d"))
        together = isinstance(place, Together)
        assert place.rows.calls == (["commit"] if together else ["view"])
        for text, writer in (("e", other), ("f", store), ("g", store)):
            place.clock.at += 5
            await writer.append_messages("s", said(text))
        await other.update_status("s", SessionStatus.PAUSED)
        await store.append_messages("s", said("h"), change=StateChange(title="t"))
        state = await place.store.load_state("s")
        assert state is not None
        assert (state.status, state.title, state.version) == (SessionStatus.PAUSED, "t", 3)
        assert await ids_of(place.store) == [*"abcdefgh"]
        await store.delete_session("s")
        with pytest.raises(SessionNotFoundError):
            await store.append_messages("s", said("i"))

    async def test_that_looks_at_nothing_has_the_stores_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It counts on from the last look, without a drift; once a minute it looks again."""
        place, passed = Together(), 0.0
        monkeypatch.setattr("time.monotonic", lambda: passed)
        store = place.another(recalls=True)
        await store.create_session("s")
        place.clock.at += 1
        await store.append_messages("s", said("a"))
        place.rows.calls.clear()
        for n in range(40):
            passed += 1.0009
            await store.append_messages("s", said(f"b{n}"))
        assert place.rows.calls == ["commit"] * 40
        assert await updated_at(place.store) == int(place.clock.at * 1000 + 40 * 1000.9)
        passed, place.clock.at = passed + 60, place.clock.at + 90
        await store.append_messages("s", said("c"))
        assert await updated_at(place.store) == place.clock.at * 1000

    async def test_knows_what_it_appended(self, place: Together | Apart) -> None:
        """A repeat is told where its messages stand."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        first = await place.store.append_messages("s", said("b", "c"))
        assert await place.store.append_messages("s", said("b", "c")) == first
        with pytest.raises(IdempotencyConflictError):
            await place.store.append_messages("s", said("c", text="other"))
        assert await ids_of(place.store) == ["a", "b", "c"]

    async def test_finds_what_another_process_appended(self, place: Together | Apart) -> None:
        """What is known may have become wrong; then it is looked up."""
        other = place.another()
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        await other.append_messages("s", said("b"))
        again = await place.store.append_messages("s", said("b"))
        assert again.first_index == 1
        assert (await place.store.append_messages("s", said("c"))).first_index == 2
        assert await ids_of(place.store) == ["a", "b", "c"]

    async def test_to_a_thread_that_was_opened_since_joins_it(self, place: Together | Apart) -> None:
        """Its new owner decides who is shut out; messages for the session are still taken."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        await place.threads.open(OpenThread("s", 2**52, "workflow"))
        assert (await place.store.append_messages("s", said("b"))).first_index == 1
        assert await ids_of(place.store) == ["a", "b"]

    async def test_to_a_deleted_session_is_refused(self, place: Together | Apart) -> None:
        """Another process deleted it."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        await place.another().delete_session("s")
        with pytest.raises(SessionNotFoundError):
            await place.store.append_messages("s", said("b"))

    async def test_comes_after_a_cut_that_is_not_carried_out_yet(
        self, place: Together | Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another process decided to go back and died: the cut comes first, the message is not lost."""
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        state = await place.store.load_state("s")
        assert state is not None
        made, _ = await place.store.save_state_and_promote_staging("s", state, StepCommit(step_id="t"))
        await place.store.append_messages("s", said("b"))

        async def died(*_: object) -> None:
            raise RuntimeError("the process died")

        other = place.another()
        with monkeypatch.context() as patched:
            patched.setattr(place.threads, "open", died)
            with pytest.raises(RuntimeError):
                await other.restore_checkpoint("s", made.checkpoint_id)
        assert (await place.store.append_messages("s", said("c"))).first_index == 1
        assert await ids_of(place.store) == ["a", "c"]


class TestAnAppendAtAVersion:
    @pytest.mark.parametrize("touch", [True, False])
    async def test_is_one_unit_with_the_look_at_it(
        self, touch: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever changes the state between look and append is seen, and nothing is appended."""
        place = Together()
        await place.store.create_session("s")
        await place.store.append_messages("s", said("a"))
        commit = place.rows.commit

        async def overtaken(change: SessionCommit) -> RowsCommitted | None:
            monkeypatch.undo()
            await place.another().update_status("s", SessionStatus.PAUSED)
            return await commit(change)

        monkeypatch.setattr(place.rows, "commit", overtaken)
        with pytest.raises(StaleStateError):
            await place.store.append_messages("s", said("b"), touch=touch, expected_version=1)
        assert await ids_of(place.store) == ["a"]


class TestManyAppends:
    async def test_of_several_processes_lose_nothing(self, place: Together | Apart) -> None:
        """Each knows something that is wrong a moment later."""
        stores = [place.another() for _ in range(4)]
        await place.store.create_session("s")
        calls = [
            store.append_messages("s", said(f"{at}-{n}-a", f"{at}-{n}-b"))
            for n in range(8)
            for at, store in enumerate(stores)
        ]
        results = await asyncio.gather(*calls)
        found = await ids_of(place.store)
        assert sorted(each.first_index for each in results) == list(range(0, 64, 2))
        assert [each[:-1] for each in found[::2]] == [each[:-1] for each in found[1::2]]
        assert len(set(found)) == 64

    async def test_of_more_messages_than_are_looked_at_are_known_again(self, place: Together | Apart) -> None:
        """A batch that is larger than the window is still one that was sent before."""
        await place.store.create_session("s")
        batch = said(*(f"m{n}" for n in range(500)))
        first = await place.store.append_messages("s", batch)
        assert await place.store.append_messages("s", batch) == first
        again = await place.another().append_messages("s", batch)
        assert again == first
        assert await place.store.get_message_count("s") == 500
