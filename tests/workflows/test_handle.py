"""The handle of a session: what it shows without waking it, and how its turns are stopped and taken back."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from temporalio.worker import Replayer

from helix_temporal.agents import Agent, ToolContext, ToolOutcome
from helix_temporal.client import SessionHandle
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import (
    CheckpointNotFoundError,
    HeadMovedError,
    InvalidRequestError,
    SessionNotFoundError,
    ThreadExistsError,
)
from helix_temporal.facade import fork_session
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk, Gate, first_tools_then
from tests.workflows.conftest import Stand, make_settings
from tests.workflows.test_inbox import until_waiting
from tests.workflows.test_reset import reset, task_ends

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def served(settings: Settings, desk: Desk) -> AsyncIterator[Stand]:
    async with session_worker(settings, desk.agents(), options=SessionOptions(idle_timeout=60)) as running:
        yield Stand(running, desk)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kept(
    temporal_address: str, redis_url: str, s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stand]:
    """A worker with threads in Redis over S3, and states in SQLite."""
    data = tmp_path_factory.mktemp("states")
    name = f"t{uuid.uuid4().hex[:12]}"
    settings = make_settings(
        temporal_address, redis_url, s3, name, session_store="sqlite", data_directory=data
    )
    async with served(settings, Desk()) as stand:
        yield stand


def counting(stand: Stand, session_id: str) -> None:
    """Each turn runs a tool that counts the turns in the state."""
    stand.desk.scripts[session_id] = first_tools_then("done", "x")
    numbers = iter(range(1, 100))
    stand.desk.acts[session_id] = lambda what, _: ToolOutcome(what, state={"k": next(numbers)})


async def talk(handle: SessionHandle, *texts: str) -> None:
    for text in texts:
        asked = await handle.ask(text, message_id=f"m-{text}", timeout=30)
        assert asked.status is AskStatus.ANSWERED


async def users(stand: Stand, session_id: str) -> list[str]:
    return [each.text for each in await stand.messages(session_id) if each.role == "user"]


async def stands_together(stand: Stand, session_id: str) -> None:
    """State and thread are at the same place, and every call of the thread has its result."""
    state = await stand.sessions.session(session_id).get_state()
    assert state is not None
    assert state.head == (await stand.sessions.session(session_id).describe_thread()).head
    messages = await stand.messages(session_id)
    calls = [call.id for each in messages for call in each.tool_calls]
    assert calls == [each.tool_call_id for each in messages if each.role == "tool"]
    assert len({each.id for each in messages}) == len(messages)


# ---- look -------------------------------------------------------------------------------------------


async def test_the_state_of_a_session_that_does_not_run_is_shown_without_waking_it(
    kept: Stand, sid: str
) -> None:
    """A list of customers' sessions must not start a thousand workflows."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one")
    await kept.finish(sid)
    run_id = (await kept.handle(sid).describe()).run_id
    state = await handle.get_state()
    assert state is not None
    assert (state.custom_state, state.agent_type, state.status) == ({"k": 1}, "main", "completed")
    assert (await kept.handle(sid).describe()).run_id == run_id
    with pytest.raises(SessionNotFoundError, match="session 'nobody' is not there"):
        await kept.sessions.session("nobody").get_state()


async def test_without_a_session_store_the_state_is_what_the_slice_says(
    temporal_address: str, redis_url: str, s3: S3Endpoint, sid: str
) -> None:
    """The same handle, whatever the deployment keeps."""
    settings = make_settings(temporal_address, redis_url, s3, f"{sid}-q", session_store="none")
    async with served(settings, Desk()) as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        state = await stand.sessions.session(sid).get_state()
        assert state is not None
        assert (state.agent_type, state.step_count, state.message_count) == ("main", 1, 2)
        with pytest.raises(InvalidRequestError, match="no session store"):
            await stand.sessions.session(sid, agent="main").restore_checkpoint("cpv1-x-s1-t1-abcdef")
        async with asyncio.timeout(60):
            assert (await stand.sessions.session(sid).list_checkpoints()).items == ()


async def test_usage_is_that_of_the_thread_and_what_was_recorded_of_descendants(
    kept: Stand, sid: str
) -> None:
    """One number to bill, and the details beside it."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one", "two")
    used = await handle.get_usage()
    assert (used.tokens.input_tokens, used.steps) == (20, 4)
    entry = TokenUsageEntry(
        session_id=sid,
        id="e",
        timestamp=1,
        model="m",
        tokens=TokenCounts(prompt=7),
    )
    await kept.served.plugin.backends.usage.record_entry(entry)
    recorded = (await handle.get_usage()).recorded
    assert recorded is not None
    assert recorded.tokens_by_model["m"].prompt == 7
    with pytest.raises(SessionNotFoundError):
        await kept.sessions.session("nobody").get_usage()


async def test_turns_are_listed_with_the_heads_between_which_they_stand(stand: Stand, sid: str) -> None:
    """What a rewind needs, without reading the whole conversation."""
    stand.desk.scripts[sid] = first_tools_then("done", "x", "y")
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one", "two", "three")
    turns = (await handle.list_turns()).items
    assert [(each.number, each.text, each.answer) for each in turns] == [
        (1, "one", "done"),
        (2, "two", "done"),
        (3, "three", "done"),
    ]
    assert turns[0].start == EMPTY
    assert [each.end for each in turns[:-1]] == [each.start for each in turns[1:]]
    assert turns[-1].end == (await stand.sessions.session(sid).describe_thread()).head
    newest = (await handle.list_turns(newest=2)).items
    assert [(each.number, each.start, each.end) for each in newest] == [
        (number, each.start, each.end) for number, each in zip((-2, -1), turns[1:], strict=True)
    ]
    later = (await handle.list_turns(start=turns[1].start.position, limit=1)).items
    with pytest.raises(InvalidRequestError, match="limit 0: 1 or more expected"):
        await handle.list_turns(limit=0)
    assert [each.message_ids for each in later] == [("m-two",)]
    with pytest.raises(InvalidRequestError, match="no turn begins at 2"):
        await handle.list_turns(start=2)
    with pytest.raises(InvalidRequestError, match="newest 0"):
        await handle.list_turns(newest=0)


async def test_whoever_waits_for_a_change_hears_of_the_next_turn_and_leaves_no_trace(
    stand: Stand, sid: str
) -> None:
    """Polls are queries: a page that watches a session for a day must not fill its history."""
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one")
    await stand.at_rest(sid)
    before, known = len(await stand.events(sid)), (await handle.get_status()).version
    with pytest.raises(TimeoutError):
        await handle.wait_for_change(known, timeout=0.7)
    assert len(await stand.events(sid)) == before
    waiting = asyncio.create_task(handle.wait_for_change(known, timeout=30))
    await talk(handle, "two")
    assert (await waiting).version > known


async def test_a_wait_for_a_change_outlives_the_execution(stand: Stand, sid: str) -> None:
    """A session that went to rest changes when it comes back; its versions go on."""
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one")
    await stand.finish(sid)
    known = (await handle.wait_for_change(0, timeout=30)).version
    waiting = asyncio.create_task(handle.wait_for_change(known, timeout=30))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await talk(handle, "two")
    assert (await waiting).version > known


async def test_a_version_of_the_stored_state_is_refused(stand: Stand, sid: str) -> None:
    """It would be lower than any: whoever mixes them up would poll without a pause."""
    with pytest.raises(InvalidRequestError, match="version 7"):
        await stand.sessions.session(sid).wait_for_change(7)


# ---- stop -------------------------------------------------------------------------------------------


async def test_a_stop_of_another_run_leaves_the_turn_alone(stand: Stand, desk: Desk, sid: str) -> None:
    """The button was for the turn that has ended meanwhile."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    handle = stand.sessions.session(sid, agent="main")
    asked = asyncio.create_task(handle.ask("one"))
    await gate.reached.wait()
    run_id = (await handle.get_status()).run_id
    assert run_id
    assert not await handle.stop(abort=True, run_id="another")
    assert not await handle.stop(run_id="another")
    assert await handle.stop(run_id=run_id)
    gate.opened.set()
    assert (await asked).status is AskStatus.ANSWERED
    assert not await handle.stop(run_id=run_id)
    assert (await handle.get_status()).run_id is None


async def test_an_abort_by_run_leaves_no_trace(stand: Stand, desk: Desk, sid: str) -> None:
    """As an abort of whatever runs."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    handle = stand.sessions.session(sid, agent="main")
    asked = asyncio.create_task(handle.ask("one"))
    await gate.reached.wait()
    assert await handle.stop(abort=True, run_id=(await handle.get_status()).run_id)
    assert (await asked).status is AskStatus.INTERRUPTED
    gate.opened.set()
    assert await stand.texts(sid) == []


# ---- take back --------------------------------------------------------------------------------------


async def test_a_rewind_to_a_turn_keeps_so_many(kept: Stand, sid: str) -> None:
    """By count from the beginning, or of the newest; the state goes back along."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one", "two", "three", "four")
    await handle.rewind_to_turn(-1)
    assert await users(kept, sid) == ["one", "two", "three"]
    await handle.rewind_to_turn(1)
    assert await users(kept, sid) == ["one"]
    state = await handle.get_state()
    assert state is not None
    assert state.custom_state == {"k": 1}
    with pytest.raises(InvalidRequestError, match="2 cannot stay"):
        await handle.rewind_to_turn(2)
    with pytest.raises(InvalidRequestError, match="2 cannot go"):
        await handle.rewind_to_turn(-2)
    assert await handle.rewind_to_turn(0) == EMPTY
    await talk(handle, "anew")
    assert await users(kept, sid) == ["anew"]
    await stands_together(kept, sid)


async def test_a_request_to_take_turns_back_counts_once(stand: Stand, sid: str) -> None:
    """A client that got no answer asks again, after others have gone on."""
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one", "two")
    await handle.rewind_to_turn(-1, operation_id="op")
    await talk(handle, "three")
    await handle.rewind_to_turn(-1, operation_id="op")
    assert await users(stand, sid) == ["one", "three"]
    await stand.finish(sid)
    await handle.rewind_to_turn(-1, operation_id="op")
    assert await users(stand, sid) == ["one", "three"]


async def test_a_request_that_comes_during_a_turn_waits_for_its_end(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The turn is whole, then it goes; twice under one id is once."""
    handle, gate = stand.sessions.session(sid, agent="main"), Gate()
    await talk(handle, "one")
    desk.scripts[sid] = gate.then()
    asked = asyncio.create_task(handle.ask("two"))
    await gate.reached.wait()
    both = [asyncio.create_task(handle.rewind_to_turn(-1, operation_id="op")) for _ in range(2)]
    await asyncio.sleep(0.3)
    assert not any(each.done() for each in both)
    gate.opened.set()
    assert (await asked).status is AskStatus.ANSWERED
    first, second = await asyncio.gather(*both)
    assert first == second
    assert await users(stand, sid) == ["one"]


async def test_a_checkpoint_brings_back_thread_and_state(kept: Stand, sid: str) -> None:
    """Time travel: what was said then, and what was known then."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one", "two", "three")
    newest, second, _ = (await handle.list_checkpoints()).items
    assert await handle.restore_checkpoint(second.id) == second.head
    assert await users(kept, sid) == ["one", "two"]
    state = await handle.get_state()
    assert state is not None
    assert state.custom_state == {"k": 2}
    with pytest.raises(HeadMovedError):
        await handle.restore_checkpoint(newest.id)
    with pytest.raises(CheckpointNotFoundError):
        await handle.restore_checkpoint("cpv1-x-s1-t1-abcdef")
    await talk(handle, "four")
    await kept.finish(sid)
    state = await handle.get_state()
    assert state is not None
    assert state.custom_state == {"k": 4}
    await stands_together(kept, sid)


async def test_a_checkpoint_of_the_present_head_brings_back_its_state(kept: Stand, sid: str) -> None:
    """Nothing is cut, yet what somebody changed since is undone."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one")
    checkpoint = (await handle.list_checkpoints()).items[0]
    store = kept.served.plugin.backends.sessions
    state = await store.load_state(sid)
    await store.save_state(sid, state.model_copy(update={"custom_state": {"k": "spoilt"}}))
    await handle.restore_checkpoint(checkpoint.id)
    state = await handle.get_state()
    assert state is not None
    assert state.custom_state == {"k": 1}


async def test_a_turn_is_regenerated_with_the_same_words(kept: Stand, sid: str) -> None:
    """Another answer to the same question, in the place of the first."""
    handle = kept.sessions.session(sid, agent="main")
    await talk(handle, "one")
    answers = iter(("first", "second"))
    kept.desk.scripts[sid] = lambda _: next(answers)
    await talk(handle, "two")
    again = await handle.regenerate(operation_id="op")
    assert (again.status, again.text) == (AskStatus.ANSWERED, "second")
    assert await kept.texts(sid) == ["one", "1: one", "two", "second"]
    assert [each.id for each in await kept.messages(sid)][2] != "m-two"
    await stands_together(kept, sid)
    # The same request again: the same answer, and no further model call.
    repeated = await handle.regenerate(operation_id="op")
    assert repeated.text == "second"
    await kept.finish(sid)
    assert (await handle.regenerate(operation_id="op")).text == "second"
    assert await kept.texts(sid) == ["one", "1: one", "two", "second"]


async def test_a_history_with_turns_taken_back_replays(stand: Stand, sid: str) -> None:
    """A worker that takes such a session over must come to the same decisions."""
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one", "two", "three")
    waiting = [asyncio.create_task(handle.ask("four")), asyncio.create_task(handle.rewind_to_turn(-1))]
    await asyncio.gather(*waiting, handle.regenerate())
    await stand.finish(sid)
    replayer = Replayer(workflows=[], plugins=[HelixPlugin()])
    await replayer.replay_workflow(await stand.handle(sid).fetch_history())


async def test_messages_that_were_one_turn_are_one_turn_again(stand: Stand, desk: Desk, sid: str) -> None:
    """Also a long one, which travels by reference."""
    handle, gate = stand.sessions.session(sid, agent="main"), Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(handle.ask("one"))
    await gate.reached.wait()
    long = "x" * 20_000
    others = [asyncio.create_task(handle.ask(text)) for text in ("two", long)]
    await until_waiting(stand.sessions, sid, 2)
    gate.opened.set()
    await asyncio.gather(first, *others)
    await handle.regenerate()
    turns = (await handle.list_turns()).items
    assert [len(each.message_ids) for each in turns] == [1, 2]
    assert sorted(await users(stand, sid)) == sorted(["one", "two", long])


async def test_a_regenerated_turn_survives_the_death_of_the_run(stand: Stand, desk: Desk, sid: str) -> None:
    """The turn is gone from the thread, its words are not: whoever asks again gets the answer."""
    handle, gate = stand.sessions.session(sid, agent="main"), Gate()
    await talk(handle, "one", "two")
    desk.scripts[sid] = gate.then()
    again = asyncio.create_task(handle.regenerate(operation_id="op", timeout=3))
    await gate.reached.wait()
    await stand.handle(sid).terminate()
    await asyncio.gather(again, return_exceptions=True)
    assert await users(stand, sid) == ["one"]
    gate.opened.set()
    assert (await handle.regenerate(operation_id="op")).text == "3: two"
    assert await users(stand, sid) == ["one", "two"]


async def test_there_is_nothing_to_regenerate_in_an_empty_thread(stand: Stand, desk: Desk, sid: str) -> None:
    """Told, and the session goes on."""
    handle = stand.sessions.session(sid, agent="main")
    await talk(handle, "one")
    await handle.rewind_to_turn(0)
    with pytest.raises(InvalidRequestError, match="it has 0 turns, 1 cannot go"):
        await handle.regenerate()
    await talk(handle, "two")


async def test_an_edited_message_is_asked_in_a_fork_with_the_state_of_its_time(kept: Stand, sid: str) -> None:
    """The original stays; the copy knows nothing of what came later."""
    handle, target = kept.sessions.session(sid, agent="main"), f"{sid}-edit"
    counting(kept, sid)
    await talk(handle, "one", "two", "three")
    first = await handle.edit("m-two", "TWO", target)
    assert first.text == "5: TWO"
    assert await users(kept, target) == ["one", "TWO"]
    assert await users(kept, sid) == ["one", "two", "three"]
    state = await kept.sessions.session(target).get_state()
    assert state is not None
    assert state.custom_state == {"k": 1}
    assert state.forked_from is not None
    # The same edit again is the same edit; another one needs another place.
    assert (await handle.edit("m-two", "TWO", target)).text == first.text
    await kept.sessions.session(target).close()
    await kept.sessions.session(target).result()
    assert (await handle.edit("m-two", "TWO", target)).text == first.text
    assert await users(kept, target) == ["one", "TWO"]
    with pytest.raises(ThreadExistsError):
        await handle.edit("m-two", "zwei", target)
    with pytest.raises(InvalidRequestError, match="no finished turn"):
        await handle.edit("m-nine", "NINE", f"{sid}-other")
    await stands_together(kept, target)
    await kept.sessions.session(target).close()


async def test_another_edit_behind_a_large_message_is_refused(kept: Stand, sid: str) -> None:
    """The page ended behind it, and what follows was taken for nothing: the text went into that session."""
    handle, target = kept.sessions.session(sid, agent="main"), f"{sid}-edit"
    kept.desk.scripts[sid] = lambda request: "x" * 300_000
    await talk(handle, "one", "two")
    await handle.edit("m-two", "TWO", target)
    with pytest.raises(ThreadExistsError):
        await handle.edit("m-two", "zwei", target)
    assert await users(kept, target) == ["one", "TWO"]
    await kept.sessions.session(target).close()


async def test_another_edit_is_refused_while_the_first_is_under_way(kept: Stand, sid: str) -> None:
    """Its turn has not ended: the text waited behind it."""
    handle, target = kept.sessions.session(sid, agent="main"), f"{sid}-edit"
    await talk(handle, "one", "two")
    gate = Gate()

    async def act(what: str, context: ToolContext) -> str:
        await gate.passing()
        return what

    kept.desk.acts[target], kept.desk.scripts[target] = act, first_tools_then("done", "x")
    first = asyncio.create_task(handle.edit("m-two", "TWO", target))
    await gate.reached.wait()
    with pytest.raises(ThreadExistsError):
        await handle.edit("m-two", "zwei", target, timeout=20)
    gate.opened.set()
    assert (await first).text == "done"
    await kept.sessions.session(target).close()


async def test_a_fork_is_of_the_same_tenant_and_user(kept: Stand, sid: str) -> None:
    """Tools go by the metadata, and lists by metadata and user."""
    handle, target = kept.sessions.session(sid, agent="main"), f"{sid}-edit"
    await handle.ask(
        "one", message_id="m-one", metadata={"tenant": "acme"}, properties=SessionProperties(user_id="u1")
    )
    counting(kept, target)
    await handle.edit("m-one", "ONE", target)
    assert [dict(each.metadata) for each in kept.desk.contexts[target]] == [{"tenant": "acme"}]
    state = await kept.sessions.session(target).get_state()
    assert state is not None
    assert (state.metadata, state.user_id) == ({"tenant": "acme"}, "u1")
    await kept.sessions.session(target).close()


async def test_the_first_message_can_be_edited(kept: Stand, sid: str) -> None:
    """The fork is empty then, and nothing that turns changed is in its state."""
    handle, target = kept.sessions.session(sid, agent="main"), f"{sid}-edit"
    counting(kept, sid)
    await talk(handle, "one", "two")
    await handle.edit("m-one", "ONE", target)
    assert await users(kept, target) == ["ONE"]
    state = await kept.sessions.session(target).get_state()
    assert state is not None
    assert state.custom_state == {}
    await kept.sessions.session(target).close()


async def test_a_fork_begins_with_the_state_of_its_place(kept: Stand, sid: str) -> None:
    """Also one that is only talked to later; by the façade as by the client."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one", "two")
    second, first = (await handle.list_checkpoints()).items
    agent = Agent(name="main", model=kept.desk)
    copy = await fork_session(
        sid, agent, new_session_id=f"{sid}-copy", at_checkpoint=first.id, client=kept.sessions
    )
    assert [each.text for each in await copy.get_messages() if each.role == "user"] == ["one"]
    await copy.send("three")
    assert [event.type async for event in copy.receive()][-1] == "result"
    state = await kept.sessions.session(copy.id).get_state()
    assert state is not None
    assert state.custom_state == {"k": 1}
    assert await copy.get_usage() == (await kept.sessions.session(copy.id).get_usage()).tokens
    assert (await handle.fork(f"{sid}-whole")).position == second.head.position
    with pytest.raises(InvalidRequestError, match="both given"):
        await handle.fork(f"{sid}-none", at=4, at_checkpoint=first.id)
    with pytest.raises(CheckpointNotFoundError):
        await handle.fork(f"{sid}-none", at_checkpoint="cpv1-x-s1-t1-abcdef")
    await kept.sessions.session(copy.id).close()


# ---- resets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place_of", [0.3, 0.6, 0.9], ids=["early", "middle", "late"])
async def test_after_a_reset_thread_and_state_stand_together(kept: Stand, sid: str, place_of: float) -> None:
    """Requests to take turns back are applied again with everything else, each once."""
    handle = kept.sessions.session(sid, agent="main")
    counting(kept, sid)
    await talk(handle, "one", "two", "three")
    await handle.rewind_to_turn(1, operation_id="op-1")
    await talk(handle, "four")
    await handle.regenerate(operation_id="op-2")
    ends = await task_ends(kept, sid)
    await reset(kept, sid, ends[int(len(ends) * place_of)])
    await talk(handle, "last")
    await stands_together(kept, sid)
    assert await users(kept, sid) == ["one", "four", "last"]
