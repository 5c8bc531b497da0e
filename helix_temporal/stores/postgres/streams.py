"""Streams in PostgreSQL: a row a chunk, and one statement again and again for all that this process reads.

No connection is held and nothing depends on the state of a session, so that a pooler in transaction mode may
stand between; a NOTIFY with every chunk would, besides, make all commits of the database wait for each other.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from helix_temporal.models.streams import DEFAULT_LIMITS, StoredChunk, StreamLimits
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.postgres.database import (
    DatabaseOrPool,
    PostgresExecutor,
    as_database,
    run_in_transaction,
)
from helix_temporal.stores.postgres.queries import DEFAULT_PREFIX, Queries
from helix_temporal.stores.streams.polling import Place, Polling
from helix_temporal.stores.streams.reader import News
from helix_temporal.stores.streams.rules import (
    Batch,
    Facts,
    Refused,
    StatusChange,
    StreamHead,
    View,
    Written,
    admit_batch,
    facts_from,
)
from helix_temporal.stores.streams.store import Streams

_PURGE_EVERY: Final = 600.0
_PURGED_AT_ONCE: Final = 200


class PostgresStreams(Streams):
    """`StreamStore` on PostgreSQL.  Made by `PostgresBackend`, or over your own `PostgresDatabase` or pool.

    A write is one statement.  All readers of one process together ask every 10 to 100 ms how far their
    streams are; chunks are that late.  Streams that have expired are removed by whoever makes one, every ten
    minutes.

    Args:
        database: A `PostgresDatabase`, or an asyncpg pool; whoever made it closes it.
        table_prefix: What the names of all tables begin with; see `PostgresMigrations`.
        limits: What is kept.

    Raises:
        InvalidConfigError: The prefix or a limit is not acceptable.
    """

    def __init__(
        self,
        database: DatabaseOrPool,
        *,
        table_prefix: str = DEFAULT_PREFIX,
        limits: StreamLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(limits)
        self._database, self._queries = as_database(database), Queries(table_prefix)
        self._ttl = None if limits.ttl is None else int(limits.ttl * 1000)
        self._polling = Polling(self._read_places, "PostgreSQL")
        self._next_purge = 0.0

    async def close(self) -> None:
        """See `StreamStore.close`."""
        await super().close()
        await self._polling.close()

    async def _append_batch(self, batch: Batch) -> Written | Refused:
        if batch.create:
            await self._purge_expired()
            return await run_in_transaction(self._database, lambda work: self._make_and_append(work, batch))
        written = await self._try_append(self._database, batch)
        if written is not None:
            return written
        return await run_in_transaction(self._database, lambda work: self._append_or_refuse(work, batch))

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        rows = await self._database.fetch(self._queries["stream_view"], stream_id, after, limit)
        if not rows:
            return None
        where = f"stream {stream_id!r} in PostgreSQL"
        chunks = (
            StoredChunk(
                row["sequence"],
                row["run_id"],
                row["written_at"],
                verify_checksum(row["body"], f"chunk {row['sequence']} of {where}", stream_id, row["run_id"]),
            )
            for row in rows
            if row["sequence"] is not None
        )
        return View(_head_of_row(stream_id, rows[0]), rows[0]["now"], tuple(chunks))

    async def _change_status(self, change: StatusChange) -> int | None:
        before = change.before
        last: int | None = await self._database.fetchval(
            self._queries["stream_change"],
            before.stream_id,
            before.made,
            before.revision,
            before.last if change.expects_no_append else None,
            change.fence,
            change.status,
            change.facts.to_bytes(),
            None if change.chunk is None else with_checksum(change.chunk, change.before.stream_id, ""),
            change.sequence,
            self._ttl,
        )
        return last

    async def _drop_stream(self, stream_id: str) -> bool:
        return bool(await self._database.fetchval(self._queries["stream_drop"], stream_id))

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        head = view.head
        await self._polling.wait_for_news(head.stream_id, (head.made, after, head.revision), seconds)
        return News(look=True)

    async def _try_append(self, work: PostgresExecutor, batch: Batch) -> Written | None:
        """The batch's sequences; None if it may not be appended, or not like this."""
        rows = await work.fetch(
            self._queries["stream_append"],
            batch.stream_id,
            batch.made,
            batch.fence,
            batch.run_id,
            [key for key, _ in batch.entries],
            [with_checksum(body, batch.stream_id, batch.run_id) for _, body in batch.entries],
            self.limits.max_chunks,
            self._ttl,
        )
        if not rows:
            return None
        sequences = tuple(row["sequence"] for row in rows if row["n"] is not None)
        return Written(batch.made, sequences, rows[0]["last"])

    async def _make_and_append(self, work: PostgresExecutor, batch: Batch) -> Written | Refused:
        """Append to the stream that there is, or to a new one."""
        await work.fetchval(self._queries["stream_purge"], batch.stream_id, 1)
        await work.execute(
            self._queries["stream_make"], batch.stream_id, batch.made, Facts().to_bytes(), self._ttl
        )
        return await self._append_or_refuse(work, batch)

    async def _append_or_refuse(self, work: PostgresExecutor, batch: Batch) -> Written | Refused:
        """Append, or say why not."""
        row = await work.fetchrow(self._queries["stream_lock"], batch.stream_id)
        head = None if row is None else _head_of_row(batch.stream_id, row)
        made = batch.made if head is None else head.made
        keys = [key for key, _ in batch.entries if key]
        rows = await work.fetch(self._queries["stream_known"], made, keys)
        sequences: Mapping[str, int] = {row["key"]: row["sequence"] for row in rows}
        after = Refused("absent") if head is None else admit_batch(head, batch, sequences, head.updated_at)
        if isinstance(after, Refused):
            return after
        if head is not None and head.status != "active":
            return Written(made, tuple(sequences[key] for key, _ in batch.entries), head.last)
        meant = Batch(batch.stream_id, made, fence=batch.fence, run_id=batch.run_id, entries=batch.entries)
        return await self._try_append(work, meant) or Refused("absent")

    async def _read_places(self, stream_ids: Sequence[str]) -> dict[str, Place]:
        rows: list[Any] = await self._database.fetch(self._queries["stream_news"], list(stream_ids))
        return {row["stream_id"]: (row["made"], row["last"], row["revision"]) for row in rows}

    async def _purge_expired(self) -> None:
        if (now := time.monotonic()) < self._next_purge:
            return
        self._next_purge = now + _PURGE_EVERY
        while await self._database.fetchval(self._queries["stream_purge"], None, _PURGED_AT_ONCE):
            pass


def _head_of_row(stream_id: str, row: Any) -> StreamHead:
    return StreamHead(
        stream_id,
        row["made"],
        row["status"],
        first=row["first"],
        last=row["last"],
        revision=row["revision"],
        fence=row["fence"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        facts=facts_from(row["facts"], stream_id),
    )
