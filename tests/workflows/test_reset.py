"""Resets by an operator: the thread follows the workflow's new branch, nothing is lost or doubled."""

import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from helix_temporal.agents import ModelRequest, ToolContext
from helix_temporal.client import workflow_id
from helix_temporal.errors import HeadMovedError, HelixError, InvalidRequestError, SessionInterruptedError
from helix_temporal.models.sessions import AskStatus, ForkFrom, SessionInput, SessionOptions
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.stores.protocols.threads import OpenedThread, OpenThread
from helix_temporal.workflows import SessionWorkflow
from tests._resets import reset_workflow
from tests.workflows._desk import Answer, Desk, Gate, calls, echo, first_tools_then
from tests.workflows.conftest import Stand
from tests.workflows.test_inbox import until_waiting

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def task_ends(stand: Stand, session_id: str, run_id: str | None = None) -> list[int]:
    """Event ids at which a reset may happen: completed workflow tasks."""
    events = await stand.events(session_id, run_id)
    return [each.event_id for each in events if each.HasField("workflow_task_completed_event_attributes")]


async def reset(
    stand: Stand, session_id: str, event_id: int, run_id: str | None = None, *, reapplies: bool = True
) -> str:
    """Start a new branch of the execution after this event; updates since are applied again, or not."""
    exclude = [] if reapplies else [ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE]
    return await reset_workflow(
        stand.served.client, workflow_id(session_id), event_id, run_id=run_id or "", exclude=exclude
    )


async def check(stand: Stand, session_id: str, texts: list[str]) -> None:
    """Every message once and in order, each followed by its answer."""
    messages = await stand.messages(session_id)
    assert [each.text for each in messages if each.role == "user"] == texts
    assert len({each.id for each in messages}) == len(messages)
    audit = await stand.served.plugin.backends.tiered.upkeep.audit(session_id)
    assert audit.problems == ()


async def talk(stand: Stand, session_id: str, *texts: str) -> None:
    for text in texts:
        result = await stand.sessions.ask(session_id, text, agent="main", message_id=f"m-{text}", timeout=30)
        assert result.status is AskStatus.ANSWERED


def hold_tool(desk: Desk, session_id: str, gate: Gate) -> set[str]:
    """Have the session's tool wait at the gate; the keys under which it ran."""
    keys = set[str]()

    async def act(what: str, context: ToolContext) -> str:
        keys.add(context.key)
        await gate.passing()
        return what

    desk.acts[session_id] = act
    return keys


async def test_a_reset_to_a_middle_point_loses_and_doubles_nothing(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Updates after the point are applied again by the server, all at once: each finds its own answer."""
    await talk(stand, sid, "one", "two", "three")
    before = await stand.messages(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[2])
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])
    assert (await stand.messages(sid))[:6] == before
    assert len(desk.requests[sid]) == 4


@pytest.mark.parametrize("turns", [None, 1], ids=["in its first run", "continued as new"])
async def test_a_session_that_was_reset_opens_its_thread_again(
    stand: Stand, sid: str, turns: int | None
) -> None:
    """Once, before anything else: steps of before the reset that are still on their way come too late."""
    client = stand.client(**({} if turns is None else {"max_turns_per_run": turns}))
    for text in ("one", "two"):
        await client.ask(sid, text, agent="main", timeout=30)
    async with asyncio.timeout(20):
        while not (ends := await task_ends(stand, sid)):  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.05)
    before = await opens(stand, sid)
    run_id = await reset(stand, sid, ends[-1])
    for text in ("three", "four"):
        await client.ask(sid, text, timeout=30)
    await check(stand, sid, ["one", "two", "three", "four"])
    assert (before, await opens(stand, sid, run_id)) == ((0, 1) if turns else (1, 2))


async def opens(stand: Stand, session_id: str, run_id: str | None = None) -> int:
    """How often a run has opened the thread."""
    events = await stand.events(session_id, run_id)
    started = [each.activity_task_scheduled_event_attributes.activity_type.name for each in events]
    return started.count("helix.sessions.open")


async def test_a_step_that_is_done_again_finds_itself_and_pays_nothing(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The model was asked and its answer stands: asking again would give another one."""
    await talk(stand, sid, "one", "two", "three")
    before = await stand.messages(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[-1])
    await talk(stand, sid, "four")
    assert (await stand.messages(sid))[:6] == before
    assert len(desk.requests[sid]) == 4


async def test_a_reset_with_tools_finds_its_own_steps(stand: Stand, desk: Desk, sid: str) -> None:
    """A step that asked for tools is found too, whichever part of its turn is done again."""
    desk.scripts[sid] = first_tools_then("done", "a", "b")
    await talk(stand, sid, "one", "two")
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[len(ends) // 2])
    await talk(stand, sid, "three")
    await check(stand, sid, ["one", "two", "three"])


@pytest.mark.parametrize("at", [1, -1], ids=["before finished turns", "right before it"])
async def test_a_turn_that_stands_unfinished_goes_before_others_after_a_reset(
    stand: Stand, desk: Desk, sid: str, at: int
) -> None:
    """Its tool works under one key, whoever comes first when the session has found its way."""
    gate = Gate()
    keys = hold_tool(desk, sid, gate)
    desk.scripts[sid] = lambda request: calls("x") if request.messages[-1].text == "tool" else echo(request)
    await talk(stand, sid, "one", "two")
    first = (await task_ends(stand, sid))[at]
    asking = asyncio.create_task(talk(stand, sid, "tool"))
    await gate.reached.wait()
    await reset(stand, sid, first, reapplies=False)
    gate.opened.set()
    await talk(stand, sid, "other")
    await asking
    await check(stand, sid, ["one", "two", "tool", "other"])
    assert len(keys) == 1


async def test_a_turn_of_two_messages_that_stands_unfinished_is_found_by_one_of_them(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The other comes later, or never: the turn is theirs together, and its tool works under one key."""
    first, gate, keys = Gate(), Gate(), set[str]()

    async def act(what: str, context: ToolContext) -> str:
        keys.add(context.key)
        await (gate if what == "second" else first).passing()
        return what

    def script(request: ModelRequest) -> Answer:
        said = request.messages[-1]
        return echo(request) if said.role == "tool" else calls("second" if said.text == "b" else "first")

    desk.acts[sid], desk.scripts[sid] = act, script
    asks = [asyncio.create_task(talk(stand, sid, "one"))]
    await first.reached.wait()
    before = (await task_ends(stand, sid))[-1]
    for waiting, text in enumerate(("a", "b"), 1):
        asks.append(asyncio.create_task(talk(stand, sid, text)))
        await until_waiting(stand.sessions, sid, waiting)
    first.opened.set()
    await gate.reached.wait()
    await reset(stand, sid, before, reapplies=False)
    gate.opened.set()
    await talk(stand, sid, "b")
    await asyncio.gather(*asks)
    await check(stand, sid, ["one", "a", "b"])
    assert len(keys) == 2


async def test_a_reset_into_the_first_open_goes_on_with_the_turn_that_came_after_it(
    stand: Stand, desk: Desk, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open is found done: the turn that was begun since is not taken for the end of the thread."""
    threads, begun, hold = stand.served.plugin.backends.threads, asyncio.Event(), asyncio.Event()
    gate, keys, opening = Gate(), set[str](), threads.open

    async def held(request: OpenThread, *given: Any) -> OpenedThread:
        if request.thread_id == sid:
            begun.set()
            await hold.wait()
        opened: OpenedThread = await opening(request, *given)
        return opened

    async def act(what: str, context: ToolContext) -> str:
        keys.add(context.key)
        await gate.passing()
        return what

    monkeypatch.setattr(threads, "open", held)
    desk.acts[sid], desk.scripts[sid] = act, first_tools_then("done", "x")
    asks = [asyncio.create_task(talk(stand, sid, "one"))]
    await begun.wait()
    asks.append(asyncio.create_task(talk(stand, sid, "two")))
    await until_waiting(stand.sessions, sid, 2)
    hold.set()
    await gate.reached.wait()
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    gate.opened.set()
    await asyncio.gather(*asks)
    await talk(stand, sid, "three")
    await check(stand, sid, ["one", "two", "three"])
    roles = [each.role for each in await stand.messages(sid)]
    assert roles == [
        "user",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert len(keys) == 2


@pytest.mark.parametrize("reapplies", [True, False], ids=["with updates", "without updates"])
@pytest.mark.parametrize("finished_turns", [0, 1], ids=["its first turn", "a later turn"])
async def test_a_turn_under_way_goes_on_after_a_reset_to_the_very_beginning(
    stand: Stand, desk: Desk, sid: str, finished_turns: int, *, reapplies: bool
) -> None:
    """The workflow knows nothing of it then; its tool has run, and its answer is paid for."""
    gate = Gate()
    keys = hold_tool(desk, sid, gate)
    await talk(stand, sid, *["before"] * finished_turns)
    desk.scripts[sid] = first_tools_then("done", "x")
    asks = asyncio.create_task(talk(stand, sid, "one"))
    await gate.reached.wait()
    await reset(stand, sid, (await task_ends(stand, sid))[0], reapplies=reapplies)
    gate.opened.set()
    await asks
    await talk(stand, sid, "two")
    await check(stand, sid, [*["before"] * finished_turns, "one", "two"])
    first_turn = [key for key in keys if key.endswith("/0")]
    assert len(keys) == len(first_turn) == 2
    assert len(desk.requests[sid]) == finished_turns + 4


@pytest.mark.parametrize("finished_turns", [0, 1], ids=["its first turn", "a later turn"])
async def test_a_question_that_is_asked_stays_the_same_after_a_reset_to_the_very_beginning(
    stand: Stand, desk: Desk, sid: str, finished_turns: int
) -> None:
    """The person has it on the screen, and answers the one that is there."""
    for _ in range(finished_turns):
        await stand.sessions.ask(sid, "before", agent="people", timeout=30)
    desk.scripts[sid] = first_tools_then("done", "x", name="wipe")
    asked = await stand.sessions.ask(sid, "one", agent="people", message_id="m-one", timeout=30)
    (call,) = asked.pending
    await reset(stand, sid, (await task_ends(stand, sid))[0])
    approval = ToolApproval(approval_id=call.id, approved=True)
    reply = await stand.sessions.session(sid).submit_approval(approval, wait=True, timeout=30)
    assert reply.status == "submitted"
    assert len(desk.requests[sid]) == finished_turns + 2
    await check(stand, sid, [*["before"] * finished_turns, "one"])


async def test_every_point_of_a_session_can_be_reset_to(stand: Stand, sid: str) -> None:
    """Not only the comfortable ones."""
    await talk(stand, sid, "one", "two")
    count = len(await task_ends(stand, sid))
    sent = ["one", "two"]
    for number in range(count - 1):
        run_id = (await stand.handle(sid).describe()).run_id
        ends = await task_ends(stand, sid, run_id)
        await reset(stand, sid, ends[min(number, len(ends) - 1)], run_id)
        sent.append(f"after-{number}")
        await talk(stand, sid, sent[-1])
        await check(stand, sid, sent)


async def test_a_reset_of_a_reset(stand: Stand, sid: str) -> None:
    """Operators try twice."""
    await talk(stand, sid, "one", "two")
    first = (await stand.handle(sid).describe()).run_id
    ends = await task_ends(stand, sid)
    second = await reset(stand, sid, ends[2], first)
    await talk(stand, sid, "three")
    await reset(stand, sid, (await task_ends(stand, sid, second))[2], second)
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])


async def test_a_reset_of_a_session_that_went_cold(stand: Stand, sid: str) -> None:
    """The new branch opens what its own execution closed."""
    await talk(stand, sid, "one", "two")
    await stand.finish(sid)
    ends = await task_ends(stand, sid)
    await reset(stand, sid, ends[3])
    await talk(stand, sid, "three")
    await check(stand, sid, ["one", "two", "three"])


async def test_a_reset_of_an_execution_that_another_followed_is_fenced(stand: Stand, sid: str) -> None:
    """Two branches of one session's past must not both write: the older one is refused."""
    await talk(stand, sid, "one", "two")
    old = (await stand.handle(sid).describe()).run_id
    ends = await task_ends(stand, sid)
    await stand.finish(sid)
    await talk(stand, sid, "three")
    await stand.finish(sid)
    before = await stand.sessions.session(sid).describe_thread()
    branch = await reset(stand, sid, ends[2], old)
    handle = stand.served.client.get_workflow_handle(workflow_id(sid), run_id=branch)
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), 30)
    assert getattr(caught.value.cause, "type", None) == "FencedError"
    after = await stand.sessions.session(sid).describe_thread()
    assert (after.head, after.epoch, after.owner) == (before.head, before.epoch, before.owner)
    await talk(stand, sid, "four")
    await check(stand, sid, ["one", "two", "three", "four"])


async def test_terminate_and_restart_keeps_every_finished_turn(stand: Stand, sid: str) -> None:
    """What was answered is in the thread, whoever serves it next."""
    for number in range(4):
        await talk(stand, sid, f"q{number}")
        await stand.handle(sid).terminate()
    assert (await stand.handle(sid).describe()).status is WorkflowExecutionStatus.TERMINATED
    await talk(stand, sid, "last")
    await check(stand, sid, ["q0", "q1", "q2", "q3", "last"])


# ---- several messages in one turn ---------------------------------------------------------------------


async def meet(stand: Stand, desk: Desk, session_id: str, *texts: str, padding: str = "") -> None:
    """A turn during which these messages come, which are answered in one turn after it."""
    gate, script = Gate(), desk.scripts.get(session_id)
    desk.scripts[session_id] = gate.then()
    first = asyncio.create_task(
        stand.sessions.ask(session_id, "first", agent="main", message_id="m-first", timeout=30)
    )
    await gate.reached.wait()
    if script is not None:
        desk.scripts[session_id] = script
    asks = []
    for number, text in enumerate(texts, 1):
        asks.append(
            asyncio.create_task(
                stand.sessions.ask(session_id, text + padding, message_id=f"m-{text}", timeout=30)
            )
        )
        await until_waiting(stand.sessions, session_id, number)
    gate.opened.set()
    results = await asyncio.gather(first, *asks)
    assert {result.status for result in results} == {AskStatus.ANSWERED}
    assert len({result.answer.id for result in results[1:] if result.answer}) == 1


@pytest.mark.parametrize("at", [0, 1, 2, 3, -1])
async def test_messages_that_met_in_one_turn_stay_answered_by_it(
    stand: Stand, desk: Desk, sid: str, at: int
) -> None:
    """After a reset the server applies them again in other groups; what was answered stays as it was."""
    await meet(stand, desk, sid, "a", "b", "c")
    await talk(stand, sid, "two", "three")
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[at])
    await talk(stand, sid, "four")
    await check(stand, sid, ["first", "a", "b", "c", "two", "three", "four"])
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == paid + 1
    await talk(stand, sid, "a", "three")
    assert len(desk.requests[sid]) == paid + 1


async def test_a_cancel_after_the_reset_leaves_what_was_answered(stand: Stand, desk: Desk, sid: str) -> None:
    """The run that was reset ends before it has found its way."""
    await meet(stand, desk, sid, "a", "b", "c")
    await talk(stand, sid, *(f"q{number}" for number in range(4)))
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    await asyncio.sleep(0.5)
    await stand.handle(sid).cancel()
    with pytest.raises(SessionInterruptedError):
        await stand.sessions.session(sid).result()
    assert await stand.messages(sid) == before
    await talk(stand, sid, "last")
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == paid + 1


async def test_payloads_that_other_steps_have_used_are_not_wanted_again(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """Long messages go by reference, and what they name is dropped once it is in the thread."""
    await meet(stand, desk, sid, "a", "b", padding="." * 10_000)
    await talk(stand, sid, "two")
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[1])
    await talk(stand, sid, "three")
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == paid + 1


@pytest.mark.parametrize("at", [1, 2])
async def test_tools_of_a_turn_of_several_messages_run_under_one_key(
    stand: Stand, desk: Desk, sid: str, at: int
) -> None:
    """The turn is under way when its execution is reset: its step stands, and is gone on with."""
    gate, held = Gate(), Gate()
    desk.scripts[sid] = first_tools_then("done", "x")
    desk.acts[sid] = lambda what, _: held.passing() if len(desk.contexts[sid]) > 1 else gate.passing()
    asks = [asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", message_id="m-one", timeout=60))]
    await gate.reached.wait()
    for number, text in enumerate(("a", "b"), 1):
        asks.append(asyncio.create_task(stand.sessions.ask(sid, text, message_id=f"m-{text}", timeout=60)))
        await until_waiting(stand.sessions, sid, number)
    gate.opened.set()
    await held.reached.wait()
    await reset(stand, sid, (await task_ends(stand, sid))[at])
    held.opened.set()
    await talk(stand, sid, "last")
    await asyncio.gather(*asks)
    assert [each.text for each in await stand.messages(sid) if each.role == "user"] == [
        "one",
        "a",
        "b",
        "last",
    ]
    assert len({each.key for each in desk.contexts[sid]}) == 3
    assert len(desk.requests[sid]) == 6


# ---- turns that were taken back -----------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 3, 5, -2])
async def test_what_was_taken_back_stays_gone(stand: Stand, desk: Desk, sid: str, at: int) -> None:
    """The requests are applied again with everything else; they were carried out, and nothing else goes."""
    await talk(stand, sid, "one", "two", "three")
    await stand.sessions.session(sid).rewind_to_turn(1, operation_id="op-1")
    await talk(stand, sid, "four")
    again = await stand.sessions.session(sid).regenerate(operation_id="op-2")
    await talk(stand, sid, "five")
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[at])
    await talk(stand, sid, "six")
    await check(stand, sid, ["one", "four", "five", "six"])
    assert (await stand.messages(sid))[: len(before)] == before
    assert (await stand.sessions.session(sid).regenerate(operation_id="op-2")).answer == again.answer
    assert len(desk.requests[sid]) == paid + 1


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
async def test_what_was_taken_back_and_asked_again_is_found_after_a_reset(
    stand: Stand, desk: Desk, sid: str, *, beside: bool
) -> None:
    """By an execution that followed: its turn stands, though an earlier one took a turn of that id back."""
    await talk(stand, sid, "one", "two")
    await stand.sessions.session(sid).rewind_to_turn(-1)
    await stand.sessions.session(sid).close()
    await stand.handle(sid).result()
    gate = Gate()
    keys = hold_tool(desk, sid, gate)
    desk.scripts[sid] = first_tools_then("done", "x")
    asks = [asyncio.create_task(talk(stand, sid, "two"))]
    await gate.reached.wait()
    if beside:
        asks.append(asyncio.create_task(talk(stand, sid, "three")))
        await until_waiting(stand.sessions, sid, 1)
    paid = len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[0])
    gate.opened.set()
    await asyncio.gather(*asks)
    await check(stand, sid, ["one", "two", *["three"] * beside])
    assert len(keys) == 1 + beside
    assert len(desk.requests[sid]) == paid + 1 + 2 * beside


@pytest.mark.parametrize("at", [0, 1, 2, -1])
async def test_what_could_not_be_taken_back_takes_nothing_back_later(
    stand: Stand, desk: Desk, sid: str, at: int
) -> None:
    """The server applies the refused requests again, and by now there are turns and checkpoints enough."""
    session = stand.sessions.session(sid)
    await talk(stand, sid, "one")
    with pytest.raises(InvalidRequestError):
        await session.rewind_to_turn(-3, operation_id="op-1")
    with pytest.raises(HelixError):
        await session.rewind(Head(position=4, last_id="m-none"), operation_id="op-2")
    await talk(stand, sid, "two", "three", "four")
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[at])
    await talk(stand, sid, "five")
    await check(stand, sid, ["one", "two", "three", "four", "five"])
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == paid + 1
    await session.rewind_to_turn(-3, operation_id="op-3")
    await check(stand, sid, ["one", "two"])


async def test_what_waits_to_be_taken_back_when_a_reset_comes_takes_nothing_back_later(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The reset goes back to between the request and its refusal; turns were answered since."""
    session, gate = stand.sessions.session(sid), Gate()
    desk.scripts[sid] = gate.then()
    first = asyncio.create_task(stand.sessions.ask(sid, "one", agent="main", message_id="m-one", timeout=30))
    await gate.reached.wait()
    refused = asyncio.create_task(session.rewind_to_turn(-3, operation_id="op-1"))
    async with asyncio.timeout(20):
        while not await has_accepted(stand, sid, "take_back"):  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.05)
    at = (await task_ends(stand, sid))[-1]
    gate.opened.set()
    await first
    with pytest.raises(InvalidRequestError):
        await refused
    await talk(stand, sid, "two", "three", "four")
    before = await stand.messages(sid)
    await reset(stand, sid, at)
    await talk(stand, sid, "five")
    await check(stand, sid, ["one", "two", "three", "four", "five"])
    assert (await stand.messages(sid))[: len(before)] == before


async def test_turns_are_taken_back_from_a_session_that_rests_after_a_reset(stand: Stand, sid: str) -> None:
    """Whoever asks first may be told to ask again, since nothing tells the request from an old one."""
    session = stand.sessions.session(sid)
    await talk(stand, sid, "one", "two")
    await reset(stand, sid, (await task_ends(stand, sid))[-1])
    try:
        await session.rewind_to_turn(-1, operation_id="op-1")
    except HeadMovedError:
        await session.rewind_to_turn(-1, operation_id="op-2")
    await check(stand, sid, ["one"])


async def has_accepted(stand: Stand, session_id: str, update: str) -> bool:
    """Whether the session's history has such an update."""
    events = [
        each.workflow_execution_update_accepted_event_attributes for each in await stand.events(session_id)
    ]
    return update in [each.accepted_request.input.name for each in events]


@pytest.mark.parametrize("mode", ["new", "fork"])
async def test_a_session_is_reset_to_before_it_began(stand: Stand, desk: Desk, sid: str, mode: str) -> None:
    """Whatever it was to begin with is there, and is its own."""
    start = SessionInput(session_id=sid, agent="main", mode="new", options=SessionOptions(idle_timeout=60))
    if mode == "fork":
        await talk(stand, f"{sid}-source", "zero")
        origin = ForkFrom(thread_id=f"{sid}-source")
        start = start.model_copy(update={"mode": "fork", "fork_from": origin})
    client = stand.served.client
    queue = stand.served.plugin.settings.task_queue
    await client.start_workflow(SessionWorkflow.run, start, id=workflow_id(sid), task_queue=queue)
    await talk(stand, sid, "one", "two")
    before, paid = await stand.messages(sid), len(desk.requests[sid])
    await reset(stand, sid, (await task_ends(stand, sid))[0])
    await talk(stand, sid, "three", "two")
    assert (await stand.messages(sid))[: len(before)] == before
    assert len(desk.requests[sid]) == paid + 1
