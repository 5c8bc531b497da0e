"""Blobs as files in a directory: `DirectoryBlobs`, with compare-and-swap by file locks.

Keys are paths and back: one key, one path, on any file system.

Lower-case letters, digits, ``_`` and ``-`` stand for themselves, and a dot between two letters or digits;
every other byte is ``%hh``.  So file systems that fold case or Unicode forms keep keys apart, and no part
is hidden, reserved or climbs.  A file ends in ``.blob``, which no folder does, so ``a`` and ``a/b`` can
both be there.  Parts too long for a file name go on in a folder below: a lone ``%`` at the end says so.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import tempfile
import urllib.parse
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path, PurePosixPath

from helix_temporal.blobs.probe import prove_conditional_writes
from helix_temporal.blobs.protocol import (
    Blob,
    BlobInfo,
    ConditionFailedError,
    check_conditions,
    check_key,
    check_prefix,
    etag_of,
)
from helix_temporal.errors import ArchiveAccessError, HelixError, StoreUnavailableError

SUFFIX = ".blob"
_MAX_NAME = 200
_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DOT_KEPT = re.compile(rb"(?<=[a-z0-9])\.(?=[a-z0-9])")


def path_of(key: str) -> PurePosixPath:
    """The relative path of the file that holds ``key``, which has passed ``check_key``."""
    *folders, name = key.split("/")
    return folder_of(folders) / _split_long_name(_encode_part(name), ending=SUFFIX)


def folder_of(parts: list[str]) -> PurePosixPath:
    """The relative path of the folder that holds all keys whose first parts are ``parts``."""
    path = PurePosixPath()
    for part in parts:
        path /= _split_long_name(_escape_folder_suffix(_encode_part(part)))
    return path


def key_of(path: PurePosixPath) -> str | None:
    """The key that is kept at a relative path, or None for a file that no key has."""
    if not path.name.endswith(SUFFIX):
        return None
    text = path.as_posix().removesuffix(SUFFIX).replace("%/", "")
    key = urllib.parse.unquote_to_bytes(text).decode("utf-8", "replace")
    return key if key and path_of(key) == path else None


def _encode_part(part: str) -> str:
    raw = part.encode()
    dots = {match.start() for match in _DOT_KEPT.finditer(raw)}
    return "".join(
        chr(byte) if byte in _KEPT or place in dots else f"%{byte:02x}" for place, byte in enumerate(raw)
    )


def _escape_folder_suffix(name: str) -> str:
    return f"{name.removesuffix(SUFFIX)}%2eblob" if name.endswith(SUFFIX) else name


def _split_long_name(name: str, *, ending: str = "") -> PurePosixPath:
    chunks = [name[start : start + _MAX_NAME] for start in range(0, len(name), _MAX_NAME)]
    return PurePosixPath(*(f"{chunk}%" for chunk in chunks[:-1]), chunks[-1] + ending)


_PRIVATE = ".helix"  # no key's path starts with a dot
_LOCK_FILES = 64
_REFUSED = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        # Somebody else's files are where ours belong.
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
    }
)


class DirectoryBlobs:
    """A blob store for all processes of one machine that share ``root`` (a local file system).

    An object is on the disk when ``put`` returns.  A reader sees the old or the new object, never a
    part.  Conditions hold between processes.  ``root`` must exist: a disk that is not mounted is an
    error and not an empty archive.

    Raises (every method):
        StoreUnavailableError: The file system failed or is full.
        ArchiveAccessError: ``root`` is not there or access is denied.
        InvalidRequestError: The key could not be kept apart from others by every store.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    def __repr__(self) -> str:
        return f"DirectoryBlobs({str(self._root)!r})"

    async def get(self, key: str) -> Blob | None:
        """The object, or None if it is not there."""
        check_key(key)
        return await asyncio.to_thread(self._read_blob, key)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Write the object durably and return its etag.

        Raises:
            ConditionFailedError: The condition did not hold; nothing changed.
        """
        check_key(key)
        check_conditions(create, if_match)
        return await asyncio.to_thread(self._write_blob, key, data, create, if_match)

    async def copy(self, source: str, target: str) -> None:
        """Copy, overwriting the target.

        Raises:
            ConditionFailedError: The source is not there.
        """
        check_key(source)
        check_key(target)
        await asyncio.to_thread(self._copy_blob, source, target)

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """The objects that begin with ``prefix``; each is read once, for its etag."""
        check_prefix(prefix)
        for path in await asyncio.to_thread(self._list_paths, prefix):
            info = await asyncio.to_thread(self._read_info, path)
            if info is not None:
                yield info

    async def delete(self, key: str) -> None:
        """Remove the object if it is there; its folder stays."""
        check_key(key)
        await asyncio.to_thread(self._delete_blob, key)

    async def probe(self, prefix: str) -> None:
        """Prove that the directory takes writes and that conditions hold on its file system.

        Raises:
            ConditionalWritesUnsupportedError: The file system has no working locks.
        """
        await prove_conditional_writes(self, prefix)

    async def close(self) -> None:
        """Nothing is held between calls."""

    def _read_blob(self, key: str) -> Blob | None:
        with self._translate_errors("get", key):
            data = self._read_file(path_of(key))
        return None if data is None else Blob(data, etag_of(data))

    def _write_blob(self, key: str, data: bytes, create: bool, if_match: str | None) -> str:
        with self._translate_errors("put", key), self._lock_key(key):
            if create or if_match is not None:
                self._check_condition(key, create, if_match)
            self._replace_file(path_of(key), data)
        return etag_of(data)

    def _copy_blob(self, source: str, target: str) -> None:
        with self._translate_errors("copy", source), self._lock_key(target):
            data = self._read_file(path_of(source))
            if data is None:
                raise ConditionFailedError(f"{source!r} is not there to be copied")
            self._replace_file(path_of(target), data)

    def _delete_blob(self, key: str) -> None:
        with self._translate_errors("delete", key), self._lock_key(key):
            path = self._root / path_of(key)
            if path.exists():
                path.unlink()
                _sync_folder(path.parent)

    def _check_condition(self, key: str, create: bool, if_match: str | None) -> None:
        data = self._read_file(path_of(key))
        if create and data is not None:
            raise ConditionFailedError(f"{key!r} is there already")
        if if_match is not None and (data is None or etag_of(data) != if_match):
            raise ConditionFailedError(f"{key!r} is not at etag {if_match}")

    def _read_file(self, path: PurePosixPath) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return None

    def _replace_file(self, path: PurePosixPath, data: bytes) -> None:
        target = self._root / path
        self._make_folder(target.parent)
        handle, name = tempfile.mkstemp(dir=self._root / _PRIVATE, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            # Else a power cut could take the folder away with the object in it.
            _sync_folder(folder.parent)

    def _list_paths(self, prefix: str) -> Sequence[PurePosixPath]:
        with self._translate_errors("list", prefix):
            self._check_root()
            start = self._root / folder_of(prefix.split("/")[:-1])
            files = (Path(folder, name) for folder, _, names in os.walk(start) for name in names)
            paths = (PurePosixPath(file.relative_to(self._root)) for file in files)
            return [path for path in paths if (key_of(path) or "").startswith(prefix) and key_of(path)]

    def _read_info(self, path: PurePosixPath) -> BlobInfo | None:
        key = key_of(path) or ""
        with self._translate_errors("list", key):
            try:
                with (self._root / path).open("rb") as file:
                    etag = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
                    return BlobInfo(key, file.tell(), etag, os.fstat(file.fileno()).st_mtime)
            except FileNotFoundError:
                return None  # deleted since the walk

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise ArchiveAccessError(
                f"the archive directory {str(self._root)!r} is not there; create it or mount its disk",
                root=str(self._root),
            )

    @contextlib.contextmanager
    def _lock_key(self, key: str) -> Iterator[None]:
        self._check_root()
        private = self._root / _PRIVATE
        private.mkdir(exist_ok=True)
        # A lock belongs to the open file, so this also keeps threads of one process apart.
        with (private / f"{zlib.crc32(key.encode()) % _LOCK_FILES:02}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _translate_errors(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._build_error(operation, key, error) from error

    def _build_error(self, operation: str, key: str, error: OSError) -> HelixError:
        kind: type[HelixError] = ArchiveAccessError if error.errno in _REFUSED else StoreUnavailableError
        what = errno.errorcode.get(error.errno or 0, "unknown error")
        return kind(
            f"{operation} of {key!r} in {str(self._root)!r} failed: {what} ({error.strerror}); "
            "check the directory's permissions and free space",
            root=str(self._root),
            key=key,
            code=what,
        )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
