"""The façade's sessions as JSON files that people can read: ``{id}.json``, one a session."""

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import ValidationError

from helix_temporal.errors import StoreCorruptError, StoreUnavailableError
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.stores.file._documents import Documents, in_thread
from helix_temporal.stores.file.locks import FileLocks

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
        self.locks = FileLocks(Documents(self._directory / ".locks"))

    async def save(self, session: StoredSession) -> None:
        """See `SessionStorage.save`."""
        body = session.model_dump_json(indent=2).encode()
        await in_thread(partial(self._replace, self._path(session.id), body))

    async def load(self, session_id: str) -> StoredSession | None:
        """See `SessionStorage.load`.

        Raises:
            StoreCorruptError: The file is none of ours, or damaged.
        """
        found = await in_thread(partial(self._read, self._path(validate_id(session_id, "session id"))))
        # Long ids are hashed in names, and a file system may fold case: the id inside decides.
        return found if found is not None and found.id == session_id else None

    async def delete(self, session_id: str) -> None:
        """See `SessionStorage.delete`.

        Raises:
            StoreCorruptError: The file is none of ours, or damaged; it stays.
        """
        if await self.load(session_id) is not None:
            await in_thread(partial(self._remove, self._path(session_id)))

    async def list(self) -> list[str]:
        """See `SessionStorage.list`; files that are none of ours, or damaged, are passed over.

        What killed writers left behind is removed meanwhile.
        """
        return [*await in_thread(self._names)]

    def _path(self, session_id: str) -> Path:
        return self._directory / (encode_id(session_id) + _SUFFIX)

    def _names(self) -> tuple[str, ...]:
        with _reporting(self._directory, "listed"):
            files = [*self._directory.iterdir()] if self._directory.is_dir() else []
        found = []
        for path in files:
            if _TEMPORARY.fullmatch(path.name):
                _sweep(path)
            if path.suffix != _SUFFIX:
                continue
            with contextlib.suppress(StoreCorruptError):
                session = self._read(path)
                if session is not None and self._path(session.id) == path:
                    found.append(session.id)
        return tuple(sorted(found))

    def _read(self, path: Path) -> StoredSession | None:
        try:
            with _reporting(path, "read"):
                return StoredSession.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise StoreCorruptError(f"{path.name}: no session is in it; restore or remove the file") from None

    def _replace(self, path: Path, body: bytes) -> None:
        with _reporting(path, "written"):
            self._directory.mkdir(parents=True, exist_ok=True)
            with self._temporary(path) as file:
                self._after("created")
                file.write(body)
                file.flush()
                self._after("written")
                os.fsync(file.fileno())
                self._after("synced")
                Path(file.name).replace(path)
            self._after("renamed")
            self._settle()
        self._after("settled")

    def _remove(self, path: Path) -> None:
        with _reporting(path, "removed"):
            path.unlink(missing_ok=True)
            self._settle()

    @contextlib.contextmanager
    def _temporary(self, path: Path) -> Iterator[BinaryIO]:
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

    def _settle(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(temporary: Path) -> None:
    """Remove a file whose writer is gone."""
    with contextlib.suppress(OSError), temporary.open("rb") as file:
        # Fails while its writer lives; whatever else fails, the next list tries again.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _reporting(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        if what == "read":
            raise
        raise StoreUnavailableError(f"{path.name}: not {what}: the directory went away") from None
    except OSError as error:
        raise StoreUnavailableError(f"{path.name}: not {what}: {error.strerror}") from error
