"""The door to everything in this process's memory."""

from helix_temporal.models.streams import DEFAULT_LIMITS, StreamLimits
from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage


class MemoryBackend:
    """Stores of one process, gone with it.

    Args:
        stream_limits: What is kept of streams.
    """

    def __init__(self, *, stream_limits: StreamLimits = DEFAULT_LIMITS) -> None:
        self.threads = MemoryThreads()
        self.sessions = MemorySessions(self.threads)
        self.payloads = MemoryPayloads()
        self.locks = MemoryLocks()
        self.usage = MemoryUsage()
        self.streams = MemoryStreams(stream_limits)

    async def check(self) -> None:
        """Nothing to refuse."""

    async def close(self) -> None:
        """End readers that wait; nothing else is held."""
        await self.streams.close()
