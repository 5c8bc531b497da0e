"""Messages: whenever they come, they count once and are answered or refused."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateInput,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError

from helix_temporal.agents import ModelRequest
from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    SessionNotFoundError,
    TooLargeError,
)
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    SessionInput,
    SessionOptions,
    SessionResult,
    UserMessage,
)
from helix_temporal.workflows import SessionWorkflow
from tests.workflows._desk import Desk, Gate, calls, echo
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def until_waiting(client: SessionClient, session_id: str, count: int) -> None:
    """Return once so many messages wait."""
    waiting = 0
    for _ in range(3000):
        waiting = (await client.session(session_id).get_status()).waiting
        if waiting >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} messages expected to wait, not {waiting}")


async def test_messages_that_waited_together_become_one_turn(stand: Stand, desk: Desk, sid: str) -> None:
    """Whoever types three lines while the model thinks gets one answer to all of them."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "first", agent="main"))
    await gate.reached.wait()
    others = [asyncio.create_task(stand.sessions.ask(sid, text)) for text in ("a", "b", "c")]
    await until_waiting(stand.sessions, sid, 3)
    gate.opened.set()
    assert (await first).text == "1: first"
    answers = [await other for other in others]
    assert len({answer.answer.id for answer in answers if answer.answer}) == 1
    assert {answer.status for answer in answers} == {AskStatus.ANSWERED}
    roles = [message.role for message in await stand.messages(sid)]
    assert roles == ["user", "assistant", "user", "user", "user", "assistant"]


async def test_a_message_that_comes_during_the_idle_end_is_answered(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Between deciding to end and ending there is a flush; whoever comes then is served."""
    client = stand.client(idle_timeout=0.15)
    await client.ask(sid, "hello", agent="main")
    for number in range(20):
        await asyncio.sleep(0.15 + number * 0.003)
        result = await client.ask(sid, f"{number}", agent="main", timeout=20)
        assert result.status is AskStatus.ANSWERED
    assert len(await stand.messages(sid)) == 42


async def test_a_message_before_the_thread_exists_is_answered(stand: Stand, sid: str) -> None:
    """Two first messages at once: one starts the session, both are served."""
    results = await asyncio.gather(
        *(stand.sessions.ask(sid, text, agent="main", timeout=30) for text in ("a", "b"))
    )
    assert {result.status for result in results} == {AskStatus.ANSWERED}
    users = [message.text for message in await stand.messages(sid) if message.role == "user"]
    assert sorted(users) == ["a", "b"]


async def test_the_same_message_again_gets_the_same_answer(stand: Stand, desk: Desk, sid: str) -> None:
    """A client whose connection broke asks again and pays nothing."""
    first = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    again = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    assert again == first
    assert len(desk.requests[sid]) == 1


async def test_the_same_message_while_it_is_answered_waits_for_that_answer(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Two processes that send one message get one answer."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "hello", agent="main", message_id="m-1"))
    await gate.reached.wait()
    second = asyncio.create_task(stand.sessions.ask(sid, "hello", message_id="m-1"))
    await asyncio.sleep(0.1)
    gate.opened.set()
    assert await first == await second
    assert await stand.texts(sid) == ["hello", "1: hello"]


async def test_the_same_message_after_a_restart_gets_the_same_answer(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The thread itself remembers ids, so another execution knows them too."""
    first = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    await stand.finish(sid)
    again = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    assert (again.status, again.answer, again.text) == (AskStatus.ANSWERED, first.answer, first.text)
    assert len(desk.requests[sid]) == 1


async def test_the_same_message_after_continue_as_new_gets_the_same_answer(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Update ids are remembered by one run only; answers are carried along."""
    client = stand.client(max_turns_per_run=2)
    first = await client.ask(sid, "hello", agent="main", message_id="m-1")
    for text in ("b", "c", "d"):
        await client.ask(sid, text, agent="main")
    again = await client.ask(sid, "hello", agent="main", message_id="m-1")
    assert (again.answer, again.text) == (first.answer, first.text)
    assert len(desk.requests[sid]) == 4


async def test_the_same_message_past_the_remembered_answers_is_known_by_the_thread(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """An execution remembers 32 answers; the thread, ids among its newest 200 messages."""
    client = stand.client(max_turns_per_run=20)
    first = await client.ask(sid, "hello", agent="main", message_id="m-1")
    for number in range(40):
        await client.ask(sid, f"{number}", agent="main")
    again = await client.ask(sid, "hello", agent="main", message_id="m-1")
    assert (again.answer, again.text) == (first.answer, first.text)
    assert len(desk.requests[sid]) == 41


async def test_the_same_message_past_the_threads_window_is_remembered_by_the_execution(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Turns with many tool calls push it out of the newest 200 messages within a few answers."""
    desk.scripts[sid] = lambda request: (
        calls(*"abcdefghij") if request.messages[-1].text.startswith("tools") else echo(request)
    )
    client = stand.client(max_turns_per_run=10)
    first = await client.ask(sid, "hello", agent="main", message_id="m-1")
    for number in range(16):
        await client.ask(sid, f"tools {number}", agent="main")
    assert (await client.session(sid).get_status()).head.position > 200
    asked = len(desk.requests[sid])
    again = await client.ask(sid, "hello", agent="main", message_id="m-1")
    assert (again.answer, again.text) == (first.answer, first.text)
    assert len(desk.requests[sid]) == asked


async def test_a_message_sent_again_beside_a_new_one_gets_its_own_answer(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """They wait together, but they are not one question."""
    first = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    await stand.finish(sid)
    gate = Gate()
    desk.scripts[sid] = gate.then()
    held = asyncio.create_task(stand.sessions.ask(sid, "wait", agent="main"))
    await gate.reached.wait()
    again = asyncio.create_task(stand.sessions.ask(sid, "hello", message_id="m-1"))
    fresh = asyncio.create_task(stand.sessions.ask(sid, "new", message_id="m-2"))
    await until_waiting(stand.sessions, sid, 2)
    gate.opened.set()
    await held
    assert (await again).answer == first.answer
    assert (await fresh).text == "5: new"


async def test_a_message_under_the_id_of_an_answer_is_refused(stand: Stand, desk: Desk, sid: str) -> None:
    """It was told that its turn was interrupted, as a message is that was sent before and has no answer."""
    first = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    assert first.answer is not None
    with pytest.raises(IdempotencyConflictError, match=rf"{first.answer.id!r} belongs to another message"):
        await stand.sessions.ask(sid, "next", message_id=first.answer.id)
    assert (await stand.sessions.ask(sid, "next", message_id="m-2")).text == "3: next"
    assert await stand.texts(sid) == ["hello", "1: hello", "next", "3: next"]


async def test_a_message_under_the_id_of_an_answer_is_refused_alone(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Those that wait with it have their turn, and one that is sent again its own answer."""
    first = await stand.sessions.ask(sid, "hello", agent="main", message_id="m-1")
    assert first.answer is not None
    await stand.finish(sid)
    gate = Gate()
    desk.scripts[sid] = gate.then()
    held = asyncio.create_task(stand.sessions.ask(sid, "wait", agent="main"))
    await gate.reached.wait()
    named = {"taken": first.answer.id, "hello": "m-1", "new": "m-2"}
    asks = [
        asyncio.create_task(stand.sessions.ask(sid, text, message_id=each)) for text, each in named.items()
    ]
    await until_waiting(stand.sessions, sid, 3)
    gate.opened.set()
    await held
    taken, again, fresh = await asyncio.gather(*asks, return_exceptions=True)
    assert isinstance(taken, IdempotencyConflictError)
    assert isinstance(again, AskResult)
    assert again.answer == first.answer
    assert isinstance(fresh, AskResult)
    assert fresh.text == "5: new"


async def test_a_message_is_forgotten_where_the_thread_is_cut(stand: Stand, sid: str) -> None:
    """What was rewound is gone: the same id asks anew rather than for an answer that is not there."""
    await stand.sessions.ask(sid, "one", agent="main")
    head = (await stand.sessions.session(sid).get_status()).head
    await stand.sessions.ask(sid, "two", message_id="m-2")
    await stand.sessions.session(sid).rewind(head)
    await stand.sessions.ask(sid, "other")
    client = stand.client()
    result = await asyncio.wait_for(client.ask(sid, "two", message_id="m-2-again"), 20)
    assert result.text == "5: two"


async def test_send_leaves_a_message_without_waiting(stand: Stand, desk: Desk, sid: str) -> None:
    """For whoever does not want the answer, or looks for it later under the same id."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    message_id = await stand.sessions.send(sid, "hello", agent="main")
    await gate.reached.wait()
    gate.opened.set()
    result = await stand.sessions.ask(sid, "hello", message_id=message_id)
    assert result.text == "1: hello"
    assert len(desk.requests[sid]) == 1


async def test_close_serves_what_waits_first(stand: Stand, desk: Desk, sid: str) -> None:
    """A session that is closed loses nobody's message."""
    gate = Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "first", agent="main"))
    await gate.reached.wait()
    second = asyncio.create_task(stand.sessions.ask(sid, "second"))
    await until_waiting(stand.sessions, sid, 1)
    await stand.sessions.session(sid).close()
    gate.opened.set()
    assert [(await first).text, (await second).text] == ["1: first", "3: second"]
    assert (await stand.sessions.session(sid).result()).turns == 2


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", InvalidRequestError),
        ("\ud800 alone", InvalidMessageError),
        ("a\x00b", InvalidMessageError),
        ("x" * (1024 * 1024 + 1), TooLargeError),
    ],
    ids=["empty", "surrogate", "nul", "too large"],
)
async def test_the_client_refuses_texts_that_no_thread_can_hold(
    stand: Stand, sid: str, text: str, error: type[Exception]
) -> None:
    """Each with its own error, before anything is started."""
    with pytest.raises(error):
        await stand.sessions.ask(sid, text, agent="main", timeout=10)


@pytest.mark.parametrize("text", ["", "a\x00b", "x" * (256 * 1024 + 1)], ids=["empty", "nul", "too large"])
async def test_the_session_refuses_texts_that_no_thread_can_hold(stand: Stand, sid: str, text: str) -> None:
    """Other clients than ours send updates too; what is refused leaves nothing in the history."""
    await stand.sessions.ask(sid, "hello", agent="main")
    await stand.at_rest(sid)
    before = len(await stand.events(sid))
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await stand.handle(sid).execute_update("ask", UserMessage(id="m", text=text))
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type in {"InvalidRequestError", "InvalidMessageError", "TooLargeError"}
    assert len(await stand.events(sid)) == before


async def test_a_rejected_first_ask_ends_the_empty_run_at_once(stand: Stand, sid: str) -> None:
    """A bad first message must not leave an idle session behind, nor a thread."""
    start: WithStartWorkflowOperation[SessionWorkflow, SessionResult] = WithStartWorkflowOperation(
        SessionWorkflow.run,
        SessionInput(session_id=sid, agent="main", expects_ask=True, options=SessionOptions()),
        id=workflow_id(sid),
        task_queue=stand.served.plugin.settings.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    with pytest.raises(WorkflowUpdateFailedError):
        await stand.served.client.execute_update_with_start_workflow(
            "ask", UserMessage(id="m", text=""), start_workflow_operation=start
        )
    ended = await asyncio.wait_for((await start.workflow_handle()).result(), 10)
    assert ended.turns == 0
    kinds = [event.WhichOneof("attributes") for event in await stand.events(sid)]
    assert "activity_task_scheduled_event_attributes" not in kinds


async def test_a_first_ask_that_is_accepted_does_not_end_the_run(stand: Stand, sid: str) -> None:
    """The other side of it: the ask that comes with the start is seen before the run looks."""
    result = await stand.sessions.ask(sid, "hello", agent="main")
    assert result.status is AskStatus.ANSWERED
    assert (await stand.sessions.session(sid).get_status()).status == "idle"


async def test_a_session_that_must_be_started_needs_an_agent(stand: Stand, sid: str) -> None:
    """Without a name there is nothing to start; the error says what to do."""
    with pytest.raises(SessionNotFoundError, match="agent") as caught:
        await stand.sessions.ask(sid, "hello", timeout=10)
    assert sid in str(caught.value)


@pytest.mark.parametrize("bad", ["", "x" * 300, "a\nb"], ids=["empty", "too long", "control"])
async def test_bad_session_ids_are_refused_before_anything_is_started(stand: Stand, bad: str) -> None:
    """An id is a key in every store."""
    with pytest.raises(InvalidIdError):
        await stand.sessions.ask(bad, "hello", agent="main", timeout=10)


async def test_messages_that_a_session_starts_with_are_served(stand: Stand, sid: str) -> None:
    """For programs that start the workflow themselves."""
    handle = await stand.served.client.start_workflow(
        SessionWorkflow.run,
        SessionInput(
            session_id=sid,
            agent="main",
            messages=(UserMessage(id="m-1", text="one"), UserMessage(id="m-2", text="two")),
            options=SessionOptions(persistent=False),
        ),
        id=workflow_id(sid),
        task_queue=stand.served.plugin.settings.task_queue,
    )
    assert (await handle.result()).turns == 1
    assert await stand.texts(sid) == ["one", "two", "2: two"]


async def test_metadata_reaches_the_model(stand: Stand, desk: Desk, sid: str) -> None:
    """Tenants, locales and the like belong to a session, not to its texts."""
    await stand.sessions.ask(sid, "hello", agent="main", metadata={"tenant": "acme"})
    assert dict(desk.requests[sid][0].metadata) == {"tenant": "acme"}


def counting(session: str) -> Callable[[ModelRequest], str]:
    """An answer that tells what was asked."""
    return lambda request: f"{session}/{echo(request)}"


async def test_sessions_do_not_hear_each_other(stand: Stand, desk: Desk) -> None:
    """Ten sessions at once on one worker, each with its own thread."""
    ids = [f"s-{uuid.uuid4().hex[:8]}" for _ in range(10)]
    for session_id in ids:
        desk.scripts[session_id] = counting(session_id)
    client = stand.client(persistent=False)
    for _ in range(2):
        await asyncio.gather(*(client.ask(session_id, session_id, agent="main") for session_id in ids))
    for session_id in ids:
        texts = await stand.texts(session_id)
        assert texts == [
            session_id,
            f"{session_id}/1: {session_id}",
            session_id,
            f"{session_id}/3: {session_id}",
        ]


async def test_a_session_with_as_many_updates_as_the_server_takes_is_closed_in_the_end(
    stand: Stand, desk: Desk, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses an eleventh: it is asked again until there is room, or says that there was none."""
    monkeypatch.setattr("helix_temporal.client._updates.CONTROL_SECONDS", 12.0)
    gate, served = Gate(), stand.served
    desk.scripts[sid] = gate.then()
    asks = [asyncio.create_task(stand.sessions.ask(sid, "first", agent="main"))]
    await gate.reached.wait()
    for _ in range(2):
        others = SessionClient(served.client, task_queue=served.plugin.settings.task_queue)
        asks += [
            asyncio.create_task(others.ask(sid, f"more {at}", agent="main", timeout=100)) for at in range(6)
        ]
    await until_waiting(stand.sessions, sid, 9)
    with pytest.raises(TimeoutError, match="no result of 'close' within 12 s"):
        await stand.sessions.session(sid).close()
    closing = asyncio.create_task(stand.sessions.session(sid).close())
    gate.opened.set()
    await closing
    assert {each.status for each in await asyncio.gather(*asks)} == {AskStatus.ANSWERED}


class LostOnce(Interceptor):
    """The first update comes with a workflow task that a worker does without it."""

    def __init__(self) -> None:
        self.lost = False

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (its name)
        """As the SDK's."""
        return _LosesFirst(next, self)


class _LosesFirst(OutboundInterceptor):
    def __init__(self, outer: OutboundInterceptor, owner: LostOnce) -> None:
        super().__init__(outer)
        self._owner = owner

    async def start_workflow_update(
        self,
        input: StartWorkflowUpdateInput,  # noqa: A002 (its name)
    ) -> WorkflowUpdateHandle[Any]:
        if self._owner.lost:
            return await super().start_workflow_update(input)
        self._owner.lost = True
        raise WorkflowUpdateFailedError(ApplicationError("not processed by worker", type="UnprocessedUpdate"))


async def test_an_update_that_no_worker_took_up_is_sent_again(stand: Stand, sid: str) -> None:
    """The server says so of a worker that was lost, or had not the session in its cache."""
    config: Any = stand.served.client.config()
    lost = LostOnce()
    client = Client(**{**config, "interceptors": [lost]})
    others = SessionClient(client, task_queue=stand.served.plugin.settings.task_queue)
    assert (await others.ask(sid, "hello", agent="main", timeout=30)).status is AskStatus.ANSWERED
    assert lost.lost
