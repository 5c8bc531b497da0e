"""Waking sessions whose calls were not answered in time: what to do, and what was done.

These models are in workflow histories: fields are added with defaults, never renamed or removed, and a
default never changes, since fields that were not set are not written.
"""

from typing import Annotated, Final

from pydantic import Field

from helix_temporal.models._base import Model
from helix_temporal.models.queries import Limit

MAX_NAMED: Final = 20
"""Sessions that a summary names; the rest is only counted."""


class WakeInput(Model):
    """Start sessions that ended while they waited, and whose deadline has passed since.

    Attributes:
        task_queue: On which they are started; None for that of their last execution.
        page: How many are looked for at once.
        most: Stop after so many were started; the next run goes on.
        again_after: Seconds after which one is started again whose last start came to nothing.
    """

    task_queue: str | None = None
    page: Limit = 200
    most: Annotated[int, Field(ge=1)] = 1000
    again_after: Annotated[float, Field(ge=1)] = 3600.0


class WakeResult(Model):
    """What one run did.

    Attributes:
        due: Sessions with a call whose deadline has passed, be it a question or a sub-agent's call.
        woken: Of these, started now; of a sub-agent's, its root.
        running: Of these, they run: their own timers tell them.
        left: Of these, they have ended, or were started since and came to nothing: not now.
        failed: The first that could not be started; ``failures`` counts all.
        no_session_store: There is none, so nothing was looked for.
    """

    due: int = 0
    woken: int = 0
    running: int = 0
    left: int = 0
    failed: tuple[str, ...] = ()
    failures: int = 0
    no_session_store: bool = False

    def plus(self, outcome: str) -> "WakeResult":
        """With a session counted in: ``woken``, ``running`` or ``left``."""
        return self.model_copy(update={"due": self.due + 1, outcome: getattr(self, outcome) + 1})

    def without(self, session_id: str) -> "WakeResult":
        """With one that could not be started."""
        failed = (*self.failed, session_id)[:MAX_NAMED]
        return self.model_copy(update={"due": self.due + 1, "failed": failed, "failures": self.failures + 1})
