"""Documents on the disk: blocking calls, each of which leaves the old document or the new one.

A document is written to ``{name}.tmp`` beside it, synced, renamed and the directory synced.  Only who
holds the lock on ``{name}.lock`` does so, hence a ``.tmp`` that nobody's lock covers is what a killed
writer left.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from helix_temporal.errors import HelixError, StoreUnavailableError, UnsupportedServerError
from helix_temporal.stores.file._format import FIRST_LINE, SUFFIX, heading_size

LOCK: Final = ".lock"
TEMPORARY: Final = ".tmp"

_REFUSED: Final = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        # Somebody else's files are where ours belong; a symbolic link is never followed.
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENXIO,
    }
)
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """The files of one directory; safe to use from several threads and processes.

    Args:
        after: Told each step of a write once it is done, for tests that stop there: ``locked``,
            ``created``, ``written``, ``synced``, ``renamed`` or ``removed``, ``settled``; and
            ``assured`` where a reader syncs what it found.

    Raises (every method):
        StoreUnavailableError: The file system failed or is full; nothing was lost.
        UnsupportedServerError: Access is denied, or something else is where a file of ours belongs.
    """

    def __init__(self, directory: Path, after: Callable[[str], None]) -> None:
        self.directory = directory
        self._after = after

    def path(self, name: str) -> Path:
        """Where the document of this name is."""
        return self.directory / (name + SUFFIX)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int | None]:
        """A handle on the document as it is now, None if there is none."""
        with self.reporting("reading", name), contextlib.ExitStack() as stack:
            try:
                handle = os.open(self.path(name), _READ)
            except FileNotFoundError:
                yield None
                return
            stack.callback(os.close, handle)
            yield handle

    def start(self, handle: int) -> bytes:
        """The first line of an open document, or what there is of it."""
        return _read(handle, FIRST_LINE)

    def heading(self, name: str) -> bytes | None:
        """The first two lines, or what there is of them; None if there is no document."""
        with self.opened(name) as handle:
            if handle is None:
                return None
            first = self.start(handle)
            return first + _read(handle, heading_size(first, self.where(name)) - len(first))

    def rest(self, handle: int) -> bytes:
        """What follows in an open document."""
        return _read(handle, os.fstat(handle).st_size)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Hold the lock of a document, or yield False while somebody else does.

        The lock's file goes with the document.
        """
        with self.reporting("locking", name), contextlib.ExitStack() as stack:
            path = self.directory / (name + LOCK)
            handle = os.open(path, _LOCK, 0o600)
            stack.callback(os.close, handle)
            if not _lock(path, handle):
                yield False
                return
            stack.callback(self._tidy, name)
            self._after("locked")
            yield True

    def replace(self, name: str, pieces: list[bytes]) -> None:
        """Write a document durably; the caller holds its lock."""
        temporary = self.directory / (name + TEMPORARY)
        with self.reporting("writing", name):
            temporary.unlink(missing_ok=True)
            try:
                self._write(temporary, pieces)
                temporary.replace(self.path(name))
            except BaseException:
                with contextlib.suppress(OSError):  # the first error tells; the next writer removes it
                    temporary.unlink(missing_ok=True)
                raise
            self._after("renamed")
            self.settle("settled")

    def remove(self, name: str) -> None:
        """Remove a document durably; the caller holds its lock."""
        with self.reporting("removing", name):
            self.path(name).unlink(missing_ok=True)
            self._after("removed")
            self.settle("settled")

    def settle(self, step: str = "assured") -> None:
        """Make all names in the directory as they are now survive a power cut; nothing if it is not there."""
        with self.reporting("syncing", ""):
            try:
                _sync(self.directory)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EROFS:  # nothing waits to be written there
                    raise
            self._after(step)

    def make_directory(self) -> None:
        """Make the directory if it is not there, and keep it over a power cut."""
        with self.reporting("making the directory", ""):
            _make(self.directory)

    def names(self) -> list[str]:
        """Names of all documents; what killed writers left behind is swept meanwhile."""
        with self.reporting("listing", ""):
            try:
                files = os.listdir(self.directory)  # noqa: PTH208  # names, not paths
            except FileNotFoundError:
                return []
            found = sorted(file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX))
            left = {file.removesuffix(TEMPORARY) for file in files if file.endswith(TEMPORARY)}
            locks = {file.removesuffix(LOCK) for file in files if file.endswith(LOCK)}
            self._sweep(left | (locks - set(found)))
            return found

    def where(self, name: str) -> str:
        """The document in words, for errors."""
        return f"document {name + SUFFIX!r} in {str(self.directory)!r}"

    @contextlib.contextmanager
    def reporting(self, doing: str, name: str) -> Iterator[None]:
        """What the file system raises as errors of ours; ``doing`` and ``name`` are for their messages."""
        try:
            yield
        except OSError as error:
            raise self._failure(doing, name, error) from error

    def _sweep(self, names: set[str]) -> None:
        for name in names:
            try:
                with self.locked(name) as mine:
                    if mine:
                        (self.directory / (name + TEMPORARY)).unlink(missing_ok=True)
            except UnsupportedServerError:
                return  # who may only read lists all the same

    def _write(self, path: Path, pieces: list[bytes]) -> None:
        with os.fdopen(os.open(path, _CREATE, 0o600), "wb") as file:
            self._after("created")
            file.writelines(pieces)
            file.flush()
            self._after("written")
            os.fsync(file.fileno())
        self._after("synced")

    def _tidy(self, name: str) -> None:
        # Who waits for this very lock file sees that it is gone, and makes another.
        if not os.path.lexists(self.path(name)):
            (self.directory / (name + LOCK)).unlink(missing_ok=True)

    def _failure(self, doing: str, name: str, error: OSError) -> HelixError:
        kind: type[HelixError] = UnsupportedServerError if error.errno in _REFUSED else StoreUnavailableError
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        return kind(
            f"{doing} {self.where(name) if name else repr(str(self.directory))} failed: {code} "
            f"({error.strerror}); check the directory's permissions and free space",
            directory=str(self.directory),
            code=code,
        )


def _lock(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # Its last holder may have removed it since it was opened: then this locks nothing.
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _read(handle: int, size: int) -> bytes:
    """Up to ``size`` bytes; fewer only at the end of the file."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(handle, min(size, 1 << 24))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _make(directory: Path) -> None:
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
