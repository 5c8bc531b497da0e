"""Short workflows around one activity each: for clients, which have no stores."""

from typing import Literal

from temporalio import workflow

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.stores import CheckpointActivities
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.activities.usage import UsageActivities
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
from helix_temporal.models.sessions import CallPolicy, SetPropertiesInput
from helix_temporal.models.steps import PutTextInput, PutTextResult
from helix_temporal.models.store_calls import ListCheckpointsInput, Page, SessionQuery, SessionSummary
from helix_temporal.models.threads import (
    DeleteThreadInput,
    DescribeThreadResult,
    ForkThreadInput,
    ReadBodyInput,
    ReadBodyResult,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.models.usage import UsageEntry, UsageQuery
from helix_temporal.workflows.calls import TemporalCalls, call


class LookRequest(WireModel):
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


class LookReply(WireModel):
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
            page = await call(CheckpointActivities.list, input.checkpoints, policy=calls.policy)
            return LookReply(checkpoints=page)
        if input.children is not None:
            children = await workflow.execute_activity_method(
                ChildActivities.children, input.children, **beating
            )
            return LookReply(children=children)
        return await _look_across_sessions(input, store)


async def _look_across_sessions(input: LookRequest, store: workflow.ActivityConfig) -> LookReply:
    """What is asked of all sessions."""
    if input.sessions is not None:
        sessions = await workflow.execute_activity_method(SessionReads.find, input.sessions, **store)
        return LookReply(sessions=sessions)
    if input.entries is not None:
        entries = await workflow.execute_activity_method(UsageActivities.query, input.entries, **store)
        return LookReply(entries=entries)
    return LookReply()


class ThreadRequest(WireModel):
    """What to do; exactly the field of that name is given.

    Attributes:
        policy: The client's time-outs and retries; None for the defaults.
    """

    do: Literal["read", "read_body", "describe", "fork", "delete", "put_text", "set_properties", "erase"]
    read: ReadMessagesInput | None = None
    read_body: ReadBodyInput | None = None
    describe: ThreadInput | None = None
    fork: ForkThreadInput | None = None
    delete: DeleteThreadInput | None = None
    put_text: PutTextInput | None = None
    properties: SetPropertiesInput | None = None
    erase: EraseSessionInput | None = None
    policy: CallPolicy | None = None

    @property
    def about(self) -> str:
        """The thread, or session, that it is about."""
        given = self.read or self.read_body or self.describe or self.delete or self.put_text
        if given is not None:
            return given.thread_id
        if self.fork is not None:
            return self.fork.source_id
        named = self.properties or self.erase
        return "" if named is None else named.session_id


class ThreadReply(WireModel):
    """The result of what was asked."""

    read: ReadMessagesResult | None = None
    body: ReadBodyResult | None = None
    described: DescribeThreadResult | None = None
    put_text: PutTextResult | None = None
    erased: EraseSessionResult | None = None


@workflow.defn(name="helix.thread")
class ThreadWorkflow:
    """Reads, forks, changes or deletes one thread or session, or puts a long text aside for a message."""

    @workflow.run
    async def run(self, input: ThreadRequest) -> ThreadReply:
        """One activity, its result."""
        calls = TemporalCalls(input.policy or CallPolicy())
        store = calls.store_options()
        # A long thread is many objects, and a fork's transform may ask a model.
        long = calls.model_options()
        if input.read is not None:
            beating = calls.store_options(beats=True)
            page = await workflow.execute_activity_method(ThreadActivities.read, input.read, **beating)
            return ThreadReply(read=page)
        if input.read_body is not None:
            body = await workflow.execute_activity_method(
                ThreadActivities.read_body, input.read_body, **store
            )
            return ThreadReply(body=body)
        if input.describe is not None:
            found = await workflow.execute_activity_method(ThreadActivities.describe, input.describe, **store)
            return ThreadReply(described=found)
        if input.fork is not None:
            found = await workflow.execute_activity_method(ThreadActivities.fork, input.fork, **long)
            return ThreadReply(described=found)
        if input.put_text is not None:
            put = await workflow.execute_activity_method(SessionActivities.put_text, input.put_text, **store)
            return ThreadReply(put_text=put)
        if input.properties is not None:
            await workflow.execute_activity_method(
                SessionActivities.set_properties, input.properties, **store
            )
        if input.erase is not None:
            erased = await workflow.execute_activity_method(DeletionActivities.erase, input.erase, **long)
            return ThreadReply(erased=erased)
        if input.delete is not None:
            await workflow.execute_activity_method(ThreadActivities.delete, input.delete, **long)
        return ThreadReply()
