"""The door to everything in this process's memory."""

from helix_temporal.stores.memory.locks import MemoryLocks
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage


class MemoryBackend:
    """Stores of one process, gone with it."""

    def __init__(self) -> None:
        self.threads = MemoryThreads()
        self.sessions = MemorySessions(self.threads)
        self.payloads = MemoryPayloads()
        self.locks = MemoryLocks()
        self.usage = MemoryUsage()

    async def check(self) -> None:
        """Nothing to refuse."""

    async def close(self) -> None:
        """Nothing is held."""
