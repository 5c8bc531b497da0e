"""Usage in SQLite: a row an entry, pages and totals by index."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from helix_temporal.models.base import dump_json
from helix_temporal.models.usage import UsageEntry
from helix_temporal.stores import usage as rules
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.sqlite.connection import Database
from helix_temporal.stores.usage import UsageFilter, UsageLedger


class SqliteUsage(UsageLedger):
    """`UsageStore` on SQLite.  Made by `SqliteBackend`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _add_entry(self, entry: UsageEntry, body: bytes) -> bool:
        row = {
            "session_id": entry.session_id,
            "id": entry.id,
            "timestamp": entry.timestamp,
            "kind": entry.kind,
            "run_id": entry.run_id,
            "agent_type": entry.agent_type,
            "step_count": entry.step_count,
            "body": with_checksum(body, entry.session_id, entry.id),
        }
        async with self._database.write() as on:
            return bool(await on.fetch("usage_add", row))

    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        values = _filter_values(wanted, limit, offset) | {"session_id": session_id}
        return _parse_entries(await self._database.fetch("usage_of_session", values))

    async def _find_entries(self, session_id: str, entry_ids: Sequence[str]) -> list[UsageEntry]:
        values = {"session_id": session_id, "ids": dump_json(entry_ids).decode()}
        return _parse_entries(await self._database.fetch("usage_by_id", values))

    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        name = "usage_of_all" if wanted.session_id is None else "usage_of_session"
        values = _filter_values(wanted, limit, offset)
        async with self._database.read() as on:
            count = await on.fetch("usage_count", values)
            rows = await on.fetch(name, values)
        return _parse_entries(rows), count[0]["total"]

    async def _has_entries(self, session_id: str) -> bool:
        return bool(await self._database.fetch("usage_any", {"session_id": session_id}))

    async def _drop_entries(self, session_id: str) -> bool:
        async with self._database.write(erases=True) as on:
            return bool(await on.fetch("usage_delete", {"session_id": session_id}))


def _filter_values(wanted: UsageFilter, limit: int | None, offset: int) -> dict[str, Any]:
    return {
        "session_id": wanted.session_id,
        "kinds": None if wanted.kinds is None else dump_json(sorted(wanted.kinds)).decode(),
        "run_id": wanted.run_id,
        "agent_type": wanted.agent_type,
        "first_step": wanted.first_step,
        "last_step": wanted.last_step,
        "since": wanted.since,
        "until": wanted.until,
        "limit": -1 if limit is None else limit,
        "offset": offset,
    }


def _parse_entries(rows: list[sqlite3.Row]) -> list[UsageEntry]:
    found: list[UsageEntry] = []
    for row in rows:
        where = f"usage of session {row['session_id']!r} in SQLite"
        found.append(
            rules.from_body(verify_checksum(row["body"], where, row["session_id"], row["id"]), where)
        )
    return found
