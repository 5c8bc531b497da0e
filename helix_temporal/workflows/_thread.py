"""A short workflow around one thread activity: for clients, which have no stores."""

from typing import Literal

from temporalio import workflow

from helix_temporal.activities.sessions import SessionActivities
from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.models._base import Model
from helix_temporal.models.sessions import CallPolicy
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

    do: Literal["read", "read_body", "describe", "fork", "delete", "put_text"]
    read: ReadMessagesInput | None = None
    read_body: ReadBodyInput | None = None
    describe: ThreadInput | None = None
    fork: ForkThreadInput | None = None
    delete: DeleteThreadInput | None = None
    put_text: PutTextInput | None = None
    policy: CallPolicy | None = None


class ThreadReply(Model):
    """The result of what was asked."""

    read: ReadMessagesResult | None = None
    body: ReadBodyResult | None = None
    described: DescribeThreadResult | None = None
    put_text: PutTextResult | None = None


@workflow.defn(name="helix.thread")
class ThreadWorkflow:
    """Reads, forks or deletes one thread, or puts a long text aside for a message."""

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
        if input.delete is not None:
            await workflow.execute_activity_method(ThreadActivities.delete, input.delete, **long)
        return ThreadReply()
