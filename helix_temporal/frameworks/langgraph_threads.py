"""LangGraph threads in a store: what may be read and written, by whom, and what a late write is told."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from helix_temporal._retries import repeat_unanswered, retry_pause
from helix_temporal.errors import (
    FencedError,
    SessionNotFoundError,
    StaleStateError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.langgraph_records import (
    CHECKPOINT,
    SESSION_KIND,
    VALUE,
    CheckpointHead,
    PendingWrite,
    StoredCheckpoint,
    Typed,
    fit_name,
    make_value,
    name_session,
    read_head,
    read_value,
    read_write,
)
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, Records, WantedRecords

T = TypeVar("T")

PAGE: Final = 20
"""Checkpoints that are read at once, with all that they refer to."""
HEADS: Final = 200
"""Checkpoints that are read at once without what they refer to."""
_OVERTAKEN: Final = 100
_REMEMBERED: Final = 10_000


class ThreadWriter:
    """Writes to threads, one change at a time for each; keeps what the process knows of them.

    Args:
        exclusive: Take each thread over when it is first touched, so that older writers are refused.
    """

    def __init__(self, records: Records, *, exclusive: bool = False) -> None:
        self.records, self._exclusive = records, exclusive
        self._epochs: dict[str, int] = {}
        self._absent: dict[str, None] = {}
        self._turns: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    def take_turn(self, thread_id: str) -> asyncio.Lock:
        """The lock around changes of a thread: in the order in which they are asked for.

        Each event loop has its own.  Between two loops revisions decide, as between processes.
        """
        return self._turns.setdefault((id(asyncio.get_running_loop()), thread_id), asyncio.Lock())

    def note_absent(self, thread_id: str) -> None:
        """Remember that there was no thread: a run that has seen that may begin it anew.

        The runs of this process begin it in any order: a checkpoint of a sub-graph, or a pending write, may
        come before the first checkpoint of the outer graph.
        """
        self._absent[thread_id] = None
        if len(self._absent) > _REMEMBERED:
            del self._absent[next(iter(self._absent))]

    def forget_thread(self, thread_id: str) -> None:
        """The thread was deleted: what comes from its runs is late."""
        self._absent.pop(thread_id, None)
        self._epochs.pop(thread_id, None)

    def use_epoch(self, thread_id: str, epoch: int) -> None:
        """Write under this epoch, which somebody took over."""
        self._epochs[thread_id] = epoch

    async def take_over(self, thread_id: str) -> int:
        """Refuse all who write to the thread under an older epoch; the new one.

        A thread that is not there begins with it.  This writer does not use it by itself: several runs of one
        process may each have their own.
        """
        return await repeat_unanswered(
            lambda: self.records.take_over(
                name_session(thread_id), create=describe_thread(thread_id), revive=True
            )
        )

    async def hold_thread(self, thread_id: str) -> None:
        """Take the thread over, if that is what this writer does and has not done yet; not an absent one."""
        if not self._exclusive or thread_id in self._epochs:
            return
        try:
            self._epochs[thread_id] = await repeat_unanswered(
                lambda: self.records.take_over(name_session(thread_id))
            )
        except SessionNotFoundError:
            return

    async def write_change(
        self,
        thread_id: str,
        change: RecordChange,
        *,
        revision: int | None = None,
        epoch: int | None = None,
        begins: bool = False,
        creates: bool = True,
    ) -> int:
        """Write all of a change, or nothing; the new revision.

        Args:
            thread_id: Whose.
            change: What.
            revision: Only if the thread still has the revision that was read.
            epoch: What the run read when it began; this writer's own one goes before it.
            begins: The change may begin a thread anew that was deleted.
            creates: It may begin one that never was.

        Raises:
            SessionNotFoundError: The thread was deleted.
            FencedError: Somebody took the thread over.
            StaleStateError: The revision is another.
        """
        session_id, revives = name_session(thread_id), begins or thread_id in self._absent
        if self._exclusive and thread_id not in self._epochs and creates:
            await self._take_over_new(thread_id, revives=revives)
        try:
            written = await repeat_unanswered(
                lambda: self.records.write(
                    session_id,
                    change,
                    revision=revision,
                    epoch=self._epochs.get(thread_id, epoch),
                    create=describe_thread(thread_id) if creates else None,
                    revive=revives,
                )
            )
        except SessionNotFoundError as error:
            raise SessionNotFoundError(
                f"LangGraph thread {thread_id!r} was deleted; what its runs still write is refused. "
                "A new run begins it anew",
                thread_id=thread_id,
            ) from error
        except FencedError as error:
            raise FencedError(
                f"LangGraph thread {thread_id!r}: another writer has taken it over; this one must stop",
                thread_id=thread_id,
            ) from error
        self._absent.pop(thread_id, None)
        return written

    async def _take_over_new(self, thread_id: str, *, revives: bool) -> None:
        try:
            self._epochs[thread_id] = await self.records.take_over(
                name_session(thread_id), create=describe_thread(thread_id), revive=revives
            )
        except SessionNotFoundError:
            return  # deleted: the write itself says so


async def repeat_overtaken(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Try again until nobody else wrote between the look and the write."""
    for number in range(_OVERTAKEN):
        try:
            return await attempt()
        except StaleStateError:
            await asyncio.sleep(retry_pause(number, first=0.001, longest=0.05))
    raise StoreUnavailableError(f"{what}: overtaken {_OVERTAKEN} times")


class GraphThreads:
    """Threads of LangGraph, each in a session of its own.

    Args:
        writer: What writes, and what it knows.
    """

    def __init__(self, writer: ThreadWriter) -> None:
        self.writer, self._records = writer, writer.records

    async def find_checkpoint(
        self, thread_id: str, namespace: str, checkpoint_id: str | None = None
    ) -> StoredCheckpoint | None:
        """One checkpoint, or the newest of a namespace; None if it is not there."""
        await self.writer.hold_thread(thread_id)
        while True:
            head, epoch = await self._find_head(thread_id, namespace, checkpoint_id)
            if head is None:
                return None
            if found := await self.load_checkpoints(thread_id, (head,)):
                # The fence of the first look: who took the thread over since then did so behind our back.
                return replace(found[0], epoch=epoch)
            # It was removed between the two reads.  The newest one may be another now.

    async def load_checkpoints(
        self, thread_id: str, heads: Sequence[CheckpointHead]
    ) -> list[StoredCheckpoint]:
        """Values and writes of some checkpoints, in their order; without those removed meanwhile.

        A value is there as long as a checkpoint refers to it, so that what is read in one instant with the
        checkpoint is all that there is.
        """
        values = dict.fromkeys(name for head in heads for name in head.name_values().values())
        view = await self._records.read(
            name_session(thread_id),
            WantedRecords(
                names=(*(head.name for head in heads), *values),
                groups=tuple(head.writes_group for head in heads),
            ),
        )
        found = {each.name: each for each in view.records if each.kind in {CHECKPOINT, VALUE}}
        writes: dict[tuple[str, str], list[Record]] = {}
        for each in view.records:
            writes.setdefault((each.kind, each.group), []).append(each)
        return [
            StoredCheckpoint(
                head,
                {
                    channel: read_value(found[name])
                    for channel, name in head.name_values().items()
                    if name in found
                },
                _sort_writes(map(read_write, writes.get(head.writes_group, ()))),
                view.epoch,
            )
            for head in heads
            if head.name in found
        ]

    async def list_namespaces(self, thread_id: str) -> list[str]:
        """The namespaces of a thread that have checkpoints."""
        groups = await self._records.list_groups(name_session(thread_id), CHECKPOINT)
        wanted = WantedRecords(newest=tuple((CHECKPOINT, group) for group in groups))
        view = await self._records.read(name_session(thread_id), wanted)
        return [read_head(each).namespace for each in view.records]

    async def list_heads(
        self, thread_id: str, namespace: str, *, before: str | None = None, page: int = HEADS
    ) -> AsyncIterator[CheckpointHead]:
        """Checkpoints of a namespace, newest first, those before one; read as far as they are taken."""
        after = None if before is None else fit_name(before)
        while True:
            records = await self._records.read_page(
                name_session(thread_id),
                CHECKPOINT,
                fit_name(namespace),
                limit=page,
                after=after,
                descending=True,
            )
            for each in records:
                yield read_head(each)
            if len(records) < page:
                return
            after = records[-1].key

    async def put_checkpoint(
        self, thread_id: str, head: CheckpointHead, values: Mapping[str, Typed], *, epoch: int | None = None
    ) -> None:
        """Store a checkpoint and the values that are new with it; again, it stands once.

        Args:
            thread_id: Whose.
            head: The checkpoint.
            values: Of the channels that it changed.
            epoch: That of the checkpoint from which the run began.

        Raises:
            SessionNotFoundError: The thread was deleted, and this is none that begins it.
            FencedError: Somebody took the thread over.
        """
        names = head.name_values()
        puts = tuple(make_value(names[channel], value) for channel, value in values.items())
        begins = head.parent_id is None and not head.namespace
        async with self.writer.take_turn(thread_id):
            await self.writer.write_change(
                thread_id, RecordChange(puts=(*puts, *head.make_records())), epoch=epoch, begins=begins
            )

    async def put_writes(
        self,
        thread_id: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
        *,
        epoch: int | None = None,
    ) -> None:
        """Store pending writes of a task, all or none; one that is there already stays, unless it `replaces`.

        Raises:
            SessionNotFoundError: The thread was deleted.
            FencedError: Somebody took the thread over.
        """
        records = {each.make_record(namespace, checkpoint_id): each.replaces for each in writes}
        lasting = tuple(record.name for record, replaces in records.items() if not replaces)

        async def attempt() -> None:
            there: frozenset[RecordName] = frozenset()
            revision = None
            if lasting:
                view = await self._records.read(name_session(thread_id), WantedRecords(names=lasting))
                there, revision = frozenset(each.name for each in view.records), view.revision
            puts = tuple(each for each in records if each.name not in there)
            if puts:
                change = RecordChange(puts=puts)
                await self.writer.write_change(thread_id, change, revision=revision, epoch=epoch)

        async with self.writer.take_turn(thread_id):
            await self.writer.hold_thread(thread_id)
            await repeat_overtaken(f"LangGraph thread {thread_id!r}", attempt)

    async def read_history(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[list[PendingWrite], Typed | None]]:
        """What channels are made of: the value of the nearest ancestor that has one, and the writes since."""
        found: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, RecordName] = {}
        page: list[CheckpointHead] = []
        ancestors = self.list_ancestors(thread_id, namespace, checkpoint_id)
        while len(seeds) < len(found):
            head = await anext(ancestors, None)
            if head is not None:
                page.append(head)
            if len(page) == PAGE or head is None or not found.keys() - seeds.keys() - head.versions.keys():
                await self._collect_history(thread_id, page, found, seeds)
                page = []
            if head is None:
                break
        values = await self._read_values(thread_id, seeds) if seeds else {}
        return {channel: (writes[::-1], values.get(channel)) for channel, writes in found.items()}

    async def _collect_history(
        self,
        thread_id: str,
        page: Sequence[CheckpointHead],
        found: Mapping[str, list[PendingWrite]],
        seeds: dict[str, RecordName],
    ) -> None:
        """Add the writes of some ancestors, newest first, to the channels that lack a value yet."""
        for head, writes in zip(page, await self._read_writes(thread_id, page), strict=True):
            for each in reversed(writes):
                if each.channel in found and each.channel not in seeds:
                    found[each.channel].append(each)
            # Those beside the value come after it: they made the child of its checkpoint.
            names = head.name_values()
            seeds |= {channel: names[channel] for channel in found.keys() & names.keys() - seeds.keys()}

    async def _read_writes(
        self, thread_id: str, heads: Sequence[CheckpointHead]
    ) -> list[tuple[PendingWrite, ...]]:
        if not heads:
            return []
        view = await self._records.read(
            name_session(thread_id), WantedRecords(groups=tuple(head.writes_group for head in heads))
        )
        groups: dict[str, list[Record]] = {}
        for each in view.records:
            groups.setdefault(each.group, []).append(each)
        return [_sort_writes(map(read_write, groups.get(head.writes_group[1], ()))) for head in heads]

    async def _read_values(self, thread_id: str, names: Mapping[str, RecordName]) -> dict[str, Typed]:
        view = await self._records.read(
            name_session(thread_id), WantedRecords(names=tuple(dict.fromkeys(names.values())))
        )
        found = {each.name: each for each in view.records}
        return {key: read_value(found[name]) for key, name in names.items() if name in found}

    async def find_head(self, thread_id: str, namespace: str, checkpoint_id: str) -> CheckpointHead | None:
        """One checkpoint without what it refers to; None if it is not there."""
        return (await self._find_head(thread_id, namespace, checkpoint_id))[0]

    async def list_ancestors(
        self, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> AsyncIterator[CheckpointHead]:
        """The checkpoint's parent, its parent, and so on; read in pages, since most are neighbours."""
        head, _ = await self._find_head(thread_id, namespace, checkpoint_id)
        near: dict[str, CheckpointHead] = {}
        while head is not None and head.parent_id is not None:
            wanted = head.parent_id
            if wanted not in near:
                near = {}
                async for each in self.list_heads(thread_id, namespace, before=head.checkpoint_id, page=PAGE):
                    near[each.checkpoint_id] = each
                    if len(near) == PAGE:
                        break
            head = near.get(wanted) or await self.find_head(thread_id, namespace, wanted)
            if head is not None:
                yield head

    async def _find_head(
        self, thread_id: str, namespace: str, checkpoint_id: str | None
    ) -> tuple[CheckpointHead | None, int]:
        group = fit_name(namespace)
        if checkpoint_id is None:
            wanted = WantedRecords(newest=((CHECKPOINT, group),))
        else:
            wanted = WantedRecords(names=(RecordName(CHECKPOINT, fit_name(checkpoint_id), group),))
        view = await self._records.read(name_session(thread_id), wanted)
        if not view.exists and not namespace:
            self.writer.note_absent(thread_id)
        return (read_head(view.records[0]) if view.records else None), view.epoch


def describe_thread(thread_id: str) -> CreateSession:
    """What the session of a thread begins with."""
    return CreateSession(agent_type=SESSION_KIND, metadata={"thread_id": thread_id})


def _sort_writes(writes: Iterable[PendingWrite]) -> tuple[PendingWrite, ...]:
    return tuple(sorted(writes, key=lambda each: each.order))
