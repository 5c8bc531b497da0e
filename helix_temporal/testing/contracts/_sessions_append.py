"""What an append of messages makes of the session itself: when it was changed, and changes of its state."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    IdempotencyConflictError,
    SessionNotFoundError,
    StaleStateError,
    StateBehindThreadError,
    TooLargeError,
)
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, SessionStatus, StateChange
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    ids_of,
    image,
    loaded,
    messages_of,
    said,
    talk,
)

CHANGE = StateChange(
    title="Where is my order?",
    metadata=MergeChanges(values={"read": False}, removes=("draft", "gone")),
    merge=MergeChanges(values={"total": 12}, appends={"log": ["asked"]}),
    status=SessionStatus.PAUSED,
    steps=2,
)
"""A bit of everything."""


class AppendContract(SessionFixtures):
    """An append lets the session count as changed, and may change its state in the same call."""

    async def test_an_append_lets_the_session_rise_in_lists(self, store: SessionStore) -> None:
        """A chat that is written by appends alone is found where its user used it last."""
        hers = SessionQuery(user_id="ann")
        for name in ("a", "b", "c"):
            await store.create_session(name, CreateSession(user_id="ann"))
        for name in ("b", "a", "b"):
            await wait_past(store, *"abc")
            await store.append_messages(name, [said()])
            page = await store.list_sessions(hers)
            assert page.sessions[0].session_id == name
        page = await store.list_sessions(hers)
        assert [each.session_id for each in page.sessions] == ["b", "a", "c"]
        assert page.sessions[0].updated_at == (await loaded(store, "b")).updated_at

    @pytest.mark.parametrize("named", [{}, {"operation_id": "o"}, {"epoch": 7}, {"expected_version": 1}])
    async def test_nothing_but_the_time_is_changed(
        self, store: SessionStore, state: SessionState, session_id: str, named: dict[str, Any]
    ) -> None:
        """No new version: nobody's copy of the state is stale because somebody said something."""
        await wait_past(store, session_id)
        begun = await store.now()
        await store.append_messages(session_id, talk(2), **named)
        found = await loaded(store, session_id)
        assert begun <= found.updated_at <= await store.now()
        assert found == state.model_copy(update={"updated_at": found.updated_at})
        await store.save_state(session_id, state)

    async def test_an_append_may_leave_the_time(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """For imports, and for large states that have many small appends."""
        await wait_past(store, session_id)
        for at in range(3):
            await store.append_messages(session_id, talk(2, f"{at}-"), touch=False)
        assert await loaded(store, session_id) == state

    async def test_an_append_of_what_is_there_changes_nothing(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Neither the state nor its time, whoever repeats it; an empty one adds nothing either."""
        await store.append_messages(session_id, talk(3))
        before = await image(store, session_id)
        await wait_past(store, session_id)
        for each in (store, next(crowd)):
            await each.append_messages(session_id, talk(3))
            await each.append_messages(session_id, [])
        assert await image(store, session_id) == before

    async def test_a_session_that_is_not_there_gets_no_messages(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Nor does one that was deleted after the last append."""
        await store.append_messages(session_id, talk(3))
        await store.delete_session(session_id)
        for change in (None, CHANGE):
            with pytest.raises(SessionNotFoundError):
                await store.append_messages(session_id, talk(3, "n"), change=change)
        assert await store.load_state(session_id) is None

    async def test_a_change_of_the_state_comes_with_the_messages(
        self, store: SessionStore, session_id: str
    ) -> None:
        """Title, metadata, custom state and status in one call, and one new version."""
        options = CreateSession(
            user_id="ann", metadata={"draft": True, "model": "x"}, custom_state={"n": 1, "log": []}
        )
        before = await store.create_session(session_id, options)
        result = await store.append_messages(session_id, talk(2), change=CHANGE)
        assert (result.first_index, result.count, result.new_version) == (0, 2, 2)
        assert result.warnings == ("metadata: gone: was not there",)
        found = await loaded(store, session_id)
        changes = {
            "title": "Where is my order?",
            "metadata": {"model": "x", "read": False},
            "custom_state": {"n": 1, "total": 12, "log": ["asked"]},
            "status": SessionStatus.PAUSED,
            "step_count": 2,
            "version": 2,
            "updated_at": found.updated_at,
        }
        assert found == before.model_copy(update=changes)
        assert await messages_of(store, session_id) == talk(2)
        (shown,) = (await store.list_sessions(SessionQuery(user_id="ann"))).sessions
        assert (shown.title, shown.metadata, shown.version) == (found.title, found.metadata, 2)
        taken = await store.append_messages(session_id, [], change=StateChange(title=""))
        assert (taken.count, taken.first_index, taken.new_version) == (0, 2, 3)
        assert (await loaded(store, session_id)).title == ""

    async def test_a_repeated_operation_changes_the_state_once(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """It gets the first answer, though others have gone on since."""
        first = await store.append_messages(session_id, talk(2), change=CHANGE, operation_id="o")
        await store.append_messages(session_id, [said()], change=StateChange(title="later"))
        before = await image(store, session_id)
        for each in (store, next(crowd)):
            again = await each.append_messages(session_id, talk(2), change=CHANGE, operation_id="o")
            assert again == first
        assert await image(store, session_id) == before
        with pytest.raises(IdempotencyConflictError):
            await store.append_messages(
                session_id, talk(2), change=StateChange(title="other"), operation_id="o"
            )
        with pytest.raises(IdempotencyConflictError):
            await store.append_messages(session_id, talk(2), operation_id="o")

    async def test_a_change_counts_though_the_messages_are_there(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A caller that died between two calls ends what it began."""
        await store.append_messages(session_id, talk(2))
        result = await store.append_messages(session_id, talk(2), change=StateChange(title="t"))
        assert (result.first_index, result.new_version) == (0, 2)
        assert (await loaded(store, session_id)).title == "t"
        assert await ids_of(store, session_id) == ["m0", "m1"]

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"expected_version": 2}, StaleStateError),
            ({"change": StateChange(title="t"), "expected_version": 2}, StaleStateError),
            ({"change": StateChange(follows=1)}, StateBehindThreadError),
            ({"change": StateChange(metadata=MergeChanges(values={"a": "x" * 65_536}))}, TooLargeError),
            ({"change": CHANGE, "epoch": 3}, FencedError),
        ],
    )
    async def test_a_refused_change_appends_nothing(
        self,
        store: SessionStore,
        state: SessionState,
        session_id: str,
        given: dict[str, Any],
        error: type[Exception],
    ) -> None:
        """The other way round as well: messages that are refused change nothing."""
        await store.append_messages(session_id, talk(2), epoch=4)
        before = await image(store, session_id)
        with pytest.raises(error):
            await store.append_messages(session_id, talk(2, "n"), **given)
        assert await image(store, session_id) == before
        with pytest.raises(IdempotencyConflictError):
            await store.append_messages(session_id, [said("other", message_id="m1")], change=CHANGE)
        assert await image(store, session_id) == before

    @pytest.mark.parametrize("change", [None, StateChange(title="t")])
    @pytest.mark.parametrize("named", [{}, {"operation_id": "o"}, {"epoch": 7}])
    async def test_an_append_behind_a_message_is_made_there_alone(
        self,
        crowd: Crowd,
        state: SessionState,
        session_id: str,
        named: dict[str, Any],
        change: StateChange | None,
    ) -> None:
        """Of many behind the same one, one succeeds; its repeat does, and nothing of the others stands."""
        store = next(crowd)
        head = (await store.append_messages(session_id, talk(2))).head

        async def append(number: int) -> int | None:
            own: dict[str, Any] = {
                **named,
                **({"operation_id": f"o{number}"} if "operation_id" in named else {}),
            }
            try:
                message = talk(1, f"n{number}-")
                await next(crowd).append_messages(session_id, message, head=head, change=change, **own)
            except HeadMovedError:
                return None
            return number

        done = [each for each in await asyncio.gather(*map(append, range(8))) if each is not None]
        assert len(done) == 1
        assert await append(done[0]) == done[0]
        assert await ids_of(store, session_id) == ["m0", "m1", f"n{done[0]}-0"]

    @pytest.mark.parametrize("last", ["m0", "other", ""])
    async def test_a_place_is_told_by_its_last_message(
        self, store: SessionStore, state: SessionState, session_id: str, last: str
    ) -> None:
        """A number alone is none: the messages may be others. What stands elsewhere is not found there."""
        await store.append_messages(session_id, talk(2))
        before = await image(store, session_id)
        head = Head(position=2, last_id=last)
        for messages in (talk(1, "n"), talk(1), []):
            with pytest.raises(HeadMovedError):
                await store.append_messages(session_id, messages, head=head, change=CHANGE)
        assert await image(store, session_id) == before

    async def test_a_summary_may_be_folded_by_versions(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Read, fold and append at the version that was read: no fold is lost, and none counts twice."""

        async def fold(each: SessionStore, number: int) -> None:
            while True:
                seen = await loaded(each, session_id)
                count = seen.custom_state.get("count", 0)
                assert isinstance(count, int)
                change = StateChange(merge=MergeChanges(values={"count": count + 1}))
                try:
                    await each.append_messages(
                        session_id, talk(1, f"{number}-"), change=change, expected_version=seen.version
                    )
                except StaleStateError:
                    await asyncio.sleep(0)
                else:
                    return

        await asyncio.gather(*(fold(next(crowd), number) for number in range(8)))
        found = await loaded(store, session_id)
        assert (found.custom_state, found.version) == ({"count": 8}, 9)
        assert sorted(await ids_of(store, session_id)) == [f"{number}-0" for number in range(8)]

    async def test_changes_of_many_all_count(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Each with its messages, in the order of the messages where both are one unit."""

        async def add(each: SessionStore, number: int) -> None:
            change = StateChange(merge=MergeChanges(appends={"log": [f"{number:02}-0"]}))
            await each.append_messages(session_id, talk(1, f"{number:02}-"), change=change)

        await asyncio.gather(*(add(next(crowd), number) for number in range(MANY)))
        found, ids = await loaded(store, session_id), await ids_of(store, session_id)
        log = found.custom_state["log"]
        assert isinstance(log, list)
        assert (found.version, sorted(map(str, log))) == (1 + MANY, sorted(ids))
        assert len(ids) == MANY


async def wait_past(store: SessionStore, *names: str) -> None:
    """Until the store's clock is beyond the last change of all of these."""
    last = max([(await loaded(store, name)).updated_at for name in names])
    while await store.now() <= last:
        pass
