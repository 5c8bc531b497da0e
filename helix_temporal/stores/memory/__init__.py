"""Stores in this process's memory."""

from helix_temporal.stores.memory.payloads import MemoryPayloads
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.threads import MemoryThreads

__all__ = ["MemoryPayloads", "MemorySessions", "MemoryThreads"]
