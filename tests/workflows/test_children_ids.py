"""Ids of sub-agents' sessions: nobody else's session begins under one, and those that are there go on."""

from typing import Any

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from helix_temporal.client import workflow_id
from helix_temporal.errors import InvalidIdError, SessionNotFoundError
from helix_temporal.models.sessions import ForkFrom, Mode, SessionInput, UserMessage
from helix_temporal.workflows import SessionWorkflow
from tests.workflows.conftest import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refused(crew: Crew, start: SessionInput) -> str | None:
    """The type of the error that a session ends with which is started without our client."""
    handle = await crew.served.client.start_workflow(
        SessionWorkflow.run,
        start,
        id=workflow_id(start.session_id),
        task_queue=crew.served.plugin.settings.task_queue,
    )
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    return failed.value.cause.type


async def test_a_client_begins_no_session_under_a_sub_agents_id(crew: Crew, sid: str) -> None:
    """The sub-agent would go on with what a stranger has said; nothing is started or stored."""
    child = f"{sid}>helper"
    with pytest.raises(InvalidIdError, match="without '>'"):
        await crew.sessions.ask(child, "hello", agent="helper")
    with pytest.raises(InvalidIdError, match="without '>'"):
        await crew.sessions.send(child, "hello", agent="helper")
    with pytest.raises(InvalidIdError, match="without '>'"):
        await crew.sessions.ask(sid, "hello", agent="helper", thread_id=child)
    for each in (sid, child):
        with pytest.raises(RPCError):
            await crew.handle(each).describe()


async def test_a_client_copies_no_thread_to_a_sub_agents_id(crew: Crew, sid: str) -> None:
    """As above, by a fork and by an edit."""
    child = f"{sid}>helper>abc.0"
    await crew.sessions.ask(sid, "hello", agent="helper", message_id="m-1")
    with pytest.raises(InvalidIdError):
        await crew.sessions.session(sid).fork(child)
    with pytest.raises(InvalidIdError):
        await crew.sessions.session(sid, agent="helper").edit("m-1", "good day", child)
    with pytest.raises(SessionNotFoundError):
        await crew.sessions.session(child).describe_thread()


@pytest.mark.parametrize("mode", ["auto", "new", "fork"])
async def test_a_session_that_is_no_sub_agents_is_refused_by_its_workflow(
    crew: Crew, sid: str, mode: Mode
) -> None:
    """Whoever starts it: a program may do without our client."""
    child = f"{sid}>helper"
    await crew.sessions.ask(sid, "hello", agent="helper")
    source: dict[str, Any] = {"fork_from": ForkFrom(thread_id=sid)} if mode == "fork" else {}
    hello = UserMessage(id="m-1", text="hello")
    start = SessionInput(session_id=child, agent="helper", mode=mode, messages=(hello,), **source)
    assert await refused(crew, start) == "InvalidIdError"
    with pytest.raises(SessionNotFoundError):
        await crew.sessions.session(child).describe_thread()


async def test_the_session_of_a_sub_agent_has_its_own_thread(crew: Crew, sid: str) -> None:
    """Its state would otherwise belong to another conversation."""
    await crew.sessions.ask(sid, "hello", agent="helper")
    start = SessionInput(session_id=f"{sid}>helper", thread_id=sid, agent="helper")
    assert await refused(crew, start) == "InvalidIdError"


async def test_a_client_may_go_on_with_a_sub_agents_session(crew: Crew, sid: str) -> None:
    """People ask a specialist back; its next call knows of it."""
    await crew.sessions.ask(sid, "one", agent="continue")
    child = await crew.child(sid)
    assert child == f"{sid}>helper"
    assert (await crew.sessions.ask(child, "two", agent="helper")).text == "3: two"
    await crew.finish(child)
    assert (await crew.sessions.ask(sid, "three")).text == "5: three"
    assert await crew.texts(child) == ["one", "1: one", "two", "3: two", "three", "5: three"]


async def test_an_id_may_hold_the_sign_where_it_names_no_sub_agent(crew: Crew, sid: str) -> None:
    """Such as an address with its brackets."""
    named = f"Anna <{sid}@example.com> on tents"
    assert (await crew.sessions.ask(named, "hello", agent="helper")).text == "1: hello"
    await crew.finish(named)
