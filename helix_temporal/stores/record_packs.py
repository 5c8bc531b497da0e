"""Packs: bodies of many old records of a session in one object of a blob store.

Keys are ``{prefix}/records/{2 hex of sha256(id)}/{encoded id}/{pack}``.  An object is 8 bytes of magic, the
length of a head, the head (JSON: whose it is), and the bodies, compressed.  Checksums of bodies are in rows.
A row of the session names each pack before its object is written, and as long as a record is in it: so an
object that no row names is garbage, however young.
"""

import asyncio
import hashlib
import json
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from helix_temporal.blobs import BlobStore
from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.base import dump_json
from helix_temporal.models.ids import decode_id, encode_id
from helix_temporal.stores.protocols.session_rows import RowKind, SessionRow, SessionRows

PARTS: Final = 256
"""So many parts have the packs of all sessions: by the first byte of the hash of a session's id."""
CACHED_BYTES: Final = 32 * 1024 * 1024
_MAGIC: Final = b"helixrp1"
_LENGTH: Final = 4
_OFFLOAD: Final = 256 * 1024
"""Bytes from which on bodies are compressed in a thread, so that heartbeats go on."""
_PAGE: Final = 200


class PackRef(NamedTuple):
    """Where in a pack a body is; the checksum is of the body and of the record's name."""

    pack: str
    offset: int
    size: int
    checksum: int


class PackGoneError(Exception):
    """A pack is not there: its record was removed meanwhile, or it is damage.  Internal."""


def make_pack_id() -> str:
    """The name of a new pack."""
    return secrets.token_hex(16)


def compute_checksum(body: bytes, *place: str) -> int:
    """Of a body and of the record that it belongs to."""
    return zlib.crc32(body, zlib.crc32("\0".join(place).encode()))


def encode_pack(session_id: str, bodies: Sequence[bytes]) -> bytes:
    """The object of some bodies."""
    whole = b"".join(bodies)
    head = dump_json({"session": session_id})
    return b"".join((_MAGIC, len(head).to_bytes(_LENGTH, "big"), head, zlib.compress(whole, 1)))


def decode_pack(session_id: str, data: bytes) -> bytes:
    """Inverse of `encode_pack`: the bodies, one behind the other.

    Raises:
        StoreCorruptError: It is no pack of this session, or not what was written.
    """
    found, start = _read_head(data)
    if found != session_id:
        raise StoreCorruptError(f"a pack of records of session {session_id!r} is another session's")
    try:
        return zlib.decompress(data[start:])
    except zlib.error:
        raise StoreCorruptError(f"a pack of records of session {session_id!r} is damaged") from None


def _read_head(data: bytes) -> tuple[str, int]:
    """Whose it is, and where the bodies begin.

    Raises:
        StoreCorruptError: It is no pack.
    """
    at = len(_MAGIC) + _LENGTH
    stop = at + int.from_bytes(data[len(_MAGIC) : at], "big")
    try:
        head = json.loads(data[at:stop]) if data.startswith(_MAGIC) else {}
        return str(head["session"]), stop
    except (ValueError, KeyError, TypeError):
        raise StoreCorruptError("a pack of records is damaged: it has no head") from None


class RecordPacks:
    """The packs of all sessions below one prefix of a blob store.

    Args:
        prefix: What the keys begin with, before ``records/``.
        cached_bytes: Memory for the packs that were read last.
    """

    def __init__(self, blobs: BlobStore, *, prefix: str = "", cached_bytes: int = CACHED_BYTES) -> None:
        self._blobs, self._cached_bytes = blobs, cached_bytes
        self._root = "/".join([*prefix.split("/"), "records"]) if prefix else "records"
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    async def put(self, session_id: str, pack: str, bodies: Sequence[bytes]) -> None:
        """Write a pack.

        Raises:
            StoreUnavailableError: It may be there, or come to be.
        """
        if sum(map(len, bodies)) < _OFFLOAD:
            data = encode_pack(session_id, bodies)
        else:
            data = await asyncio.to_thread(encode_pack, session_id, bodies)
        await self._blobs.put(self._key_of(session_id, pack), data)

    async def read(self, session_id: str, pack: str) -> bytes:
        """The bodies of a pack, one behind the other.

        Raises:
            PackGoneError: There is no such pack.
            StoreCorruptError: It is damaged.
        """
        key = self._key_of(session_id, pack)
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        blob = await self._blobs.get(key)
        if blob is None:
            raise PackGoneError
        if len(blob.data) < _OFFLOAD:
            whole = decode_pack(session_id, blob.data)
        else:
            whole = await asyncio.to_thread(decode_pack, session_id, blob.data)
        self._remember(key, whole)
        return whole

    def _remember(self, key: str, whole: bytes) -> None:
        self._cache[key] = whole
        while sum(map(len, self._cache.values())) > self._cached_bytes:
            self._cache.popitem(last=False)

    async def delete(self, session_id: str, pack: str) -> None:
        """Remove a pack; nothing if it is not there."""
        key = self._key_of(session_id, pack)
        self._cache.pop(key, None)
        await self._blobs.delete(key)

    async def list_packs(self, session_id: str) -> set[str]:
        """The packs of a session that are there."""
        prefix = self._prefix_of(session_id)
        return {info.key.removeprefix(prefix) async for info in self._blobs.list(prefix)}

    async def list_sessions(self, part: int) -> list[str]:
        """Sessions that have packs, of one of the `PARTS`; those that are deleted among them."""
        prefix = f"{self._root}/{part:02x}/"
        # One key of each session: it tells whose it is where the id is too long to stand in it.
        keys = {
            info.key.removeprefix(prefix).partition("/")[0]: info.key
            async for info in self._blobs.list(prefix)
        }
        found = [await self._id_of(name, key) for name, key in sorted(keys.items())]
        return [each for each in found if each is not None]

    async def _id_of(self, name: str, key: str) -> str | None:
        session_id = decode_id(name)
        if session_id is not None:
            return session_id
        blob = await self._blobs.get(key)
        try:
            return None if blob is None else _read_head(blob.data)[0]
        except StoreCorruptError:
            # Nobody can tell whose it is; it lies where no reader looks, or a read of its record names it.
            return None

    def _prefix_of(self, session_id: str) -> str:
        spread = hashlib.sha256(session_id.encode()).hexdigest()[:2]
        return f"{self._root}/{spread}/{encode_id(session_id)}/"

    def _key_of(self, session_id: str, pack: str) -> str:
        return f"{self._prefix_of(session_id)}{pack}"


async def read_pack_rows(rows: SessionRows, session_id: str) -> list[SessionRow]:
    """The rows that name the packs of a session; none of a deleted one."""
    found: list[SessionRow] = []
    after: tuple[int, str] | None = None
    while True:
        page = await rows.read_page(session_id, RowKind.PACK, limit=_PAGE, after=after, count=False)
        found += page.rows
        if len(page.rows) < _PAGE:
            return found
        after = page.rows[-1].order, page.rows[-1].key


async def delete_unnamed_packs(rows: SessionRows, packs: RecordPacks, session_id: str) -> int:
    """Remove the objects of packs that no row of the session names; how many.

    Lists first: what is listed and not named afterwards was never named, or is not any more.
    """
    listed = await packs.list_packs(session_id)
    if not listed:
        return 0
    named: Collection[str] = {row.key for row in await read_pack_rows(rows, session_id)}
    unnamed = listed.difference(named)
    for pack in sorted(unnamed):
        await packs.delete(session_id, pack)
    return len(unnamed)
