"""A short workflow around one activity that looks at a session: for clients, which have no stores."""

from temporalio import workflow

from helix_temporal.activities.children import ChildActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.usage import UsageActivities
from helix_temporal.models._base import Model
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.handles import (
    ChildInfo,
    FindTurnInput,
    FindTurnResult,
    ListChildrenInput,
    ListTurnsInput,
    ListTurnsResult,
    SessionUsage,
    ShowSessionInput,
    ShowSessionResult,
)
from helix_temporal.models.queries import Page, SessionQuery, SessionSummary
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.store_calls import ListCheckpointsInput
from helix_temporal.models.usage import UsageEntry, UsageQuery
from helix_temporal.workflows._calls import TemporalCalls
from helix_temporal.workflows._stores import CheckpointCalls


class LookRequest(Model):
    """What to look at: exactly one field besides ``policy`` is given.

    Attributes:
        policy: The client's time-outs and retries; None for the defaults.
    """

    show: ShowSessionInput | None = None
    usage: ShowSessionInput | None = None
    turns: ListTurnsInput | None = None
    find_turn: FindTurnInput | None = None
    checkpoints: ListCheckpointsInput | None = None
    children: ListChildrenInput | None = None
    sessions: SessionQuery | None = None
    entries: UsageQuery | None = None
    policy: CallPolicy | None = None

    @property
    def about(self) -> str:
        """The session, or thread, that is looked at."""
        sessions = self.show or self.usage or self.checkpoints or self.children
        threads = self.turns or self.find_turn
        if sessions is not None:
            return sessions.session_id
        return "all" if threads is None else threads.thread_id


class LookReply(Model):
    """The result of what was asked."""

    show: ShowSessionResult | None = None
    usage: SessionUsage | None = None
    turns: ListTurnsResult | None = None
    find_turn: FindTurnResult | None = None
    checkpoints: Page[CheckpointMeta] | None = None
    children: Page[ChildInfo] | None = None
    sessions: Page[SessionSummary] | None = None
    entries: Page[UsageEntry] | None = None


@workflow.defn(name="helix.look")
class LookWorkflow:
    """Looks at one session, or at a list of them, and wakes none."""

    @workflow.run
    async def run(self, input: LookRequest) -> LookReply:
        """One activity, its result."""
        calls = TemporalCalls(input.policy or CallPolicy())
        store, beating = calls.store_options(), calls.store_options(beats=True)
        if input.show is not None:
            shown = await workflow.execute_activity_method(SessionReads.show, input.show, **store)
            return LookReply(show=shown)
        if input.usage is not None:
            used = await workflow.execute_activity_method(SessionReads.usage, input.usage, **beating)
            return LookReply(usage=used)
        if input.turns is not None:
            turns = await workflow.execute_activity_method(SessionReads.turns, input.turns, **beating)
            return LookReply(turns=turns)
        if input.find_turn is not None:
            found = await workflow.execute_activity_method(SessionReads.find_turn, input.find_turn, **beating)
            return LookReply(find_turn=found)
        if input.checkpoints is not None:
            wanted = input.checkpoints
            page = await CheckpointCalls(policy=calls.policy).list(
                wanted.session_id, limit=wanted.limit, cursor=wanted.cursor, order=wanted.order
            )
            return LookReply(checkpoints=page)
        if input.children is not None:
            children = await workflow.execute_activity_method(
                ChildActivities.children, input.children, **beating
            )
            return LookReply(children=children)
        return await _listed(input, store)


async def _listed(input: LookRequest, store: workflow.ActivityConfig) -> LookReply:
    """What is asked of all sessions."""
    if input.sessions is not None:
        sessions = await workflow.execute_activity_method(SessionReads.find, input.sessions, **store)
        return LookReply(sessions=sessions)
    if input.entries is not None:
        entries = await workflow.execute_activity_method(UsageActivities.query, input.entries, **store)
        return LookReply(entries=entries)
    return LookReply()
