"""Messages that are taken back."""

import asyncio

import pytest

from helix_temporal.errors import HeadMovedError, InvalidRequestError
from helix_temporal.models.states import SessionState
from helix_temporal.models.stored_messages import EMPTY, Head
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

    async def test_the_newest_messages_are_taken_back_if_they_are_those_that_were_read(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """What stands before stays, the next append goes on there, and the state has no new version."""
        head = (await store.append_messages(session_id, talk(5))).head
        await store.cut_messages(session_id, head, Head(position=3, last_id="m2"))
        assert await messages_of(store, session_id) == talk(3)
        again = await store.append_messages(session_id, talk(1, "n"))
        assert (again.first_index, await messages_of(store, session_id)) == (3, talk(3) + talk(1, "n"))
        assert (await loaded(store, session_id)).version == 1

    async def test_messages_that_were_not_read_are_not_taken_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Another program appended meanwhile."""
        head = (await store.append_messages(session_id, talk(3))).head
        await store.append_messages(session_id, talk(1, "n"))
        with pytest.raises(HeadMovedError, match="read it again"):
            await store.cut_messages(session_id, head, EMPTY)
        assert await messages_of(store, session_id) == talk(3) + talk(1, "n")

    async def test_a_repeated_cut_is_one(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Its answer was lost: the repeat finds it made, though others went on from there."""
        head, to = (await store.append_messages(session_id, talk(4))).head, Head(position=2, last_id="m1")
        await store.cut_messages(session_id, head, to, operation_id="op")
        await store.append_messages(session_id, talk(2, "n"))
        await store.cut_messages(session_id, head, to, operation_id="op")
        assert await messages_of(store, session_id) == talk(2) + talk(2, "n")

    @pytest.mark.parametrize("to", [3, 4])
    async def test_a_cut_of_nothing_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str, to: int
    ) -> None:
        """It would be taken for one that was made."""
        head = (await store.append_messages(session_id, talk(3))).head
        with pytest.raises(InvalidRequestError, match="is none"):
            await store.cut_messages(session_id, head, Head(position=to, last_id="m2"))

    async def test_a_state_keeps_the_messages_that_it_was_committed_with(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """They belong to its checkpoint, which alone takes both back."""
        head = (await store.append_messages(session_id, talk(3))).head
        await store.save_state(session_id, state.model_copy(update={"head": head}))
        with pytest.raises(InvalidRequestError, match="restore a checkpoint"):
            await store.cut_messages(session_id, head, EMPTY)
        assert await messages_of(store, session_id) == talk(3)

    async def test_nobody_takes_back_what_another_took(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Writers and takers at once: each message stands, or was given to exactly one."""
        taken: list[str] = []

        async def take_newest() -> None:
            while True:
                page = await store.get_messages(session_id, limit=2, order="desc")
                if not page.messages:  # cut between its count and its messages
                    continue
                last, *before = page.messages
                head = Head(position=page.total, last_id=last.id)
                to = Head(position=page.total - 1, last_id=before[0].id if before else "")
                try:
                    await store.cut_messages(session_id, head, to)
                except HeadMovedError:
                    await asyncio.sleep(0.001)
                else:
                    taken.append(last.id)
                    return

        await store.append_messages(session_id, talk(6))
        await asyncio.gather(
            *(store.append_messages(session_id, talk(1, f"n{n}-")) for n in range(6)),
            *(take_newest() for _ in range(6)),
        )
        left = await ids_of(store, session_id)
        added = [*(f"m{n}" for n in range(6)), *(f"n{n}-0" for n in range(6))]
        assert sorted([*left, *taken]) == sorted(added)
