"""Checkpoints of LangGraph: ``builder.compile(checkpointer=HelixSaver(records, sessions))``."""

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id

from helix_temporal.errors import InvalidRequestError
from helix_temporal.frameworks.background_loop import BackgroundLoop, shared_loop
from helix_temporal.frameworks.given_stores import check_records, check_sessions
from helix_temporal.frameworks.langgraph_codec import (
    decode_checkpoint,
    decode_history,
    encode_checkpoint,
    encode_writes,
    make_config,
    next_version,
    read_epoch,
    read_place,
)
from helix_temporal.frameworks.langgraph_records import CheckpointHead
from helix_temporal.frameworks.langgraph_threads import (
    HEADS,
    PAGE,
    GraphThreads,
    ThreadWriter,
)
from helix_temporal.frameworks.langgraph_upkeep import RunIndex, ThreadUpkeep
from helix_temporal.frameworks.stores_loop import bind_to_loop

if TYPE_CHECKING:
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
        RunnableConfig,
        SerializerProtocol,
    )

    from helix_temporal.stores.protocols.records import Records
    from helix_temporal.stores.protocols.sessions import SessionStore


class HelixSaver(BaseCheckpointSaver[str]):
    """A checkpoint saver of LangGraph over a store of ours; several processes may share a thread.

    A thread is a session.  A checkpoint and the values that are new with it are one atomic write, and one
    that is repeated since a store did not answer stands once.

    Every method has a form without ``a`` in front, for programs without an event loop: it runs on a loop in
    a thread of its own, to which the stores then belong.

    Args:
        records: `Backends.records`, or another such store.
        sessions: `Backends.sessions`, of the same stores: it lists threads and deletes them.
        serde: As every saver of LangGraph: what makes bytes of values.
        exclusive: Take each thread over when it is first read or written.  Another saver's run that began
            earlier gets a `FencedError` when it writes.  A saver that was refused stays so until `take_over`.
        loop: Where the methods without ``a`` run; otherwise on the one of the process.
    """

    def __init__(
        self,
        records: "Records",
        sessions: "SessionStore",
        *,
        serde: "SerializerProtocol | None" = None,
        exclusive: bool = False,
        loop: BackgroundLoop | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._loop = shared_loop() if loop is None else loop
        # LangGraph runs synchronous nodes and tools in threads, beside a loop that uses the same saver.
        check_records(records)
        check_sessions(sessions)
        sessions = bind_to_loop(sessions, together_with=records)
        records = bind_to_loop(records, together_with=records)
        self._threads = GraphThreads(ThreadWriter(records, exclusive=exclusive))
        self._runs = RunIndex(records)
        self._upkeep = ThreadUpkeep(self._threads, sessions, self._runs)

    async def take_over(self, thread_id: str) -> int:
        """Become the only writer of a thread: a run that began before is refused with `FencedError`.

        Returns:
            The epoch under which this saver writes from now on.
        """
        epoch = await self._threads.writer.take_over(thread_id)
        self._threads.writer.use_epoch(thread_id, epoch)
        return epoch

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its namespace; None if it is not there."""
        thread_id, namespace = read_place(config)
        found = await self._threads.find_checkpoint(thread_id, namespace, get_checkpoint_id(config))
        return None if found is None else decode_checkpoint(self.serde, thread_id, found)

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first, read as far as they are taken.

        Without a namespace those of all namespaces; without a config those of all threads, one thread behind
        the other.
        """
        left = limit
        async for thread_id in self._choose_threads(config):
            async for found in self._list_thread(thread_id, config, filter, before, left):
                yield found
                left = None if left is None else left - 1
            if left is not None and left <= 0:
                return

    async def aput(
        self,
        config: "RunnableConfig",
        checkpoint: "Checkpoint",
        metadata: "CheckpointMetadata",
        new_versions: "ChannelVersions",
    ) -> "RunnableConfig":
        """Store a checkpoint.

        Raises:
            SessionNotFoundError: The thread was deleted since the run began.
            FencedError: Somebody took the thread over since.
        """
        thread_id, namespace = read_place(config)
        head, fresh = encode_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        if head.run_id is not None:
            await self._runs.note_run(head.run_id, thread_id)
        await self._threads.put_checkpoint(thread_id, head, fresh, epoch=read_epoch(config))
        return make_config(thread_id, namespace, head.checkpoint_id)

    async def aput_writes(
        self,
        config: "RunnableConfig",
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store pending writes of a task.  What is there of them stays; errors and interrupts are replaced.

        Raises:
            SessionNotFoundError: The thread was deleted: a late write does not bring it back.
            FencedError: Somebody took the thread over since the run began.
        """
        thread_id, namespace = read_place(config)
        await self._threads.put_writes(
            thread_id,
            namespace,
            config["configurable"]["checkpoint_id"],
            encode_writes(self.serde, writes, task_id, task_path),
            epoch=read_epoch(config),
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that it has; nothing if there is none."""
        await self._upkeep.delete_thread(str(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, as ``run_id`` of their metadata names them, in whatever thread.

        Raises:
            InvalidRequestError: A later checkpoint has a delta channel that is made of a run's writes.
        """
        for run_id in run_ids:
            await self._upkeep.delete_run(str(run_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread with their writes; nothing if there is none."""
        await self._upkeep.copy_thread(str(source_thread_id), str(target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints, and what only they referred to.

        Args:
            thread_ids: Of which threads.
            strategy: ``keep_latest`` keeps the newest checkpoint of each namespace, with those ancestors that
                its delta channels are made of; ``delete`` deletes the threads.

        Raises:
            InvalidRequestError: There is no such strategy.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidRequestError(f"strategy {strategy!r}: 'keep_latest' or 'delete' expected")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self._upkeep.delete_thread(str(thread_id))
            else:
                await self._upkeep.prune_thread(str(thread_id))

    async def aarchive(self, thread_id: str, *, older_than: timedelta) -> int:
        """Move checkpoints and values of a thread to the archive that were written so long ago.

        They are read as before.  The sweep does so for all threads, by `Settings.archive_records_after`.

        Returns:
            How many records were moved; short ones stay.

        Raises:
            InvalidConfigError: There is no archive.
        """
        return await self._upkeep.archive_thread(thread_id, older_than)

    async def aget_delta_channel_history(
        self, *, config: "RunnableConfig", channels: Sequence[str]
    ) -> "Mapping[str, DeltaChannelHistory]":
        """What delta channels are made of: the nearest ancestor's value, and the writes since."""
        thread_id, namespace = read_place(config)
        history = await self._threads.read_history(thread_id, namespace, get_checkpoint_id(config), channels)
        return cast("Mapping[str, DeltaChannelHistory]", decode_history(self.serde, history))

    def get_next_version(self, current: str | float | None, channel: None) -> str:  # noqa: ARG002
        """The next version of a channel: two branches of a thread never come to the same one."""
        return next_version(current, random.random())  # noqa: S311 (no secret)

    def get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """As `aget_tuple`."""
        return self._loop.run(self.aget_tuple(config))

    def list(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """As `alist`."""
        found = self.alist(config, filter=filter, before=before, limit=limit)

        async def take() -> CheckpointTuple | None:
            return await anext(found, None)

        while (each := self._loop.run(take())) is not None:
            yield each

    def put(
        self,
        config: "RunnableConfig",
        checkpoint: "Checkpoint",
        metadata: "CheckpointMetadata",
        new_versions: "ChannelVersions",
    ) -> "RunnableConfig":
        """As `aput`."""
        return self._loop.run(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: "RunnableConfig",
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `aput_writes`."""
        self._loop.run(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`."""
        self._loop.run(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `adelete_for_runs`."""
        self._loop.run(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `acopy_thread`."""
        self._loop.run(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `aprune`."""
        self._loop.run(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: "RunnableConfig", channels: Sequence[str]
    ) -> "Mapping[str, DeltaChannelHistory]":
        """As `aget_delta_channel_history`."""
        return self._loop.run(self.aget_delta_channel_history(config=config, channels=channels))

    async def _choose_threads(self, config: "RunnableConfig | None") -> AsyncIterator[str]:
        if config is not None:
            yield read_place(config)[0]
            return
        async for thread_id in self._upkeep.list_threads():
            yield thread_id

    async def _list_thread(
        self,
        thread_id: str,
        config: "RunnableConfig | None",
        wanted: dict[str, Any] | None,
        before: "RunnableConfig | None",
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints of one thread that are wanted; those that match are loaded in pages."""
        left = limit
        page: list[CheckpointHead] = []
        heads = self._list_heads(thread_id, config, before, page=PAGE if limit is not None else HEADS)
        while left is None or left > 0:
            head = await anext(heads, None)
            if head is not None and self._matches(head, wanted):
                page.append(head)
            if head is None or len(page) >= min(PAGE, PAGE if left is None else left):
                for found in await self._threads.load_checkpoints(thread_id, page) if page else ():
                    yield decode_checkpoint(self.serde, thread_id, found)
                    left = None if left is None else left - 1
                page = []
            if head is None:
                return

    async def _list_heads(
        self, thread_id: str, config: "RunnableConfig | None", before: "RunnableConfig | None", *, page: int
    ) -> AsyncIterator[CheckpointHead]:
        """The heads of the namespace that a config names, or of all, newest first."""
        place = {} if config is None else config["configurable"]
        bound = None if before is None else get_checkpoint_id(before)
        namespace, checkpoint_id = place.get("checkpoint_ns"), place.get("checkpoint_id")
        if namespace is None:
            namespaces = await self._threads.list_namespaces(thread_id)
        else:
            namespaces = [namespace]
        if checkpoint_id is None:
            listed = [self._threads.list_heads(thread_id, at, before=bound, page=page) for at in namespaces]
            async for head in _merge_newest(listed):
                yield head
        elif bound is None or checkpoint_id < bound:
            for each in namespaces:
                if (found := await self._threads.find_head(thread_id, each, checkpoint_id)) is not None:
                    yield found

    def _matches(self, head: CheckpointHead, wanted: dict[str, Any] | None) -> bool:
        if not wanted:
            return True
        metadata = self.serde.loads_typed(head.metadata)
        return all(metadata.get(key) == value for key, value in wanted.items())


async def _merge_newest(listed: Sequence[AsyncIterator[CheckpointHead]]) -> AsyncIterator[CheckpointHead]:
    """One list, newest first, of several that are so."""
    first: dict[int, CheckpointHead] = {}
    for number, each in enumerate(listed):
        if (head := await anext(each, None)) is not None:
            first[number] = head
    while first:
        number = max(first, key=lambda at: first[at].checkpoint_id)
        yield first.pop(number)
        if (head := await anext(listed[number], None)) is not None:
            first[number] = head
