"""The façade's sessions as JSON files that people can read: ``{id}.json``, one a session."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import orjson
from pydantic import ValidationError

from helix_temporal._futures import finish_before_cancel
from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.base import dump_json
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.stores.checksums import verify_checksum, with_checksum
from helix_temporal.stores.locks import LeaseRow, RowLeases, RowRule

T = TypeVar("T")

_SUFFIX: Final = ".json"
_TEMPORARY: Final = re.compile(r".+\.json\.[0-9a-f]{8}\.tmp")


class FileSessionStorage:
    """`SessionStorage` in a directory, each file replaced as a whole; other files there are left alone.

    A session is on the disk when `save` returns.  A cancel is passed on once the write has ended.

    Args:
        directory: Made by the first save.
        after: Told each step of a save once it is done, for tests that stop there: ``created``,
            ``written``, ``synced``, ``renamed``, ``settled``.

    Attributes:
        locks: For the leases of turns, in ``.locks`` below the directory.
    """

    def __init__(self, directory: Path | str, *, after: Callable[[str], None] = lambda _: None) -> None:
        self._directory, self._after = Path(directory), after
        self.locks = FileLocks(self._directory / ".locks")

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`."""
        body = session.model_dump_json(indent=2).encode()
        await _in_thread(partial(self._replace_document, self._document_path(session.id), body))

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`.

        Raises:
            StoreCorruptError: The file is none of ours, or damaged.
        """
        found = await _in_thread(
            partial(self._read_document, self._document_path(validate_id(session_id, "session id")))
        )
        # Long ids are hashed in names, and a file system may fold case: the id inside decides.
        return found if found is not None and found.id == session_id else None

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`.

        Raises:
            StoreCorruptError: The file is none of ours, or damaged; it stays.
        """
        if await self.load(session_id) is not None:
            await _in_thread(partial(self._remove_document, self._document_path(session_id)))

    async def list(self) -> list[str]:
        """See `SessionStorage.list`; files that are none of ours, or damaged, are passed over.

        What killed writers left behind is removed meanwhile.
        """
        return [*await _in_thread(self._list_names)]

    def _document_path(self, session_id: str) -> Path:
        return self._directory / (encode_id(session_id) + _SUFFIX)

    def _list_names(self) -> tuple[str, ...]:
        with _raise_store_errors(self._directory, "listed"):
            files = [*self._directory.iterdir()] if self._directory.is_dir() else []
        found = []
        for path in files:
            if _TEMPORARY.fullmatch(path.name):
                _remove_abandoned(path)
            if path.suffix != _SUFFIX:
                continue
            with contextlib.suppress(StoreCorruptError):
                session = self._read_document(path)
                if session is not None and self._document_path(session.id) == path:
                    found.append(session.id)
        return tuple(sorted(found))

    def _read_document(self, path: Path) -> StoredSession | None:
        try:
            with _raise_store_errors(path, "read"):
                return StoredSession.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StoreCorruptError(
                f"{path.name} does not hold a session; restore or remove the file"
            ) from None

    def _replace_document(self, path: Path, body: bytes) -> None:
        with _raise_store_errors(path, "written"):
            self._directory.mkdir(parents=True, exist_ok=True)
            _replace_file(path, body, self._after)

    def _remove_document(self, path: Path) -> None:
        with _raise_store_errors(path, "removed"):
            path.unlink(missing_ok=True)
            _sync_directory(self._directory)


class FileLocks(RowLeases):
    """Leases of the processes of one machine, a small file each; by its clock.

    A file stays when its lease ends, so that tokens never go back.

    Args:
        directory: Made by the first lease.
        clock: Seconds since 1970.
    """

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock=clock)
        self._directory = directory

    async def _load_row(self, key: str) -> LeaseRow | None:
        return await _in_thread(partial(self._read_row, key))

    async def _change_row(self, key: str, rule: RowRule) -> LeaseRow | None:
        return await _in_thread(partial(self._apply_rule, key, rule))

    def _apply_rule(self, key: str, rule: RowRule) -> LeaseRow | None:
        path = self._row_path(key)
        with _raise_store_errors(path, "written"):
            self._directory.mkdir(parents=True, exist_ok=True)
            with path.with_suffix(".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                row = rule(self._read_row(key), self._read_clock())
                if row is not None:
                    _replace_file(path, with_checksum(dump_json(asdict(row)), key), lambda _: None)
                return row

    def _read_row(self, key: str) -> LeaseRow | None:
        path = self._row_path(key)
        try:
            with _raise_store_errors(path, "read"):
                body = path.read_bytes()
        except FileNotFoundError:
            return None
        return LeaseRow(**orjson.loads(verify_checksum(body, f"lock {key!r} in {path.name}", key)))

    def _row_path(self, key: str) -> Path:
        # Names of any length, which no file system folds into one another.
        return self._directory / hashlib.sha256(key.encode()).hexdigest()


async def _in_thread(work: Callable[[], T]) -> T:
    return await finish_before_cancel(asyncio.to_thread(work))


def _replace_file(path: Path, body: bytes, after: Callable[[str], None]) -> None:
    """Write a file durably: whoever reads it meanwhile sees the old one or the new one."""
    with _open_temporary(path) as file:
        after("created")
        file.write(body)
        file.flush()
        after("written")
        os.fsync(file.fileno())
        after("synced")
        Path(file.name).replace(path)
    after("renamed")
    _sync_directory(path.parent)
    after("settled")


@contextlib.contextmanager
def _open_temporary(path: Path) -> Iterator[BinaryIO]:
    """A new file beside it, locked as long as its writer lives."""
    while True:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        with temporary.open("xb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(file.fileno()).st_nlink:
                    continue  # a list took it for one whose writer is gone
                yield file
                return
            finally:
                temporary.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(temporary: Path) -> None:
    """Remove a file whose writer is gone."""
    with contextlib.suppress(OSError), temporary.open("rb") as file:
        # Fails while its writer lives; whatever else fails, the next list tries again.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _raise_store_errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        if what == "read":
            raise
        raise StoreUnavailableError(
            f"{path.name}: not {what}: its directory was removed meanwhile; repeat the call"
        ) from None
    except OSError as error:
        raise StoreUnavailableError(
            f"{path.name}: not {what}: {error.strerror}; check the disk and the permissions"
        ) from error
