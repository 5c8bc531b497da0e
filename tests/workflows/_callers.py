"""Workflows of a user, who knows `helix_temporal.workflows.call` and the public models."""

import asyncio
from datetime import timedelta
from typing import assert_type

from temporalio import workflow

from helix_temporal.activities import (
    CheckpointActivities,
    SessionStoreActivities,
    ThreadActivities,
    UsageActivities,
)
from helix_temporal.errors import HeadMovedError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.models.checkpoints import CommitResult, StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.states import SessionState, StateChange
from helix_temporal.models.store_calls import CommitStepInput, CreateSessionInput
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.threads import (
    AppendMessagesInput,
    AppendMessagesResult,
    FlushThreadInput,
    FlushThreadResult,
    OpenThreadInput,
    OpenThreadResult,
    ThreadInput,
)
from helix_temporal.models.usage import UsageQuery
from helix_temporal.workflows import call

QUESTION = Message(id="q", role="user", content="hello")
ANSWER = Message(id="a", role="assistant", content="hi")


async def open_and_append(thread_id: str) -> tuple[OpenThreadResult, AppendMessagesResult]:
    """A thread with one turn."""
    opened = await call(ThreadActivities.open, OpenThreadInput(thread_id=thread_id))
    append = AppendMessagesInput(
        thread_id=thread_id, epoch=opened.epoch, head=opened.head, messages=(QUESTION, ANSWER)
    )
    appended = await call(ThreadActivities.append, append)
    assert_type(opened, OpenThreadResult)
    assert_type(appended, AppendMessagesResult)
    return opened, appended


@workflow.defn
class CatchesErrors:
    """Meets errors of the pack, and tells which classes they had."""

    @workflow.run
    async def run(self, thread_id: str) -> list[str]:
        met = []
        try:
            await call(ThreadActivities.describe, ThreadInput(thread_id="nowhere"))
        except ThreadNotFoundError as error:
            met.append(f"{type(error).__name__}: {error}")
        opened, _ = await open_and_append(thread_id)
        wrong = Head(position=7, last_id="x")
        try:
            append = AppendMessagesInput(
                thread_id=thread_id, epoch=opened.epoch, head=wrong, messages=(QUESTION,)
            )
            await call(ThreadActivities.append, append)
        except HeadMovedError as error:
            met.append(type(error).__name__)
        return met


@workflow.defn
class CallsOtherStores:
    """Sessions and usage are called the same way as threads."""

    @workflow.run
    async def run(self, session_id: str) -> tuple[str, int]:
        state = await call(SessionStoreActivities.create, CreateSessionInput(session_id=session_id))
        assert_type(state, SessionState)
        page = await call(UsageActivities.query, UsageQuery())
        return state.session_id, len(page.items)


@workflow.defn
class AsksNobody:
    """Calls workers that are not there, or stores that do not answer."""

    @workflow.run
    async def run(self, task_queue: str, seconds: float) -> str:
        try:
            await call(
                ThreadActivities.describe,
                ThreadInput(thread_id="t"),
                task_queue=task_queue,
                schedule_to_close_timeout=timedelta(seconds=seconds),
            )
        except StoreUnavailableError as error:
            return str(error)
        return "answered"


@workflow.defn
class IsCancelledAtItsEnd:
    """A cancel comes while it archives."""

    @workflow.run
    async def run(self, thread_id: str, shielded: bool) -> str:
        opened, _ = await open_and_append(thread_id)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        flush = FlushThreadInput(thread_id=thread_id, epoch=opened.epoch, closes=True)
        try:
            flushed = await call(ThreadActivities.flush, flush, shielded=shielded)
        except asyncio.CancelledError:
            return "cancelled"
        assert_type(flushed, FlushThreadResult)
        return flushed.status


@workflow.defn
class ArchivesAtTheEnd:
    """PendingCalls until somebody ends it, and archives then."""

    @workflow.run
    async def run(self, thread_id: str) -> None:
        opened, _ = await open_and_append(thread_id)
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            flush = FlushThreadInput(thread_id=thread_id, epoch=opened.epoch, closes=True)
            await call(ThreadActivities.flush, flush, shielded=True)


@workflow.defn
class CommitsMessages:
    """Commits a step with messages twice, and then another one."""

    @workflow.run
    async def run(self, session_id: str) -> list[int]:
        await call(SessionStoreActivities.create, CreateSessionInput(session_id=session_id))
        commit = CommitStepInput(
            session_id=session_id,
            step=StepCommit(step_id="s1"),
            change=StateChange(steps=1),
            messages=(QUESTION, ANSWER),
        )
        first = await call(CheckpointActivities.commit, commit)
        assert_type(first, CommitResult)
        again = await call(CheckpointActivities.commit, commit)
        commit = CommitStepInput(
            session_id=session_id,
            step=StepCommit(step_id="s2"),
            change=StateChange(steps=1),
            messages=(Message(id="q2", role="user", content="and now?"),),
        )
        second = await call(CheckpointActivities.commit, commit)
        return [first.head.position, again.head.position, second.head.position]
