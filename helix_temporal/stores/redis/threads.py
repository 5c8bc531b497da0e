"""Hot threads in Redis or Valkey: one hash a thread, one script a method."""

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Final

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.records import Head, Record
from helix_temporal.stores import _decide
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    StepAppend,
    StepView,
)
from helix_temporal.stores.redis import _replies, _scripts
from helix_temporal.stores.redis._append import append_args, read_appended, refused
from helix_temporal.stores.redis._check import check_server
from helix_temporal.stores.redis._connection import Connection
from helix_temporal.stores.redis._lane import Answer, Value
from helix_temporal.stores.redis._replies import Reply
from helix_temporal.stores.redis._scripts import Script
from helix_temporal.stores.redis._stored_messages import read_ids, read_messages

_DIRECT_BYTES: Final = 256 * 1024
"""Up to so much an install is one script's arguments; above, messages are put aside in parts."""

_STAGE_BYTES: Final = 1024 * 1024
_STAGE_FIELDS: Final = 900
_STAGE_BATCHES: Final = 8
"""Sent without waiting for each answer, yet each so short that others get their turn between them."""

_STAGED_MS: Final = 120_000


class RedisThreads:
    """`HotTier` on Redis or Valkey, standalone or cluster.  Made by `RedisBackend`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- reads

    async def header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.header`."""
        reply = await self._run(_scripts.HEADER, thread_id)
        return None if reply is None else reply.header

    async def snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.snapshot`."""
        return _snapshot(await self._run(_scripts.SNAPSHOT, thread_id, since))

    async def page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.page`."""
        return _snapshot(
            await self._run(
                _scripts.PAGE,
                thread_id,
                wanted.start,
                wanted.stop,
                wanted.limit,
                wanted.max_bytes,
                int(wanted.backward),
            )
        )

    async def step_view(
        self, thread_id: str, head: Head, *, after: int, limit: int, max_bytes: int, ids: int
    ) -> StepView | None:
        """See `HotTier.step_view`."""
        reply = await self._run(_scripts.STEP_VIEW, thread_id, head.position, after, limit, max_bytes, ids)
        if reply is None:
            return None
        (after_size, last_size, first, first_id), data = _replies.numbered(reply.rest)
        ids_start = after_size + max(last_size, 0)
        return StepView(
            header=reply.header,
            after=read_messages(data[:after_size], head.position, reply.where),
            before=read_messages(b"".join(reply.packed), first, reply.where),
            earlier_ids=read_ids(data[ids_start:], first_id, reply.where),
            last_id_at_head=data[after_size:ids_start].decode() if last_size >= 0 else None,
        )

    async def scan(self) -> AsyncIterator[str]:
        """See `HotTier.scan`."""
        async for keys in self._connection.scan(f"{self._connection.prefix}{{*}}"):
            stored = await self._connection.pipeline([("HGET", key, "i") for key in keys])
            for key, found in zip(keys, stored, strict=True):
                if found is not None and (thread_id := self._connection.id_in(key, found)) is not None:
                    yield thread_id

    # -- writes

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        args, end = append_args(step)
        reply = await self._run(_scripts.APPEND, step.thread_id, *args)
        return None if reply is None else read_appended(reply, step, end)

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        _decide.check_rebase(change)
        epoch, head = change.expected or ("", None)
        reply = await self._run(
            _scripts.REBASE,
            change.header.thread_id,
            epoch,
            "" if head is None else head.position,
            "" if head is None else head.last_id,
            change.keep,
            *_replies.header_args(change.header),
            *_replies.fields(change.keep, change.records, _replies.INSTALL_FIELD_BYTES),
        )
        return None if reply is None else reply.header

    async def install(self, header: HotHeader, records: Sequence[Record], *, replace: bool) -> HotHeader:
        """See `HotTier.install`."""
        _decide.check_install(header, records)
        thread_id = header.thread_id
        key = self._connection.key(thread_id)
        made = _replies.fields(header.base.position, records, _replies.INSTALL_FIELD_BYTES)
        arguments: tuple[Value, ...] = (int(replace), *_replies.header_args(header))
        if sum(map(len, made)) <= _DIRECT_BYTES:
            answer = await self._connection.run(_scripts.INSTALL, [key], thread_id, *arguments, "", *made)
        else:
            staging = await self._stage(key, made)
            staged = len(made) // 2
            answer = await self._connection.run(
                _scripts.INSTALL, [key, staging], thread_id, *arguments, staged
            )
        if answer == b"S":
            raise StoreUnavailableError(f"thread {thread_id!r}: messages put aside expired; repeat the call")
        reply = self._reply(answer, thread_id)
        assert reply is not None
        if reply.status == "F":
            raise _decide.fenced(reply.header, header.epoch)
        return reply.header

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        answer = await self._connection.run(
            _scripts.EVICT,
            [self._connection.key(thread_id)],
            thread_id,
            epoch,
            archived.head.position,
            archived.head.last_id,
            archived.committed,
            archived.slice_version,
            archived.size,
            "" if warm_ttl is None else max(int(warm_ttl * 1000), 1),
        )
        if answer == b"I":
            raise _decide.other_id(thread_id)
        assert isinstance(answer, bytes)
        return Eviction(answer.decode())

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        reply = await self._run(
            _scripts.TRIM, thread_id, epoch, archived.position, archived.last_id, keep_from
        )
        return None if reply is None else reply.header

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._run(_scripts.CLOSE_EPOCH, thread_id, epoch)

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        version = expected_version + 1
        answer = await self._connection.run(
            _scripts.SAVE_SLICE,
            [self._connection.key(thread_id)],
            thread_id,
            epoch,
            expected_version,
            version,
            _replies.slice_value(data, version),
        )
        if answer == b"A":
            return version
        reply = self._reply(answer, thread_id)
        if reply is None:
            return None
        raise refused(reply, epoch) or _decide.stale_slice(reply.header, expected_version)

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        reply = await self._run(_scripts.DROP, thread_id, epoch)
        if reply is not None:
            raise _decide.fenced(reply.header, epoch)

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        answer = await self._connection.run(
            _scripts.DROP_DAMAGED,
            [self._connection.key(thread_id)],
            thread_id,
            archived.head.position,
            _replies.slice_value(slice_, archived.slice_version),
        )
        return answer == b"1"

    async def check(self) -> None:
        """See `HotTier.check`."""
        await check_server(self._connection)

    async def close(self) -> None:
        """See `HotTier.close`."""
        await self._connection.close()

    # -- inside

    async def _run(self, script: Script, thread_id: str, *args: Value) -> Reply | None:
        key = self._connection.key(thread_id)
        return self._reply(await self._connection.run(script, [key], thread_id, *args), thread_id)

    def _reply(self, answer: Answer, thread_id: str) -> Reply | None:
        if answer is None:
            return None
        if answer == b"I":
            raise _decide.other_id(thread_id)
        return _replies.read(answer, thread_id, self._connection.place_of(self._connection.key(thread_id)))

    async def _stage(self, key: str, made: list[str | bytes]) -> str:
        staging = f"{key}:staging:{secrets.token_hex(8)}"
        batches = _batches(made)
        for at in range(0, len(batches), _STAGE_BATCHES):
            await self._connection.pipeline(
                [
                    ("EVAL", _scripts.STAGE, 1, staging, _STAGED_MS),
                    *(("HSET", staging, *batch) for batch in batches[at : at + _STAGE_BATCHES]),
                    ("PEXPIRE", staging, _STAGED_MS),
                ]
            )
        return staging


def _snapshot(reply: Reply | None) -> HotSnapshot | None:
    if reply is None:
        return None
    # A large message comes in two parts.
    first = int(reply.rest)
    return HotSnapshot(reply.header, first, read_messages(b"".join(reply.packed), first, reply.where))


def _batches(made: list[str | bytes]) -> list[list[str | bytes]]:
    """Fields and values in parts that neither a script's arguments nor a moment of the server notice."""
    batches: list[list[str | bytes]] = []
    room = 0
    for name, value in zip(made[::2], made[1::2], strict=True):
        if not batches or len(value) > room or len(batches[-1]) >= 2 * _STAGE_FIELDS:
            batches.append([])
            room = _STAGE_BYTES
        batches[-1] += (name, value)
        room -= len(value)
    return batches
