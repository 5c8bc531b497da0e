"""Usage in Redis or Valkey: one hash a session, and indexes that say which sessions there are.

``{prefix}{session}:usage`` holds the entries by their ids.  ``{prefix}{.usage}:sessions`` names all sessions
by the time of their newest entry, ``{prefix}{.usage}:agent:…`` those with entries of one agent type.  An
index names too many sessions at worst: every entry is looked at before it is found or counted.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from helix_temporal.models.ids import encode_id
from helix_temporal.models.usage import UsageEntry
from helix_temporal.stores import usage as rules
from helix_temporal.stores.checksums import SIZE, verify_checksum, with_checksum
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.stores.redis.scripts import assemble_script
from helix_temporal.stores.usage import UsageFilter, UsageLedger

_INDEX: Final = assemble_script("usage_index")
_SLOT: Final = "{.usage}"
"""No id has this form: a full stop is encoded."""

_AT_A_TIME: Final = 32
"""Sessions whose entries are asked for at the same time."""


class RedisUsage(UsageLedger):
    """`UsageStore` on Redis or Valkey, standalone or cluster.  Made by `RedisBackend`.

    Recording is two round trips.  Reading a session reads all of its entries; a query reads those of all
    sessions that have entries since its beginning.
    """

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._sessions = f"{connection.prefix}{_SLOT}:sessions"

    async def _add_entry(self, entry: UsageEntry, body: bytes) -> bool:
        # The entry first.  Whoever fails before the index is repeated, and the repeat writes the index.
        added = await self._connection.send_command(
            "HSETNX", self._entries_key(entry.session_id), entry.id, with_checksum(body)
        )
        await self._index_entries([entry])
        return bool(added)

    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        found = rules.select_entries(await self._read_entries(session_id), wanted)
        return rules.page_of_entries(found, limit, offset)

    async def _find_entries(self, session_id: str, entry_ids: Sequence[str]) -> list[UsageEntry]:
        where = f"usage of session {session_id!r}, {self._connection.place_of(self._entries_key(session_id))}"
        bodies: list[Any] = await self._connection.send_command(
            "HMGET", self._entries_key(session_id), *entry_ids
        )
        return _parse_entries(session_id, where, (body for body in bodies if body is not None))

    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        found: list[UsageEntry] = []
        names = await self._list_session_ids(wanted)
        for start in range(0, len(names), _AT_A_TIME):
            batch = names[start : start + _AT_A_TIME]
            for entries in await asyncio.gather(*(self._read_entries(each) for each in batch)):
                found += filter(wanted.matches, entries)
        found = rules.select_entries(found, wanted)
        return rules.page_of_entries(found, limit, offset), len(found)

    async def _has_entries(self, session_id: str) -> bool:
        return bool(await self._connection.send_command("EXISTS", self._entries_key(session_id)))

    async def _drop_entries(self, session_id: str) -> bool:
        key = self._entries_key(session_id)
        bodies = await self._connection.send_command("HVALS", key)
        agents = rules.agent_types(body[:-SIZE] for body in bodies)
        dropped = bool(await self._connection.send_command("UNLINK", key))
        for index in (self._sessions, *map(self._agent_index_key, agents)):
            await self._connection.send_command("ZREM", index, session_id)
        # One that was recorded meanwhile may have lost its name in the index.
        await self._index_entries(await self._read_entries(session_id))
        return dropped

    async def _read_entries(self, session_id: str) -> list[UsageEntry]:
        where = f"usage of session {session_id!r}, {self._connection.place_of(self._entries_key(session_id))}"
        bodies: list[Any] = await self._connection.send_command("HVALS", self._entries_key(session_id))
        return _parse_entries(session_id, where, bodies)

    async def _list_session_ids(self, wanted: UsageFilter) -> list[str]:
        if wanted.session_id is not None:
            return [wanted.session_id]
        index = self._sessions if wanted.agent_type is None else self._agent_index_key(wanted.agent_type)
        since: int | str = "-inf" if wanted.since is None else wanted.since
        names: list[bytes] = await self._connection.send_command("ZRANGEBYSCORE", index, since, "+inf")
        return [name.decode() for name in names]

    async def _index_entries(self, entries: Iterable[UsageEntry]) -> None:
        for entry in entries:
            keys = [self._sessions, self._agent_index_key(entry.agent_type)]
            await self._connection.run_script(_INDEX, keys, entry.session_id, entry.timestamp)

    def _entries_key(self, session_id: str) -> str:
        return f"{self._connection.key_of(session_id)}:usage"

    def _agent_index_key(self, agent_type: str) -> str:
        return f"{self._connection.prefix}{_SLOT}:agent:{encode_id(agent_type)}"


def _parse_entries(session_id: str, where: str, bodies: Iterable[Any]) -> list[UsageEntry]:
    found = (rules.from_body(verify_checksum(body, where), where) for body in bodies)
    # The forms of two long ids may be the same.
    return [entry for entry in found if entry.session_id == session_id]
