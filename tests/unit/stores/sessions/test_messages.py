"""Appends: what is there already, where the thread stands, and how little is asked to find out."""

import asyncio

import pytest

from helix_temporal.errors import IdempotencyConflictError, SessionNotFoundError
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.stored_messages import Head
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
