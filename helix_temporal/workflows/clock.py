"""What time it is, the same on replay."""

from temporalio import workflow


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(workflow.now().timestamp() * 1000)
