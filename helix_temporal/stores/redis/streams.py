"""Streams in Redis or Valkey: a Redis Stream each, one script an operation, one blocking read a process.

``{prefix}{stream}:stream`` is the head, ``…:chunks`` the Redis Stream, ``…:keys`` the dedup keys; all in one
slot.
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any, Final

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.streams import DEFAULT_LIMITS, StoredChunk, StreamLimits
from helix_temporal.stores.checksums import damaged_error
from helix_temporal.stores.redis.connection import RedisConnection, Value
from helix_temporal.stores.redis.scripts import Script, assemble_script
from helix_temporal.stores.streams.reader import PAGE, News
from helix_temporal.stores.streams.rules import (
    Batch,
    Refused,
    StatusChange,
    StreamHead,
    View,
    Written,
    facts_from,
)
from helix_temporal.stores.streams.store import Streams

_APPEND: Final = assemble_script("stream_append", "_stream")
_VIEW: Final = assemble_script("stream_view", "_stream")
_CHANGE: Final = assemble_script("stream_change", "_stream")
_DROP: Final = assemble_script("stream_drop", "_stream")

_MARK: Final = 8
"""So much of a stream's token is in its chunks."""


class RedisStreams(Streams):
    """`StreamStore` on one Redis or Valkey, or one cluster.  Made by `RedisBackend`.

    A write is one round trip.  Readers of one process share one blocking read a stream, on connections of
    their own; it costs the server nothing while nothing comes.

    Args:
        connection: For writes and looks.
        blocking: Another one for reads that wait: as many connections as streams are read at a time, and a
            deadline longer than the longest wait.
        limits: What is kept; a stream expires by itself.
    """

    def __init__(
        self, connection: RedisConnection, blocking: RedisConnection, limits: StreamLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(limits)
        self._connection, self._blocking = connection, blocking
        self._ttl: Value = "" if limits.ttl is None else int(limits.ttl * 1000)

    async def close(self) -> None:
        """See `StreamStore.close`."""
        await super().close()
        await self._blocking.close()

    async def _append_batch(self, batch: Batch) -> Written | Refused:
        word, *rest = await self._run_script(
            _APPEND,
            batch.stream_id,
            batch.made,
            "1" if batch.create else "",
            "" if batch.fence is None else batch.fence,
            batch.run_id,
            self.limits.max_chunks,
            self._ttl,
            *(value for entry in batch.entries for value in entry),
        )
        if word == b"ok":
            return Written(rest[0].decode(), tuple(map(int, rest[2:])), int(rest[1]))
        if word == b"fenced":
            return Refused("fenced", fence=int(rest[0]))
        if word == b"closed":
            return Refused("closed", status=rest[0].decode())
        return Refused("absent")

    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        answer = await self._run_script(_VIEW, stream_id, after, limit)
        if not answer:
            return None
        now, row, entries = answer
        return View(
            _read_head(stream_id, row), int(now), _read_chunks(entries, self._place_of_chunks(stream_id))
        )

    async def _change_status(self, change: StatusChange) -> int | None:
        before = change.before
        answer = await self._run_script(
            _CHANGE,
            before.stream_id,
            before.made,
            before.revision,
            before.last if change.expects_no_append else "",
            "" if change.fence is None else change.fence,
            change.status,
            change.facts.to_bytes(),
            change.chunk or b"",
            change.sequence or "",
            self._ttl,
        )
        return int(answer[0]) if answer else None

    async def _drop_stream(self, stream_id: str) -> bool:
        (there,) = await self._run_script(_DROP, stream_id)
        return bool(there)

    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        key = self._stream_keys(view.head.stream_id)[1]
        place = f"{after}-{view.head.revision}"
        wait = max(1, int(seconds * 1000))
        answer = await self._blocking.send_to_owner(
            key, "XREAD", "COUNT", PAGE, "BLOCK", wait, "STREAMS", key, place
        )
        if not answer:
            return News(look=True)
        ((_, found),) = answer
        # The driver made a dict of each entry's names and values.
        entries = [(id_, [each for pair in given.items() for each in pair]) for id_, given in found]
        chunks = _read_chunks(
            entries, self._place_of_chunks(view.head.stream_id), view.head.made[:_MARK].encode()
        )
        return News(chunks, look=len(chunks) < len(entries))

    async def _run_script(self, script: Script, stream_id: str, *args: Value) -> list[Any]:
        answer: Any = await self._connection.run_script(
            script, self._stream_keys(stream_id), stream_id, *args
        )
        if answer == [b"X"]:
            raise InvalidIdError(
                f"stream id {stream_id!r}: its place is taken by another id with the same hashed form; "
                "use another id"
            )
        found: list[Any] = answer
        return found

    def _place_of_chunks(self, stream_id: str) -> str:
        return self._connection.place_of(self._stream_keys(stream_id)[1])

    def _stream_keys(self, stream_id: str) -> tuple[str, str, str]:
        start = f"{self._connection.key_of(stream_id)}:stream"
        return start, f"{start}:chunks", f"{start}:keys"


def _read_head(stream_id: str, row: Sequence[bytes]) -> StreamHead:
    _, made, status, fence, first, last, revision, created, updated, facts, *_ = row
    return StreamHead(
        stream_id,
        made.decode(),
        status.decode(),  # type: ignore[arg-type]
        first=int(first),
        last=int(last),
        revision=int(revision),
        fence=int(fence) if fence else None,
        created_at=int(created),
        updated_at=int(updated),
        facts=facts_from(facts, stream_id),
    )


def _read_chunks(entries: Sequence[Any], where: str, made: bytes = b"") -> tuple[StoredChunk, ...]:
    """The chunks among the entries of a Redis Stream, all of one making of it.

    Raises:
        StoreCorruptError: One is not what was stored there.
    """
    found = []
    for id_, fields in entries:
        # Names and values of run, mark and body; other entries tell of a change.
        if len(fields) != 6:
            continue
        chunk = _read_chunk(id_, fields[1], fields[3], fields[5], where)
        if not made or fields[3].split(b" ")[1] == made:
            found.append(chunk)
    return tuple(found)


def _read_chunk(id_: bytes, run_id: bytes, mark: bytes, body: bytes, where: str) -> StoredChunk:
    sequence, told, found = id_.partition(b"-")[0], mark[:-9], mark[-8:]
    text = b"\0".join((sequence, run_id, told, body))
    if sha1(text, usedforsecurity=False).hexdigest()[:8].encode() != found:
        position = int(sequence)
        raise damaged_error(where, f"chunk {position} is not the one that was stored", position=position)
    return StoredChunk(int(sequence), run_id.decode(), int(told.partition(b" ")[0]), body)
