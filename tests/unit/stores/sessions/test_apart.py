"""State in one store, thread in another: no unit holds both, so one decides and the other follows."""

from typing import Any

import pytest

from helix_temporal.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StaleStateError,
    ThreadBehindStateError,
)
from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message, encode_message
from helix_temporal.models.states import SessionState, StateChange
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.memory import MemorySessions
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread
from helix_temporal.stores.sessions import RowSessions
from tests.unit.stores.sessions._stores import Apart


@pytest.fixture
def place() -> Apart:
    return Apart()


def talk(*ids: str) -> list[Message]:
    return [
        Message(id=each, role="assistant" if at % 2 else "user", content=each) for at, each in enumerate(ids)
    ]


async def ids_of(store: RowSessions, session_id: str) -> list[str]:
    return [each.id for each in (await store.get_messages(session_id, limit=200)).messages]


async def a_session(place: Apart, *ids: str) -> SessionState:
    await place.store.create_session("s")
    await place.store.append_messages("s", talk(*ids))
    return await loaded(place)


async def loaded(place: Apart) -> SessionState:
    state = await place.store.load_state("s")
    assert state is not None
    return state


async def committed(place: Apart, step_id: str, *ids: str) -> str:
    await place.store.append_messages("s", talk(*ids))
    result, _ = await place.store.save_state_and_promote_staging(
        "s", await loaded(place), StepCommit(step_id=step_id)
    )
    return result.checkpoint_id


class DiedError(Exception):
    """The process died here."""


def dies(place: Apart, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The next call of a method of the thread store is never made."""

    async def died(*_: Any, **__: Any) -> Any:
        raise DiedError("the process died")

    monkeypatch.setattr(place.threads, name, died)


class TestACommitWithMessages:
    async def test_puts_the_messages_first(self, place: Apart) -> None:
        """A state is never ahead of its messages: it names a head that is there."""
        await a_session(place, "a", "b")
        header = await place.hot.read_header("s")
        assert header is not None
        messages = [encode_message(each) for each in talk("c", "d")]
        step = StepAppend("s", header.epoch, header.head, (messages[0],), messages[1], commits=True)
        result, appended = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), append=step
        )
        assert appended is not None
        assert result.head == appended.head == Head(position=4, last_id="d")
        assert (await loaded(place)).head == result.head
        again, repeated = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), append=step
        )
        assert again == result
        assert repeated is not None
        assert repeated.messages == appended.messages
        assert await ids_of(place.store, "s") == ["a", "b", "c", "d"]

    async def test_is_completed_by_its_repeat(self, place: Apart) -> None:
        """The process died between the two stores."""
        await a_session(place, "a", "b")
        header = await place.hot.read_header("s")
        assert header is not None
        messages = [encode_message(each) for each in talk("c", "d")]
        step = StepAppend("s", header.epoch, header.head, (messages[0],), messages[1], commits=True)

        def die(_: object) -> None:
            raise DiedError("the process died")

        place.rows.before_commit = die
        with pytest.raises(DiedError):
            await place.store.save_state_and_promote_staging(
                "s", StateChange(steps=1), StepCommit(step_id="t"), append=step
            )
        place.rows.before_commit = lambda _: None
        result, _ = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), append=step
        )
        assert result.head == Head(position=4, last_id="d")
        assert await ids_of(place.store, "s") == ["a", "b", "c", "d"]

    async def test_given_as_messages_is_completed_by_its_repeat(self, place: Apart) -> None:
        """The repeat finds the messages where the first one left them, though others follow."""
        await a_session(place, "a", "b")

        def die(_: object) -> None:
            raise DiedError("the process died")

        place.rows.before_commit = die
        with pytest.raises(DiedError):
            await place.store.save_state_and_promote_staging(
                "s", StateChange(steps=1), StepCommit(step_id="t"), messages=talk("c", "d")
            )
        place.rows.before_commit = lambda _: None
        await place.store.append_messages("s", talk("e", "f"))
        result, _ = await place.store.save_state_and_promote_staging(
            "s", StateChange(steps=1), StepCommit(step_id="t"), messages=talk("c", "d")
        )
        assert result.head == Head(position=4, last_id="d")
        assert await ids_of(place.store, "s") == ["a", "b", "c", "d", "e", "f"]

    async def test_that_is_stale_appends_nothing(self, place: Apart) -> None:
        """What will be refused is refused before anything is written anywhere."""
        state = await a_session(place, "a", "b")
        await place.store.increment_step_count("s")
        header = await place.hot.read_header("s")
        assert header is not None
        step = StepAppend("s", header.epoch, header.head, (encode_message(talk("c")[0]),), commits=True)
        with pytest.raises(StaleStateError):
            await place.store.save_state_and_promote_staging("s", state, StepCommit(step_id="t"), append=step)
        assert await ids_of(place.store, "s") == ["a", "b"]

    async def test_without_messages_names_where_the_thread_stands(self, place: Apart) -> None:
        """Checkpoints can be gone back to, though nobody told the state of the messages."""
        await a_session(place)
        checkpoint = await place.store.get_checkpoint("s", await committed(place, "one", "a", "b"))
        assert checkpoint is not None
        assert checkpoint.head == checkpoint.state.head == Head(position=2, last_id="b")


class TestARestore:
    async def test_cuts_the_thread_too(self, place: Apart) -> None:
        """State and messages are those of then, in both stores."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        restored = await place.store.restore_checkpoint("s", first)
        assert restored.head == Head(position=2, last_id="b")
        assert await ids_of(place.store, "s") == ["a", "b"]

    @pytest.mark.parametrize("operation", ["op", None])
    async def test_that_died_half_way_is_finished_by_whoever_comes(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch, operation: str | None
    ) -> None:
        """The state says where the thread ends; no message that is cut is ever shown or built upon."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        with monkeypatch.context() as patched:
            dies(place, patched, "open")
            with pytest.raises(DiedError):
                await place.store.restore_checkpoint("s", first, operation_id=operation)
        assert (await loaded(place)).head.position == 2
        result = await place.store.append_messages("s", talk("e"))
        assert result.first_index == 2
        assert await ids_of(place.store, "s") == ["a", "b", "e"]

    async def test_that_died_half_way_is_finished_by_its_repeat(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the first answer, and one new version."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        with monkeypatch.context() as patched:
            dies(place, patched, "open")
            with pytest.raises(DiedError):
                await place.store.restore_checkpoint("s", first, operation_id="op")
        restored = await place.store.restore_checkpoint("s", first, operation_id="op")
        assert restored == await loaded(place)
        header = await place.hot.read_header("s")
        assert header is not None
        assert header.head == Head(position=2, last_id="b")

    async def test_that_meets_a_thread_cut_since_its_look_is_told_of_the_version(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of two that go back the later one has lost to the other, not its messages."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        second = await committed(place, "two", "c", "d")
        version, facts = (await loaded(place)).version, place.threads.read_facts

        async def after_another(thread_id: str) -> Any:
            monkeypatch.undo()
            await place.another().restore_checkpoint("s", first)
            return await facts(thread_id)

        monkeypatch.setattr(place.threads, "read_facts", after_another)
        with pytest.raises(StaleStateError):
            await place.store.restore_checkpoint("s", second, expected_version=version)

    async def test_that_is_repeated_late_cuts_nothing_new(self, place: Apart) -> None:
        """Messages that came after it are not its business."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        await place.store.restore_checkpoint("s", first, operation_id="op")
        await place.store.append_messages("s", talk("e"))
        await place.store.restore_checkpoint("s", first, operation_id="op")
        assert await ids_of(place.store, "s") == ["a", "b", "e"]

    async def test_yields_to_whoever_opened_the_thread_since(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A workflow that opened it at the state's head goes on; the order is void."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        with monkeypatch.context() as patched:
            dies(place, patched, "open")
            with pytest.raises(DiedError):
                await place.store.restore_checkpoint("s", first)
        head = (await loaded(place)).head
        epoch = int(place.clock() * 1_000_000) + 10**9
        opened = await place.threads.open(OpenThread("s", epoch, "workflow", rewind_to=head))
        await place.threads.append(
            StepAppend("s", epoch, opened.header.head, (encode_message(talk("w")[0]),), commits=True)
        )
        assert await ids_of(place.store, "s") == ["a", "b", "w"]

    async def test_leaves_the_thread_to_the_writer_that_has_it_open(self, place: Apart) -> None:
        """A new epoch would shut out the very workflow that asks."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await committed(place, "two", "c", "d")
        header = await place.hot.read_header("s")
        assert header is not None
        await place.store.restore_checkpoint("s", first, epoch=header.epoch)
        assert await place.hot.read_header("s") == header

    async def test_to_messages_that_are_gone_is_refused(self, place: Apart) -> None:
        """A store that lost them must not make the state believe in them."""
        await a_session(place)
        first = await committed(place, "one", "a", "b")
        await place.store.truncate_messages("s", 0)
        before = await loaded(place)
        with pytest.raises(ThreadBehindStateError):
            await place.store.restore_checkpoint("s", first)
        assert await loaded(place) == before


class TestATruncation:
    async def test_that_died_half_way_is_finished_by_its_repeat(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Once, with the first answer."""
        await a_session(place, "a", "b", "c", "d")
        with monkeypatch.context() as patched:
            dies(place, patched, "open")
            with pytest.raises(DiedError):
                await place.store.truncate_messages("s", 2, operation_id="op")
        result = await place.store.truncate_messages("s", 2, operation_id="op")
        assert result.new_version == 2 == (await loaded(place)).version
        assert await ids_of(place.store, "s") == ["a", "b"]

    async def test_at_the_end_cuts_nothing(self, place: Apart) -> None:
        """It is a new version of the state and no new epoch of the thread."""
        await a_session(place, "a", "b")
        before = await place.hot.read_header("s")
        await place.store.truncate_messages("s", 2)
        assert await place.hot.read_header("s") == before


class TestAFork:
    async def test_that_died_half_way_has_its_messages_when_they_are_asked_for(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody ever sees a fork without its past."""
        await a_session(place, "a", "b")
        with monkeypatch.context() as patched:
            dies(place, patched, "fork")
            with pytest.raises(DiedError):
                await place.store.fork_session("s", "fork")
        assert await ids_of(place.store, "fork") == ["a", "b"]

    async def test_that_died_half_way_is_finished_by_its_repeat(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Up to where the source was at first, however long it has become since."""
        await a_session(place, "a", "b")
        with monkeypatch.context() as patched:
            dies(place, patched, "fork")
            with pytest.raises(DiedError):
                await place.store.fork_session("s", "fork")
        await place.store.append_messages("s", talk("c", "d"))
        fork = await place.store.fork_session("s", "fork")
        assert fork.message_count == 2
        assert await ids_of(place.store, "fork") == ["a", "b"]

    async def test_under_the_id_of_a_deleted_session_begins_anew(self, place: Apart) -> None:
        """The thread of the deleted one is no obstacle, in the same millisecond neither."""
        await a_session(place, "a", "b")
        await place.store.create_session("fork")
        await place.store.append_messages("fork", talk("x", "y"))
        await place.store.delete_session("fork")
        place.clock.at += 0.001
        await place.store.fork_session("s", "fork")
        assert await ids_of(place.store, "fork") == ["a", "b"]

    async def test_of_a_session_without_messages_has_none(self, place: Apart) -> None:
        """There is no thread to fork."""
        await a_session(place)
        fork = await place.store.fork_session("s", "fork")
        assert fork.head == EMPTY
        assert await ids_of(place.store, "fork") == []


class TestADeletion:
    async def test_that_died_half_way_is_finished_by_its_repeat(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread goes too, though the session is gone already."""
        await a_session(place, "a", "b")
        with monkeypatch.context() as patched:
            dies(place, patched, "delete")
            with pytest.raises(DiedError):
                await place.store.delete_session("s")
        assert not await place.store.session_exists("s")
        assert not await place.store.delete_session("s")
        header = await place.hot.read_header("s")
        assert header is not None
        assert header.deleted

    async def test_that_died_half_way_leaves_nothing_to_a_new_session(
        self, place: Apart, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A session under the same id must not begin with a stranger's messages."""
        await a_session(place, "a", "b")
        with monkeypatch.context() as patched:
            dies(place, patched, "delete")
            with pytest.raises(DiedError):
                await place.store.delete_session("s")
        place.clock.at += 0.001
        await place.store.create_session("s")
        assert await ids_of(place.store, "s") == []
        assert (await place.store.append_messages("s", talk("c"))).first_index == 0

    async def test_spares_the_thread_of_a_session_that_began_since(self, place: Apart) -> None:
        """A late attempt must not take what is no longer the deleted session's."""
        await a_session(place, "a", "b")
        await place.store.delete_session("s")
        place.clock.at += 1
        await place.store.create_session("s")
        await place.store.append_messages("s", talk("c"))
        await place.store.threads.delete("s", 1)
        assert await ids_of(place.store, "s") == ["c"]


async def test_a_store_without_threads_says_so(place: Apart) -> None:
    """Rather than showing an empty conversation."""
    store = RowSessions(place.rows)
    await store.create_session("s")
    with pytest.raises(InvalidRequestError):
        await store.append_messages("s", talk("a"))
    with pytest.raises(InvalidRequestError):
        await store.get_messages("s")


async def test_an_append_that_died_before_its_operation_was_kept_is_found_by_its_messages(
    place: Apart,
) -> None:
    """The repeat gets the answer that the first attempt would have got."""
    await a_session(place, "a", "b")

    def die(_: object) -> None:
        raise DiedError("the process died")

    place.rows.before_commit = die
    with pytest.raises(DiedError):
        await place.store.append_messages("s", talk("c", "d"), operation_id="op")
    place.rows.before_commit = lambda _: None
    result = await place.store.append_messages("s", talk("c", "d"), operation_id="op")
    assert (result.first_index, result.head) == (2, Head(position=4, last_id="d"))
    assert await ids_of(place.store, "s") == ["a", "b", "c", "d"]


async def test_a_store_that_keeps_no_threads_cannot_have_them_together() -> None:
    """Told at the start, not by the first commit."""
    with pytest.raises(InvalidConfigError):
        RowSessions(MemorySessions(), together=True)
