"""Stores in this process's memory."""

from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.memory.locks import MemoryLocks, NoOpLockManager
from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.memory.usage import MemoryUsage

__all__ = [
    "MemoryBackend",
    "MemoryLocks",
    "MemoryPayloads",
    "MemorySessions",
    "MemoryThreads",
    "MemoryUsage",
    "NoOpLockManager",
]
