"""Threads in Redis: a hot tier of one hash a thread, changed by Lua scripts.

Messages stand in fields of several, packed by `models.stored_messages.pack_messages`; large bodies have
fields of their own.  The scripts know where they lie.
"""

import secrets
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.stored_messages import (
    ID_SUM,
    MESSAGE_PREFIX,
    Head,
    StoredMessage,
    checksum_of_id,
    checksum_of_message,
    head_after,
    pack_each,
    size_of,
)
from helix_temporal.stores.checksums import SIZE, damaged_error, with_checksum
from helix_temporal.stores.protocols.hot import (
    Appended,
    Archived,
    Eviction,
    HotHeader,
    HotSnapshot,
    PageRange,
    Rebase,
    ScannedPage,
    ScannedThread,
    StepAppend,
    StepView,
    place_of,
)
from helix_temporal.stores.redis import scripts
from helix_temporal.stores.redis.connection import Answer, RedisConnection, Value, check_server
from helix_temporal.stores.redis.scripts import Script
from helix_temporal.stores.threads import operations as ops
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.header_columns import header_from_columns, header_to_columns
from helix_temporal.stores.threads.standing_step import answer_kinds, step_conflict_error

_SUM: Final = Struct(">I")


def read_messages(data: bytes, first: int, where: str) -> tuple[StoredMessage, ...]:
    """The messages in stored bytes.

    Args:
        data: Messages one after the other, large ones whole.
        first: Position of the first.
        where: Store and key, for the error.

    Raises:
        StoreCorruptError: A message is not what was stored there.
    """
    messages: list[StoredMessage] = []
    at, end, position = 0, len(data), first
    while at < end:
        if at + MESSAGE_PREFIX.size > end:
            raise _damaged_message_error(where, position)
        size, kind, id_size = MESSAGE_PREFIX.unpack_from(data, at)
        start, tail = at + MESSAGE_PREFIX.size, at + size
        identity = start + id_size
        body = identity + ID_SUM
        if body > tail or tail + 4 > end:
            raise _damaged_message_error(where, position)
        checksum, content = checksum_of_id(data[start:identity], position), data[body:tail]
        if data[identity:body] != (checksum & 0xFFFF).to_bytes(ID_SUM, "big") or _SUM.unpack_from(data, tail)[
            0
        ] != checksum_of_message(data[at + 4 : start], checksum, content):
            raise _damaged_message_error(where, position)
        messages.append(StoredMessage(kind.decode("ascii"), data[start:identity].decode(), content))
        at, position = tail + 4, position + 1
    return tuple(messages)


def read_ids(data: bytes, first: int, where: str) -> tuple[str, ...]:
    """Ids, each with its length in two bytes before it and its checksum behind; ``first`` as above.

    Raises:
        StoreCorruptError: An id is not what was stored there.
    """
    found: list[str] = []
    at = 0
    while at < len(data):
        stop = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if data[stop : stop + ID_SUM] != _stored_id_sum(data[at + 2 : stop], first + len(found)):
            raise _damaged_message_error(where, first + len(found))
        found.append(data[at + 2 : stop].decode())
        at = stop + ID_SUM
    return tuple(found)


def _stored_id_sum(identity: bytes, position: int) -> bytes:
    return (checksum_of_id(identity, position) & 0xFFFF).to_bytes(ID_SUM, "big")


def _damaged_message_error(where: str, position: int) -> Exception:
    return damaged_error(
        where, f"the message at position {position} is not the one that was stored", position=position
    )


MAX_PER_FIELD: Final = 64
"""More messages in a field would make finding a position dearer; the scripts know this number."""

LARGE: Final = 2048
"""The body of a larger message is a field of its own; the scripts learn from the stub that it is."""

_STUB: Final = 0x80000000

APPEND_FIELD_BYTES: Final = 256 * 1024
INSTALL_FIELD_BYTES: Final = 32 * 1024


def message_fields(start: int, messages: Sequence[StoredMessage], max_bytes: int) -> list[str | bytes]:
    """Names and values of the fields that hold ``messages`` from position ``start`` on."""
    return _group_into_fields(start, *_stub_large_messages(start, pack_each(messages, start)), max_bytes)


def step_args(step: StepAppend, end: int) -> tuple[str, list[str | bytes]]:
    """The numbers of a step as ``append.lua`` reads them, ``-`` standing for none, and its fields."""
    answer, archived = step.answer, step.archived
    stubbed, bodies = _stub_large_messages(step.head.position, pack_each(step.messages, step.head.position))
    inputs_size = sum(map(len, stubbed[: len(step.inputs)]))
    kinds = "-" if answer is None else answer_kinds(answer.kind)
    version = "-" if step.slice is None else step.slice_version
    archived_place = "- -" if archived is None else f"{archived.head.position} {archived.size}"
    numbers = (
        f"{step.epoch} {step.head.position} {end} {size_of(step.messages)} {inputs_size} {int(step.commits)} "
        f"{step.messages[-1].kind} {kinds} {version} {archived_place}"
    )
    return numbers, _group_into_fields(step.head.position, stubbed, bodies, APPEND_FIELD_BYTES)


def _stub_large_messages(start: int, pieces: list[bytes]) -> tuple[list[bytes], list[str | bytes]]:
    """The pieces with stubs in place of large ones, and the fields of those ones' bodies."""
    bodies: list[str | bytes] = []
    for at, piece in enumerate(pieces):
        if len(piece) > LARGE:
            body = 7 + int.from_bytes(piece[5:7], "big") + ID_SUM
            if len(piece) > body + SIZE:
                size = int.from_bytes(piece[:4], "big")
                pieces[at] = (_STUB | size).to_bytes(4, "big") + piece[4:body]
                bodies += (f"{start + at}b", piece[body:])
    return pieces, bodies


def _group_into_fields(
    start: int, pieces: Sequence[bytes], bodies: list[str | bytes], max_bytes: int
) -> list[str | bytes]:
    made: list[str | bytes] = []
    first = total = 0
    for at, piece in enumerate(pieces):
        size = len(piece)
        if at - first == MAX_PER_FIELD or (at > first and total + size > max_bytes):
            made += (str(start + first), b"".join(pieces[first:at]))
            first, total = at, 0
        total += size
    if pieces:
        made += (str(start + first), b"".join(pieces[first:]))
    return made + bodies


_NUMBERS: Final = (
    "epoch", "head", "committed", "base", "slice_version", "size", "base_size", "archived", "archived_size",
    "unarchived_since", "closed", "deleted", "born", "cut",
)  # fmt: skip
_TEXTS: Final = ("owner", "last_id", "base_id", "adapter", "origin")
"""Columns of a header, in the order of ``_thread.lua``; the slice comes last."""


def header_args(header: HotHeader) -> tuple[str | bytes | int, ...]:
    """A header as the scripts' arguments."""
    columns = header_to_columns(header)
    numbers = (int(columns[name]) for name in _NUMBERS)
    return (*numbers, *(columns[name] for name in _TEXTS), columns["slice"])


class Reply(NamedTuple):
    """A script's answer: what became of the call, header, what follows, the thread's place, and messages."""

    status: str
    header: HotHeader
    rest: bytes
    where: str
    packed: Sequence[bytes] = ()


def read_reply(answer: bytes | list[bytes], thread_id: str, where: str) -> Reply:
    """Read what ``reply()`` in ``_thread.lua`` wrote, alone or followed by stored messages.

    Raises:
        StoreCorruptError: The slice is not what was stored; ``where`` says of which thread.
    """
    reply, *packed = [answer] if isinstance(answer, bytes) else answer
    at = reply.index(b"\n") + 1
    numbers = [*map(int, reply[1:at].split())]
    columns: dict[str, Any] = dict(zip(_NUMBERS, numbers, strict=False))
    *lengths, slice_size = numbers[len(_NUMBERS) :]
    for name, length in zip(_TEXTS, lengths, strict=True):
        columns[name] = reply[at : at + length].decode()
        at += length
    rest = at + slice_size
    columns |= {
        "closed": columns["closed"] == 1,
        "deleted": columns["deleted"] == 1,
        "slice": reply[at:rest],
    }
    header = header_from_columns(thread_id, columns, f"slice {columns['slice_version']} of {where}")
    return Reply(chr(reply[0]), header, reply[rest:], where, packed)


def read_numbers(rest: bytes) -> tuple[Sequence[int], bytes]:
    """The line of numbers that ``rest`` begins with, and what follows it."""
    line, _, data = rest.partition(b"\n")
    return [*map(int, line.split())], data


def append_args(step: StepAppend) -> tuple[tuple[Value, ...], Head]:
    """The script's arguments after the thread id, and the head after the step.

    Raises:
        InvalidRequestError: A step without messages.
    """
    ops.check_step(step)
    end = head_after(step.head, step.messages)
    numbers, made = step_args(step, end.position)
    data = b"" if step.slice is None else with_checksum(step.slice, step.slice_version + 1)
    return (numbers, step.head.last_id, end.last_id, data, *made), end


def read_appended(reply: Reply, step: StepAppend, end: Head) -> Appended:
    """What became of the step.

    Raises:
        FencedError, HeadMovedError, IdempotencyConflictError, StaleStateError: See `HotTier.append`.
        StoreCorruptError: What stands there is damaged.
    """
    if reply.status == "A":
        return Appended(step.messages, end, False, reply.header)
    stored = read_messages(reply.rest, step.head.position, reply.where)
    if reply.status == "R":
        return Appended(stored, head_after(step.head, stored), True, reply.header)
    if reply.status == "V":
        raise ops.stale_slice_error(reply.header, step.slice_version)
    raise refusal_in_reply(reply, step.epoch) or step_conflict_error(step, reply.header, stored)


def refusal_in_reply(reply: Reply, epoch: int) -> HelixError | None:
    """Why the hot thread refuses this epoch, if the script says that it does."""
    if reply.status not in {"F", "B"}:
        return None
    refusal = Fence.of(reply.header).find_refusal(epoch)
    assert refusal is not None, "the script refuses a writer that the rule admits"
    return refusal


_DIRECT_BYTES: Final = 256 * 1024
"""Up to so much an install is one script's arguments; above, messages are put aside in parts."""

_STAGE_BYTES: Final = 1024 * 1024
_STAGE_FIELDS: Final = 900
_STAGE_BATCHES: Final = 8
"""Sent without waiting for each answer, yet each so short that others get their turn between them."""

_STAGED_MS: Final = 120_000


class RedisThreads:
    """`HotTier` on Redis or Valkey, standalone or cluster.  Made by `RedisBackend`."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    # -- reads

    async def read_header(self, thread_id: str) -> HotHeader | None:
        """See `HotTier.read_header`."""
        reply = await self._run_script(scripts.HEADER, thread_id)
        return None if reply is None else reply.header

    async def read_snapshot(self, thread_id: str, since: int) -> HotSnapshot | None:
        """See `HotTier.read_snapshot`."""
        return _snapshot_of_reply(await self._run_script(scripts.SNAPSHOT, thread_id, since))

    async def read_page(self, thread_id: str, wanted: PageRange) -> HotSnapshot | None:
        """See `HotTier.read_page`."""
        return _snapshot_of_reply(
            await self._run_script(
                scripts.PAGE,
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
        reply = await self._run_script(
            scripts.STEP_VIEW, thread_id, head.position, after, limit, max_bytes, ids
        )
        if reply is None:
            return None
        (after_size, last_size, first, first_id), data = read_numbers(reply.rest)
        ids_start = after_size + max(last_size, 0)
        return StepView(
            header=reply.header,
            after=read_messages(data[:after_size], head.position, reply.where),
            before=read_messages(b"".join(reply.packed), first, reply.where),
            earlier_ids=read_ids(data[ids_start:], first_id, reply.where),
            last_id_at_head=data[after_size:ids_start].decode() if last_size >= 0 else None,
        )

    async def scan_page(self, cursor: str | None = None, count: int = 500) -> ScannedPage:
        """See `HotTier.scan_page`."""
        keys, following = await self._connection.scan_page(f"{self._connection.prefix}{{*}}", cursor, count)
        stored = await self._connection.send_pipeline([("HMGET", key, *_SCANNED_FIELDS) for key in keys])
        found = []
        for key, values in zip(keys, stored, strict=True):
            if values[0] is not None and (thread_id := self._connection.id_in(key, values[0])) is not None:
                found.append(_scanned_thread(thread_id, values))
        return ScannedPage(tuple(found), following)

    # -- writes

    async def mark_archived(self, thread_id: str, place: str) -> None:
        """See `HotTier.mark_archived`."""
        await self._connection.run_script(
            scripts.MARK_ARCHIVED, [self._connection.key_of(thread_id)], thread_id, place
        )

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        args, end = append_args(step)
        reply = await self._run_script(scripts.APPEND, step.thread_id, *args)
        return None if reply is None else read_appended(reply, step, end)

    async def rebase(self, change: Rebase) -> HotHeader | None:
        """See `HotTier.rebase`."""
        ops.check_rebase(change)
        epoch, head = change.expected or ("", None)
        reply = await self._run_script(
            scripts.REBASE,
            change.header.thread_id,
            epoch,
            "" if head is None else head.position,
            "" if head is None else head.last_id,
            change.keep,
            *header_args(change.header),
            *message_fields(change.keep, change.messages, INSTALL_FIELD_BYTES),
        )
        return None if reply is None else reply.header

    async def install(
        self, header: HotHeader, messages: Sequence[StoredMessage], *, replace: bool
    ) -> HotHeader:
        """See `HotTier.install`."""
        ops.check_install(header, messages)
        thread_id = header.thread_id
        key = self._connection.key_of(thread_id)
        made = message_fields(header.base.position, messages, INSTALL_FIELD_BYTES)
        arguments: tuple[Value, ...] = (int(replace), *header_args(header))
        if sum(map(len, made)) <= _DIRECT_BYTES:
            answer = await self._connection.run_script(
                scripts.INSTALL, [key], thread_id, *arguments, "", *made
            )
        else:
            staging = await self._stage_fields(key, made)
            staged = len(made) // 2
            answer = await self._connection.run_script(
                scripts.INSTALL, [key, staging], thread_id, *arguments, staged
            )
        if answer == b"S":
            raise StoreUnavailableError(f"thread {thread_id!r}: messages put aside expired; repeat the call")
        reply = self._parse_answer(answer, thread_id)
        assert reply is not None
        if (refusal := refusal_in_reply(reply, header.epoch)) is not None:
            raise refusal
        return reply.header

    async def evict(
        self, thread_id: str, epoch: int, archived: Archived, *, warm_ttl: float | None = None
    ) -> Eviction:
        """See `HotTier.evict`."""
        answer = await self._connection.run_script(
            scripts.EVICT,
            [self._connection.key_of(thread_id)],
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
            raise ops.other_id_error(thread_id)
        assert isinstance(answer, bytes)
        return Eviction(answer.decode())

    async def trim(self, thread_id: str, epoch: int, archived: Head, keep_from: int) -> HotHeader | None:
        """See `HotTier.trim`."""
        reply = await self._run_script(
            scripts.TRIM, thread_id, epoch, archived.position, archived.last_id, keep_from
        )
        return None if reply is None else reply.header

    async def close_epoch(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.close_epoch`."""
        await self._run_script(scripts.CLOSE_EPOCH, thread_id, epoch)

    async def save_slice(self, thread_id: str, epoch: int, data: bytes, expected_version: int) -> int | None:
        """See `HotTier.save_slice`."""
        version = expected_version + 1
        answer = await self._connection.run_script(
            scripts.SAVE_SLICE,
            [self._connection.key_of(thread_id)],
            thread_id,
            epoch,
            expected_version,
            version,
            with_checksum(data, version),
        )
        if answer == b"A":
            return version
        reply = self._parse_answer(answer, thread_id)
        if reply is None:
            return None
        raise refusal_in_reply(reply, epoch) or ops.stale_slice_error(reply.header, expected_version)

    async def drop(self, thread_id: str, epoch: int) -> None:
        """See `HotTier.drop`."""
        reply = await self._run_script(scripts.DROP, thread_id, epoch)
        if reply is not None and (refusal := refusal_in_reply(reply, epoch)) is not None:
            raise refusal

    async def drop_damaged(self, thread_id: str, archived: Archived, slice_: bytes) -> bool:
        """See `HotTier.drop_damaged`."""
        answer = await self._connection.run_script(
            scripts.DROP_DAMAGED,
            [self._connection.key_of(thread_id)],
            thread_id,
            archived.head.position,
            with_checksum(slice_, archived.slice_version),
        )
        return answer == b"1"

    async def check(self) -> None:
        """See `HotTier.check`."""
        await check_server(self._connection)

    async def close(self) -> None:
        """See `HotTier.close`."""
        await self._connection.close()

    # -- inside

    async def _run_script(self, script: Script, thread_id: str, *args: Value) -> Reply | None:
        key = self._connection.key_of(thread_id)
        return self._parse_answer(
            await self._connection.run_script(script, [key], thread_id, *args), thread_id
        )

    def _parse_answer(self, answer: Answer, thread_id: str) -> Reply | None:
        if answer is None:
            return None
        if answer == b"I":
            raise ops.other_id_error(thread_id)
        return read_reply(answer, thread_id, self._connection.place_of(self._connection.key_of(thread_id)))

    async def _stage_fields(self, key: str, made: list[str | bytes]) -> str:
        staging = f"{key}:staging:{secrets.token_hex(8)}"
        batches = _split_into_batches(made)
        for at in range(0, len(batches), _STAGE_BATCHES):
            await self._connection.send_pipeline(
                [
                    ("EVAL", scripts.STAGE, 1, staging, _STAGED_MS),
                    *(("HSET", staging, *batch) for batch in batches[at : at + _STAGE_BATCHES]),
                    ("PEXPIRE", staging, _STAGED_MS),
                ]
            )
        return staging


_SCANNED_FIELDS: Final = ("i", "e", "n", "l", "c", "v", "x", "w")
"""Fields that a scan reads: id, what `place_of` is made of, and the place that was marked."""


def _scanned_thread(thread_id: str, values: Sequence[bytes | None]) -> ScannedThread:
    _, *header, marked = values
    try:
        told = [each.decode() for each in header if each is not None]
        epoch, position, last_id, committed, version, closed = told
        place = place_of(int(epoch), int(position), last_id, int(committed), int(version), closed != "0")
    except ValueError:  # one is missing, or is no number
        place = ""
    return ScannedThread(thread_id, place, (marked or b"").decode("utf-8", "replace"))


def _snapshot_of_reply(reply: Reply | None) -> HotSnapshot | None:
    if reply is None:
        return None
    # A large message comes in two parts.
    first = int(reply.rest)
    return HotSnapshot(reply.header, first, read_messages(b"".join(reply.packed), first, reply.where))


def _split_into_batches(made: list[str | bytes]) -> list[list[str | bytes]]:
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
