"""What is removed from LangGraph threads and what is copied: runs, old checkpoints, whole threads."""

import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.frameworks.langgraph_records import (
    CHECKPOINT,
    RUN,
    SESSION_KIND,
    VALUE,
    CheckpointHead,
    StoredCheckpoint,
    fit_name,
    make_value,
    name_session,
)
from helix_temporal.frameworks.langgraph_threads import (
    PAGE,
    GraphThreads,
    repeat_overtaken,
)
from helix_temporal.models.states import CreateSession
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, Records, WantedRecords
from helix_temporal.stores.protocols.sessions import SessionStore

_RUNS_KIND: Final = "langgraph-runs"
_REMOVED: Final = 100
_LISTED: Final = 200
_REMEMBERED: Final = 10_000
_ALL: Final = 1_000

Choice = Callable[[Sequence[CheckpointHead]], Collection[str]]
"""Which checkpoints of a namespace to keep, by id; they are given newest first."""


class RunIndex:
    """In which threads a run has left checkpoints: records of 256 sessions, by a hash of the run."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._noted: dict[tuple[str, str], None] = {}

    async def note_run(self, run_id: str, thread_id: str) -> None:
        """Remember a run's thread, before its first checkpoint is there."""
        if (run_id, thread_id) in self._noted:
            return
        record = Record(RUN, fit_name(thread_id), thread_id.encode(), fit_name(run_id))
        create = CreateSession(agent_type=_RUNS_KIND)
        await repeat_unanswered(
            lambda: self._records.write(
                _name_shard(run_id), RecordChange(puts=(record,)), create=create, revive=True
            )
        )
        self._noted[run_id, thread_id] = None
        if len(self._noted) > _REMEMBERED:
            del self._noted[next(iter(self._noted))]

    async def list_threads(self, run_id: str) -> list[str]:
        """The threads of a run."""
        wanted = WantedRecords(groups=((RUN, fit_name(run_id)),))
        view = await self._records.read(_name_shard(run_id), wanted)
        return [each.body.decode() for each in view.records]

    async def forget_run(self, run_id: str, thread_id: str) -> None:
        """The run has no checkpoints in the thread any more."""
        self._noted.pop((run_id, thread_id), None)
        change = RecordChange(removes=(RecordName(RUN, fit_name(thread_id), fit_name(run_id)),))
        try:
            await repeat_unanswered(lambda: self._records.write(_name_shard(run_id), change))
        except SessionNotFoundError:
            return


class ThreadUpkeep:
    """Deletes, prunes and copies threads."""

    def __init__(self, threads: GraphThreads, sessions: SessionStore, runs: RunIndex) -> None:
        self._threads, self._sessions, self._runs = threads, sessions, runs
        self._writer, self._records = threads.writer, threads.writer.records

    async def list_threads(self) -> AsyncIterator[str]:
        """All threads of the store, the one that was changed last first."""
        query = SessionQuery(agent_type=SESSION_KIND, order_by=OrderBy(), limit=_LISTED)
        cursor: str | None = None
        while True:
            page = await self._sessions.list_sessions(query.model_copy(update={"cursor": cursor}))
            for each in page.sessions:
                yield str(each.metadata["thread_id"])
            cursor = page.next_cursor
            if cursor is None:
                return

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that it has; nothing if there is none."""
        session_id = name_session(thread_id)
        runs = await self._records.list_groups(session_id, RUN)
        async with self._writer.take_turn(thread_id):
            try:
                # Outlives the thread: runs that still go on are refused after a new one has begun it, too.
                await repeat_unanswered(lambda: self._records.take_over(session_id))
            except SessionNotFoundError:
                return
            await repeat_unanswered(lambda: self._sessions.delete_session(session_id))
            self._writer.forget_thread(thread_id)
        for run_id in runs:
            await self._runs.forget_run(run_id, thread_id)

    async def prune_thread(self, thread_id: str) -> None:
        """Keep the newest checkpoint of each namespace, and what is needed to read it; free the rest."""
        for namespace in await self._threads.list_namespaces(thread_id):
            await self._remove_checkpoints(thread_id, namespace, lambda heads: keep_needed(heads, heads[:1]))

    async def delete_run(self, run_id: str) -> None:
        """Delete the checkpoints that a run left in any thread.

        Raises:
            InvalidRequestError: A later checkpoint, of another run, is made of writes of this one; nothing
                of that thread is deleted.
        """
        for thread_id in await self._runs.list_threads(run_id):
            wanted = WantedRecords(groups=((RUN, fit_name(run_id)),))
            view = await self._records.read(name_session(thread_id), wanted)
            gone: dict[str, set[str]] = {}
            for each in view.records:
                namespace, checkpoint_id = json.loads(each.body)
                gone.setdefault(namespace, set()).add(checkpoint_id)
            for namespace, ids in gone.items():
                await self._remove_checkpoints(thread_id, namespace, partial(_keep_others, thread_id, ids))
            await self._runs.forget_run(run_id, thread_id)

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy all checkpoints with what they refer to; again, they stand once.

        Oldest first, so that a copy which is broken off is a thread as it was earlier.
        """
        copied: set[RecordName] = set()
        for namespace in await self._threads.list_namespaces(source):
            heads = [each async for each in self._threads.list_heads(source, namespace)]
            heads.reverse()
            for at in range(0, len(heads), PAGE):
                page = await self._threads.load_checkpoints(source, heads[at : at + PAGE])
                for run_id in {each.head.run_id for each in page} - {None}:
                    await self._runs.note_run(str(run_id), target)
                async with self._writer.take_turn(target):
                    change = _make_copy(page, copied)
                    await self._writer.write_change(target, change, begins=True)

    async def archive_thread(self, thread_id: str, older_than: timedelta) -> int:
        """Move checkpoints and values to the archive that were written so long ago; how many records."""
        session_id, moved = name_session(thread_id), 0
        before = int((time.time() - older_than.total_seconds()) * 1000)
        for kind in (CHECKPOINT, VALUE):
            for group in await self._records.list_groups(session_id, kind):
                # A piece at a time: what is short stays, so that there may be fewer than could be moved.
                while piece := await self._records.archive(
                    session_id, kind, group, written_before=before, limit=_ALL
                ):
                    moved += piece
        return moved

    async def _remove_checkpoints(self, thread_id: str, namespace: str, choose: Choice) -> None:
        """Remove what is not chosen to be kept, in pieces, each of which leaves a thread that can be read.

        A piece is written only if nobody wrote since the checkpoints were listed: a new one may refer to a
        value that would be removed.
        """

        async def attempt() -> None:
            view = await self._records.read(name_session(thread_id))
            heads = [each async for each in self._threads.list_heads(thread_id, namespace)]
            if not heads:
                return
            revision = view.revision
            for change in plan_removal(heads, choose(heads)):
                revision = await self._writer.write_change(
                    thread_id, change, revision=revision, creates=False
                )

        async with self._writer.take_turn(thread_id):
            try:
                await repeat_overtaken(f"LangGraph thread {thread_id!r}", attempt)
            except SessionNotFoundError:
                return  # deleted meanwhile


def keep_needed(heads: Sequence[CheckpointHead], kept: Iterable[CheckpointHead]) -> set[str]:
    """The ids of some checkpoints, and of those ancestors whose writes their channels are made of.

    A delta channel has no value in most checkpoints: it is made of the writes since the nearest ancestor that
    has one.
    """
    by_id = {each.checkpoint_id: each for each in heads}
    needed: set[str] = set()
    for each in kept:
        needed.add(each.checkpoint_id)
        missing, head = set(each.replayed), by_id.get(each.parent_id or "")
        while missing and head is not None:
            needed.add(head.checkpoint_id)
            missing -= head.versions.keys()
            head = by_id.get(head.parent_id or "")
    return needed


def plan_removal(heads: Sequence[CheckpointHead], kept: Collection[str]) -> Iterator[RecordChange]:
    """Remove all other checkpoints, oldest first, and each value with the last one that refers to it."""
    used = {name for head in heads if head.checkpoint_id in kept for name in head.name_values().values()}
    gone = [head for head in reversed(heads) if head.checkpoint_id not in kept]
    last_use = {name: head for head in gone for name in head.name_values().values() if name not in used}
    values: dict[str, list[RecordName]] = {}
    for name, head in last_use.items():
        values.setdefault(head.checkpoint_id, []).append(name)
    for at in range(0, len(gone), _REMOVED):
        piece = gone[at : at + _REMOVED]
        yield RecordChange(
            removes=(
                *(head.name for head in piece),
                *(head.run_name for head in piece if head.run_name is not None),
                *(name for head in piece for name in values.get(head.checkpoint_id, ())),
            ),
            clears=tuple(head.writes_group for head in piece),
        )


def _keep_others(thread_id: str, ids: Collection[str], heads: Sequence[CheckpointHead]) -> set[str]:
    others = [each for each in heads if each.checkpoint_id not in ids]
    if torn := keep_needed(heads, others) & set(ids):
        raise InvalidRequestError(
            f"LangGraph thread {thread_id!r}: {len(torn)} checkpoints of the run are needed by later ones of "
            "other runs, whose delta channels are made of their writes; delete those runs too",
            thread_id=thread_id,
        )
    return {each.checkpoint_id for each in others}


def _make_copy(page: Sequence[StoredCheckpoint], copied: set[RecordName]) -> RecordChange:
    puts: list[Record] = []
    for each in page:
        names = each.head.name_values()
        puts += (
            make_value(names[channel], value)
            for channel, value in each.values.items()
            if names[channel] not in copied
        )
        copied.update(names.values())
        puts += (write.make_record(each.head.namespace, each.head.checkpoint_id) for write in each.writes)
        puts += each.head.make_records()
    return RecordChange(puts=tuple(puts))


def _name_shard(run_id: str) -> str:
    return f"{_RUNS_KIND}/{hashlib.sha256(fit_name(run_id).encode()).hexdigest()[:2]}"
