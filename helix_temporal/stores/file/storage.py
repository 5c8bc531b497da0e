"""The façade's sessions as JSON files that people can read: ``{id}.json``, one a session."""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.stores.file._documents import Documents
from helix_temporal.stores.file.locks import FileLocks

_SUFFIX: Final = ".json"
_TEMPORARY: Final = ".tmp"


class FileSessionStorage:
    """`SessionStorage` in a directory, each file replaced as a whole; other files there are left alone.

    Args:
        directory: Made by the first save.

    Attributes:
        locks: For the leases of turns, in ``.locks`` below the directory.
    """

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)
        self.locks = FileLocks(Documents(self._directory / ".locks"))

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`."""
        body = session.model_dump_json(indent=2).encode()
        await asyncio.to_thread(self._replace, self._path(session.id), body)

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`.

        Raises:
            StoreCorruptError: The file is none of ours, or damaged.
        """
        found = await asyncio.to_thread(self._read, self._path(validate_id(session_id, "session id")))
        # Long ids are hashed in names, and a file system may fold case: the id inside decides.
        return found if found is not None and found.id == session_id else None

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`."""
        if await self.load(session_id) is not None:
            await asyncio.to_thread(self._path(session_id).unlink, missing_ok=True)

    async def list(self) -> list[str]:
        """See `SessionStorage.list`; files that are none of ours, or damaged, are passed over."""
        return [*await asyncio.to_thread(self._names)]

    def _path(self, session_id: str) -> Path:
        return self._directory / (encode_id(session_id) + _SUFFIX)

    def _names(self) -> tuple[str, ...]:
        if not self._directory.is_dir():
            return ()
        found = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(StoreCorruptError):
                session = self._read(path)
                if session is not None and self._path(session.id) == path:
                    found.append(session.id)
        return tuple(sorted(found))

    def _read(self, path: Path) -> StoredSession | None:
        try:
            return StoredSession.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StoreCorruptError(f"{path.name}: no session is in it; restore or remove the file") from None
        except OSError as error:
            raise StoreUnavailableError(f"{path.name}: not read: {error.strerror}") from error

    def _replace(self, path: Path, body: bytes) -> None:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            handle = os.open(self._directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise StoreUnavailableError(f"{path.name}: not written: {error.strerror}") from error
