"""Actions are counted by the rules of the page of costs, over stored histories."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory

from bench.cost import count_actions

HISTORIES = Path(__file__).parents[2] / "replay" / "histories" / "0.1.0"


def read(name: str) -> WorkflowHistory:
    """A stored history."""
    return WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        # Seven updates, of which one closes: six turns of a step, an open, an end.
        ("plain-0", {"starts": 1, "updates": 7, "activities": 8, "timers": 1}),
        ("sweep-0", {"starts": 1, "activities": 1}),
    ],
)
def test_actions_of_a_history(name: str, actions: dict[str, int]) -> None:
    """Each kind by its events."""
    assert count_actions(read(name)) == actions


def test_a_retry_is_an_action() -> None:
    """An attempt beyond the first has no event of its own."""
    history = read("plain-0")
    started = next(
        event for event in history.events if event.HasField("activity_task_started_event_attributes")
    )
    started.activity_task_started_event_attributes.attempt = 4
    assert count_actions(history)["retries"] == 3
