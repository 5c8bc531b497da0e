"""Streams in SQLite: a row a stream, and a row a chunk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from helix_temporal.models.base import dump_json
from helix_temporal.models.states import is_past
from helix_temporal.models.streams import DEFAULT_LIMITS, StoredChunk, StreamLimits
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.sqlite.connection import Database, Statements
from helix_temporal.stores.streams.polling import Place, Polling
from helix_temporal.stores.streams.reader import News
from helix_temporal.stores.streams.rules import (
    Batch,
    Refused,
    StatusChange,
    StreamHead,
    StreamLog,
    View,
    Written,
    facts_from,
)
from helix_temporal.stores.streams.store import Streams

_PURGE_EVERY: Final = 600.0
_PURGED_AT_ONCE: Final = 200


class SqliteStreams(Streams):
    """`StreamStore` on SQLite.  Made by `SqliteBackend`.

    All readers of one process together ask every 10 to 100 ms how far their streams are.  Chunks survive the
    death of the process; a power cut may take those since the last write of anything else.  Streams that have
    expired are removed by whoever makes one, every ten minutes.

    Args:
        database: Where they are.
        limits: What is kept.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        database: Database,
        limits: StreamLimits = DEFAULT_LIMITS,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(limits)
        self._database, self._clock = database, clock
        self._polling = Polling(self._read_places, "SQLite")
        self._next_purge = 0.0

    async def close(self) -> None:
        """See `StreamStore.close`."""
        await super().close()
        await self._polling.close()
        await self._database.close()

    async def _append_batch(self, batch: Batch) -> Written | Refused:
        if batch.create:
            await self._purge_expired()
        async with self._database.write(synced=False) as on:
            now = self._now_millis()
            before = await self._read_head(on, batch.stream_id, now)
            if before is None:
                if not batch.create:
                    return Refused("absent")
                await _delete_stream(on, batch.stream_id)
            log = StreamLog()
            log.head = before
            if before is not None:
                log.keys = await _find_known_keys(on, before.made, [key for key, _ in batch.entries if key])
            stored_keys = set(log.keys)
            answer = log.append_batch(batch, now, 0)
            if isinstance(answer, Written):
                assert log.head is not None
                await self._write_batch(on, log, stored_keys, 1 if before is None else before.first)
            return answer

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        async with self._database.read() as on:
            now = self._now_millis()
            head = await self._read_head(on, stream_id, now)
            if head is None:
                return None
            rows = await on.fetch("stream_chunks", {"made": head.made, "after": after, "limit": limit})
        where = f"stream {stream_id!r} in SQLite"
        chunks = (
            StoredChunk(
                row["sequence"],
                row["run_id"],
                row["written_at"],
                verify_checksum(
                    row["body"],
                    f"chunk {row['sequence']} of {where}",
                    head.made,
                    row["sequence"],
                    row["run_id"],
                ),
            )
            for row in rows
        )
        return View(head, now, tuple(chunks))

    async def _change_status(self, change: StatusChange) -> int | None:
        async with self._database.write() as on:
            now, log = self._now_millis(), StreamLog()
            log.head = await self._read_head(on, change.before.stream_id, now)
            last = log.change_status(change, now)
            if last is None or log.head is None:
                return None
            if change.chunk is not None:
                await _delete_content(on, log.head.made)
                await _put_chunks(on, log.head.made, log.chunks)
            await _put_head(on, log.head)
            return last

    async def _drop_stream(self, stream_id: str) -> bool:
        async with self._database.write(erases=True) as on:
            there = await self._read_head(on, stream_id, self._now_millis()) is not None
            await _delete_stream(on, stream_id)
            return there

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        head = view.head
        await self._polling.wait_for_news(head.stream_id, (head.made, after, head.revision), seconds)
        return News(look=True)

    async def _read_places(self, stream_ids: Sequence[str]) -> dict[str, Place]:
        rows = await self._database.fetch("stream_news", {"stream_ids": dump_json([*stream_ids]).decode()})
        return {row["stream_id"]: (row["made"], row["last"], row["revision"]) for row in rows}

    async def _read_head(self, on: Statements, stream_id: str, now: int) -> StreamHead | None:
        """The head of a stream that has not expired."""
        row = await on.fetch_one("stream_head", {"stream_id": stream_id})
        if row is None:
            return None
        head = _head_of(stream_id, row["head"])
        over = None if self.limits.ttl is None else head.updated_at + self.limits.ttl * 1000
        return None if is_past(over, now) else head

    async def _write_batch(self, on: Statements, log: StreamLog, stored_keys: set[str], first: int) -> None:
        """Write what a batch brought; ``first`` is the oldest chunk that was kept before."""
        head, most = log.head, self.limits.max_chunks
        assert head is not None
        # rule: stores.streams.rules.StreamLog._trim_chunks
        kept = max(first, head.last - most + 1) if most else first
        await _put_chunks(on, head.made, log.chunks)
        fresh = [(key, at) for key, at in log.keys.items() if key not in stored_keys]
        keys = [{"made": head.made, "key": key, "sequence": at} for key, at in fresh]
        await on.execute_many("stream_put_key", keys)
        if kept > first:
            await on.fetch("stream_trim", {"made": head.made, "first": kept})
        await _put_head(on, replace(head, first=kept))

    async def _purge_expired(self) -> None:
        if self.limits.ttl is None or (now := time.monotonic()) < self._next_purge:
            return
        self._next_purge = now + _PURGE_EVERY
        before = self._now_millis() - int(self.limits.ttl * 1000)
        while True:
            async with self._database.write(synced=False) as on:
                rows = await on.fetch("stream_expired", {"before": before, "limit": _PURGED_AT_ONCE})
                for row in rows:
                    await _delete_stream(on, row["stream_id"])
            if len(rows) < _PURGED_AT_ONCE:
                return

    def _now_millis(self) -> int:
        return int(self._clock() * 1000)


async def _find_known_keys(on: Statements, made: str, keys: list[str]) -> dict[str, int]:
    if not keys:
        return {}
    rows = await on.fetch("stream_known", {"made": made, "keys": dump_json(keys).decode()})
    return {row["key"]: row["sequence"] for row in rows}


async def _put_head(on: Statements, head: StreamHead) -> None:
    row = {
        "stream_id": head.stream_id,
        "made": head.made,
        "last": head.last,
        "revision": head.revision,
        "updated_at": head.updated_at,
        "head": _head_body(head),
    }
    await on.fetch("stream_put", row)


async def _put_chunks(on: Statements, made: str, chunks: Any) -> None:
    await on.execute_many(
        "stream_put_chunk",
        [
            {
                "made": made,
                "sequence": chunk.sequence,
                "run_id": chunk.run_id,
                "written_at": chunk.written_at,
                "body": with_checksum(chunk.body, made, chunk.sequence, chunk.run_id),
            }
            for chunk in chunks
        ],
    )


async def _delete_stream(on: Statements, stream_id: str) -> None:
    for row in await on.fetch("stream_delete", {"stream_id": stream_id}):
        await _delete_content(on, row["made"])


async def _delete_content(on: Statements, made: str) -> None:
    await on.fetch("stream_delete_chunks", {"made": made})
    await on.fetch("stream_delete_keys", {"made": made})


def _head_body(head: StreamHead) -> bytes:
    fields = {name: getattr(head, name) for name in head.__slots__ if name != "facts"}
    fields["facts"] = orjson.loads(head.facts.to_bytes())
    return with_checksum(dump_json(fields), head.stream_id)


def _head_of(stream_id: str, body: bytes) -> StreamHead:
    fields = orjson.loads(verify_checksum(body, f"the head of stream {stream_id!r} in SQLite", stream_id))
    facts = facts_from(dump_json(fields.pop("facts")), stream_id)
    return StreamHead(**fields, facts=facts)
