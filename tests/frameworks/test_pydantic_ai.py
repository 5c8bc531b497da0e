"""`HelixConversationStore` under pydantic-ai, on every store, and beside the one that pydantic-ai brings."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, UserError
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from helix_temporal.errors import (
    InvalidIdError,
    InvalidRequestError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.entry_tree import EntryNotFoundError
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory import MemorySessions, MemoryThreads
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from tests._production import Production
from tests.docs._pages import ROOT, titled
from tests.frameworks._examples import check_example
from tests.frameworks._pydantic_conversations import (
    Twins,
    Watched,
    ag_ui_body,
    asked,
    begin,
    entry,
    extend,
    load,
    post,
    said,
    succeeds,
    texts,
    turns,
    vercel_body,
)
from tests.frameworks.conftest import StoreOpener


@pytest.fixture
async def watched(store: SessionStore) -> Watched:
    """The session store below."""
    return Watched(store)


@pytest.fixture
async def conversations(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> HelixConversationStore:
    """The store under test."""
    monkeypatch.setattr("helix_temporal.frameworks.item_log.retry_pause", lambda *_, **__: 0)
    return over(watched)


def over(store: Any) -> HelixConversationStore:
    """Another one over the same sessions, which remembers nothing."""
    return HelixConversationStore(cast("SessionStore", store))


# ---- agents


def look() -> str:
    """Looks."""
    return "seen"


async def test_a_conversation_goes_on_in_another_process(open_store: StoreOpener) -> None:
    """With its messages, which are equal to the run's, its calls, its results, and what it has used."""
    agent = Agent(TestModel(), tools=[look])
    async with open_store() as one:
        first = await agent.run("look", conversation=Conversation(conversation_id="c"))
        await over(one).save(first)
    async with open_store() as two:
        store = over(two)
        conversation = await load(store, "c")
        assert conversation.messages == first.all_messages()
        assert conversation.usage == first.usage
        second = await agent.run("again", conversation=conversation)
        entries = await store.save(second)
        assert [each.message for each in entries] == second.new_messages()
    async with open_store() as three:
        assert (await load(over(three), "c")).messages == second.all_messages()


async def test_a_run_that_waits_for_people_is_resumed_in_another_process(open_store: StoreOpener) -> None:
    """The requests are in the record, since the messages do not tell which kind of answer a call needs."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(
            parts=[TextPart(str(returned[0].content)) if returned else ToolCallPart("remove", {"name": "x"})]
        )

    def remove(name: str) -> str:
        return f"removed {name}"

    agent: Any = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])
    agent.tool_plain(remove, requires_approval=True)
    async with open_store() as one:
        paused = await agent.run("remove x", conversation=Conversation(conversation_id="c"))
        await over(one).save(paused)
    async with open_store() as two:
        store = over(two)
        conversation = await load(store, "c")
        requests = conversation.deferred_tool_requests
        assert requests == paused.output
        assert requests is not None
        results = requests.build_results(approve_all=True)
        ended = await agent.run(conversation=conversation, deferred_tool_results=results)
        await store.save(ended)
        assert ended.output == "removed x"
        assert (await load(store, "c")).deferred_tool_requests is None


# ---- save and load


async def test_a_save_stores_what_is_new(conversations: HelixConversationStore) -> None:
    """Each message once, with an id that stays, and nothing where nothing is new."""
    conversation = await begin(conversations, "c", 2)
    entries = await extend(conversations, conversation, "more")
    assert texts(entries) == ["more"]
    assert await conversations.save(conversation) == []
    stored = await conversations.load_entries("c")
    assert stored is not None
    assert texts(stored) == ["0", "0", "1", "1", "more"]
    assert stored[-1] == entries[0]
    assert [each.parent_id for each in stored] == [None, *(each.id for each in stored[:-1])]


async def test_a_conversation_that_nobody_saved_is_none(conversations: HelixConversationStore) -> None:
    """Nor has it entries, nor is it listed."""
    assert await conversations.load("c") is None
    assert await conversations.load_entries("c") is None
    assert await conversations.list_conversations() == []
    assert await conversations.read_history(None) == []


async def test_a_conversation_without_messages_is_kept(conversations: HelixConversationStore) -> None:
    """And goes on."""
    conversation = await begin(conversations, "c", 0)
    assert (await load(over(conversations._store), "c")).messages == []
    await extend(conversations, conversation, "a")
    assert texts((await load(conversations, "c")).messages) == ["a"]


async def test_a_window_reads_the_tail_alone(conversations: HelixConversationStore, watched: Watched) -> None:
    """However long the conversation is; and what is saved from it goes behind all of it."""
    await begin(conversations, "c", 400)
    fresh = over(watched)
    watched.rows, watched.calls = 0, []
    window = await load(fresh, "c", limit=3)
    assert texts(window.messages) == ["398", "399", "399"]
    assert (watched.rows, watched.calls) == (3, ["load_state", "get_messages"])
    await extend(fresh, window, "more")
    whole = await load(conversations, "c")
    assert len(whole.messages) == 801
    assert texts(whole.messages[-2:]) == ["399", "more"]


async def test_a_window_over_a_fork_reads_the_tails_alone(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """A row says where the one before it lies."""
    source = await begin(conversations, "a", 300)
    await extend(conversations, await conversations.fork("a", at=402, new_conversation_id="b"), "b1")
    await extend(conversations, source, "a1")
    fresh = over(watched)
    watched.rows, watched.calls = 0, []
    assert texts((await load(fresh, "b", limit=3)).messages) == ["200", "200", "b1"]
    assert (watched.rows, watched.calls) == (3, ["load_state", "get_messages", "get_messages"])


async def test_a_tail_of_nothing_is_read_without_a_look(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """A limit of 0 wants the record alone."""
    await begin(conversations, "c")
    watched.rows = 0
    assert (await load(conversations, "c", limit=0)).messages == []
    assert watched.rows == 0


@pytest.mark.parametrize("variables", ["redis and s3"], indirect=True)
async def test_a_tail_is_read_from_the_archive(open_store: StoreOpener) -> None:
    """Where the thread has left Redis; nor does a read bring it back, and a write does."""
    async with open_store() as store:
        conversations, session_id = over(store), "pydantic-ai/c"
        await begin(conversations, "c", 300)
        threads = cast("Any", store).threads.store
        facts = await threads.read_facts(session_id)
        await threads.flush(FlushThread(session_id, facts.epoch))
        await threads.evict(session_id, facts.epoch)
        assert not (await threads.read_facts(session_id)).hot
    async with open_store() as store:
        fresh = over(store)
        window = await load(fresh, "c", limit=2)
        assert texts(window.messages) == ["299", "299"]
        await extend(fresh, window, "more")
        assert texts((await load(over(store), "c", limit=2)).messages) == ["299", "more"]


async def test_messages_come_back_as_they_were(conversations: HelixConversationStore) -> None:
    """NUL bytes included."""
    odd: list[ModelMessage] = [asked("\x00 é \n"), said("\x00")]
    await conversations.save(Conversation(conversation_id="c", messages=odd))
    assert (await load(over(conversations._store), "c")).messages == odd


async def test_text_that_is_no_unicode_is_refused_without_being_shown(
    conversations: HelixConversationStore,
) -> None:
    """Pydantic could not read it back."""
    with pytest.raises(InvalidRequestError, match="is no JSON") as error:
        await conversations.save(Conversation(conversation_id="c", messages=[asked("secret \ud800")]))
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None
    assert await conversations.load("c") is None


@pytest.mark.parametrize(
    "response",
    [
        ModelResponse(parts=[TextPart("said")], finish_reason=cast("Any", "weird")),
        ModelResponse(parts=[TextPart("said")], model_name=cast("Any", 5)),
        ModelResponse(parts=[ToolCallPart("tool", {}, tool_call_id=cast("Any", 5))]),
    ],
)
async def test_a_message_that_could_not_be_read_back_is_refused(
    conversations: HelixConversationStore, response: ModelResponse
) -> None:
    """The conversation stands as it was."""
    conversation = await begin(conversations, "c")
    saved = list(conversation.messages)
    conversation.messages = [*saved, response]
    with pytest.raises(InvalidRequestError, match="read back") as refused:
        await conversations.save(conversation)
    assert "said" not in str(refused.value)
    assert (await load(conversations, "c")).messages == saved


async def test_a_record_that_could_not_be_read_back_is_refused(conversations: HelixConversationStore) -> None:
    """A scope is text."""
    with pytest.raises(InvalidRequestError, match=r"read back.*scope"):
        await begin(conversations, "c", scope=7)
    assert await conversations.load("c") is None


async def test_a_record_of_another_version_is_left_out_of_lists_and_deleted(
    conversations: HelixConversationStore,
) -> None:
    """It is named where it is loaded."""
    for name in ("c", "d"):
        await begin(conversations, name)
    state = await conversations._store.load_state("pydantic-ai/c")
    assert state is not None
    custom = {**state.custom_state, "record": '{"conversation_id": "c", "head_id": 7, "format_version": 2}'}
    await conversations._store.save_state(
        "pydantic-ai/c", state.model_copy(update={"custom_state": custom}), expected_version=state.version
    )
    with pytest.raises(StoreCorruptError, match="format_version: literal_error"):
        await conversations.load("c")
    assert [each.conversation_id for each in await conversations.list_conversations()] == ["d"]
    await conversations.delete("c")
    assert await conversations.load("c") is None
    assert await conversations._store.get_message_count("pydantic-ai/c") == 0


async def test_an_id_that_no_store_can_keep_is_refused(conversations: HelixConversationStore) -> None:
    """As elsewhere."""
    with pytest.raises(InvalidIdError, match="control character"):
        await conversations.load("a\nb")


@pytest.mark.parametrize(("one", "other"), [("a/b", "a~2fb"), ("x" * 200, "x" * 201), ("é", "e")])
async def test_conversations_do_not_meet(conversations: HelixConversationStore, one: str, other: str) -> None:
    """Whatever their ids are."""
    await begin(conversations, one)
    assert await conversations.load(other) is None
    assert (await load(conversations, one)).conversation_id == one


# ---- branches and forks


async def test_a_history_that_was_rewritten_leaves_a_branch(conversations: HelixConversationStore) -> None:
    """From the first message that differs; and the conversation can go back to what it left."""
    conversation = await begin(conversations, "c", 3)
    conversation.messages = [*conversation.messages[:2], asked("other")]
    conversation.new_message_index = None
    await conversations.save(conversation)
    fresh = over(conversations._store)
    assert texts((await load(fresh, "c")).messages) == ["0", "0", "other"]
    record = await fresh.read_record("c")
    assert record is not None
    (left,) = record.branches
    back = await fresh.branch("c", from_entry=left, expected_revision=record.revision)
    assert texts(back.messages) == ["0", "0", "1", "1", "2", "2"]
    await extend(fresh, back, "on")
    assert texts((await load(over(conversations._store), "c")).messages)[-2:] == ["2", "on"]


async def test_a_branch_copies_nothing(conversations: HelixConversationStore, watched: Watched) -> None:
    """The entries of both lines are rows of one session, each once."""
    conversation = await begin(conversations, "c", 3)
    branched = await conversations.branch("c", at=2, expected_revision=conversation.revision)
    await extend(conversations, branched, "other")
    assert await watched.inner.get_message_count("pydantic-ai/c") == 7
    assert texts((await load(over(watched), "c")).messages) == ["0", "0", "other"]
    assert texts((await load(over(watched), "c", limit=2)).messages) == ["0", "other"]


async def test_a_branch_from_before_the_first_message_begins_anew(
    conversations: HelixConversationStore,
) -> None:
    """And the old history stays a branch."""
    conversation = await begin(conversations, "c")
    branched = await conversations.branch("c", at=0, expected_revision=conversation.revision)
    assert branched.messages == []
    await extend(conversations, branched, "anew")
    entries = await over(conversations._store).load_entries("c")
    assert [(each.parent_id, each.message) for each in entries or ()] == [(None, asked("anew"))]


async def test_a_branch_does_not_undo_what_somebody_else_saved(
    conversations: HelixConversationStore,
) -> None:
    """It names the revision that it has seen."""
    conversation = await begin(conversations, "c", 2)
    seen = conversation.revision
    await extend(conversations, conversation, "more")
    with pytest.raises(ConversationConflict):
        await conversations.branch("c", at=1, expected_revision=seen)


async def test_a_fork_shares_entries_and_goes_its_own_way(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """Also a fork of a fork, and one from a branch that was left."""
    source = await begin(conversations, "a", 3)
    fork = await conversations.fork("a", at=4, new_conversation_id="b")
    await extend(conversations, fork, "b1", "b2")
    await conversations.fork("b", at=5, new_conversation_id="c")
    await extend(over(watched), await load(over(watched), "c"), "c1")
    branched = await conversations.branch("a", at=1, expected_revision=source.revision)
    await extend(conversations, branched, "a1")
    record = await conversations.read_record("a")
    assert record is not None
    await over(watched).fork("a", from_entry=record.branches[0], new_conversation_id="d")
    found = {name: texts((await load(over(watched), name)).messages) for name in "abcd"}
    assert found == {
        "a": ["0", "a1"],
        "b": ["0", "0", "1", "1", "b1", "b2"],
        "c": ["0", "0", "1", "1", "b1", "c1"],
        "d": ["0", "0", "1", "1", "2", "2"],
    }
    counts = [await watched.inner.get_message_count(f"pydantic-ai/{name}") for name in "abcd"]
    assert counts == [7, 2, 1, 0]
    forked = await conversations.read_record("c")
    assert forked is not None
    assert (forked.forked_from, forked.branches) == ("b", [])


async def test_a_fork_of_an_id_that_is_taken_is_refused(conversations: HelixConversationStore) -> None:
    """Both stay as they are."""
    await begin(conversations, "a", 2)
    await begin(conversations, "b", 1)
    with pytest.raises(ConversationConflict):
        await conversations.fork("a", new_conversation_id="b")
    assert len((await load(conversations, "b")).messages) == 2


async def test_an_entry_is_found_by_its_id_alone(conversations: HelixConversationStore) -> None:
    """By a process that has read nothing: in the middle, in a branch, in a fork, and under any other id."""
    source = await begin(conversations, "a", 3)
    branched = await conversations.branch("a", at=2, expected_revision=source.revision)
    await extend(conversations, branched, "other")
    await conversations.fork("a", at=1, new_conversation_id="b")
    own = entry("own", id="an id of somebody's own")
    record = ConversationRecord(conversation_id="c", head_id=own.id)
    await conversations.write_record(record, new_entries=[own], expected_revision=None)
    left = await conversations.read_record("a")
    assert left is not None
    entries = [*(await conversations.read_history(left.branches[0])), own]
    entries += await conversations.read_history(left.head_id)
    for each in entries:
        assert await over(conversations._store).read_entry(each.id) == each
    for unknown in (entry("never stored").id, "no such"):
        with pytest.raises(EntryNotFoundError, match="in no conversation"):
            await conversations.read_entry(unknown)


# ---- lists and scopes


async def test_lists_have_the_newest_first(conversations: HelixConversationStore) -> None:
    """By the last save, of all or of a scope, at most so many; more than one page of them, too."""
    saved = {
        name: await begin(conversations, name, scope=scope)
        for name, scope in (("a", "x"), ("b", "y"), ("c", "x"), ("d", None), ("e", ""))
    }
    await asyncio.sleep(0.002)
    await extend(conversations, saved["a"], "more")

    async def listed(**named: Any) -> list[str]:
        return [each.conversation_id for each in await conversations.list_conversations(**named)]

    assert await listed() == ["a", "e", "d", "c", "b"]
    assert await listed(scope="x") == ["a", "c"]
    assert await listed(scope="") == ["e"]
    assert await listed(limit=2) == ["a", "e"]
    assert await listed(scope="x", limit=1) == ["a"]
    assert await listed(limit=0) == []
    assert await listed(scope="z") == []
    with pytest.raises(UserError, match="negative"):
        await conversations.list_conversations(limit=-1)


async def test_a_long_list_is_whole(conversations: HelixConversationStore) -> None:
    """Over several pages of the store."""
    for first in range(0, 230, 46):
        await asyncio.gather(*(begin(conversations, str(n)) for n in range(first, first + 46)))
    listed = await conversations.list_conversations()
    assert {each.conversation_id for each in listed} == {str(n) for n in range(230)}
    assert listed == sorted(listed, key=lambda each: each.updated_at, reverse=True)
    assert len(await conversations.list_conversations(limit=210)) == 210


async def test_another_scope_sees_and_changes_nothing(conversations: HelixConversationStore) -> None:
    """It is treated as if there were no such conversation."""
    conversation = await begin(conversations, "c", scope="mine")
    assert await conversations.load("c", scope="yours") is None
    await conversations.delete("c", scope="yours")
    with pytest.raises(ConversationConflict):
        await conversations.save(conversation, scope="yours")
    with pytest.raises(UserError, match="not in the store"):
        await conversations.fork("c", source_scope="yours")
    assert (await load(conversations, "c", scope="mine")).messages == conversation.messages


# ---- writers


async def test_a_writer_that_has_not_seen_the_last_save_is_refused(open_store: StoreOpener) -> None:
    """In another process; it leaves nothing behind."""
    async with open_store() as one, open_store() as two:
        await begin(over(one), "c")
        first, second = await load(over(one), "c"), await load(over(two), "c")
        await extend(over(one), first, "first")
        with pytest.raises(ConversationConflict, match="'c'"):
            await extend(over(two), second, "second")
        assert texts((await load(over(two), "c")).messages) == ["0", "0", "first"]
        assert await one.get_message_count("pydantic-ai/c") == 3


async def test_a_new_conversation_does_not_replace_one(conversations: HelixConversationStore) -> None:
    """Of the same id, which was not loaded."""
    await begin(conversations, "c")
    with pytest.raises(ConversationConflict):
        await begin(conversations, "c", 3)


async def test_of_writers_that_come_at_once_one_wins(open_store: StoreOpener) -> None:
    """Of those who begin a conversation, and in each round that goes on from there."""
    async with AsyncExitStack() as stack:
        stores = [over(await stack.enter_async_context(open_store())) for _ in range(3)]
        begun = await asyncio.gather(*(succeeds(begin(each, "c")) for each in stores for _ in range(2)))
        assert begun.count(True) == 1
        for number in range(3):
            loaded = [(each, await load(each, "c")) for each in stores]
            saved = [extend(each, mine, f"{number}.{at}") for at, (each, mine) in enumerate(loaded)]
            won = await asyncio.gather(*map(succeeds, saved))
            assert won.count(True) == 1
            conversation = await load(stores[0], "c")
            assert texts(conversation.messages)[2 + number :] == [f"{number}.{won.index(True)}"]


@pytest.mark.parametrize("named", ["head", "parent"])
async def test_a_write_upon_an_entry_that_nobody_has_is_refused(
    conversations: HelixConversationStore, named: str
) -> None:
    """As its conversation was deleted, say."""
    nowhere = entry("nowhere")
    new = [entry("new", nowhere)] if named == "parent" else []
    record = ConversationRecord(conversation_id="c", head_id=new[0].id if new else nowhere.id)
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, new_entries=new, expected_revision=None)
    assert await conversations.read_record("c") is None


async def write_two(conversations: HelixConversationStore) -> tuple[Any, Any]:
    """Two writes of a conversation, of which the first one is done: the arguments of both."""
    first, second = entry("first"), entry("second")
    second = dataclasses.replace(second, parent_id=first.id)
    begun = ConversationRecord(conversation_id="c", head_id=first.id)
    gone_on = ConversationRecord(conversation_id="c", head_id=second.id)
    one = {"record": begun, "new_entries": [first], "expected_revision": None}
    await conversations.write_record(**one)
    return one, {"record": gone_on, "new_entries": [second], "expected_revision": begun.revision}


async def test_the_same_write_again_succeeds_and_stands_once(conversations: HelixConversationStore) -> None:
    """Its answer was lost; also if the conversation has gone on from it meanwhile."""
    one, two = await write_two(conversations)
    await conversations.write_record(**one)
    await conversations.write_record(**two)
    for _ in range(2):
        await over(conversations._store).write_record(**one)
        await over(conversations._store).write_record(**two)
    assert texts((await load(conversations, "c")).messages) == ["first", "second"]
    assert await conversations._store.get_message_count("pydantic-ai/c") == 2


async def test_another_record_under_the_same_revision_is_refused(
    conversations: HelixConversationStore,
) -> None:
    """It is no repetition."""
    one, _ = await write_two(conversations)
    with pytest.raises(ConversationConflict):
        await conversations.write_record(**{**one, "record": dataclasses.replace(one["record"], scope="s")})


@pytest.mark.parametrize(
    "loss",
    ["before create_session", "after create_session", "before append_messages", "after append_messages"],
)
async def test_a_save_whose_answer_is_lost_stands_once(
    conversations: HelixConversationStore, watched: Watched, loss: str
) -> None:
    """At each step of it, the first save of a conversation and a later one."""
    watched.losses = [loss]
    conversation = await begin(conversations, "c")
    assert watched.losses == []
    watched.losses = [loss] if "create" not in loss else []
    await extend(conversations, conversation, "more")
    assert watched.losses == []
    assert texts((await load(over(watched), "c")).messages) == ["0", "0", "more"]
    assert await watched.inner.get_message_count("pydantic-ai/c") == 3


async def test_a_store_that_does_not_answer_is_named(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """After five attempts; the conversation can be saved again, as it knows its revision."""
    conversation = await begin(conversations, "c")
    watched.losses = ["before append_messages"] * 5
    with pytest.raises(StoreUnavailableError):
        await extend(conversations, conversation, "more")
    await conversations.save(conversation)
    assert texts((await load(conversations, "c")).messages) == ["0", "0", "more"]


async def test_a_writer_that_was_overtaken_between_look_and_append_is_refused(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """The append names the version of what it has seen."""
    conversation, other = await begin(conversations, "c"), over(watched.inner)
    pause = watched.pause("append_messages")
    late = asyncio.create_task(succeeds(extend(conversations, conversation, "late")))
    await pause.reached.wait()
    await extend(other, await load(other, "c"), "first")
    pause.over.set()
    assert await late is False
    assert texts((await load(other, "c")).messages) == ["0", "0", "first"]


async def test_rows_of_a_writer_that_died_are_passed_over(conversations: HelixConversationStore) -> None:
    """Where messages and state are not one commit they may stand without a record."""
    conversation = await begin(conversations, "c")
    orphan = Message(id="o", role="foreign", format="pydantic-ai/1", content="{}", metadata={"parent": None})
    await conversations._store.append_messages("pydantic-ai/c", [orphan])
    await extend(conversations, conversation, "more", "and more")
    assert texts((await load(over(conversations._store), "c")).messages) == ["0", "0", "more", "and more"]
    assert texts((await load(over(conversations._store), "c", limit=1)).messages) == ["and more"]


async def test_a_session_of_something_else_is_named(conversations: HelixConversationStore) -> None:
    """Rather than read as a conversation."""
    row = Message(id="m", role="foreign", format="openai-agents/1", content=json.dumps({"role": "user"}))
    await conversations._store.create_session("pydantic-ai/c", CreateSession(agent_type="pydantic-ai"))
    await conversations._store.append_messages("pydantic-ai/c", [row])
    with pytest.raises(StoreCorruptError, match="openai-agents/1"):
        await conversations.read_entry("m")


# ---- a hot store that loses rows


async def save_turns(apart: Production, count: int, archived: int) -> Conversation:
    """A conversation of so many turns, of which the first ones are archived; then Redis is wiped."""
    before = over(apart.store())
    conversation = Conversation(conversation_id="c")
    for number in range(count):
        await extend(before, conversation, f"{number} q", f"{number} a")
        if number == archived - 1:
            await apart.sweep()
    await apart.wipe()
    return conversation


@pytest.mark.parametrize("archived", [0, 1, 2])
@pytest.mark.parametrize("first", ["load", "save"])
async def test_a_conversation_goes_on_behind_what_was_archived(
    apart: Production, archived: int, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is lost is said; whoever has loaded it before is told to load again."""
    conversation = await save_turns(apart, 3, archived)
    after = over(apart.store())
    kept = [f"{number} {who}" for number in range(archived) for who in "qa"]
    if first == "load":
        assert texts((await load(after, "c")).messages) == kept
    for _ in range(2):
        with pytest.raises(ConversationConflict):
            await extend(after, conversation, "late")
    assert f"had 6 entries and has {2 * archived}" in caplog.text
    found = await load(over(apart.store()), "c")
    assert texts(found.messages) == kept
    for name in ("more", "and more"):
        await extend(over(apart.store()), found, name)
    assert texts((await load(over(apart.store()), "c")).messages) == [*kept, "more", "and more"]
    assert caplog.text.count("has lost what was not archived") == 1


async def test_a_write_that_is_repeated_after_its_entries_were_lost_is_refused(
    apart: Production,
) -> None:
    """It is not taken for done."""
    one, two = await write_two(over(apart.store()))
    await over(apart.store()).write_record(**two)
    await apart.wipe()
    after = over(apart.store())
    assert (await load(after, "c")).messages == []
    for each in (one, two):
        with pytest.raises(ConversationConflict):
            await after.write_record(**each)


async def test_a_branch_that_was_lost_gives_the_conversation_back_as_it_was(apart: Production) -> None:
    """Before it was branched: what it had left is what is left."""
    before = over(apart.store())
    conversation = await begin(before, "c", 4)
    await apart.sweep()
    branched = await before.branch("c", at=2, expected_revision=conversation.revision)
    await extend(before, branched, "another way")
    await apart.wipe()
    after = over(apart.store())
    found = await load(after, "c")
    assert texts(found.messages) == texts(conversation.messages)
    record = await after.read_record("c")
    assert record is not None
    assert record.branches == []


async def test_a_fork_whose_own_entries_were_lost_begins_with_what_it_shares(apart: Production) -> None:
    """Where that was archived."""
    before = over(apart.store())
    conversation = await begin(before, "c")
    await apart.sweep()
    forked = await before.fork("c", new_conversation_id="fork")
    await extend(before, forked, "its own")
    await apart.wipe()
    after = over(apart.store())
    assert texts((await load(after, "fork")).messages) == texts(conversation.messages)
    await extend(after, await load(after, "fork"), "more")
    assert texts((await load(after, "fork")).messages) == [*texts(conversation.messages), "more"]


# ---- deletes


async def test_a_delete_erases_the_entries(conversations: HelixConversationStore, watched: Watched) -> None:
    """What is left in the session has neither texts nor names."""
    await begin(conversations, "c", scope="mine")
    await conversations.delete("c")
    assert await conversations.load("c") is None
    assert await conversations.list_conversations() == []
    state = await watched.inner.load_state("pydantic-ai/c")
    assert state is not None
    assert (await watched.inner.get_messages("pydantic-ai/c")).messages == ()
    assert (state.metadata, set(state.custom_state)) == (
        {},
        {"end", "erasure", "released", "revision", "written"},
    )
    await conversations.delete("c")
    await conversations.delete("never there")


async def test_a_late_writer_does_not_bring_a_conversation_back(open_store: StoreOpener) -> None:
    """Neither one that has loaded it, nor one that repeats the first write, whose answer it has lost."""
    async with open_store() as one, open_store() as two:
        late, other = over(one), over(two)
        first, _ = await write_two(late)
        loaded = await load(late, "c")
        await other.delete("c")
        with pytest.raises(ConversationConflict):
            await extend(late, loaded, "late")
        with pytest.raises(ConversationConflict):
            await late.write_record(**first)
        with pytest.raises(ConversationConflict):
            await late.delete_record("c", expected_revision=first["record"].revision)
        assert await other.load("c") is None
        assert await two.get_message_count("pydantic-ai/c") == 0


async def test_an_id_may_be_used_again(conversations: HelixConversationStore) -> None:
    """By a new conversation, which a copy of the old one does not meet."""
    old = await begin(conversations, "c", 2)
    await conversations.delete("c")
    await begin(conversations, "c")
    with pytest.raises(ConversationConflict):
        await extend(conversations, old, "late")
    assert len((await load(over(conversations._store), "c")).messages) == 2


async def test_forks_keep_what_they_share_and_the_last_one_takes_it_along(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """Over two generations: no entry is erased that somebody reads, and none stays that nobody does."""
    await begin(conversations, "a", 2)
    await extend(conversations, await conversations.fork("a", at=2, new_conversation_id="b"), "b1")
    await extend(conversations, await conversations.fork("b", new_conversation_id="c"), "c1")
    for name in "ab":
        await over(watched).delete(name)
        assert await conversations.load(name) is None
    assert texts((await load(over(watched), "c")).messages) == ["0", "0", "b1", "c1"]
    assert [each.conversation_id for each in await conversations.list_conversations()] == ["c"]
    await over(watched).delete("c")
    counts = [await watched.inner.get_message_count(f"pydantic-ai/{name}") for name in "abc"]
    assert counts == [0, 0, 0]


@pytest.mark.parametrize("loss", ["before truncate_messages", "after append_messages", "before load_state"])
@pytest.mark.parametrize("spared", range(6))
async def test_the_last_fork_takes_along_what_it_shared_though_answers_are_lost(
    conversations: HelixConversationStore, watched: Watched, loss: str, spared: int
) -> None:
    """At each step of it; what the fork shared is erased by the same call."""
    await begin(conversations, "a")
    await conversations.fork("a", new_conversation_id="b")
    await conversations.delete("a")
    record = await conversations.read_record("b")
    assert record is not None
    watched.losses, watched.spared = [loss], spared
    await conversations.delete_record("b", expected_revision=record.revision)
    counts = [await watched.inner.get_message_count(f"pydantic-ai/{name}") for name in "ab"]
    assert counts == [0, 0]


@pytest.mark.parametrize("name", ["append_messages", "truncate_messages", "list_sessions"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_delete_whose_answer_is_lost_is_done_once(
    conversations: HelixConversationStore, watched: Watched, name: str, when: str
) -> None:
    """At each step of it."""
    await begin(conversations, "c")
    watched.losses = [f"{when} {name}"]
    await conversations.delete("c")
    assert watched.losses == []
    assert await watched.inner.get_message_count("pydantic-ai/c") == 0


async def test_a_delete_that_was_interrupted_is_ended_by_another_one(
    conversations: HelixConversationStore, watched: Watched
) -> None:
    """The conversation is gone at once; its entries go with the second call."""
    await begin(conversations, "c")
    watched.losses = ["before truncate_messages"] * 5
    with pytest.raises(StoreUnavailableError):
        await conversations.delete("c")
    watched.losses = []
    assert await conversations.load("c") is None
    assert await watched.inner.get_message_count("pydantic-ai/c") == 2
    await over(watched).delete("c")
    assert await watched.inner.get_message_count("pydantic-ai/c") == 0


@pytest.mark.parametrize("at", ["list_sessions", "truncate_messages"])
async def test_no_entry_is_erased_under_a_fork(
    conversations: HelixConversationStore, watched: Watched, at: str
) -> None:
    """While the source is deleted the fork has its history, or is refused."""
    await begin(conversations, "a")
    other = over(watched.inner)
    record = await other.read_record("a")
    assert record is not None
    pause = watched.pause(at)
    deleting = asyncio.create_task(conversations.delete("a"))
    await pause.reached.wait()
    fork = ConversationRecord(conversation_id="b", head_id=record.head_id, forked_from="a")
    assert await succeeds(other.write_record(fork, expected_revision=None)) is False
    pause.over.set()
    await deleting
    assert await over(watched.inner).load("b") is None


async def test_forks_and_deletes_at_once_leave_whole_histories(open_store: StoreOpener) -> None:
    """Whoever comes first."""
    async with open_store() as one, open_store() as two:
        forking, deleting = over(one), over(two)
        for number in range(6):
            name = f"a{number}"
            await begin(forking, name)

            async def fork(source: str = name, target: str = f"b{number}") -> bool:
                try:
                    await forking.fork(source, new_conversation_id=target)
                except (ConversationConflict, UserError):
                    return False
                return True

            forked, _ = await asyncio.gather(fork(), deleting.delete(name))
            found = await over(two).load(f"b{number}")
            assert (found is not None) == forked
            assert found is None or found.messages == turns(1)


# ---- beside the reference


NAMES, SCOPES = st.sampled_from("abc"), st.sampled_from(["x", "y", None])
PICK = st.integers(0, 6)
STEPS = st.one_of(
    st.tuples(st.just("begin"), NAMES, PICK, SCOPES),
    st.tuples(st.just("load"), NAMES, st.none() | PICK, SCOPES),
    st.tuples(st.just("extend"), PICK, PICK, SCOPES),
    st.tuples(st.just("rewrite"), PICK, PICK, SCOPES),
    st.tuples(st.just("branch"), PICK, PICK, st.booleans()),
    st.tuples(st.just("fork"), NAMES, st.none() | PICK, NAMES),
    st.tuples(st.just("fork_branch"), NAMES, PICK, NAMES),
    st.tuples(st.just("list"), SCOPES, st.none() | PICK, st.none()),
    st.tuples(st.just("delete"), NAMES, SCOPES, st.none()),
)


class Story:
    """What is done with both stores, and the copies of conversations that are about, old ones too."""

    def __init__(self, twins: Twins) -> None:
        self.twins, self.copies, self.number = twins, list[Conversation](), 0

    def text(self) -> str:
        """A new one."""
        self.number += 1
        return str(self.number)

    def pick(self, at: int) -> Conversation:
        """One of the copies."""
        return self.copies[at % len(self.copies)]

    async def begin(self, name: str, count: int, scope: str | None) -> None:
        """A new conversation."""
        messages = [asked(self.text()) for _ in range(count)]
        self.copies.append(Conversation(conversation_id=name, messages=messages))
        await self.twins.save(self.copies[-1], scope=scope)

    async def load(self, name: str, limit: int | None, scope: str | None) -> None:
        """Another copy."""
        found = await self.twins.load(name, limit=limit, scope=scope)
        self.copies += [found] if found is not None else []

    async def extend(self, at: int, count: int, scope: str | None) -> None:
        """Save a copy with more."""
        copy = self.pick(at)
        copy.messages = [*copy.messages, *(asked(self.text()) for _ in range(count))]
        await self.twins.save(copy, scope=scope)

    async def rewrite(self, at: int, kept: int, scope: str | None) -> None:
        """Save a copy that ends otherwise."""
        copy = self.pick(at)
        copy.messages = [*copy.messages[:kept], asked(self.text())]
        await self.twins.save(copy, scope=scope)

    async def branch(self, at: int, kept: int, back: bool) -> None:
        """Branch a copy, or go back to what its conversation has left."""
        copy = self.pick(at)
        record = await self.twins.read_record(copy.conversation_id)
        tips = record.branches if record is not None else []
        chosen: Any = {"from_entry": tips[kept % len(tips)]} if back and tips else {"at": kept}
        branched = await self.twins.branch(copy.conversation_id, expected_revision=copy.revision, **chosen)
        self.copies.append(branched)

    async def fork(self, name: str, kept: int | None, target: str) -> None:
        """Fork a conversation."""
        self.copies.append(await self.twins.fork(name, at=kept, new_conversation_id=target))

    async def fork_branch(self, name: str, at: int, target: str) -> None:
        """Fork a conversation from a branch that it has left."""
        record = await self.twins.read_record(name)
        if record is not None and record.branches:
            tip = record.branches[at % len(record.branches)]
            self.copies.append(await self.twins.fork(name, from_entry=tip, new_conversation_id=target))

    async def list(self, scope: str | None, limit: int | None, _: None) -> None:
        """List conversations."""
        await self.twins.list_conversations(scope=scope, limit=limit)

    async def delete(self, name: str, scope: str | None, _: None) -> None:
        """Delete a conversation."""
        await self.twins.delete(name, scope=scope)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=25), st.booleans(), st.booleans())
def test_it_does_what_the_reference_does(steps: list[Any], forgets: bool, together: bool) -> None:
    """Any sequence of calls gets the same answers and refusals.

    With and without a memory of places, and where threads lie elsewhere than their sessions.
    """
    threads = MemoryThreads()
    sessions = RowSessions(MemorySessions(threads), HotThreads(threads), together=together)

    async def run() -> None:
        story = Story(Twins(over(sessions)))
        await story.begin("a", 2, None)
        for name, *arguments in steps:
            if forgets:
                story.twins.ours = over(sessions)
            try:
                await getattr(story, name)(*arguments)
            except UserError:
                continue  # the twins have agreed
        for name in "abc":
            await story.twins.load(name)

    asyncio.run(run())


# ---- pages and examples

PAGE = ROOT / "docs" / "frameworks" / "pydantic-ai.md"
EXAMPLE = ROOT / "examples" / "pydantic_ai_sessions"


def echo(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """How many messages the model was given."""
    return ModelResponse(parts=[TextPart(f"{len(messages)} messages")])


async def stream_echo(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    """The same, as a stream."""
    yield f"{len(messages)} messages"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The programs of the page, whose model is scripted."""
    model = FunctionModel(echo, stream_function=stream_echo)
    monkeypatch.setattr("pydantic_ai.Agent", lambda _, **named: Agent(model, **named))
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    return dict(titled(PAGE, "python"))


def test_the_program_of_the_page_runs_as_it_stands(page: dict[str, str]) -> None:
    """But for its model; a second run goes on with the conversation."""
    printed: list[Any] = []
    for _ in range(2):
        exec(compile(page["support.py"], "support.py", "exec"), {"print": printed.append})
    assert printed == ["1 messages", "3 messages"]


async def test_the_server_of_the_page_keeps_each_users_conversations(page: dict[str, str]) -> None:
    """AG-UI sends the new message alone; another user finds nothing under the id."""
    served: dict[str, Any] = {}
    exec(compile(page["server.py"], "server.py", "exec"), served)
    await check_server(served, ag_ui_body, "pydantic_ai_conversation_saved")


async def test_a_server_of_vercels_front_end_does_so_too(page: dict[str, str]) -> None:
    """The same store serves it."""
    program = page["server.py"].replace("ag_ui", "vercel_ai").replace("AGUIAdapter", "VercelAIAdapter")
    served: dict[str, Any] = {}
    exec(compile(program, "server.py", "exec"), served)
    await check_server(served, vercel_body, "data-conversation-saved")


async def check_server(served: dict[str, Any], body: Callable[[str], Any], saved: str) -> None:
    """Two turns of one user, and another one who names the same conversation."""
    first = await post(served["app"], "ann", body("m1"))
    assert (first.status, "1 messages" in first.body, saved in first.body) == (200, True, True)
    assert "3 messages" in (await post(served["app"], "ann", body("m2"))).body
    assert (await post(served["app"], "bob", body("m3"))).status == 404
    listed = await served["store"].list_conversations(scope="ann")
    assert [each.conversation_id for each in listed] == ["thread-1"]
    await served["store"]._store.loop.rows.close()


def test_the_example_prints_what_its_page_says() -> None:
    """In a process of its own, without settings."""
    check_example("pydantic_ai_sessions")
