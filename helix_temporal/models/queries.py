"""Pages and filters of the session store."""

from enum import Enum
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)

from helix_temporal.models._base import KnownFields
from helix_temporal.models.ids import Id
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.states import Count, Millis, SessionState, SessionStatus, StoredModel, Text

T = TypeVar("T")

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200

Limit = Annotated[int, Field(strict=True, ge=1, le=MAX_LIMIT)]


class Unset(Enum):
    """For filters where None means something."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def _or_unset(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    return value if isinstance(value, Unset) else validate(value)


class Page(StoredModel, Generic[T]):
    """A page and where to go on.

    Attributes:
        total: How many there are on all pages; None where only reading them all would tell.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None
    has_more: bool = False
    total: int | None = None


class MessagePage(StoredModel):
    """Messages by position."""

    messages: tuple[Message, ...]
    offset: int
    limit: int
    total: int
    has_more: bool


class AppendResult(StoredModel):
    """Where messages stand; a repeat gets the same answer."""

    first_index: int
    count: int
    head: Head


class OrderBy(StoredModel):
    """The order of a list; equal times go by session id."""

    field: Literal["created_at", "updated_at"] = "updated_at"
    direction: Literal["asc", "desc"] = "desc"


class SessionQuery(StoredModel, KnownFields):
    """Which sessions to list; all filters must match.

    Attributes:
        parent_session_id: None lists roots only; unset does not filter.
        tags: All must be there.
        metadata: All pairs must be there; compares text values.
        date_from, date_to: Of ``date_field``, from inclusive, to exclusive.
        offset: For numbered pages.  A ``cursor`` stays complete while sessions change.
    """

    user_id: Text | None = None
    agent_type: Text | None = None
    status: tuple[SessionStatus, ...] = ()
    parent_session_id: Annotated[Id | Unset | None, WrapValidator(_or_unset)] = UNSET
    tags: tuple[Text, ...] = ()
    metadata: dict[str, Text] = Field(default_factory=dict)
    date_field: Literal["created_at", "updated_at"] = "created_at"
    date_from: Millis | None = None
    date_to: Millis | None = None
    order_by: OrderBy = OrderBy()
    limit: Limit = DEFAULT_LIMIT
    offset: Count = 0
    cursor: str | None = None

    def named(self) -> dict[str, Any]:
        """The fields that were given."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _without_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As text it could not be told from the id "unset".
        fields: dict[str, Any] = write(self)
        if isinstance(self.parent_session_id, Unset):
            fields.pop("parent_session_id", None)
        return fields


class SessionSummary(StoredModel):
    """A session in a list."""

    session_id: Id
    agent_type: Text = ""
    user_id: Text | None = None
    status: SessionStatus
    version: int
    step_count: int
    tags: tuple[Text, ...] = ()
    parent_session_id: Id | None = None
    expires_at: Millis | None = None
    created_at: Millis
    updated_at: Millis

    @classmethod
    def of(cls, state: SessionState) -> "SessionSummary":
        """What a list shows of a state."""
        return cls.model_validate({name: getattr(state, name) for name in cls.model_fields})


class SessionPage(StoredModel):
    """A page of sessions; ``total`` counts all that match."""

    sessions: tuple[SessionSummary, ...]
    total: int
    offset: int
    limit: int
    has_more: bool
    next_cursor: str | None = None


class ExpiredSession(StoredModel):
    """A session past its time, or with a clean-up that is not finished."""

    session_id: Id
    expires_at: Millis | None
    cleanup_pending: bool = False


class DueSession(StoredModel):
    """A session that waits although a deadline has passed; ``due_at`` is the earliest of `deadlines`."""

    session_id: Id
    due_at: Millis


def deadlines(state: SessionState) -> tuple[int, ...]:
    """When somebody is to look after a session that waits, in no order.

    That is when a client tool call without an answer, or the call of a sub-agent that has ended while it
    waits, has used up its time.
    """
    calls = state.pending_client_tool_calls.values()
    below = state.suspended_awaiting_children
    times = (
        *(each.deadline_at for each in calls if each.response is None),
        *(each.until for each in below if not each.resolved),
    )
    return tuple(each for each in times if each is not None)


class SessionSnapshot(StoredModel):
    """One consistent view for a user interface: a checkpoint and the messages up to it."""

    state: SessionState
    checkpoint_id: str | None
    messages: tuple[Message, ...]
    head: Head
    stream_sequence: int
    status: SessionStatus
