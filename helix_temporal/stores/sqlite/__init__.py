"""Stores in one SQLite file, for one machine without servers."""

from helix_temporal.stores.sqlite.backend import SqliteBackend
from helix_temporal.stores.sqlite.connection import Database
from helix_temporal.stores.sqlite.locks import SqliteLocks
from helix_temporal.stores.sqlite.payloads import SqlitePayloads
from helix_temporal.stores.sqlite.sessions import SqliteSessions
from helix_temporal.stores.sqlite.streams import SqliteStreams
from helix_temporal.stores.sqlite.threads import SqliteThreads
from helix_temporal.stores.sqlite.usage import SqliteUsage

__all__ = [
    "Database",
    "SqliteBackend",
    "SqliteLocks",
    "SqlitePayloads",
    "SqliteSessions",
    "SqliteStreams",
    "SqliteThreads",
    "SqliteUsage",
]
