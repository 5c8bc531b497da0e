"""How a session comes to its thread: created, continued, forked, rewound."""

import uuid

import pytest

from helix_temporal.client import workflow_id
from helix_temporal.models.sessions import AskStatus, ForkFrom, SessionInput, SessionOptions, UserMessage
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.workflows import SessionWorkflow
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_auto_creates_the_thread_the_first_time(stand: Stand, sid: str) -> None:
    """A first message needs no set-up of any kind."""
    result = await stand.sessions.ask(sid, "hello", agent="main")
    assert (result.status, result.text) == (AskStatus.ANSWERED, "1: hello")


async def test_auto_continues_the_thread_from_the_archive_the_next_time(stand: Stand, sid: str) -> None:
    """A session that has ended and gone cold goes on with all that was said."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    assert not (await stand.sessions.session(sid).describe_thread()).hot
    result = await stand.sessions.ask(sid, "again", agent="main")
    assert result.text == "3: again"


async def test_new_creates_the_thread(stand: Stand, sid: str) -> None:
    """Mode new is for ids that must not be in use."""
    result = await stand.sessions.ask(sid, "hello", agent="main", mode="new")
    assert result.status is AskStatus.ANSWERED


async def test_new_on_an_existing_id_is_refused_and_changes_nothing(stand: Stand, sid: str) -> None:
    """Creating never overwrites, and the asker is told why at once rather than at the deadline."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    before = await stand.sessions.session(sid).describe_thread()
    result = await stand.sessions.ask(sid, "mine now", agent="main", mode="new", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("ThreadExistsError")
    assert await stand.sessions.session(sid).describe_thread() == before


async def test_continue_on_a_missing_id_is_refused_and_creates_nothing(stand: Stand, sid: str) -> None:
    """A typing error in an id must not start a conversation."""
    result = await stand.sessions.ask(sid, "hello", agent="main", mode="continue", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("ThreadNotFoundError")


async def test_continue_goes_on_with_what_is_there(stand: Stand, sid: str) -> None:
    """Mode continue is auto without the creating."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.finish(sid)
    result = await stand.sessions.ask(sid, "again", agent="main", mode="continue")
    assert result.text == "3: again"


async def test_fork_begins_with_all_turns_of_its_source(stand: Stand, sid: str) -> None:
    """A branch knows what was said, and the source does not hear of the branch."""
    source = f"{sid}-source"
    await stand.sessions.ask(source, "hello", agent="main")
    await stand.finish(source)
    result = await stand.sessions.ask(
        sid, "branch", agent="main", mode="fork", fork_from=ForkFrom(thread_id=source)
    )
    assert result.text == "3: branch"
    assert await stand.texts(source) == ["hello", "1: hello"]


async def test_fork_of_a_session_that_is_open_takes_its_finished_turns(stand: Stand, sid: str) -> None:
    """Branching off must not need the source to stop."""
    await stand.sessions.ask(f"{sid}-source", "hello", agent="main")
    result = await stand.sessions.ask(
        sid, "branch", agent="main", mode="fork", fork_from=ForkFrom(thread_id=f"{sid}-source")
    )
    assert result.text == "3: branch"
    assert (await stand.sessions.ask(f"{sid}-source", "on", agent="main")).text == "3: on"
    await stand.finish(f"{sid}-source")


async def test_fork_is_cut_off_where_it_is_told(stand: Stand, sid: str) -> None:
    """Another way from an earlier turn on."""
    source = f"{sid}-source"
    for text in ("one", "two", "three"):
        await stand.sessions.ask(source, text, agent="main")
    await stand.finish(source)
    await stand.sessions.ask(
        sid, "other", agent="main", mode="fork", fork_from=ForkFrom(thread_id=source, at=2)
    )
    assert await stand.texts(sid) == ["one", "1: one", "other", "3: other"]


async def test_fork_without_a_source_is_refused(stand: Stand, sid: str) -> None:
    """A request that contradicts itself is a clear error, not an empty thread."""
    result = await stand.sessions.ask(sid, "hello", agent="main", mode="fork", timeout=20)
    assert result.status is AskStatus.FAILED
    assert result.error is not None
    assert result.error.startswith("InvalidRequestError")


async def test_a_thread_may_have_another_id_than_its_session(stand: Stand, sid: str) -> None:
    """One thread may outlive many sessions."""
    thread_id = f"thread-{uuid.uuid4().hex[:8]}"
    result = await stand.sessions.ask(sid, "hello", agent="main", thread_id=thread_id)
    assert result.text == "1: hello"
    assert await stand.texts(thread_id) == ["hello", "1: hello"]
    assert (await stand.sessions.session(sid).get_status()).thread_id == thread_id


async def test_a_standard_session_ends_after_its_answer(stand: Stand, sid: str) -> None:
    """One question, one answer, nothing left in Redis."""
    client = stand.client(persistent=False)
    result = await client.ask(sid, "hello", agent="main")
    assert result.text == "1: hello"
    ended = await client.session(sid).result()
    assert (ended.status, ended.exit_reason, ended.turns) == ("completed", "completed", 1)
    assert not (await client.session(sid).describe_thread()).hot


async def test_a_standard_session_goes_on_where_it_ended(stand: Stand, sid: str) -> None:
    """The next question starts it again."""
    client = stand.client(persistent=False)
    await client.ask(sid, "hello", agent="main")
    await client.session(sid).result()
    assert (await client.ask(sid, "again", agent="main")).text == "3: again"
    await client.session(sid).result()


async def test_a_persistent_session_ends_when_it_is_idle_and_starts_again(stand: Stand, sid: str) -> None:
    """Idle sessions cost nothing, and nobody who asks can tell."""
    client = stand.client(idle_timeout=0.3)
    await client.ask(sid, "hello", agent="main")
    ended = await client.session(sid).result()
    assert (ended.status, ended.turns) == ("completed", 1)
    assert all(receipt.ok for receipt in ended.receipts)
    assert (await client.ask(sid, "again", agent="main")).text == "3: again"
    await client.session(sid).result()


async def test_a_session_can_be_started_at_an_earlier_turn(stand: Stand, sid: str) -> None:
    """``rewind_to`` is the start's own cut, before anything else happens."""
    await stand.sessions.ask(sid, "one", agent="main")
    head = (await stand.sessions.session(sid).get_status()).head
    await stand.sessions.ask(sid, "two", agent="main")
    await stand.finish(sid)
    handle = await stand.served.client.start_workflow(
        SessionWorkflow.run,
        SessionInput(
            session_id=sid,
            agent="main",
            rewind_to=head,
            messages=(UserMessage(id="m-other", text="other"),),
            options=SessionOptions(persistent=False),
        ),
        id=workflow_id(sid),
        task_queue=stand.served.plugin.settings.task_queue,
    )
    await handle.result()
    assert await stand.texts(sid) == ["one", "1: one", "other", "3: other"]


async def test_the_rewind_update_starts_a_session_that_does_not_run_and_cuts_what_follows(
    stand: Stand, sid: str
) -> None:
    """A session can be opened at an earlier turn of its own."""
    await stand.sessions.ask(sid, "one", agent="main")
    head = (await stand.sessions.session(sid).get_status()).head
    await stand.sessions.ask(sid, "two", agent="main")
    await stand.finish(sid)
    await stand.sessions.session(sid, agent="main").rewind(head)
    assert await stand.texts(sid) == ["one", "1: one"]


async def test_rewind_of_a_running_session_cuts_between_turns(stand: Stand, sid: str) -> None:
    """Editing an earlier question: back to before it, then ask anew."""
    await stand.sessions.ask(sid, "one", agent="main")
    assert await stand.sessions.session(sid).rewind(EMPTY) == EMPTY
    assert (await stand.sessions.ask(sid, "uno", agent="main")).text == "1: uno"
    assert await stand.texts(sid) == ["uno", "1: uno"]
