"""What clients, which have no stores, have workers do: one activity each, and short workflows around it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Self, TypeAlias

from temporalio import workflow

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.activities.usage import UsageActivities
from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import WireModel
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.handles import (
    ChildInfo,
    EraseSessionInput,
    EraseSessionResult,
    FindTurnInput,
    FindTurnResult,
    ListChildrenInput,
    ListTurnsInput,
    ListTurnsResult,
    SessionUsage,
    ShowSessionInput,
    ShowSessionResult,
)
from helix_temporal.models.sessions import CallPolicy, SetPropertiesInput, SetPropertiesResult
from helix_temporal.models.steps import PutTextInput, PutTextResult
from helix_temporal.models.store_calls import ListCheckpointsInput, Page, SessionQuery, SessionSummary
from helix_temporal.models.threads import (
    DescribeThreadResult,
    ForkThreadInput,
    ReadBodyInput,
    ReadBodyResult,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.models.usage import UsageEntry, UsageQuery
from helix_temporal.workflows.calls import OPEN_POLICY, call

Activity: TypeAlias = Callable[[Any, Any], Awaitable[Any]]

_SUBJECTS: Final = ("session_id", "thread_id", "source_id")
ALL_SESSIONS: Final = "all"
"""What a look across sessions is about."""


class ShortRequest(WireModel):
    """The input of one activity: exactly one field besides ``policy`` is given, and says which.

    Attributes:
        policy: The client's time-outs and retries; None for the defaults.
    """

    ACTIVITIES: ClassVar[Mapping[str, Activity]] = {}
    KIND: ClassVar[str] = ""
    """What ids of such calls begin with, after the deployment's name."""

    policy: CallPolicy | None = None

    @classmethod
    def of(cls, activity: Activity, given: Any) -> Self:
        """The request for an activity."""
        return cls(**{next(name for name, each in cls.ACTIVITIES.items() if each is activity): given})

    @property
    def wanted(self) -> str:
        """The name of the field that is given.

        Raises:
            InvalidRequestError: None is, or one of a newer version.
        """
        for name in self.ACTIVITIES:
            if getattr(self, name) is not None:
                return name
        raise InvalidRequestError(f"nothing is asked for; one of {', '.join(self.ACTIVITIES)} expected")

    @property
    def activity(self) -> Activity:
        """The activity."""
        return self.ACTIVITIES[self.wanted]

    @property
    def given(self) -> Any:
        """Its input."""
        return getattr(self, self.wanted)

    @property
    def about(self) -> str:
        """The session, or thread, that it is about."""
        given = self.given
        if isinstance(given, SessionQuery | UsageQuery):
            return ALL_SESSIONS
        return next(str(getattr(given, name)) for name in _SUBJECTS if hasattr(given, name))


class LookRequest(ShortRequest):
    """What to look at."""

    KIND: ClassVar[str] = "look"
    ACTIVITIES: ClassVar[Mapping[str, Activity]] = {
        "show": SessionReads.show,
        "usage": SessionReads.usage,
        "turns": SessionReads.turns,
        "find_turn": SessionReads.find_turn,
        "checkpoints": SessionReads.checkpoints,
        "children": ChildActivities.children,
        "sessions": SessionReads.find,
        "entries": UsageActivities.query,
        "describe": ThreadActivities.describe,
        "messages": ThreadActivities.read,
        "body": ThreadActivities.read_body,
    }

    show: ShowSessionInput | None = None
    usage: ShowSessionInput | None = None
    turns: ListTurnsInput | None = None
    find_turn: FindTurnInput | None = None
    checkpoints: ListCheckpointsInput | None = None
    children: ListChildrenInput | None = None
    sessions: SessionQuery | None = None
    entries: UsageQuery | None = None
    describe: ThreadInput | None = None
    messages: ReadMessagesInput | None = None
    body: ReadBodyInput | None = None


class LookReply(WireModel):
    """The result, in the field of the request."""

    show: ShowSessionResult | None = None
    usage: SessionUsage | None = None
    turns: ListTurnsResult | None = None
    find_turn: FindTurnResult | None = None
    checkpoints: Page[CheckpointMeta] | None = None
    children: Page[ChildInfo] | None = None
    sessions: Page[SessionSummary] | None = None
    entries: Page[UsageEntry] | None = None
    describe: DescribeThreadResult | None = None
    messages: ReadMessagesResult | None = None
    body: ReadBodyResult | None = None


@workflow.defn(name="helix.look")
class LookWorkflow:
    """Looks at one session or thread, or at a list of them, and wakes none."""

    @workflow.run
    async def run(self, input: LookRequest) -> LookReply:
        """One activity, its result."""
        return LookReply(**await _call_wanted(input))


class ThreadRequest(ShortRequest):
    """What to do."""

    KIND: ClassVar[str] = "thread"
    ACTIVITIES: ClassVar[Mapping[str, Activity]] = {
        "fork": ThreadActivities.fork,
        "put_text": SessionActivities.put_text,
        "properties": SessionActivities.set_properties,
        "erase": DeletionActivities.erase,
    }

    fork: ForkThreadInput | None = None
    put_text: PutTextInput | None = None
    properties: SetPropertiesInput | None = None
    erase: EraseSessionInput | None = None


class ThreadReply(WireModel):
    """The result, in the field of the request."""

    fork: DescribeThreadResult | None = None
    put_text: PutTextResult | None = None
    properties: SetPropertiesResult | None = None
    erase: EraseSessionResult | None = None


@workflow.defn(name="helix.thread")
class ThreadWorkflow:
    """Forks a thread, changes or deletes a session, or puts a long text aside for a message."""

    @workflow.run
    async def run(self, input: ThreadRequest) -> ThreadReply:
        """One activity, its result."""
        return ThreadReply(**await _call_wanted(input))


async def _call_wanted(request: ShortRequest) -> dict[str, Any]:
    return {request.wanted: await call(request.activity, request.given, policy=request.policy or OPEN_POLICY)}
