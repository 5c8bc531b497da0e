"""What a turn leaves in Temporal's history: a small constant, whatever the thread and the texts."""

import pytest
from temporalio.api.history.v1 import HistoryEvent

from helix_temporal.agents import ModelResponse
from helix_temporal.models.messages import Usage
from helix_temporal.models.sessions import SessionOptions
from tests.workflows._desk import Desk, calls, first_tools_then
from tests.workflows.conftest import Stand

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

KIB = 1024
TEXT = "t" * KIB


async def cost(stand: Stand, session_id: str, text: str = TEXT) -> tuple[int, int]:
    """Events and bytes that one more turn adds to the history: the least of three.

    A worker that was busy for two seconds costs its turn a workflow task more.
    """
    found = list[tuple[int, int]]()
    for _ in range(3):
        await stand.at_rest(session_id)
        before = await stand.events(session_id)
        await stand.sessions.ask(session_id, text)
        after = (await stand.events(session_id))[len(before) :]
        found.append((len(after), sum(event.ByteSize() for event in after)))
    return min(found)


def activities(events: list[HistoryEvent]) -> list[str]:
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


async def test_a_plain_turn_is_one_activity(stand: Stand, sid: str) -> None:
    """Temporal's floor for a turn with a call to the outside."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.ask(sid, "two")
    assert activities(await stand.events(sid)) == ["helix.sessions.open", *["helix.sessions.run_step"] * 2]


async def test_a_plain_turn_adds_little_to_history(stand: Stand, desk: Desk, sid: str) -> None:
    """At most 12 events, and 2 KiB above twice the question's and the answer's text."""
    desk.scripts[sid] = lambda _: "a" * KIB
    await stand.sessions.ask(sid, "hello", agent="main")
    events, size = await cost(stand, sid)
    assert events <= 12
    assert size - 4 * KIB <= 2 * KIB


async def test_turn_200_costs_what_turn_10_costs(stand: Stand, desk: Desk, sid: str) -> None:
    """History grows by a constant a turn, not with the thread."""
    desk.scripts[sid] = lambda _: "a" * KIB
    client = stand.client()
    for number in range(9):
        await client.ask(sid, f"{number}", agent="main")
    tenth = await cost(stand, sid)
    for number in range(190):
        await client.ask(sid, f"{number}", agent="main")
    events, size = await cost(stand, sid)
    assert events == tenth[0]
    assert abs(size - tenth[1]) <= 64


async def test_a_turn_with_one_tool_adds_23_events(stand: Stand, desk: Desk, sid: str) -> None:
    """Two steps and the tool between them."""
    await stand.sessions.ask(sid, "hello", agent="main")
    desk.scripts[sid] = first_tools_then("done", "look")
    events, _ = await cost(stand, sid)
    assert events <= 23


async def test_a_tool_result_of_a_megabyte_stays_out_of_history(stand: Stand, desk: Desk, sid: str) -> None:
    """Large results go to a blob and into the thread; the workflow carries their name."""
    await stand.sessions.ask(sid, "hello", agent="main")
    desk.scripts[sid] = first_tools_then("done", "look")
    desk.acts[sid] = lambda what, context: "x" * 1024 * KIB
    _, size = await cost(stand, sid, text="look")
    assert size <= 8 * KIB
    assert len((await stand.messages(sid))[-2].text) == 1024 * KIB


async def test_large_arguments_stay_out_of_history(stand: Stand, desk: Desk, sid: str) -> None:
    """A tool that writes a file is given its text from the thread, not through the workflow."""
    await stand.sessions.ask(sid, "hello", agent="main")
    desk.acts[sid] = lambda what, context: str(len(what))
    asks = calls("w", padding="p" * 500 * KIB)
    desk.scripts[sid] = lambda request: asks if request.messages[-1].role == "user" else "done"
    _, size = await cost(stand, sid, text="write")
    assert size <= 8 * KIB
    assert (await stand.texts(sid))[-2] == str(500 * KIB + 1)


@pytest.mark.parametrize("length", [9 * KIB, 500 * KIB])
async def test_a_long_question_and_a_long_answer_travel_by_reference(
    stand: Stand, desk: Desk, sid: str, length: int
) -> None:
    """Texts above 8 KiB are read from the thread, by whoever wants them."""
    await stand.sessions.ask(sid, "hello", agent="main")
    desk.scripts[sid] = lambda request: request.messages[-1].text[::-1]
    before = len(await stand.events(sid))
    question = "q" * (length - 1) + "!"
    result = await stand.sessions.ask(sid, question)
    assert result.text == question[::-1]
    assert sum(event.ByteSize() for event in (await stand.events(sid))[before:]) <= 8 * KIB


async def test_usage_adds_to_a_turn_what_it_says_and_no_more(stand: Stand, desk: Desk, sid: str) -> None:
    """Two numbers of usage, not five: the fields that a model does not fill are not written."""
    await stand.sessions.ask(sid, "hello", agent="main")
    _, without = await cost(stand, sid, "question")
    desk.scripts[sid] = lambda request: ModelResponse(
        "2: answer", usage=Usage(input_tokens=1000, output_tokens=100)
    )
    _, with_usage = await cost(stand, sid, "question")
    assert with_usage - without <= 100


async def test_defaults_are_not_written(stand: Stand, sid: str) -> None:
    """What nobody set is not in the payloads of histories."""
    await stand.client().ask(sid, "hello", agent="main")
    first = (await stand.events(sid))[0]
    data = first.workflow_execution_started_event_attributes.input.payloads[0].data
    assert b"max_steps" not in data
    assert len(data) <= 200 + len(SessionOptions().model_dump_json())
