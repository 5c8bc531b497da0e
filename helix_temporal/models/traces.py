"""What is kept of a turn's trace, so that every worker, and later a backfill, finds the same ids.

These models are in records of threads and in rows of runs: fields are added with defaults, never renamed or
removed.
"""

from typing import Final, Literal

from helix_temporal.models.states import Millis, StoredModel, Text

REMEMBERED_WAITS: Final = 16
"""Waits for people that the record of a turn's trace has, the oldest."""
MAX_LINKS: Final = 32
"""Callers to which a turn's root is linked, the first."""


class TurnWait(StoredModel):
    """A call of the turn that a client or a person has answered.

    Attributes:
        since, until: When it was asked for, and when it was answered.
    """

    tool: Text = ""
    kind: Literal["client", "approval"] = "client"
    outcome: Text = ""
    since: Millis = 0
    until: Millis = 0


class TurnTrace(StoredModel):
    """One turn's trace.  Contexts are texts as the W3C header ``traceparent`` has them.

    Attributes:
        root: The turn's own span, ``invoke_agent``.
        started: When its first step was scheduled.
        parent: The caller's span, where the root is its child.
        links: Callers' spans to which the root is linked.
        before: The root of the turn before; the root is linked to it.
    """

    root: Text
    agent: Text = ""
    started: Millis = 0
    parent: Text | None = None
    links: tuple[Text, ...] = ()
    before: Text | None = None
    waits: tuple[TurnWait, ...] = ()
