"""The turn that an open finds suspended is read from the thread as it was opened, and from no other."""

from dataclasses import replace

import pytest
import pytest_asyncio

from helix_temporal.activities import Payloads, Stepper
from helix_temporal.activities.suspended_turns import read_results_behind, read_suspended_turn
from helix_temporal.agents import Agent, AgentRegistry, ModelResponse, ScriptedModel, client_tool
from helix_temporal.errors import HeadMovedError, StoreUnavailableError
from helix_temporal.models.messages import Message, ToolCall, are_left_out, encode_message
from helix_temporal.models.steps import RunStepInput, StepInput
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage
from helix_temporal.session.record import find_kept_head, parse_record
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.protocols.hot import HotHeader, StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, Reopen
from helix_temporal.stores.threads.hot_only import HotThreads


@client_tool
async def sign(what: str) -> str:
    """Sign."""
    raise AssertionError(what)


Asked = tuple[MemoryThreads, HotThreads, Payloads, HotHeader]


@pytest_asyncio.fixture
async def asked() -> Asked:
    """A thread whose turn waits for a client, where it lies, and its header."""
    hot = MemoryThreads()
    threads, payloads = HotThreads(hot), Payloads(MemoryPayloads())
    model = ScriptedModel(
        [ModelResponse(tool_calls=(ToolCall(id="c", name="sign", arguments={"what": "this"}),))]
    )
    stepper = Stepper(threads, AgentRegistry([Agent(name="a", model=model, tools=[sign])]), payloads)
    await threads.open(OpenThread("t", 5, "o"))
    await stepper.run(
        RunStepInput(session_id="t", agent="a", epoch=5, head=EMPTY, inputs=(StepInput(id="u", text="?"),))
    )
    header = await hot.read_header("t")
    assert header
    return hot, threads, payloads, header


@pytest.mark.asyncio
async def test_a_store_that_went_back_to_an_older_copy_is_opened_again(asked: Asked) -> None:
    """A failover between the open and its reading would else hand one turn's answers to another."""
    _, threads, payloads, header = asked
    state = parse_record(header.slice)
    found = await read_suspended_turn(threads, payloads, header, state, {}, 2048)
    assert found
    assert [each.id for each in found.messages] == ["u"]
    assert state.suspended
    elsewhere = Head(position=header.head.position, last_id="of another turn")
    state = state.model_copy(update={"suspended": state.suspended.model_copy(update={"head": elsewhere})})
    with pytest.raises(StoreUnavailableError, match="opened again"):
        await read_suspended_turn(threads, payloads, replace(header, head=elsewhere), state, {}, 2048)


@pytest.mark.asyncio
async def test_results_that_went_are_not_taken_for_results_that_never_were(asked: Asked) -> None:
    """A workflow that was reset would ask people again, and what they answered before would be cut."""
    hot, threads, payloads, waits = asked
    copy = hot.backup()
    result = StoredMessage(Kind.RESULT, f"{waits.head.last_id}.0", b"{}")
    answer = StoredMessage(Kind.CALLS, "next", b"{}")
    appended = await hot.append(StepAppend("t", 5, waits.head, (result,), answer, commits=False))
    assert appended
    assert appended.head.position == waits.head.position + 2
    hot.restore(copy)
    with pytest.raises(HeadMovedError, match="open it again"):
        await read_results_behind(threads, payloads, appended.header, waits.head, (), 1, 2048)


@pytest.mark.asyncio
async def test_results_are_not_looked_for_in_an_older_copy_that_is_longer(asked: Asked) -> None:
    """It holds turns that were cut since: whoever was asked before would be asked again."""
    hot, threads, payloads, waits = asked
    before, others = hot.backup(), tuple(StoredMessage(Kind.RESULT, f"cut.{at}", b"{}") for at in range(3))
    await hot.append(
        StepAppend("t", 5, waits.head, others, StoredMessage(Kind.CALLS, "cut", b"{}"), commits=False)
    )
    longer = hot.backup()
    hot.restore(before)
    result = StoredMessage(Kind.RESULT, f"{waits.head.last_id}.0", b"{}")
    answer = StoredMessage(Kind.CALLS, "next", b"{}")
    appended = await hot.append(StepAppend("t", 5, waits.head, (result,), answer, commits=False))
    assert appended
    hot.restore(longer)
    with pytest.raises(HeadMovedError, match="open it again"):
        await read_results_behind(threads, payloads, appended.header, waits.head, (), 1, 2048)


@pytest.mark.asyncio
async def test_what_may_not_be_in_histories_comes_by_reference(asked: Asked) -> None:
    """Arguments are left where they are, in the thread, and results are put aside, as when they were new."""
    hot, threads, payloads, waits = asked
    found = await read_suspended_turn(threads, payloads, waits, parse_record(waits.slice), {}, 0)
    assert found
    assert are_left_out(found.calls[0].arguments)
    result = encode_message(
        Message(id=f"{waits.head.last_id}.0", role="tool", content="in Bonn", tool_call_id="c")
    )
    appended = await hot.append(
        StepAppend("t", 5, waits.head, (result,), StoredMessage(Kind.CALLS, "next", b"{}"), commits=False)
    )
    assert appended
    (known,) = await read_results_behind(threads, payloads, appended.header, waits.head, (), 1, 0)
    assert known.result
    assert (known.result.text, bool(known.result.ref)) == ("", True)
    (known,) = await read_results_behind(threads, payloads, appended.header, waits.head, (), 1, 2048)
    assert known.result
    assert (known.result.text, known.result.ref) == ("in Bonn", None)


@pytest.mark.asyncio
async def test_a_step_that_waits_again_is_kept_by_the_next_open() -> None:
    """A reset workflow's open cut the step that had taken the answers, and with it what the record knew."""
    threads = HotThreads(MemoryThreads())
    call = ToolCall(id="c", name="sign", arguments={"what": "this"})
    model = ScriptedModel(lambda _: ModelResponse(tool_calls=(call,)))
    stepper = Stepper(
        threads, AgentRegistry([Agent(name="a", model=model, tools=[sign])]), Payloads(MemoryPayloads())
    )
    await threads.open(OpenThread("t", 5, "o"))
    asks = RunStepInput(session_id="t", agent="a", epoch=5, head=EMPTY, inputs=(StepInput(id="u", text="?"),))
    asked = await stepper.run(asks)
    result = StepInput(id=f"{asked.head.last_id}.0", call="c", name="sign", text="signed")
    await stepper.run(asks.model_copy(update={"head": asked.head, "inputs": (result,)}))
    heads = Reopen(EMPTY, EMPTY, inputs=("u",))
    opened = await threads.open(OpenThread("t", 6, "o", reopen=heads))
    assert opened.header.head == asked.head
    again = await stepper.run(asks.model_copy(update={"epoch": 6}))
    assert (again.head, [each.id for each in again.waiting]) == (asked.head, [asked.waiting[0].id])
    assert again.slice_version == (await threads.read_facts("t")).slice_version
    later = await threads.open(OpenThread("t", 7, "later", keeps=find_kept_head))
    assert later.header.head == asked.head
