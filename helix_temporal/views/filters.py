"""Which sessions are listed, and which a viewer may see."""

from typing import Literal

from pydantic import Field

from helix_temporal.models.states import SessionStatus
from helix_temporal.views.models import Millis, View

Need = Literal["waiting", "failed", "behind"]
"""``waiting``: for a client, a person or a sub-agent.  ``failed``: its last turn did.  ``behind``: the
archive does not have all of it."""


class SessionFilter(View):
    """Which sessions; all that is given must match.

    Attributes:
        metadata: Values as text; all pairs must match.
        since, until: Of ``updated_at``, from inclusive, to exclusive.
        need: What somebody has to look at.
        roots: No sub-agents' sessions.
        parent_session_id: Sub-agents' sessions of this one.
    """

    user_id: str | None = None
    agent: str | None = None
    status: tuple[SessionStatus, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)
    since: Millis | None = None
    until: Millis | None = None
    need: Need | None = None
    roots: bool = False
    parent_session_id: str | None = None
