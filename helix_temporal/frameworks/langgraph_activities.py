"""LangGraph threads for workflows, on the worker: activities, and the plugin that brings them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import HelixError
from helix_temporal.frameworks.langgraph_threads import GraphThreads, ThreadWriter
from helix_temporal.frameworks.langgraph_upkeep import RunIndex, ThreadUpkeep
from helix_temporal.frameworks.langgraph_wire import (
    ChannelHistory,
    DeleteThread,
    ListCheckpoints,
    ListedCheckpoints,
    LoadCheckpoint,
    LoadedCheckpoint,
    OpenedGraphThread,
    OpenGraphThread,
    ReadHistories,
    ReadHistory,
    SavedThread,
    SaveThread,
    pack_checkpoint,
    pack_typed,
    pack_writes,
    unpack_head,
    unpack_values,
    unpack_write,
)
from helix_temporal.frameworks.store_plugin import HEARTBEAT_EVERY, StorePlugin, with_heartbeats
from helix_temporal.settings import Settings

if TYPE_CHECKING:
    from helix_temporal.backends import Backends

P = ParamSpec("P")
T = TypeVar("T")


class HelixGraphPlugin(StorePlugin):
    """Give a worker's workflows LangGraph threads; a guest beside `temporalio.langgraph.LangGraphPlugin`.

    It adds activities, and lets ``helix_temporal`` through the sandbox; data converter, interceptors and all
    else are the other's.

    Args:
        settings: Where the stores are, as for `HelixPlugin`.
        backends: Stores from elsewhere.  Whoever made them closes them.
    """

    def __init__(self, settings: Settings | None = None, *, backends: "Backends | None" = None) -> None:
        self._stores: GraphStores | None = None
        mine = GraphActivities(self)
        super().__init__(
            "helix.HelixGraphPlugin",
            Settings() if settings is None else settings,
            backends,
            activities=[
                mine.open_thread,
                mine.load_checkpoint,
                mine.list_checkpoints,
                mine.read_history,
                mine.save_thread,
                mine.delete_thread,
            ],
        )

    @property
    def stores(self) -> "GraphStores":
        """Threads and what they need, whose stores are opened by the first call that needs them."""
        if self._stores is None:
            backends = self.backends
            threads, runs = GraphThreads(ThreadWriter(backends.records)), RunIndex(backends.records)
            self._stores = GraphStores(threads, ThreadUpkeep(threads, backends.sessions, runs), runs)
        return self._stores

    def forget_stores(self) -> None:
        """See `StorePlugin.forget_stores`."""
        self._stores = None


@dataclass(frozen=True, slots=True)
class GraphStores:
    """Threads, what keeps them, and which thread a run has."""

    threads: GraphThreads
    upkeep: ThreadUpkeep
    runs: RunIndex


def _translate_errors(do: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @wraps(do)
    async def translated(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await do(*args, **kwargs)
        except HelixError as error:
            raise ApplicationError(
                str(error), type=type(error).__name__, non_retryable=not error.retryable
            ) from error

    return translated


class GraphActivities:
    """What `WorkflowSaver` asks for.

    Args:
        plugin: Has the threads.
    """

    def __init__(self, plugin: HelixGraphPlugin) -> None:
        self._plugin = plugin

    @activity.defn(name="helix.langgraph.open")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def open_thread(self, asked: OpenGraphThread) -> OpenedGraphThread:
        """Take the thread over, so that older executions are refused; tried again, once more."""
        epoch = await self._threads.writer.take_over(asked.thread_id)
        newest = await self._threads.find_checkpoint(asked.thread_id, "")
        namespaces = await self._threads.list_namespaces(asked.thread_id)
        return OpenedGraphThread(epoch, namespaces, None if newest is None else pack_checkpoint(newest))

    @activity.defn(name="helix.langgraph.load")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def load_checkpoint(self, asked: LoadCheckpoint) -> LoadedCheckpoint:
        """One checkpoint."""
        found = await self._threads.find_checkpoint(asked.thread_id, asked.namespace, asked.checkpoint_id)
        return LoadedCheckpoint(None if found is None else pack_checkpoint(found))

    @activity.defn(name="helix.langgraph.list")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def list_checkpoints(self, asked: ListCheckpoints) -> ListedCheckpoints:
        """A page of a namespace."""
        heads = self._threads.list_heads(
            asked.thread_id, asked.namespace, before=asked.before, page=asked.limit
        )
        page = [head for _ in range(asked.limit) if (head := await anext(heads, None)) is not None]
        found = await self._threads.load_checkpoints(asked.thread_id, page) if page else []
        return ListedCheckpoints([pack_checkpoint(each) for each in found])

    @activity.defn(name="helix.langgraph.history")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def read_history(self, asked: ReadHistory) -> ReadHistories:
        """What delta channels are made of."""
        history = await self._threads.read_history(
            asked.thread_id, asked.namespace, asked.checkpoint_id, asked.channels
        )
        return ReadHistories(
            {
                channel: ChannelHistory(pack_writes(writes), None if seed is None else pack_typed(seed))
                for channel, (writes, seed) in history.items()
            }
        )

    @activity.defn(name="helix.langgraph.save")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def save_thread(self, asked: SaveThread) -> SavedThread:
        """Store what a turn has made."""
        put: list[str] = []
        for each in asked.changes:
            if each.put is not None:
                head = unpack_head(each.put)
                if head.run_id is not None:
                    await self._plugin.stores.runs.note_run(head.run_id, asked.thread_id)
                values = unpack_values(each.put.values)
                await self._threads.put_checkpoint(asked.thread_id, head, values, epoch=asked.epoch)
                put.append(head.checkpoint_id)
            else:
                writes = [unpack_write(body) for body in each.writes]
                await self._threads.put_writes(
                    asked.thread_id, each.namespace, each.checkpoint_id, writes, epoch=asked.epoch
                )
        return SavedThread(put)

    @activity.defn(name="helix.langgraph.delete")
    @_translate_errors
    @with_heartbeats(HEARTBEAT_EVERY)
    async def delete_thread(self, asked: DeleteThread) -> None:
        """Delete a thread."""
        await self._plugin.stores.upkeep.delete_thread(asked.thread_id)

    @property
    def _threads(self) -> GraphThreads:
        return self._plugin.stores.threads
