"""A short workflow around one thread activity: for clients, which have no stores."""

from typing import Literal

from temporalio import workflow

from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.models._base import Model
from helix_temporal.models.deletion import EraseSessionInput, EraseSessionResult
from helix_temporal.models.sessions import CallPolicy, SetPropertiesInput
from helix_temporal.models.steps import PutTextInput, PutTextResult
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
from helix_temporal.workflows._calls import TemporalCalls


class ThreadRequest(Model):
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


class ThreadReply(Model):
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
