"""What a workflow's history says of our activities."""

from temporalio.client import WorkflowHistory


def list_unwatched(history: WorkflowHistory, within: int) -> list[str]:
    """Our activities whose worker may be dead for longer than so many seconds before one is tried again."""
    found = []
    for event in history.events:
        scheduled = event.activity_task_scheduled_event_attributes
        name, heartbeat = scheduled.activity_type.name, scheduled.heartbeat_timeout.ToTimedelta()
        if name.startswith("helix.") and not 0 < heartbeat.total_seconds() <= within:
            found.append(name)
    return found
