"""Scenes of the activities on threads and of the maintenance worker's."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from helix_temporal.models.maintenance import KeepPartInput, SweepInput
from helix_temporal.models.messages import Message
from helix_temporal.models.steps import OpenSessionResult
from helix_temporal.models.threads import (
    AppendMessagesInput,
    DeleteThreadInput,
    FlushThreadInput,
    ForkThreadInput,
    OpenThreadInput,
    ReadBodyInput,
    ReadMessagesInput,
    ReplaceMessagesInput,
    SaveStateInput,
    ThreadEpochInput,
    ThreadInput,
)
from helix_temporal.testing.builders import user_message
from tests.chaos._agent import AGENT
from tests.chaos._scenes import scene, talked
from tests.chaos._stage import Stage, Task


@scene("helix.threads.open")
async def a_thread_opens(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.threads.open", OpenThreadInput(thread_id=session, owner="run-2"), run="run-2")


@scene("helix.threads.replace")
async def all_messages_are_replaced(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    messages = (user_message("n1", "new"), Message(id="n2", role="assistant", content="newer"))
    request = ReplaceMessagesInput(thread_id=session, messages=messages, owner="run-2")
    return stage.task("helix.threads.replace", request, run="run-2")


@scene("helix.threads.append")
async def messages_are_appended(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    request = AppendMessagesInput(
        thread_id=session, epoch=handle.epoch, head=handle.head, messages=(user_message("n1", "new"),)
    )
    return stage.task("helix.threads.append", request)


@scene("helix.threads.read")
async def a_page_is_read(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.threads.read", ReadMessagesInput(thread_id=session))


@scene("helix.threads.read_body")
async def a_part_of_a_body_is_read(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.threads.read_body", ReadBodyInput(thread_id=session, position=0, id="u1"))


@scene("helix.threads.describe")
async def a_thread_is_described(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.threads.describe", ThreadInput(thread_id=session))


@scene("helix.threads.fork")
async def a_thread_is_forked(stage: Stage, session: str) -> Task:
    await talked(stage, f"{session}-source")
    request = ForkThreadInput(source_id=f"{session}-source", target_id=session, owner="run-2")
    return stage.task("helix.threads.fork", request, run="run-2")


@scene("helix.threads.load_state")
async def state_is_loaded(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.threads.load_state", ThreadInput(thread_id=session))


@scene("helix.threads.save_state")
async def state_is_saved(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    version = (await stage.backends.threads.read_facts(session)).slice_version
    request = SaveStateInput(
        thread_id=session, epoch=opened.handle.epoch, state={"agent": AGENT}, expected_version=version
    )
    return stage.task("helix.threads.save_state", request)


async def _unarchived(stage: Stage, session: str) -> OpenSessionResult:
    """With messages that only the hot tier has."""
    opened = await talked(stage, session)
    await (await messages_are_appended_to(stage, session, opened))()
    return opened


async def messages_are_appended_to(
    stage: Stage, session: str, opened: OpenSessionResult
) -> Callable[[], Awaitable[Any]]:
    """An append that is done when it is called."""
    request = AppendMessagesInput(
        thread_id=session,
        epoch=opened.handle.epoch,
        head=opened.handle.head,
        messages=(user_message("n1", "new"), Message(id="n2", role="assistant", content="newer")),
    )
    task = stage.task("helix.threads.append", request)
    return lambda: stage.calm.attempt(task)


@scene("helix.threads.flush")
async def a_thread_is_flushed(stage: Stage, session: str) -> Task:
    opened = await _unarchived(stage, session)
    return stage.task("helix.threads.flush", FlushThreadInput(thread_id=session, epoch=opened.handle.epoch))


@scene("helix.threads.flush")
async def a_thread_is_flushed_and_closed(stage: Stage, session: str) -> Task:
    opened = await _unarchived(stage, session)
    request = FlushThreadInput(thread_id=session, epoch=opened.handle.epoch, closes=True)
    return stage.task("helix.threads.flush", request)


@scene("helix.threads.evict")
async def a_thread_is_evicted(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    return stage.task("helix.threads.evict", ThreadEpochInput(thread_id=session, epoch=opened.handle.epoch))


@scene("helix.threads.evict")
async def a_thread_that_is_not_archived_is_not_evicted(stage: Stage, session: str) -> Task:
    opened = await _unarchived(stage, session)
    return stage.task("helix.threads.evict", ThreadEpochInput(thread_id=session, epoch=opened.handle.epoch))


@scene("helix.threads.hydrate")
async def a_thread_is_hydrated(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    await stage.cold(session, opened.handle.epoch)
    return stage.task("helix.threads.hydrate", ThreadEpochInput(thread_id=session, epoch=opened.handle.epoch))


@scene("helix.threads.delete")
async def a_thread_is_deleted(stage: Stage, session: str) -> Task:
    await _unarchived(stage, session)
    return stage.task("helix.threads.delete", DeleteThreadInput(thread_id=session))


# -- maintenance


@scene("helix.maintenance.sweep")
async def threads_are_swept(stage: Stage, session: str) -> Task:
    await _unarchived(stage, session)
    return stage.task("helix.maintenance.sweep", SweepInput())


@scene("helix.maintenance.keep_part")
async def an_archive_is_kept(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    for number in range(2, 5):
        # Above the inline tail: segments to merge.
        step = await stage.turn(session, opened, "hello " * 4000, message_id=f"u{number}")
        opened = opened.model_copy(update={"handle": opened.handle.model_copy(update={"head": step.head})})
    part = hashlib.sha256(session.encode()).digest()[0]
    return stage.task("helix.maintenance.keep_part", KeepPartInput(part=part))
