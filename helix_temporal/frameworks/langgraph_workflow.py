"""LangGraph threads inside a workflow: ``graph("support").compile(checkpointer=WorkflowSaver())``."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id
from temporalio import workflow

from helix_temporal.frameworks.langgraph_codec import (
    decode_checkpoint,
    decode_history,
    encode_checkpoint,
    encode_writes,
    make_config,
    next_version,
    read_place,
)
from helix_temporal.frameworks.langgraph_records import StoredCheckpoint, Typed
from helix_temporal.frameworks.langgraph_wire import (
    DELETE,
    HISTORY,
    LIST,
    LOAD,
    OPEN,
    SAVE,
    DeleteThread,
    ListCheckpoints,
    ListedCheckpoints,
    LoadCheckpoint,
    LoadedCheckpoint,
    OpenedGraphThread,
    OpenGraphThread,
    ReadHistories,
    ReadHistory,
    SavedChange,
    SavedThread,
    SaveThread,
    pack_checkpoint,
    pack_writes,
    unpack_checkpoint,
    unpack_typed,
    unpack_write,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        DeltaChannelHistory,
        RunnableConfig,
        SerializerProtocol,
    )

T = TypeVar("T")

_YIELDS: Final = 20
"""Turns of the workflow's loop in which LangGraph hands over all that it stores at the end of a run."""
_PAGE: Final = 20
_OPTIONS: Final = {
    "start_to_close_timeout": timedelta(seconds=30),
    "heartbeat_timeout": timedelta(seconds=10),
}


@dataclass
class _OpenThread:
    """What an execution knows of a thread that is its own.

    Attributes:
        newest: The newest checkpoint of namespaces, where it is known with all its writes.
        stored_ids: Of checkpoints that were saved.  A replay gives them other ids than the first time, and
            the history has those under which they are stored.
        changes: What is to be saved with the next activity.
    """

    epoch: int
    namespaces: set[str]
    newest: dict[str, StoredCheckpoint]
    stored_ids: dict[str, str] = field(default_factory=dict)
    changes: list[SavedChange] = field(default_factory=list)
    puts: list[StoredCheckpoint] = field(default_factory=list)
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)
    save: "asyncio.Task[None] | None" = None


class WorkflowSaver(BaseCheckpointSaver[str]):
    """A checkpoint saver for workflow code: the same threads as `HelixSaver`, by activities.

    Needs `HelixGraphPlugin` on the worker.  The first use of a thread takes it over, so that another
    execution that has it is refused; with ``durability="exit"`` each run of the graph then is one activity.

    Args:
        serde: As every saver of LangGraph.
        activity_options: Of `workflow.execute_activity`; by default a ``start_to_close_timeout`` of 30 s and
            a ``heartbeat_timeout`` of 10 s.
    """

    def __init__(
        self,
        *,
        serde: "SerializerProtocol | None" = None,
        activity_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._options = {**_OPTIONS, **(activity_options or {})}
        self._threads: dict[str, _OpenThread] = {}
        self._opening = asyncio.Lock()

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its namespace; None if it is not there."""
        thread_id, namespace = read_place(config)
        thread = await self._open_thread(thread_id)
        wanted = get_checkpoint_id(config)
        wanted = thread.stored_ids.get(wanted or "", wanted)
        found = thread.newest.get(namespace)
        if found is None or wanted not in {None, found.head.checkpoint_id}:
            if namespace not in thread.namespaces:
                return None
            asked = LoadCheckpoint(thread_id, namespace, wanted)
            loaded = (await self._ask(LOAD, asked, LoadedCheckpoint)).checkpoint
            if loaded is None:
                return None
            found = unpack_checkpoint(loaded, thread.epoch)
            if wanted is None:
                thread.newest[namespace] = found
        return decode_checkpoint(self.serde, thread_id, found)

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 (LangGraph's name)
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints of one namespace, newest first; an activity for each twenty."""
        if config is None:
            raise NotImplementedError("in a workflow the checkpoints of one thread are listed")
        thread_id, namespace = read_place(config)
        thread = await self._open_thread(thread_id)
        bound = None if before is None else get_checkpoint_id(before)
        bound, left = thread.stored_ids.get(bound or "", bound), limit
        while left is None or left > 0:
            asked = ListCheckpoints(thread_id, namespace, bound, _PAGE)
            page = (await self._ask(LIST, asked, ListedCheckpoints)).checkpoints
            for each in page:
                found = decode_checkpoint(self.serde, thread_id, unpack_checkpoint(each, thread.epoch))
                bound = found.checkpoint["id"]
                if any(found.metadata.get(key) != value for key, value in (filter or {}).items()):
                    continue
                if left is not None and (left := left - 1) < 0:
                    return
                yield found
            if len(page) < _PAGE:
                return

    async def aput(
        self,
        config: "RunnableConfig",
        checkpoint: "Checkpoint",
        metadata: "CheckpointMetadata",
        new_versions: "ChannelVersions",
    ) -> "RunnableConfig":
        """Store a checkpoint, with what else is to be stored by then, in one activity."""
        thread_id, namespace = read_place(config)
        thread = await self._open_thread(thread_id)
        head, fresh = encode_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        head = replace(head, parent_id=thread.stored_ids.get(head.parent_id or "", head.parent_id))
        thread.changes.append(SavedChange(pack_checkpoint(StoredCheckpoint(head, fresh, (), thread.epoch))))
        values = self._encode_values(thread, namespace, checkpoint, fresh)
        thread.puts.append(StoredCheckpoint(head, values, (), thread.epoch))
        await self._save_thread(thread_id, thread)
        stored_id = thread.stored_ids[head.checkpoint_id]
        return make_config(thread_id, namespace, stored_id, epoch=thread.epoch)

    async def aput_writes(
        self,
        config: "RunnableConfig",
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store pending writes with the checkpoint that follows; those that end a run, at once."""
        thread_id, namespace = read_place(config)
        thread = await self._open_thread(thread_id)
        pending = encode_writes(self.serde, writes, task_id, task_path)
        checkpoint_id = config["configurable"]["checkpoint_id"]
        thread.changes.append(
            SavedChange(
                None, namespace, thread.stored_ids.get(checkpoint_id, checkpoint_id), pack_writes(pending)
            )
        )
        # What an interrupt or an error leaves is the last that a run stores.
        if any(each.replaces for each in pending):
            await self._save_thread(thread_id, thread)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread with all that it has; nothing if there is none."""
        await self._ask(DELETE, DeleteThread(thread_id), type(None))
        self._threads.pop(thread_id, None)

    async def aget_delta_channel_history(
        self, *, config: "RunnableConfig", channels: Sequence[str]
    ) -> "Mapping[str, DeltaChannelHistory]":
        """What delta channels are made of, by one activity."""
        thread_id, namespace = read_place(config)
        thread = await self._open_thread(thread_id)
        wanted = get_checkpoint_id(config)
        asked = ReadHistory(thread_id, namespace, thread.stored_ids.get(wanted or "", wanted), list(channels))
        found = (await self._ask(HISTORY, asked, ReadHistories)).channels
        history = {
            channel: (
                [unpack_write(body) for body in each.writes],
                None if each.seed is None else unpack_typed(each.seed),
            )
            for channel, each in found.items()
        }
        return cast("Mapping[str, DeltaChannelHistory]", decode_history(self.serde, history))

    def get_next_version(self, current: str | float | None, channel: None) -> str:  # noqa: ARG002
        """The next version of a channel, the same in every replay."""
        return next_version(current, workflow.random().random())

    async def _open_thread(self, thread_id: str) -> _OpenThread:
        async with self._opening:
            if thread_id not in self._threads:
                opened = await self._ask(OPEN, OpenGraphThread(thread_id), OpenedGraphThread)
                thread = _OpenThread(opened.epoch, set(opened.namespaces), {})
                if opened.newest is not None:
                    thread.newest[""] = unpack_checkpoint(opened.newest, opened.epoch)
                self._threads[thread_id] = thread
            return self._threads[thread_id]

    def _encode_values(
        self, thread: _OpenThread, namespace: str, checkpoint: "Checkpoint", fresh: Mapping[str, Typed]
    ) -> dict[str, Typed]:
        """All values of a checkpoint, for the next run of the graph to begin with."""
        before = thread.newest.get(namespace)
        versions = checkpoint["channel_versions"]
        values: dict[str, Typed] = {}
        for channel, value in checkpoint["channel_values"].items():
            if channel in fresh:
                values[channel] = fresh[channel]
            elif before is not None and before.head.versions.get(channel) == versions.get(channel):
                values[channel] = before.values[channel]
            else:
                values[channel] = self.serde.dumps_typed(value)
        return values

    async def _save_thread(self, thread_id: str, thread: _OpenThread) -> None:
        """Wait until what is to be saved is, in one activity with what else comes now."""
        if thread.save is None:
            thread.save = asyncio.create_task(self._save_changes(thread_id, thread))
        await asyncio.shield(thread.save)

    async def _save_changes(self, thread_id: str, thread: _OpenThread) -> None:
        async with thread.saving:
            for _ in range(_YIELDS):
                await asyncio.sleep(0)
            changes, puts = thread.changes, thread.puts
            thread.changes, thread.puts, thread.save = [], [], None
            saved = await self._ask(SAVE, SaveThread(thread_id, thread.epoch, changes), SavedThread)
            for stored_id, each in zip(saved.checkpoint_ids, puts, strict=True):
                thread.stored_ids[each.head.checkpoint_id] = stored_id
                thread.namespaces.add(each.head.namespace)
                head = replace(each.head, checkpoint_id=stored_id)
                thread.newest[head.namespace] = replace(each, head=head)
            for change in changes:
                # Its tasks are named after ids that a replay does not have: the next run reads them.
                if change.put is None:
                    newest = thread.newest.get(change.namespace)
                    stored_id = thread.stored_ids.get(change.checkpoint_id, change.checkpoint_id)
                    if newest is not None and newest.head.checkpoint_id == stored_id:
                        del thread.newest[change.namespace]

    async def _ask(self, name: str, asked: Any, answer: type[T]) -> T:
        told: T = await workflow.execute_activity(name, asked, result_type=answer, **self._options)
        return told
