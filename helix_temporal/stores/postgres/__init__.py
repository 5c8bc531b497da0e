"""Stores on PostgreSQL."""

from helix_temporal.stores.postgres.backend import PostgresBackend
from helix_temporal.stores.postgres.database import (
    AsyncpgDatabase,
    DatabaseOrPool,
    PostgresDatabase,
    PostgresExecutor,
    run_in_transaction,
)
from helix_temporal.stores.postgres.locks import PostgresLocks
from helix_temporal.stores.postgres.migrations import Migration, MigrationResult, PostgresMigrations
from helix_temporal.stores.postgres.payloads import PostgresPayloads
from helix_temporal.stores.postgres.sessions import PostgresSessions
from helix_temporal.stores.postgres.storage import PostgresSessionStorage
from helix_temporal.stores.postgres.streams import PostgresStreams
from helix_temporal.stores.postgres.threads import PostgresThreads
from helix_temporal.stores.postgres.usage import PostgresUsage

__all__ = [
    "AsyncpgDatabase",
    "DatabaseOrPool",
    "Migration",
    "MigrationResult",
    "PostgresBackend",
    "PostgresDatabase",
    "PostgresExecutor",
    "PostgresLocks",
    "PostgresMigrations",
    "PostgresPayloads",
    "PostgresSessionStorage",
    "PostgresSessions",
    "PostgresStreams",
    "PostgresThreads",
    "PostgresUsage",
    "run_in_transaction",
]
