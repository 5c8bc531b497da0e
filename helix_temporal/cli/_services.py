"""How commands run that serve: until a signal, and what they log."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from helix_temporal.cli._errors import exit_on_error
from helix_temporal.errors import error_class
from helix_temporal.slots import DrainedActivities

_ATTEMPT_FAILED: Final = "Completing activity as failed"
"""What the SDK logs of an attempt of an activity, with the traceback."""


def shorten_failure(record: logging.LogRecord) -> bool:
    """A filter of log lines: an attempt that failed by an error of ours is one line, without a traceback.

    The error says what is wrong; the traceback is that of the SDK's frames, thirty lines for each attempt.
    """
    error = record.exc_info[1] if record.exc_info else None
    typed = isinstance(error, ApplicationError) and error_class(error.type or "") is not None
    if not typed or not str(record.msg).startswith(_ATTEMPT_FAILED):
        return True
    of = getattr(record, "temporal_activity", {})
    where = of.get("workflow_id") or of.get("activity_id", "")
    record.msg = "%s failed, attempt %s, of %s: %s"
    record.args = of.get("activity_type", "an activity"), of.get("attempt", "?"), where, error
    record.exc_info = record.exc_text = None
    return True


def run_service(service: Coroutine[Any, Any, DrainedActivities]) -> None:
    """Run until it ends by itself, on SIGTERM or Ctrl-C; then say how the activities ended that still ran."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    activity.logger.base_logger.addFilter(shorten_failure)
    with exit_on_error():
        drained = asyncio.run(service)
    # Standard output of a container is a pipe: without flushing nothing is seen of it for long.
    print(f"Stopped: {drained.describe()}.", flush=True)
