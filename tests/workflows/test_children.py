"""Sub-agents: what they know, what their callers get, and what both cost."""

import asyncio
from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType, IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.common import SearchAttributeKey

from helix_temporal.agents import ModelRequest
from helix_temporal.client import SessionClient
from helix_temporal.models.messages import Usage
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties
from tests.workflows._desk import Answer
from tests.workflows._team import ask
from tests.workflows.conftest import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


def asks_when_told(request: ModelRequest) -> Answer:
    """Ask the sub-agent for what follows the word ``do``; answer ``ok`` to anything else."""
    last = request.messages[-1]
    if last.role == "user" and last.text.startswith("do "):
        return ask(last.text.removeprefix("do "))
    return last.text if last.role == "tool" else "ok"


async def test_a_sub_agents_answer_is_the_result_of_the_call(crew: Crew, sid: str) -> None:
    """That is all a model wants of another."""
    result = await crew.sessions.ask(sid, "how are you", agent="new")
    assert result.text == "1: how are you"
    assert [each.role for each in await crew.messages(sid)] == ["user", "assistant", "tool", "assistant"]


async def test_a_new_sub_agent_knows_its_task_alone(crew: Crew, sid: str) -> None:
    """What its caller talked of with others is not for it."""
    await crew.sessions.ask(sid, "one", agent="new")
    await crew.sessions.ask(sid, "two")
    first, second = [each.sub_session_id for each in await crew.children(sid)]
    assert (await crew.texts(first), await crew.texts(second)) == (["one", "1: one"], ["two", "1: two"])


async def test_the_session_of_a_sub_agent_has_its_callers_user(crew: Crew, sid: str) -> None:
    """Who looks for a user's failed calls, or may see this user's sessions alone, has all of them."""
    user = SessionProperties(user_id=f"user-{sid}")
    await crew.sessions.ask(sid, "go", agent="asks-below", properties=user)
    child = await crew.child(sid)
    grandchild = await crew.child(child)
    found = (await crew.sessions.list_sessions(user_id=user.user_id)).items
    assert {each.session_id for each in found} == {sid, child, grandchild}


async def test_a_fork_begins_with_the_finished_turns_of_its_parent(crew: Crew, sid: str) -> None:
    """Without the call that is open: a provider refuses one without its result."""
    crew.team.leads[sid] = asks_when_told
    await crew.sessions.ask(sid, "hello", agent="fork")
    result = await crew.sessions.ask(sid, "do what I said")
    assert result.text == "3: what I said"
    child = await crew.child(sid)
    assert [each.role for each in await crew.messages(child)] == ["user", "assistant"] * 2
    assert await crew.texts(child) == ["hello", "ok", "what I said", "3: what I said"]


async def test_a_fork_in_the_first_turn_begins_with_nothing(crew: Crew, sid: str) -> None:
    """There is no finished turn yet."""
    assert (await crew.sessions.ask(sid, "first", agent="fork")).text == "1: first"


async def test_a_continuing_sub_agent_remembers_earlier_calls(crew: Crew, sid: str) -> None:
    """Also those of earlier turns: it is one conversation between the two."""
    answers = [(await crew.sessions.ask(sid, text, agent="continue")).text for text in ("one", "two")]
    assert answers == ["1: one", "3: two"]
    assert await crew.texts(await crew.child(sid)) == ["one", "1: one", "two", "3: two"]


async def test_calls_at_once_of_one_continuing_sub_agent_are_served_in_order(crew: Crew, sid: str) -> None:
    """One thread has one writer."""
    crew.team.leads[sid] = lambda request: (
        ask("one", "two", "three")
        if request.messages[-1].role == "user"
        else " ".join(each.text for each in request.messages[-3:])
    )
    result = await crew.sessions.ask(sid, "go", agent="continue")
    assert result.text == "1: one 3: two 5: three"


async def test_sub_agents_of_one_step_work_side_by_side(crew: Crew, sid: str) -> None:
    """Each waits for the other here: one after the other would never end."""
    crew.team.leads[sid] = lambda request: (
        ask(f"hold {sid}-a", f"hold {sid}-b") if request.messages[-1].role == "user" else "both"
    )
    asked = asyncio.create_task(crew.sessions.ask(sid, "go", agent="new"))
    gates = [crew.team.gates[f"{sid}-{each}"] for each in "ab"]
    for gate in gates:
        await asyncio.wait_for(gate.reached.wait(), 20)
    for gate in gates:
        gate.opened.set()
    assert (await asked).text == "both"
    assert len(await crew.children(sid)) == 2


async def test_three_levels_answer_and_their_usage_adds_up(crew: Crew, sid: str) -> None:
    """What the lowest one used is paid by whoever asked the highest."""
    assert (await crew.sessions.ask(sid, "deep", agent="top")).text == "1: deep"
    await crew.finish(sid)
    (middle,) = await crew.children(sid)
    (helper,) = await crew.children(middle.sub_session_id)
    assert [middle.agent_type, helper.agent_type] == ["middle", "helper"]
    # Each leader asks (0: no usage of its own here) and repeats the result.
    leader, lowest = Usage(input_tokens=110, output_tokens=2), Usage(input_tokens=1, output_tokens=1)
    assert (await crew.sessions.session(sid).get_status()).usage == leader + leader + lowest


async def test_sums_with_sub_agents_reach_all_levels(crew: Crew, sid: str) -> None:
    """A bill for a session is a bill for all that worked in it."""
    await crew.sessions.ask(sid, "deep", agent="top")
    await crew.sessions.ask(sid, "fail")
    usage = crew.served.plugin.backends.usage
    alone = await usage.get_rollup(sid)
    whole = await usage.get_rollup(sid, include_sub_agents=True)
    assert alone is not None
    assert whole is not None
    assert (alone.tokens.prompt, whole.tokens.prompt) == (220, 441)
    status = await crew.sessions.session(sid).get_status()
    assert whole.tokens.prompt == status.usage.input_tokens
    entries = await usage.get_entries(sid, kinds=["subagent"])
    assert [each.agent_type for each in entries] == ["middle", "middle"]


async def test_states_know_whose_sub_agent_they_are(crew: Crew, sid: str) -> None:
    """A list of sessions can leave them out, and show them under their root."""
    await crew.sessions.ask(sid, "deep", agent="top")
    sessions = crew.served.plugin.backends.sessions
    assert sessions is not None
    middle = await crew.child(sid)
    helper = await sessions.load_state(await crew.child(middle))
    assert helper is not None
    assert (helper.parent_session_id, helper.root_session_id) == (middle, sid)
    assert helper.agent_type == "helper"


async def test_references_follow_the_sub_agents_sessions(crew: Crew, sid: str) -> None:
    """Who looks at the parent sees who works for it, and how that ended."""
    crew.team.leads[sid] = lambda request: (
        ask(f"hold {sid}", "fail") if request.messages[-1].role == "user" else "ended"
    )
    asked = asyncio.create_task(crew.sessions.ask(sid, "go", agent="new"))
    await crew.team.gates[sid].reached.wait()
    assert [each.status for each in await crew.children(sid)] == ["active", "active"]
    crew.team.gates[sid].opened.set()
    await asked
    refs = await crew.children(sid)
    assert [each.status for each in refs] == ["completed", "failed"]
    assert [each.parent_tool_call_id for each in refs] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("agent", "task", "said"),
    [
        ("new", "fail", "The sub-agent failed: PlayedError: on purpose"),
        ("new", "loop", "used all the steps"),
        ("new", "refuse", "(refusal). I would rather not"),
        ("new", " ", "'task' must be a text that says what to do"),
        ("of-picky", "one", "refused the task: not this one"),
        ("unserved", "one", "AgentNotServedError: no worker of task queue 'nobody-listens'"),
        ("nowhere", "one", "no answer within 1 s"),
    ],
)
async def test_a_sub_agent_without_an_answer_is_an_error_that_the_model_reads(
    crew: Crew, sid: str, agent: str, task: str, said: str
) -> None:
    """The caller can try another way; its session goes on."""
    crew.team.leads[sid] = lambda request: ask(task) if request.messages[-1].role == "user" else "so be it"
    result = await crew.sessions.ask(sid, "go", agent=agent, timeout=60)
    assert (result.status, result.text) == (AskStatus.ANSWERED, "so be it")
    told = (await crew.messages(sid))[2]
    assert told.is_error
    assert said in told.text
    assert [each.status for each in await crew.children(sid)] == ["failed"]


async def test_agents_that_call_themselves_come_to_an_end(crew: Crew, sid: str) -> None:
    """Otherwise one question could start sessions for ever."""
    result = await crew.sessions.ask(sid, "again", agent="itself", timeout=60)
    assert "8 deep at most" in (result.text or "")


async def test_an_answer_of_a_megabyte_stays_out_of_histories(crew: Crew, sid: str) -> None:
    """It is read where it stands, by the step that takes it."""
    crew.team.leads[sid] = lambda request: (
        ask("large 1000000") if request.messages[-1].role == "user" else "read it"
    )
    await crew.sessions.ask(sid, "go", agent="new")
    assert (await crew.messages(sid))[2].text == "x" * 1_000_000
    child = await crew.child(sid)
    sizes = [sum(event.ByteSize() for event in await crew.events(each)) for each in (sid, child)]
    assert max(sizes) < 20_000


async def test_a_large_task_stays_out_of_histories(crew: Crew, sid: str) -> None:
    """The sub-agent reads it in the answer that gives it."""
    task = "y" * 300_000
    crew.team.leads[sid] = lambda request: (
        ask(task) if request.messages[-1].role == "user" else request.messages[-1].text[:9]
    )
    assert (await crew.sessions.ask(sid, "go", agent="new")).text == "1: yyyyyy"
    child = await crew.child(sid)
    assert (await crew.texts(child))[0] == task
    assert sum(event.ByteSize() for event in await crew.events(sid)) < 20_000


async def test_a_call_costs_its_parent_a_child_workflow_and_nothing_else(crew: Crew, sid: str) -> None:
    """Names, references and statuses travel with steps that are there anyway."""
    await crew.sessions.ask(sid, "one", agent="new")
    events = Counter(EventType.Name(each.event_type) for each in await crew.events(sid))
    found = {name: count for name, count in events.items() if "CHILD" in name or "SCHEDULED" in name}
    assert found == {
        "EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED": 1,
        "EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED": 1,
        "EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED": 1,
        "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED": 3,
        "EVENT_TYPE_WORKFLOW_TASK_SCHEDULED": events["EVENT_TYPE_WORKFLOW_TASK_SCHEDULED"],
    }


async def test_a_continuing_sub_agent_outlives_its_parents_runs(crew: Crew, sid: str) -> None:
    """Continue-as-new is of the parent's history alone."""
    client = crew.client(max_turns_per_run=1)
    answers = [(await client.ask(sid, text, agent="continue")).text for text in ("one", "two", "three")]
    assert answers == ["1: one", "3: two", "5: three"]


async def test_sub_agents_are_found_by_what_was_said_of_their_root(crew: Crew, sid: str) -> None:
    """Metadata and search attributes go down with the call."""
    client, key = crew.served.client, SearchAttributeKey.for_keyword("HelixTestTenant")
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={key.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
        )
    )
    queue = crew.served.plugin.settings.task_queue
    sessions = SessionClient(client, task_queue=queue, search_attributes={"tenant": key})
    await sessions.ask(sid, "deep", agent="top", metadata={"tenant": "acme"})
    helper = await crew.child(await crew.child(sid))
    described = await crew.handle(helper).describe()
    assert described.typed_search_attributes.get(key) == "acme"
    stored = await crew.served.plugin.backends.sessions.load_state(helper)
    assert stored is not None
    assert stored.metadata == {"tenant": "acme"}
