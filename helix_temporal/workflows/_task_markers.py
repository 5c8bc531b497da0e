"""Markers between workflow tasks that the SDK would otherwise merge.

The SDK takes a workflow task without commands, directly followed by another task, for a heartbeat, and
merges the two (https://github.com/temporalio/sdk-rust/issues/1146).  If the second task brings an update,
a worker without the workflow in its cache merges them as well when it handles the update, but no longer
when it replays it.  The update's handler then runs before the results that the first task brought, and on
replay after them.  If it commands something else there, the workflow is stuck (TMPRL1100).

A marker makes sure that the first task has a command.  It is that of a deprecated patch, which any replay
accepts, with this module or without it: nothing depends on the module once the SDK is fixed.

A query has a worker without the workflow in its cache run it up to the last event, also events for which no
workflow task was started yet.  An update that comes with their task is then handled after them, and on replay
before them.  Such a task is failed once: the SDK forgets the run, and does the task from the start of the
history, as every later replay does.
"""

from contextvars import ContextVar
from typing import Any, Final

_NO_EVENT: Final = frozenset({"query_workflow", "notify_has_patch", "remove_from_cache"})
"""Jobs that do not come from a new event."""
_UNDONE_BY: Final = {"cancel_timer": "start_timer", "request_cancel_activity": "schedule_activity"}

_current: Final[ContextVar["TaskMarkers | None"]] = ContextVar("helixtaskmarkers", default=None)


class RunAheadError(RuntimeError):
    """Fails one workflow task, which the server repeats."""


class TaskMarkers:
    """Adds the markers to one workflow run.

    Attributes:
        wanted: Whether the run has a session.  The histories of other workflows stay as they are.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._task, self._started, self._ahead = -1, (-1, -1), False
        self._empty, self._empty_before, self._hidden = True, True, False

    def activate(self, inner: Any, activation: Any) -> Any:
        """Run an activation; add a marker if this workflow task and the one before have no command.

        Raises:
            RunAheadError: A query had the run see events of this task before the task was started.
        """
        self._check_ahead(activation)
        token = _current.set(self)
        try:
            completion = inner.activate(activation)
        finally:
            _current.reset(token)
        if completion.HasField("successful"):
            self._look_at(activation, completion.successful.commands)
        return completion

    def _check_ahead(self, activation: Any) -> None:
        if not _jobs(activation):
            return
        # Both are the started task's; the time alone is told by servers of before 1.20.
        started = (activation.timestamp.ToNanoseconds(), activation.history_size_bytes)
        if started == self._started:
            longer = activation.history_length > self._task
            self._ahead = self._ahead or (longer and not activation.is_replaying)
        elif self._ahead and self.wanted:
            raise RunAheadError(
                "a query was answered from events of this task before it was started; it is done again, from "
                "the start of the history"
            )
        self._started = started

    def _look_at(self, activation: Any, commands: Any) -> None:
        jobs = _jobs(activation)
        if not jobs:
            return
        if activation.history_length != self._task:
            self._task = activation.history_length
            self._empty_before, self._empty = self._empty, True
        recorded = _recorded(commands)
        if recorded:
            self._empty = False
            # The SDK answers a task that only brings the end of a cancelled activity: we do not see it.
            self._hidden = self._hidden or "request_cancel_activity" in recorded
            return
        # A task before that has commands is not merged with this one, nor this one with the next.
        merges = self._empty and (self._empty_before or self._hidden)
        # The server forgets a task that only brought a refused update.
        stays = jobs != {"do_update"}
        if self.wanted and merges and stays and not activation.is_replaying:
            marker = commands.add().set_patch_marker
            marker.patch_id, marker.deprecated = f"helix-task-{self._task}", True
            self._empty = False


def _jobs(activation: Any) -> set[str]:
    """Kinds of jobs that come from new events."""
    return {each.WhichOneof("variant") for each in activation.jobs} - _NO_EVENT


def keep_tasks_apart() -> None:
    """Ask for markers in the workflow run that calls this."""
    markers = _current.get()
    if markers is not None:
        markers.wanted = True


def _recorded(commands: Any) -> set[str]:
    """Kinds of those commands that get an event in the history."""
    found = {_name_of(each) for each in commands}
    undone = {(_UNDONE_BY[kind], seq) for kind, seq in found if kind in _UNDONE_BY} & found
    undone |= {(kind, seq) for kind, seq in found if (_UNDONE_BY.get(kind), seq) in undone}
    return {kind for kind, _ in found - undone} - {"respond_to_query", "rejection"}


def _name_of(command: Any) -> tuple[str, int]:
    kind = command.WhichOneof("variant")
    if kind == "update_response" and command.update_response.WhichOneof("response") == "rejected":
        return "rejection", 0
    return kind, getattr(getattr(command, kind), "seq", 0)
