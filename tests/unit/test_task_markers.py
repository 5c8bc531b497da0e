"""Markers between workflow tasks: where the SDK would merge two, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from helix_temporal.workflows.runners import TaskMarkers, TaskNotDoneError, keep_tasks_apart

Fill = Callable[[Any], None]


def nothing(_: Any) -> None:
    """No command."""


def timer(commands: Any) -> None:
    commands.add().start_timer.seq = 1


def timer_and_back(commands: Any) -> None:
    timer(commands)
    commands.add().cancel_timer.seq = 1


def cancel(commands: Any) -> None:
    commands.add().request_cancel_activity.seq = 1


def refuse(commands: Any) -> None:
    commands.add().update_response.rejected.message = "no"


class Run:
    """One workflow run, whose tasks command what each test says."""

    def __init__(self, *, session: bool = True) -> None:
        self.markers, self._length, self._started = TaskMarkers(), 0, 0
        self._session, self._fill = session, nothing

    def activate(self, act: Any) -> WorkflowActivationCompletion:
        """As the SDK's instance."""
        if self._session:
            keep_tasks_apart()
        completion = WorkflowActivationCompletion()
        completion.successful.SetInParent()
        self._fill(completion.successful.commands)
        return completion

    def task(
        self,
        fill: Fill,
        job: str = "resolve_activity",
        *,
        replaying: bool = False,
        same: bool = False,
        started: bool = True,
        query_id: str = "legacy_query",
    ) -> list[str]:
        """The patches of a task that has this job, and commands so."""
        self._length += 0 if same else 5
        self._started += started and not same
        self._fill = fill  # type: ignore[assignment]
        activation = WorkflowActivation(history_length=self._length, is_replaying=replaying)
        activation.timestamp.seconds = self._started
        added = getattr(activation.jobs.add(), job)
        added.SetInParent()
        if job == "query_workflow":
            added.query_id = query_id
        commands = self.markers.activate(self, activation).successful.commands
        patches = [each.set_patch_marker for each in commands if each.HasField("set_patch_marker")]
        assert all(each.deprecated for each in patches)
        return [each.patch_id for each in patches]


def test_the_second_of_two_tasks_without_commands_has_a_marker() -> None:
    """The first one is not merged: the commands of the one before stand before it."""
    run = Run()
    assert [run.task(each) for each in (timer, nothing, nothing)] == [[], [], ["helix-task-15"]]
    assert [run.task(each) for each in (nothing, nothing)] == [[], ["helix-task-25"]]


def test_commands_that_undo_each_other_are_none() -> None:
    """A timer that ends in the task in which it began has no event."""
    run = Run()
    assert [run.task(each) for each in (timer, timer_and_back, nothing)][-1]


def test_after_a_cancel_each_task_without_commands_has_a_marker() -> None:
    """The SDK answers the task that brings the end of the cancelled activity by itself."""
    run = Run()
    assert [run.task(each) for each in (cancel, nothing)] == [[], ["helix-task-10"]]


def test_a_refused_update_is_no_command_and_leaves_no_marker() -> None:
    """With a command, the server would have to keep its task."""
    run = Run()
    run.task(timer)
    assert run.task(refuse, "do_update") == []
    assert run.task(nothing)


def test_several_activations_of_one_task_are_one_task() -> None:
    """The SDK runs a workflow once more in the task in which it cancels something."""
    run = Run()
    run.task(nothing)
    assert run.task(timer) == []
    assert run.task(nothing, same=True) == []
    assert run.task(nothing) == []


def test_a_replay_adds_nothing() -> None:
    """The history says what is in it."""
    run = Run()
    assert [run.task(nothing, replaying=True) for _ in range(3)] == [[], [], []]
    assert run.task(nothing)


def test_queries_and_evictions_are_no_tasks() -> None:
    """They have no events."""
    run = Run()
    run.task(timer)
    for job in ("query_workflow", "remove_from_cache"):
        assert run.task(nothing, job) == []
    assert run.task(nothing) == []


def test_workflows_without_a_session_have_no_markers() -> None:
    """Their histories are their owner's."""
    run = Run(session=False)
    assert [run.task(nothing) for _ in range(3)] == [[], [], []]


def test_events_that_a_query_brings_before_their_task_are_refused() -> None:
    """The SDK forgets the run then, and does it as on every later replay."""
    run = Run()
    run.task(timer, replaying=True)
    with pytest.raises(TaskNotDoneError, match="ask again"):
        run.task(timer, "cancel_workflow", started=False)


def test_a_query_after_the_first_task_since_a_replay_is_refused() -> None:
    """Another worker may have that task under way: its events came for the query then."""
    run = Run()
    run.task(timer, replaying=True)
    run.task(timer)
    with pytest.raises(TaskNotDoneError, match="ask again"):
        run.task(nothing, "query_workflow", same=True)


def test_a_query_after_the_first_task_of_all_is_answered() -> None:
    """The server sends none before a task is done."""
    run = Run()
    run.task(timer)
    run.task(nothing, "query_workflow", same=True)


def test_a_query_that_comes_with_a_task_is_answered() -> None:
    """The server sends it with the task that it waited for."""
    run = Run()
    run.task(timer, replaying=True)
    run.task(timer)
    run.task(nothing, "query_workflow", same=True, query_id="1")


def test_a_query_after_a_replay_is_answered() -> None:
    """All that was run is in the history."""
    run = Run()
    run.task(timer)
    run.task(timer, replaying=True)
    run.task(nothing, "query_workflow", same=True)


def test_tasks_that_were_started_are_never_failed() -> None:
    """Whatever is replayed, or asked in between."""
    run = Run()
    run.task(timer, replaying=True)
    run.task(timer, started=False, replaying=True)
    run.task(timer)
    for job in ("resolve_activity", "query_workflow", "do_update", "query_workflow", "signal_workflow"):
        assert run.task(timer, job) == []


def test_workflows_without_a_session_are_left_as_they_are() -> None:
    """They are their owner's."""
    run = Run(session=False)
    run.task(timer)
    run.task(nothing, "query_workflow", same=True)
    assert run.task(timer, "cancel_workflow", started=False) == []
    assert run.task(timer, "do_update") == []
