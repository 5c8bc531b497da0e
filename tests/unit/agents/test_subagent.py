"""`agent_tool`: what the model and the workflow are told."""

from datetime import timedelta

import pytest
from pydantic import BaseModel

from helix_temporal.agents import Agent, ScriptedModel, ToolContext, agent_tool
from helix_temporal.errors import HelixError, InvalidConfigError
from helix_temporal.models.agents import ToolFacts


def test_by_default_the_model_gives_a_task() -> None:
    """That is how one talks to somebody."""
    spec = agent_tool("research", agent="researcher", description="Looks things up.").spec
    assert (spec.name, spec.description) == ("research", "Looks things up.")
    assert spec.parameters["required"] == ["task"]


def test_the_workflow_is_told_whom_to_start_and_how() -> None:
    """It cannot see the agent itself."""
    agent = Agent(name="researcher", model=ScriptedModel(["x"]))
    made = agent_tool(
        "research", agent=agent, thread="fork", timeout=timedelta(minutes=5), task_queue="far", approval=True
    )
    assert made.build_facts("support") == ToolFacts(
        name="research",
        activity="helix.tools.support.research",
        kind="agent",
        agent="researcher",
        thread="fork",
        schedule_to_close=300.0,
        task_queue="far",
        argument="task",
        approval=True,
        schedule_to_start=60.0,
    )


def test_only_a_task_queue_of_its_own_has_to_be_seen_to_be_served() -> None:
    """The worker that calls is there itself; a timer for each call would be two events for nothing."""
    assert agent_tool("research", agent="researcher").build_facts("s").schedule_to_start is None
    patient = agent_tool("research", agent="researcher", task_queue="far", start_within=None)
    assert patient.build_facts("s").schedule_to_start is None
    brisk = agent_tool("research", agent="researcher", task_queue="far", start_within=timedelta(seconds=5))
    assert brisk.build_facts("s").schedule_to_start == 5.0


def test_parameters_of_ones_own_are_the_message_as_a_whole() -> None:
    """There is no argument that would be the text."""

    class Trip(BaseModel):
        place: str

    made = agent_tool("plan", agent="planner", parameters=Trip)
    assert made.spec.parameters["required"] == ["place"]
    assert made.build_facts("support").argument is None


@pytest.mark.parametrize(
    "options",
    [
        {"agent": "no such/name"},
        {"thread": "old"},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"start_within": 0},
    ],
)
def test_what_cannot_be_is_refused_when_the_tool_is_made(options: dict[str, object]) -> None:
    """Rather than when a model calls it."""
    with pytest.raises(InvalidConfigError):
        agent_tool("research", **{"agent": "researcher", **options})  # type: ignore[arg-type]


async def test_without_a_workflow_a_call_says_what_it_needs() -> None:
    """The façade runs tools in this process, where no child workflow can be."""
    context = ToolContext(
        session_id="s", thread_id="s", agent="support", turn=1, call_id="call_0", key="s/a/0"
    )
    with pytest.raises(HelixError, match="child workflow"):
        await agent_tool("research", agent="researcher").call_handler({"task": "x"}, context)
