"""Stores on PostgreSQL."""

from helix_temporal.stores.postgres._adapter import AsyncpgAdapter
from helix_temporal.stores.postgres._migrations import MigrationResult, PostgresMigrations
from helix_temporal.stores.postgres._protocol import PostgresAdapter, PostgresExecutor, transact

__all__ = [
    "AsyncpgAdapter",
    "MigrationResult",
    "PostgresAdapter",
    "PostgresExecutor",
    "PostgresMigrations",
    "transact",
]
