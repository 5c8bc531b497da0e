"""What keeps histories replayable where the SDK runs events otherwise than on replay.

**Tasks without commands.**  The SDK takes a workflow task without commands, directly followed by another
task, for a heartbeat, and merges the two (https://github.com/temporalio/sdk-rust/issues/1146).  If the second
task brings an update, a worker without the workflow in its cache merges them as well when it handles the
update, but no longer when it replays it.  The update's handler then runs before the results that the first
task brought, and on replay after them.  If it commands something else there, the workflow is stuck
(TMPRL1100).

A marker makes sure that the first task has a command.  It is that of a deprecated patch, which any replay
accepts, with this module or without it: nothing depends on the module once the SDK is fixed.

**Queries.** A query that waited for a lost worker comes to another one with the whole history, also
with events that no workflow task has brought yet, and with those of a task that the lost worker has
under way. The SDK runs them for the query, with the time of that task or of the one before, and keeps
them applied: what they command then is sent with the next task. On replay the same events come with
their own task, together with its updates, and at its time. Such a query is failed, and forgotten.

A worker cannot tell a task that another one has under way from one that it has just done itself, if that was
its first since a replay.  A query that comes next is failed as well; asked again, it is answered.
"""

from contextvars import ContextVar
from typing import Any, Final

_NO_EVENT: Final = frozenset({"query_workflow", "notify_has_patch", "remove_from_cache"})
"""Jobs that do not come from a new event."""
_UNDONE_BY: Final = {"cancel_timer": "start_timer", "request_cancel_activity": "schedule_activity"}

_QUERY: Final = "legacy_query"
"""The SDK's id of a query that comes by itself, not with a workflow task."""

TASK_NOT_DONE: Final = "the query came with events of a workflow task that may not be done yet; ask again"

_current: Final[ContextVar["TaskMarkers | None"]] = ContextVar("helixtaskmarkers", default=None)


class TaskNotDoneError(RuntimeError):
    """Fails a query; the SDK forgets what the run did for it."""


class TaskMarkers:
    """Keeps the history of one workflow run replayable: adds markers, and refuses events without a task.

    Attributes:
        wanted: Whether the run has a session.  Other workflows are left as they are.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._task, self._started = -1, (-1, -1)
        self._empty, self._empty_before, self._hidden = True, True, False
        self._since_replay: int | None = None
        """Tasks that were run since the last replay, if there was one."""

    def activate(self, inner: Any, activation: Any) -> Any:
        """Run an activation; add a marker if this workflow task and the one before have no command.

        Raises:
            TaskNotDoneError: A query came with these events, or may have come with those before.
        """
        self._check_ahead(activation)
        self._check_query(activation)
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
        # Both come with the start of a task: where they stay, and events come, no task was started.
        started = (activation.timestamp.ToNanoseconds(), activation.history_size_bytes)
        ahead = started == self._started and activation.history_length > self._task
        if ahead and self.wanted and not activation.is_replaying:
            raise TaskNotDoneError(TASK_NOT_DONE)
        self._started = started

    def _check_query(self, activation: Any) -> None:
        if self.wanted and self._since_replay == 1 and _is_query(activation):
            raise TaskNotDoneError(TASK_NOT_DONE)

    def _look_at(self, activation: Any, commands: Any) -> None:
        jobs = _jobs(activation)
        if not jobs:
            return
        if activation.history_length != self._task:
            self._task = activation.history_length
            self._empty_before, self._empty = self._empty, True
            if activation.is_replaying:
                self._since_replay = 0
            elif self._since_replay is not None:
                self._since_replay += 1
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


def _is_query(activation: Any) -> bool:
    """A query came by itself; its events, if any, came with the activation before."""
    return any(each.query_workflow.query_id == _QUERY for each in activation.jobs)


def keep_tasks_apart() -> None:
    """Have the history of the workflow run that calls this kept replayable."""
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
