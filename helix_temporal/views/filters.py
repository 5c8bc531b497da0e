"""Which sessions are listed and which may be seen: filters, and what stores are asked for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from helix_temporal.errors import InvalidConfigError, InvalidRequestError
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.store_calls import UNSET, SessionQuery
from helix_temporal.stores.sessions.operations import matches_query
from helix_temporal.views.models import Millis, SessionOverview, View

Need = Literal["waiting", "failed", "behind"]
"""``waiting``: for a client, a person or a sub-agent.  ``failed``: its last turn did.  ``behind``: the
archive does not have all of it."""

_NEEDED: Final[dict[Need, SessionStatus]] = {
    "waiting": SessionStatus.PAUSED,
    "failed": SessionStatus.FAILED,
}
_SAME: Final = ("user_id", "agent", "parent_session_id")
"""Fields of which a session has one value."""


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


EVERY_SESSION: Final = SessionFilter()


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What the session store is asked, and what it cannot tell.

    Attributes:
        query: None where nothing can match.
        behind: Only sessions of which the archive does not have all.
    """

    query: SessionQuery | None
    behind: bool = False


def plan_search(wanted: SessionFilter, reads: SessionFilter = EVERY_SESSION) -> SearchPlan:
    """The search for a filter, among the sessions that a viewer may see.

    Raises:
        InvalidRequestError: The filter asks for roots, and for the children of a session.
    """
    if wanted.roots and wanted.parent_session_id is not None:
        raise InvalidRequestError("roots and parent_session_id exclude each other: give one of them")
    both = combine_filters(wanted, reads)
    if both is None:
        return SearchPlan(None)
    status = both.status
    if both.need in _NEEDED:
        needed = _NEEDED[both.need]
        if status and needed not in status:
            return SearchPlan(None)
        status = (needed,)
    fields: dict[str, Any] = {"date_field": "updated_at", "count": False, "status": status}
    parent = None if both.roots else both.parent_session_id or UNSET
    query = SessionQuery(
        user_id=both.user_id,
        agent_type=both.agent,
        parent_session_id=parent,
        tags=both.tags,
        metadata=both.metadata,
        date_from=both.since,
        date_to=both.until,
        **fields,
    )
    return SearchPlan(query, behind=both.need == "behind")


def combine_filters(one: SessionFilter, other: SessionFilter) -> SessionFilter | None:
    """The filter of what matches both; None: nothing can.  ``need`` is of the first."""
    values = {name: {getattr(each, name) for each in (one, other)} - {None} for name in _SAME}
    roots = one.roots or other.roots
    status = [each for each in one.status or other.status if each in (other.status or one.status)]
    if (
        any(len(each) > 1 for each in values.values())
        or (roots and values["parent_session_id"])
        or (bool(one.status or other.status) and not status)
        or any(other.metadata.get(key, value) != value for key, value in one.metadata.items())
    ):
        return None
    starts = [each for each in (one.since, other.since) if each is not None]
    ends = [each for each in (one.until, other.until) if each is not None]
    return one.model_copy(
        update={
            **{name: next(iter(each), None) for name, each in values.items()},
            "status": tuple(status),
            "tags": tuple(dict.fromkeys((*one.tags, *other.tags))),
            "metadata": {**one.metadata, **other.metadata},
            "since": max(starts, default=None),
            "until": min(ends, default=None),
            "roots": roots,
        }
    )


Admits = Callable[[SessionOverview], bool]
"""Whether the viewer may see a session."""


def admits_by(reads: SessionFilter) -> Admits:
    """Whether a session is one of these, by the very rule of the lists.

    Raises:
        InvalidConfigError: The filter asks for what no single session tells by itself, or contradicts itself.
    """
    if reads.need is not None:
        raise InvalidConfigError(
            f"Viewer.reads: need={reads.need!r} says what a session waits for, which changes; "
            "give a user, an agent, tags, metadata, or a function"
        )
    try:
        query = plan_search(reads).query
    except InvalidRequestError as error:
        raise InvalidConfigError(f"Viewer.reads: {error}") from error
    return lambda session: query is not None and matches_query(session, query)
