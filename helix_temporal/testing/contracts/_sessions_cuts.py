"""Messages that are taken back."""

import asyncio

import pytest

from helix_temporal.errors import FencedError, HeadMovedError, InvalidRequestError, TooLargeError
from helix_temporal.models.messages import Message
from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    SessionFixtures,
    ids_of,
    loaded,
    messages_of,
    talk,
)


class CutsContract(SessionFixtures):
    """The newest messages are taken back by exactly one, if nothing came after they were read."""

    async def test_the_newest_messages_are_taken_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """What stands before stays, the next append goes on there, and the state has no new version."""
        await store.append_messages(session_id, talk(5))
        cut = await store.cut_messages(session_id, 2)
        assert (list(cut.messages), cut.head) == (talk(5)[3:], Head(position=3, last_id="m2"))
        assert await messages_of(store, session_id) == talk(3)
        again = await store.append_messages(session_id, talk(1, "n"))
        assert (again.first_index, await messages_of(store, session_id)) == (3, talk(3) + talk(1, "n"))
        assert (await loaded(store, session_id)).version == 1

    async def test_all_messages_may_be_taken_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A conversation is begun anew under its id."""
        await store.append_messages(session_id, talk(3))
        assert list((await store.cut_messages(session_id, 3)).messages) == talk(3)
        assert await messages_of(store, session_id) == []
        await store.append_messages(session_id, talk(3))
        assert await messages_of(store, session_id) == talk(3)

    async def test_messages_that_were_not_read_are_not_taken_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Another program appended meanwhile."""
        head = (await store.append_messages(session_id, talk(3))).head
        await store.append_messages(session_id, talk(1, "n"))
        with pytest.raises(HeadMovedError, match="read it again"):
            await store.cut_messages(session_id, 3, head=head)
        assert await messages_of(store, session_id) == talk(3) + talk(1, "n")

    async def test_a_repeated_cut_is_one(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Its answer was lost: the repeat gets it, though others went on from there."""
        await store.append_messages(session_id, talk(4))
        first = await store.cut_messages(session_id, 2, operation_id="op")
        await store.append_messages(session_id, talk(2, "n"))
        assert await store.cut_messages(session_id, 2, operation_id="op") == first
        assert await messages_of(store, session_id) == talk(2) + talk(2, "n")

    async def test_more_than_there_are_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """And nothing is cut."""
        await store.append_messages(session_id, talk(3))
        with pytest.raises(InvalidRequestError, match="there are 3 messages, and 4"):
            await store.cut_messages(session_id, 4)
        assert await messages_of(store, session_id) == talk(3)

    async def test_more_than_an_operation_can_keep_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """By number or size, as it has to give them back to a repetition; one alone may be of any size."""
        large = [Message(id=f"l{at}", role="user", content="x" * 900_000) for at in range(5)]
        for each in (talk(1), *([message] for message in large)):
            await store.append_messages(session_id, each)
        with pytest.raises(InvalidRequestError, match=r"201 messages .* 200 can be at once"):
            await store.cut_messages(session_id, 201)
        with pytest.raises(TooLargeError, match="take fewer"):
            await store.cut_messages(session_id, 5)
        assert await messages_of(store, session_id) == talk(1) + large
        assert list((await store.cut_messages(session_id, 4)).messages) == large[1:]

    async def test_a_cut_of_an_older_writer_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Where a cut names its epoch, as other writes do."""
        await store.append_messages(session_id, talk(3))
        await store.save_state(session_id, await loaded(store, session_id), epoch=5)
        with pytest.raises(FencedError):
            await store.cut_messages(session_id, 1, epoch=4)
        assert await messages_of(store, session_id) == talk(3)
        assert list((await store.cut_messages(session_id, 1, epoch=5)).messages) == talk(3)[2:]

    async def test_a_state_keeps_the_messages_that_it_was_committed_with(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """They belong to its checkpoint, which alone takes both back."""
        head = (await store.append_messages(session_id, talk(3))).head
        await store.save_state(session_id, state.model_copy(update={"head": head}))
        with pytest.raises(InvalidRequestError, match="restore a checkpoint"):
            await store.cut_messages(session_id, 1)
        assert await messages_of(store, session_id) == talk(3)

    async def test_nobody_takes_back_what_another_took(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Writers and takers at once: each message stands, or was given to exactly one."""
        await store.append_messages(session_id, talk(6))
        cuts, _ = await asyncio.gather(
            asyncio.gather(*(store.cut_messages(session_id, 1) for _ in range(6))),
            asyncio.gather(*(store.append_messages(session_id, talk(1, f"n{n}-")) for n in range(6))),
        )
        taken = [message.id for cut in cuts for message in cut.messages]
        added = [*(f"m{n}" for n in range(6)), *(f"n{n}-0" for n in range(6))]
        assert sorted([*await ids_of(store, session_id), *taken]) == sorted(added)

    async def test_calls_without_results_are_taken_back_one_by_one(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """As a framework undoes a step that failed: nobody but it knows whether a result will come."""
        rows = [
            Message(id=f"f{n}", role="foreign", format="openai-agents/1", content=text)
            for n, text in enumerate(
                [
                    '{"role":"user","content":"look"}',
                    '{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}',
                    '{"type":"function_call","call_id":"c2","name":"look","arguments":"{}"}',
                ]
            )
        ]
        for row in rows:
            await store.append_messages(session_id, [row])
        for left in (2, 1, 0):
            cut = await store.cut_messages(session_id, 1)
            assert (list(cut.messages), cut.head.position) == ([rows[left]], left)
            assert await messages_of(store, session_id) == rows[:left]
