"""A session stays on its worker version within a turn, and moves to the next one between turns."""

import asyncio
import uuid
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from helix_temporal.client import workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionFailedError
from helix_temporal.models.ids import ASK_AGAIN
from helix_temporal.models.sessions import AskResult, AskStatus, SessionInput, SessionOptions, UserMessage
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from helix_temporal.workflows.target_version import has_target_changed
from tests.workflows._changed_session import Errand, HeldSession
from tests.workflows._desk import Gate
from tests.workflows._releases import (
    NEW,
    OLD,
    UNPINNED,
    Book,
    Release,
    Releases,
    build_of,
    build_of_run,
    failed_tasks,
    list_runs,
    pin,
    until,
)
from tests.workflows.conftest import make_settings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest.fixture
def settings(temporal_address: str, redis_url: str, s3: S3Endpoint) -> Settings:
    """A task queue, and so a Worker Deployment, of its own."""
    return make_settings(temporal_address, redis_url, s3, f"v{uuid.uuid4().hex[:12]}")


@pytest.fixture
def sid() -> str:
    return f"s-{uuid.uuid4().hex[:8]}"


async def user_texts(release: Release, session_id: str) -> list[str]:
    messages = await release.sessions.session(session_id).get_messages()
    return [each.text for each in messages if each.role == "user"]


async def served_by(build: str, release: Release, session_id: str) -> None:
    """Come back once the session is of this release, without being asked anything."""

    async def is_served() -> bool:
        return await build_of(release.client, session_id) == build

    await until(is_served)


def builds_of(book: Book, asked: str) -> list[list[str]]:
    """The releases that made model calls about a text, by session."""
    return [builds for (_, text), builds in book.builds.items() if text == asked]


async def check_end(releases: Releases, release: Release, session_id: str) -> None:
    """The session ends well, and no run of it, or of its sub-agents, had trouble."""
    await release.sessions.session(session_id).close()
    await release.sessions.session(session_id).result()
    runs = await list_runs(release.client, releases.settings.task_queue)
    assert not await failed_tasks(release.client, runs)
    assert not releases.book.repeated()


async def test_a_turn_under_way_ends_on_its_version_and_the_session_moves_with_it(
    settings: Settings, sid: str
) -> None:
    """The next version would not replay it: its turns record another step."""
    releases, gate = Releases(settings, Book()), Gate()
    releases.book.gates["act a"] = gate
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "act a", agent="main", timeout=60))
        await gate.reached.wait()
        await releases.make_current(old, NEW)
        gate.opened.set()
        assert (await asked).text == "done: act a"
        await served_by(NEW, old, sid)
        assert (await old.sessions.ask(sid, "act b", timeout=60)).text == "done: act b"
        assert releases.book.builds[sid, "act a"] == [OLD, OLD]
        assert releases.book.builds[sid, "act b"] == [NEW, NEW]
        await check_end(releases, old, sid)


async def test_the_same_move_breaks_a_session_that_is_not_pinned(settings: Settings, sid: str) -> None:
    """So these tests would notice a session that moves within a turn."""
    releases, gate = Releases(settings, Book(), UNPINNED), Gate()
    releases.book.gates["act a"] = gate
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "act a", agent="main", timeout=60))
        await gate.reached.wait()
        await releases.make_current(old, NEW)
        gate.opened.set()

        async def has_failed() -> bool:
            failed = await failed_tasks(old.client, await list_runs(old.client, settings.task_queue))
            return any(each.endswith("NON_DETERMINISTIC_ERROR") for each in failed)

        await until(has_failed)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await old.client.get_workflow_handle(workflow_id(sid)).terminate()


async def test_a_turn_that_waits_for_people_ends_on_its_version(settings: Settings, sid: str) -> None:
    """Also where it is asked, answered and approved meanwhile."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        waits = await old.sessions.ask(sid, "sign a", agent="main", timeout=60)
        assert waits.status is AskStatus.SUSPENDED
        await releases.make_current(old, NEW)
        await old.client.get_workflow_handle(workflow_id(sid)).signal("move")
        queued = asyncio.create_task(old.sessions.ask(sid, "say b", timeout=60))
        approval = ToolApproval(approval_id=waits.pending[0].id, approved=True)
        reply = await old.sessions.session(sid).submit_approval(approval, wait=True, timeout=60)
        assert reply.result is not None
        assert reply.result.text == "done: sign a"
        assert (await queued).text == "done: say b"
        assert releases.book.builds[sid, "sign a"] == [OLD, OLD]
        assert releases.book.builds[sid, "say b"] == [NEW]
        assert await user_texts(old, sid) == ["sign a", "say b"]
        await check_end(releases, old, sid)


async def test_a_turn_that_waits_in_no_execution_goes_on_with_the_new_version(
    settings: Settings, sid: str
) -> None:
    """With ``suspend="exit"`` nothing of it runs meanwhile, so the old version drains."""
    releases = Releases(settings, Book(), options=SessionOptions(idle_timeout=60, suspend="exit"))
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            waits = await old.sessions.ask(sid, "sign a", agent="main", timeout=60)
            await releases.make_current(old, NEW)
            await old.sessions.session(sid).result()
        approval = ToolApproval(approval_id=waits.pending[0].id, approved=True)
        reply = await new.sessions.session(sid).submit_approval(approval, wait=True, timeout=60)
        assert reply.result is not None
        assert reply.result.text == "done: sign a"
        assert releases.book.builds[sid, "sign a"] == [OLD, NEW]
        await check_end(releases, new, sid)


@pytest.mark.parametrize("session_store", [None, "none"])
async def test_a_sub_agents_call_is_answered_when_no_worker_of_its_version_is_left(
    settings: Settings, sid: str, session_store: Any
) -> None:
    """Under its own session id, as `list_children` has it: nobody is left to ask whose it is."""
    settings = settings.model_copy(update={"session_store": session_store})
    releases = Releases(settings, Book(), options=SessionOptions(idle_timeout=60, suspend="exit"))
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            waits = await old.sessions.ask(sid, "signer a", agent="main", timeout=60)
            await releases.make_current(old, NEW)
            await old.sessions.session(sid).result()
        (call,) = waits.pending
        child = new.sessions.session(call.route[-1])
        assert child.session_id != sid
        approval = ToolApproval(approval_id=call.id, approved=True)
        reply = await child.submit_approval(approval, wait=True, timeout=30)
        assert reply.result is not None
        assert reply.result.text == "done: signer a"
        assert releases.book.builds[sid, "signer a"] == [OLD, NEW]
        await check_end(releases, new, sid)


async def test_a_turn_whose_run_was_terminated_is_stopped_when_no_worker_of_its_version_is_left(
    settings: Settings, sid: str
) -> None:
    """The next run would wait for the same people."""
    releases = Releases(settings, Book())
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            await old.sessions.ask(sid, "sign a", agent="main", message_id="m", timeout=60)
            await old.client.get_workflow_handle(workflow_id(sid)).terminate()
            await releases.make_current(old, NEW)
        assert await asyncio.wait_for(new.sessions.session(sid).stop(), 30)
        again = await new.sessions.ask(sid, "sign a", agent="main", message_id="m", timeout=30)
        assert again.status is AskStatus.INTERRUPTED
        await check_end(releases, new, sid)


async def test_a_session_that_failed_is_not_stopped_when_no_worker_of_its_version_is_left(
    settings: Settings, sid: str
) -> None:
    """Nothing of it waits, and that is said at once."""
    releases = Releases(settings, Book())
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            failed = await old.sessions.ask(sid, "say a", agent="nobody", timeout=60)
            assert failed.status is AskStatus.FAILED
            with pytest.raises(SessionFailedError):
                await old.sessions.session(sid).result()
            await releases.make_current(old, NEW)
        assert not await asyncio.wait_for(new.sessions.session(sid).stop(), 30)
        assert (await new.sessions.ask(sid, "say a", agent="main", timeout=30)).text == "done: say a"
        await check_end(releases, new, sid)


async def test_an_idle_session_moves_before_it_takes_a_message(settings: Settings, sid: str) -> None:
    """Asked or sent, each message has one turn: on the new version, which it came to with its session."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say a", agent="main", timeout=60)
        await releases.make_current(old, NEW)
        await old.sessions.send(sid, "say b")
        told = await asyncio.gather(*(old.sessions.ask(sid, f"say {each}", timeout=60) for each in "cdef"))
        assert all(each.status is AskStatus.ANSWERED for each in told)
        assert {build for builds in list(releases.book.builds.values())[1:] for build in builds} == {NEW}
        texts = await user_texts(old, sid)
        assert texts[:2] == ["say a", "say b"]
        assert sorted(texts) == [f"say {each}" for each in "abcdef"]
        await check_end(releases, old, sid)


async def test_a_signal_is_enough_for_an_idle_session_to_move(settings: Settings, sid: str) -> None:
    """Who wants to stop the old workers need not wait for messages or idle time-outs."""
    releases = Releases(settings, Book())
    async with releases.serve(NEW) as new:
        async with releases.serve(OLD) as old:
            await releases.make_current(old, OLD)
            await old.sessions.ask(sid, "say a", agent="main", timeout=60)
            await releases.make_current(old, NEW)
            assert await build_of(old.client, sid) == OLD
            await until(lambda: _is_listed(old, settings.task_queue, sid))
            await old.client.get_workflow_handle(workflow_id(sid)).signal("move")
            await served_by(NEW, old, sid)
        assert (await new.sessions.ask(sid, "say b", timeout=60)).text == "done: say b"
        await check_end(releases, new, sid)


async def _is_listed(release: Release, worker_deployment: str, session_id: str) -> bool:
    """By the query with which operators signal all that are left on a version."""
    query = (
        'WorkflowType="helix.session" AND ExecutionStatus="Running" '
        f'AND TemporalWorkerDeploymentVersion="{worker_deployment}:{OLD}"'
    )
    return [each.id async for each in release.client.list_workflows(query)] == [workflow_id(session_id)]


async def test_a_sub_agent_works_on_the_version_of_its_caller(settings: Settings, sid: str) -> None:
    """It is a part of the turn; also one that begins when another version is current already."""
    releases, gate = Releases(settings, Book()), Gate()
    releases.book.gates["helper a"] = gate
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        asked = asyncio.create_task(old.sessions.ask(sid, "helper a", agent="main", timeout=60))
        await gate.reached.wait()
        await releases.make_current(old, NEW)
        gate.opened.set()
        assert (await asked).text == "done: helper a"
        assert builds_of(releases.book, "for helper a") == [[OLD]]
        assert (await old.sessions.ask(sid, "helper b", timeout=60)).text == "done: helper b"
        assert builds_of(releases.book, "for helper b") == [[NEW]]
        await check_end(releases, old, sid)


async def test_a_session_goes_back_with_its_release(settings: Settings, sid: str) -> None:
    """A roll-out that is taken back takes sessions along, between turns as well."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say a", agent="main", timeout=60)
        await releases.make_current(old, NEW)
        await old.sessions.ask(sid, "say b", timeout=60)
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say c", timeout=60)
        said = [releases.book.builds[sid, f"say {each}"] for each in "abc"]
        assert said == [[OLD], [NEW], [OLD]]
        await check_end(releases, old, sid)


async def test_a_session_that_somebody_holds_on_a_version_is_served_there(
    settings: Settings, sid: str
) -> None:
    """A pin of the operator goes with each run: moving would never end, and no message would have a turn."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say a", agent="main", timeout=60)
        await pin(old.client, settings.task_queue, sid, OLD)
        await releases.make_current(old, NEW)
        for each in "bcd":
            assert (await old.sessions.ask(sid, f"say {each}", timeout=60)).text == f"done: say {each}"
            assert releases.book.builds[sid, f"say {each}"] == [OLD]
        await check_end(releases, old, sid)


async def test_a_session_does_not_move_under_a_handler_of_the_application(
    settings: Settings, sid: str
) -> None:
    """It takes its messages meanwhile. A workflow that embeds a session and is pinned moves later."""
    releases = Releases(settings, Book())
    workflows = {"workflows": [HeldSession]}
    async with releases.serve(OLD, **workflows) as old, releases.serve(NEW, **workflows):
        await releases.make_current(old, OLD)
        given = SessionInput(session_id=sid, agent="main", options=SessionOptions(idle_timeout=60))
        handle = await old.client.start_workflow(
            HeldSession.run, given, id=f"held-{sid}", task_queue=settings.task_queue
        )
        await ask(handle, "say a")
        holds = asyncio.create_task(handle.execute_update("hold"))
        await until(lambda: _is_held(handle))
        await releases.make_current(old, NEW)
        await ask(handle, "say b")
        assert await build_of_run(old.client, handle.id) == OLD
        await handle.signal("release")
        await holds
        await ask(handle, "say c")
        assert [releases.book.builds[sid, f"say {each}"] for each in "abc"] == [[OLD], [OLD], [NEW]]
        await handle.execute_update("close")
        assert not await failed_tasks(old.client, await list_runs(old.client, settings.task_queue))
        assert not releases.book.repeated()


async def test_a_workflow_of_the_application_goes_on_with_the_new_version(
    settings: Settings, sid: str
) -> None:
    """Nothing would tell it to move: pinned, it would hang once the old workers are gone."""
    releases = Releases(settings, Book())
    workflows = {"workflows": [Errand]}
    async with releases.serve(NEW, **workflows) as new:
        async with releases.serve(OLD, **workflows) as old:
            await releases.make_current(old, OLD)
            handle = await old.client.start_workflow(
                Errand.run, id=f"errand-{sid}", task_queue=settings.task_queue
            )
            await until(lambda: _is_of(OLD, old, handle.id))
            await releases.make_current(old, NEW)
        handle = new.client.get_workflow_handle_for(Errand.run, handle.id)
        await handle.signal(Errand.tell)
        assert await asyncio.wait_for(handle.result(), 20) == "done"


async def _is_of(build: str, release: Release, workflow: str) -> bool:
    return await build_of_run(release.client, workflow) == build


async def ask(handle: WorkflowHandle[Any, Any], text: str) -> None:
    """As a client of a session does: again, where the run lets its askers go."""
    message = UserMessage(id=text, text=text)

    async def is_answered() -> bool:
        try:
            result = await handle.execute_update("ask", message, result_type=AskResult)
        except WorkflowUpdateFailedError as refused:
            if not isinstance(refused.cause, ApplicationError) or refused.cause.type != ASK_AGAIN:
                raise
            return False
        assert result.text == f"done: {text}"
        return True

    await until(is_answered)


async def _is_held(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool(await handle.query("held"))


async def test_a_session_that_was_told_once_to_move_does(
    settings: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has set the version back meanwhile, say: it must not stop half way, nor go on as if pinned."""
    told: set[str] = set()

    def has_changed() -> bool:
        run = workflow.info().run_id
        if run in told or not has_target_changed():
            return False
        told.add(run)
        return True

    monkeypatch.setattr("helix_temporal.workflows.session.has_target_changed", has_changed)
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old, releases.serve(NEW):
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say a", agent="main", timeout=60)
        await releases.make_current(old, NEW)
        assert (await old.sessions.ask(sid, "say b", timeout=60)).text == "done: say b"
        assert len(told) == 1
        assert releases.book.builds[sid, "say b"] == [NEW]
        await check_end(releases, old, sid)


async def test_a_session_that_is_told_to_move_in_vain_takes_its_message(
    settings: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the server says of the target version, a session that has moved has a turn first."""
    releases = Releases(settings, Book())
    async with releases.serve(OLD) as old:
        await releases.make_current(old, OLD)
        await old.sessions.ask(sid, "say a", agent="main", timeout=60)
        monkeypatch.setattr("helix_temporal.workflows.session.has_target_changed", lambda: True)
        for each in "bcd":
            assert (await old.sessions.ask(sid, f"say {each}", timeout=60)).text == f"done: say {each}"
        assert await user_texts(old, sid) == [f"say {each}" for each in "abcd"]
        await check_end(releases, old, sid)
        runs = [
            each for each in await list_runs(old.client, settings.task_queue) if each.id == workflow_id(sid)
        ]
        assert 2 <= len(runs) <= 5
