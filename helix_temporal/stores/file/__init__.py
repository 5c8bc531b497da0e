"""Stores on the local disk."""

from helix_temporal.stores.file.backend import FileBackend
from helix_temporal.stores.file.locks import FileLocks
from helix_temporal.stores.file.payloads import FilePayloads
from helix_temporal.stores.file.sessions import FileSessions
from helix_temporal.stores.file.threads import FileThreads
from helix_temporal.stores.file.usage import FileUsage

__all__ = [
    "FileBackend",
    "FileLocks",
    "FilePayloads",
    "FileSessions",
    "FileThreads",
    "FileUsage",
]
