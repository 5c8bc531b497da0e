"""Sessions that no workflow runs, in Redis with an archive in S3: what a wiped Redis leaves of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helix_temporal import Backends
from helix_temporal.errors import (
    ForeignDeploymentError,
    NotArchivedError,
    SessionNotFoundError,
    StoreUnavailableError,
    ThreadBehindStateError,
)
from helix_temporal.frameworks.item_log import ItemLog
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession, MergeChanges, SessionState, StateChange
from helix_temporal.models.store_calls import SessionQuery
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.sessions import threads
from tests._production import Production

FORMAT = "test/1"
CREATE = CreateSession(
    agent_type="clerk", user_id="u", title="t", metadata={"project": "p"}, parent_session_id="above"
)


class Logs(Production):
    """Sessions of a framework."""

    def log(self, session_id: str = "s", *, revives: bool = True, create: CreateSession = CREATE) -> ItemLog:
        """A framework's session in another process."""
        return ItemLog(self.store(), session_id, FORMAT, create, revives=revives)


@pytest.fixture
async def production(redis_url: str, redis_prefix: str, s3_prefix: str) -> AsyncIterator[Logs]:
    """Of this test's own."""
    async with Logs.opened(redis_url, redis_prefix, s3_prefix) as made:
        yield made


def items(count: int, first: int = 0) -> list[Any]:
    return [{"n": n} for n in range(first, first + count)]


async def archived(production: Logs, session_id: str = "s", **options: Any) -> None:
    """Ten items, archived, and Redis wiped."""
    await production.log(session_id, **options).append_items(items(10))
    await production.sweep()
    await production.wipe()


async def listed(store: SessionStore, **query: Any) -> list[str]:
    return [each.session_id for each in (await store.list_sessions(SessionQuery(**query))).sessions]


async def test_an_archived_conversation_is_read(production: Logs) -> None:
    """A runner that is given an empty one asks its model without context."""
    await archived(production)
    assert await production.log().read_items() == items(10)
    assert await production.log().read_items(3) == items(3, 7)


async def test_what_is_counted_and_taken_back_is_what_the_archive_has(production: Logs) -> None:
    """By the first program that comes to it."""
    await archived(production)
    assert await production.store().get_message_count("s") == 10
    await production.wipe()
    assert await production.log().take_newest() == {"n": 9}
    assert await production.log().read_items() == items(9)


async def test_a_conversation_goes_on_where_the_archive_ends(production: Logs) -> None:
    """Also for a program that wrote the session before the wipe."""
    log = production.log()
    await log.append_items(items(10))
    await production.sweep()
    await log.append_items(items(1, 10))
    await production.sweep()
    await production.wipe()
    await log.append_items(items(2, 11))
    assert await production.log().read_items() == items(13)


async def test_what_was_cleared_stays_cleared(production: Logs) -> None:
    """The text does not return with the next append, nor after another wipe."""
    await archived(production)
    await production.log().clear_items()
    assert await production.log().read_items() == []
    await production.log().append_items(items(1, 20))
    await production.sweep()
    await production.wipe()
    assert await production.log().read_items() == items(1, 20)


async def test_what_was_deleted_stays_deleted(production: Logs) -> None:
    """Its text is gone from the archive, and a later append begins anew."""
    await archived(production)
    assert await production.store().delete_session("s")
    tiered = production.backends().tiered
    assert tiered is not None
    kept = [each.key async for each in tiered.blobs.list(tiered.layout.thread_prefix("s"))]
    assert kept == [tiered.layout.manifest_key("s")]
    assert not await production.store().delete_session("s")
    await production.log().append_items(items(1))
    assert await production.log().read_items() == items(1)


async def test_a_delete_holds_after_a_wipe(production: Logs) -> None:
    """For those whose ids are never used twice: the archive knows what the lost row no longer does."""
    await production.log(revives=False).append_items(items(3))
    await production.sweep()
    assert await production.store().delete_session("s")
    await production.wipe()
    with pytest.raises(SessionNotFoundError, match="was deleted"):
        await production.log(revives=False).append_items(items(1))
    assert await production.log().read_items() == []
    await production.log(revives=True).append_items(items(1, 5))
    assert await production.log().read_items() == items(1, 5)


async def test_the_session_is_what_it_was(production: Logs) -> None:
    """Its row is made again by whoever comes to it first, so that lists find it."""
    await archived(production)
    assert await listed(production.store()) == []
    state = await production.store().load_state("s")
    assert state is not None
    assert {name: getattr(state, name) for name in ("agent_type", "user_id", "title", "metadata")} == {
        "agent_type": "clerk",
        "user_id": "u",
        "title": "t",
        "metadata": {"project": "p"},
    }
    assert await listed(production.store(), parent_session_id="above", metadata={"project": "p"}) == ["s"]


def counted(state: SessionState) -> StateChange:
    """One more append."""
    count = state.custom_state.get("appends", 0)
    assert isinstance(count, int)
    return StateChange(merge=MergeChanges(values={"appends": count + 1}))


async def test_a_fold_goes_on_from_what_was_folded(production: Logs) -> None:
    """A summary is one of all items, not of those after the wipe."""
    for number in range(3):
        await production.log().append_items(items(1, number), fold=counted)
    await production.sweep()
    await production.wipe()
    await production.log().append_items(items(1, 3), fold=counted)
    state = await production.store().load_state("s")
    assert state is not None
    assert state.custom_state == {"appends": 4}


async def test_a_change_without_items_is_kept_as_well(production: Logs) -> None:
    """By a merge, and by an append of nothing; also if the thread had gone cold."""
    await production.log().append_items(items(1))
    await production.sweep()
    await production.store().merge_custom_state("s", MergeChanges(values={"a": 1}))
    change = StateChange(merge=MergeChanges(values={"b": 2}), title="new")
    await production.store().append_messages("s", [], change=change)
    await production.sweep()
    await production.wipe()
    state = await production.store().load_state("s")
    assert state is not None
    assert (state.custom_state, state.title) == ({"a": 1, "b": 2}, "new")


async def test_a_fork_is_itself_after_a_wipe(production: Logs) -> None:
    """Not what its source was."""
    await production.log().append_items(items(4))
    await production.store().fork_session("s", "f", at_message=2)
    await production.sweep()
    await production.wipe()
    state = await production.store().load_state("f")
    assert state is not None
    assert state.forked_from is not None
    assert (state.session_id, state.user_id, state.forked_from.session_id) == ("f", "u", "s")
    assert await production.log("f").read_items() == items(2)


async def test_the_epoch_of_a_writer_is_kept(production: Logs) -> None:
    """One that was replaced before the wipe is refused after it."""
    store = production.store()
    await store.create_session("s", epoch=7)
    await store.append_messages("s", [Message(id="m", role="user", content="hi")], epoch=7)
    await production.sweep()
    await production.wipe()
    state = await production.store().load_state("s")
    assert state is not None
    with pytest.raises(Exception, match="epoch 7 has it, 6 is out"):
        await production.store().merge_custom_state("s", MergeChanges(values={"a": 1}), epoch=6)


async def test_a_session_that_never_was_is_none(production: Logs) -> None:
    """Reading, clearing or deleting makes none."""
    store = production.store()
    assert await store.load_state("s") is None
    assert (await store.get_messages("s")).total == 0
    assert not await store.delete_session("s")
    await production.log().clear_items()
    assert await production.log().take_newest() is None
    assert not await store.session_exists("s")


# -- another archive


@pytest.mark.parametrize("other", [{"s3_bucket": None}, {"s3_prefix": "elsewhere"}])
async def test_a_process_without_the_archive_is_refused(production: Logs, other: dict[str, Any]) -> None:
    """It would read nothing, and begin the conversation anew."""
    await production.log().append_items(items(10))
    await production.sweep()
    strange = production.backends(**other).sessions
    assert strange is not None
    for _ in range(2):
        with pytest.raises(ForeignDeploymentError, match="HELIX_S3_BUCKET"):
            await ItemLog(strange, "s", FORMAT, CREATE).read_items()
        with pytest.raises(ForeignDeploymentError):
            await ItemLog(strange, "s", FORMAT, CREATE).append_items(items(1, 10))
        with pytest.raises(ForeignDeploymentError):
            await production.backends(**other).threads.read_facts("s")
        with pytest.raises(ForeignDeploymentError):
            await production.backends(**other).check()
    assert await production.log().read_items() == items(10)


async def test_an_archive_that_was_moved_is_told_by_a_setting(production: Logs) -> None:
    """The refusal names its value; from then on processes with the old archive are refused."""
    await production.log().append_items(items(1))
    moved = {"s3_prefix": f"{production.settings.s3_prefix}-moved"}
    with pytest.raises(ForeignDeploymentError) as refused:
        await production.backends(**moved).threads.read_facts("s")
    known = (str(refused.value.facts["asking"]),)
    facts = await production.backends(**moved, also_known_as=known).threads.read_facts("s")
    assert facts.head.position == 1
    await production.backends(**moved).threads.read_facts("s")
    with pytest.raises(ForeignDeploymentError):
        await production.log().read_items()


async def test_an_archive_can_be_added(production: Logs) -> None:
    """To a store that had none."""
    without = production.backends(s3_bucket=None).sessions
    assert without is not None
    await ItemLog(without, "s", FORMAT, CREATE).append_items(items(3))
    assert await production.log().read_items() == items(3)
    await production.sweep()
    assert await production.log().read_items() == items(3)


# -- an archive that is required


async def test_what_is_acknowledged_is_archived_where_that_is_required(production: Logs) -> None:
    """Whether the process knows the session from before or not; nothing needs a sweep."""
    production.settings = production.settings.model_copy(update={"archive": "required"})
    log = production.log()
    for number in range(3):
        await log.append_items(items(1, number))
    await production.log().append_items(items(1, 3), fold=counted)
    await production.wipe()
    assert await production.log().read_items() == items(4)
    state = await production.store().load_state("s")
    assert state is not None
    assert state.custom_state == {"appends": 1}


async def test_an_append_that_is_not_archived_is_repeated(
    production: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages stand once, and are archived when it is acknowledged."""
    backends = production.backends(archive="required")
    store, blobs = backends.sessions, backends.blobs
    assert store is not None
    assert blobs is not None
    log, put, failures = ItemLog(store, "s", FORMAT, CREATE), blobs.put, 2
    await log.append_items(items(1))

    async def fail_twice(*arguments: Any, **named: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreUnavailableError("the archive is down")
        return await put(*arguments, **named)

    monkeypatch.setattr(blobs, "put", fail_twice)
    await log.append_items(items(2, 1))
    assert not failures
    await production.wipe()
    assert await production.log().read_items() == items(3)


async def test_an_append_that_is_never_archived_is_not_acknowledged(
    production: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so, and may be repeated."""
    backends = production.backends(archive="required")
    store, blobs = backends.sessions, backends.blobs
    assert store is not None
    message = Message(id="m", role="user", content="hi")
    await store.create_session("s")
    await store.append_messages("s", [message])

    async def fail(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the archive is down")

    monkeypatch.setattr(blobs, "put", fail)
    monkeypatch.setattr(threads, "ARCHIVE_SECONDS", 1.0)
    with pytest.raises(NotArchivedError, match="append them again"):
        await store.append_messages("s", [message.model_copy(update={"id": "n"})])


async def test_a_change_that_comes_between_look_and_append_is_kept(
    production: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the state, by another process: both stand, since neither asked for a version."""
    backends, other = production.backends(), production.store()
    tiered = backends.tiered
    assert tiered is not None
    await backends.sessions.create_session("s")
    await backends.sessions.append_messages("s", [Message(id="m0", role="user", content="hi")])
    append, between = tiered.append, [MergeChanges(values={"k": 1})]

    async def append_later(*args: Any, **more: Any) -> Any:
        if between:
            await other.merge_custom_state("s", between.pop())
        return await append(*args, **more)

    monkeypatch.setattr(tiered, "append", append_later)
    message = Message(id="m1", role="user", content="hi")
    await backends.sessions.append_messages("s", [message], change=StateChange(title="t"))
    state = await other.load_state("s")
    assert state is not None
    assert (state.title, state.custom_state) == ("t", {"k": 1})
    assert await other.get_message_count("s") == 2


async def make_source_cut_before_fork(
    backends: Backends, other: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of three messages; another process takes its last one back just before it is forked."""
    tiered = backends.tiered
    assert tiered is not None
    await backends.sessions.create_session("s")
    for number in range(3):
        message = Message(id=f"m{number}", role="user", content="hi")
        await backends.sessions.append_messages("s", [message])
    fork, cuts = tiered.fork, [1]

    async def fork_later(*args: Any, **more: Any) -> Any:
        if cuts:
            await other.cut_messages("s", cuts.pop())
        return await fork(*args, **more)

    monkeypatch.setattr(tiered, "fork", fork_later)


@pytest.mark.parametrize("operation", [None, "op"])
async def test_a_fork_of_a_session_that_is_cut_meanwhile_has_what_is_left(
    production: Logs, monkeypatch: pytest.MonkeyPatch, operation: str | None
) -> None:
    """It was an error of the new session, which stood there empty; a repeat called that the fork."""
    backends, other = production.backends(), production.store()
    await make_source_cut_before_fork(backends, other, monkeypatch)
    for _ in range(2):
        forked = await backends.sessions.fork_session("s", "f", operation_id=operation)
        assert forked.head.position == 2
        assert [each.id for each in (await other.get_messages("f")).messages] == ["m0", "m1"]


async def test_a_fork_that_was_overtaken_leaves_the_other_one_alone(
    production: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes make the same fork; the one that found the source cut does not take the other's away."""
    backends, other = production.backends(), production.store()
    await make_source_cut_before_fork(backends, other, monkeypatch)
    carry_out = threads.Threads.carry_out_pending

    async def carry_out_late(self: threads.Threads, session_id: str) -> None:
        try:
            await carry_out(self, session_id)
        except ThreadBehindStateError:
            monkeypatch.undo()
            await other.delete_session("f")
            await other.fork_session("s", "f")
            await other.append_messages("f", [Message(id="own", role="user", content="hi")])
            raise

    monkeypatch.setattr(threads.Threads, "carry_out_pending", carry_out_late)
    assert (await backends.sessions.fork_session("s", "f")).head.position == 2
    assert [each.id for each in (await other.get_messages("f")).messages] == ["m0", "m1", "own"]
