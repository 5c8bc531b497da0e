"""``timeout`` is that of the whole call: also of the short workflows before and after its update."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from helix_temporal.agents import Agent, ScriptedModel
from helix_temporal.client import SessionClient, _diagnosis, _updates
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Gate
from tests.workflows._ways import left_unserved
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

Call = Callable[[SessionClient, str], Awaitable[Any]]

LONG = "long " * 2000
CALLS: dict[str, tuple[str, Call]] = {
    "a short ask": ("ask", lambda s, i: s.ask(i, "hi", agent="main", timeout=2)),
    "a long ask": ("ask", lambda s, i: s.ask(i, LONG, agent="main", timeout=2)),
    "an ask of a sub-agent's session": (
        "ask",
        lambda s, i: s.ask(f"{i}>tool-1", "hi", agent="main", timeout=2),
    ),
    "a long message": ("send", lambda s, i: s.send(i, LONG, agent="main", timeout=2)),
    "edit": ("edit", lambda s, i: s.session(i, agent="main").edit("m", "hi", f"{i}-2", timeout=2)),
    "regenerate": ("regenerate", lambda s, i: s.session(i, agent="main").regenerate(timeout=2)),
    "submit_tool_result": (
        "submit_tool_result",
        lambda s, i: s.session(i).submit_tool_result("c", "r", timeout=2),
    ),
    "a long result": (
        "submit_tool_result",
        lambda s, i: s.session(i, agent="main").submit_tool_result("c", LONG, timeout=2),
    ),
    "submit_approval": (
        "submit_approval",
        lambda s, i: s.session(i).submit_approval(ToolApproval(approval_id="a", approved=True), timeout=2),
    ),
    "resume": ("resume", lambda s, i: s.session(i).resume(timeout=2)),
    "rewind": (
        "rewind",
        lambda s, i: s.session(i, agent="main").rewind(Head(position=1, last_id="m"), timeout=2),
    ),
    "rewind_to_turn": (
        "rewind_to_turn",
        lambda s, i: s.session(i, agent="main").rewind_to_turn(1, timeout=2),
    ),
    "restore_checkpoint": (
        "restore_checkpoint",
        lambda s, i: s.session(i, agent="main").restore_checkpoint("c", timeout=2),
    ),
    "delete": ("delete", lambda s, i: s.session(i).delete(timeout=2)),
    "wait_for_change": ("wait_for_change", lambda s, i: s.session(i).wait_for_change(timeout=2)),
}


@pytest.mark.usefixtures("patient_causes")
@pytest.mark.parametrize("name", CALLS)
async def test_without_a_worker_every_call_ends_in_its_time(stand: Stand, sid: str, name: str) -> None:
    """The error names the method that was called, the session, the queue and the namespace."""
    method, call = CALLS[name]
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    with pytest.raises(TimeoutError) as caught:
        await call(nobody, sid)
    assert str(caught.value).startswith(f"session '{sid}")
    assert f"no result of {method!r} within 2 s" in str(caught.value)
    assert f"no worker polls task queue '{sid}-nobody' in namespace 'default'" in str(caught.value)


async def test_a_diagnosis_that_takes_long_holds_no_error_up(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known by then is told: the error came seconds after the time-out that was given."""

    async def never(*_: object) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_wait", never)
    gate = Gate()
    stand.desk.scripts[sid] = gate.then()
    asked = asyncio.ensure_future(stand.sessions.ask(sid, "hi", agent="main", timeout=4))
    await gate.reached.wait()
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError, match="no result of 'ask' within 4 s; nothing is known"):
            await asked
    gate.opened.set()


async def test_a_diagnosis_begins_before_the_time_is_up(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes a moment is told all the same, and nobody waits for it any longer."""
    monkeypatch.setattr(_updates, "_LEAD", 3.0)
    begun = list[float]()

    async def slow(*_: object) -> str:
        begun.append(asyncio.get_running_loop().time())
        return "it is slow"

    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_wait", slow)
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    deadline = asyncio.get_running_loop().time() + 6
    with pytest.raises(TimeoutError, match="it is slow"):
        await nobody.ask(sid, "hi", agent="main", timeout=6)
    assert begun[0] < deadline


async def test_a_long_message_waits_for_a_worker_as_a_short_one_does(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed where the worker came later than a read would wait for one."""
    monkeypatch.setattr(_diagnosis, "_UNSERVED", 0.5)
    monkeypatch.setattr(_diagnosis, "_UNSERVED_LOOK", 0.2)
    settings = stand.served.plugin.settings.model_copy(update={"task_queue": f"{sid}-late"})
    late = SessionClient(stand.served.client, task_queue=settings.task_queue)
    asking = asyncio.create_task(late.ask(sid, LONG, agent="late", timeout=60))
    await asyncio.sleep(3)
    async with session_worker(settings, [Agent(name="late", model=ScriptedModel(["here"]))], drain=1.0):
        assert (await asking).text == "here"


async def test_a_long_answer_is_fetched_within_the_time(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left after the turn is for the answer's text, not for waiting without end."""
    stand.desk.scripts[sid] = lambda _: LONG * 20

    async def never(*_: object, **__: object) -> Any:
        await asyncio.Event().wait()

    sessions = stand.client()
    assert (await stand.sessions.ask(sid, "hello", agent="main", message_id="m", timeout=60)).in_thread
    monkeypatch.setattr(sessions._connection.reader, "read_page", never)
    with pytest.raises(TimeoutError, match="no result of 'ask' within 4 s"):
        await sessions.ask(sid, "hello", agent="main", message_id="m", timeout=4)
    monkeypatch.undo()
    assert (await stand.sessions.session(sid).list_messages()).items[-1].text == LONG * 20


async def test_an_answer_to_a_call_waits_for_a_worker(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the session is asked for first gave up after 10 s, whatever the time-out."""
    monkeypatch.setattr(_updates, "_QUERY_SECONDS", 0.5)
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    await left_unserved(nobody, sid)
    with pytest.raises(TimeoutError, match="no result of 'submit_tool_result' within 4 s"):
        await nobody.session(sid).submit_tool_result("c", "r", timeout=4)


@pytest.mark.parametrize(
    ("known", "told"),
    [("", "; the session did not answer a query either"), ("its worker is away", "; its worker is away")],
)
async def test_a_session_that_answers_no_query_either_is_told_where_nothing_else_is_known(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch, known: str, told: str
) -> None:
    """It said how long it had waited, and nothing that leads on."""

    async def why(*_: object) -> str:
        return known

    async def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_wait", why)
    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_queue", nothing)
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    with pytest.raises(TimeoutError) as caught:
        await nobody.ask(sid, "hi", agent="main", timeout=1)
    assert str(caught.value) == f"session {sid!r}: no result of 'ask' within 1 s{told}"


@pytest.mark.usefixtures("patient_causes")
async def test_who_cannot_be_looked_at_one_by_one_is_told_of_the_queue(
    stand: Stand, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300 asks at once 290 were told that the session answered no query: the server had no time."""

    async def late(*_: object) -> str:
        await asyncio.sleep(60)
        return ""

    async def crowd(*_: object) -> str:
        return "workers have too much to do"

    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_wait", late)
    nobody = SessionClient(stand.served.client, task_queue=f"{sid}-nobody")
    with pytest.raises(TimeoutError, match=r"; no worker polls task queue '.*-nobody' in namespace"):
        await nobody.ask(sid, "hi", agent="main", timeout=1)
    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_queue", crowd)
    with pytest.raises(TimeoutError, match=r"within 1 s; workers have too much to do; the session"):
        await nobody.ask(sid, "hi", agent="main", timeout=1)
    monkeypatch.setattr(_diagnosis.Diagnosis, "explain_queue", late)
    with pytest.raises(TimeoutError, match=r"within 1 s; the Temporal server did not say in time"):
        await nobody.ask(sid, "hi", agent="main", timeout=1)
