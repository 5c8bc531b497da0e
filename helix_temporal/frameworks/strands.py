"""Storage for Strands Agents: ``SnapshotSessionManager("u", storage=HelixStorage("u", records))``."""

import asyncio
import builtins
import re
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from helix_temporal.errors import HelixError
from helix_temporal.frameworks.background_loop import BackgroundLoop, shared_loop
from helix_temporal.frameworks.given_stores import check_records
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, Records, WantedRecords

if TYPE_CHECKING:
    from strands.storage.search.types import SearchStrategy
    from strands.storage.storage import StorageSearchResult

T = TypeVar("T")

AGENT_TYPE: Final = "strands-agents"
_KIND: Final = "file"
_KEY: Final = "data"
"""A file is a group of one record: groups are listed without what is in them."""


class HelixStorage:
    """A `Storage` of Strands Agents over records: the files of one session; several processes may share it.

    Keys are normalised as by the storages of the package: runs of ``/`` are one, ``..`` and backslashes are
    refused.  A key has at most 1,024 bytes.  Errors are the package's `StorageError`, with ours as its cause.

    An agent calls its storage from event loops that come and go, and a store belongs to one: so all calls run
    on a loop in the background.  `Backends` that are used here are used nowhere else, and closed there:
    ``shared_loop().run(backends.close())``.

    Args:
        session_id: The session's id; the store has it as ``strands-agents/<session_id>``.
        records: `Backends.records`, or others.
        exclusive: Own the session from the first call on: it takes a new epoch, and a process that took one
            before is refused when it writes.
        user_id: Whose it is, for lists; stored when it begins.
        search_strategy: As for the package's storages: it is told of each write, and asked by `search`.
        loop: Where calls run; None for the one that all adapters of this process share.
    """

    def __init__(
        self,
        session_id: str,
        records: Records,
        *,
        exclusive: bool = False,
        user_id: str | None = None,
        search_strategy: "SearchStrategy[HelixStorage] | None" = None,
        loop: BackgroundLoop | None = None,
    ) -> None:
        self.session_id = validate_id(session_id, "session id")
        check_records(records)
        self._records, self._id = records, f"{AGENT_TYPE}/{session_id}"
        self._is_new = True
        self._create = CreateSession(agent_type=AGENT_TYPE, user_id=user_id)
        self._exclusive, self._search_strategy = exclusive, search_strategy
        self._loop = loop or shared_loop()
        self._taking: asyncio.Task[int] | None = None

    async def write(self, key: str, data: bytes) -> None:
        """Store the bytes under a key, over what is there."""
        name = _normalize_key(key)
        record = Record(_KIND, _KEY, bytes(data), name)
        await self._call(f"write {key!r}", self._write(RecordChange(puts=(record,))))
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, name, data)
            except Exception as error:  # noqa: BLE001 (as the package's storages do)
                _refuse(f"wrote {key!r}, but indexing failed", error)

    async def read(self, key: str) -> bytes | None:
        """The bytes under a key; None if there are none."""
        name = RecordName(_KIND, _KEY, _normalize_key(key))
        return await self._call(f"read {key!r}", self._read(name))

    async def delete(self, key: str) -> None:
        """Remove what is under a key, if anything is."""
        name = RecordName(_KIND, _KEY, _normalize_key(key))
        await self._call(f"delete {key!r}", self._write(RecordChange(removes=(name,))))

    async def list(self, query: str = "") -> builtins.list[str]:
        """The keys that begin so, in order; the bytes are not read."""
        prefix = _normalize_prefix(query)
        return await self._call(f"list {query!r}", self._list(prefix))

    async def search(self, query: str) -> "builtins.list[StorageSearchResult]":
        """What the search strategy finds; without one, keys whose content has words of the query."""
        from strands.storage.search.keyword import KeywordSearchStrategy  # noqa: PLC0415

        found: list[StorageSearchResult] = await (self._search_strategy or KeywordSearchStrategy()).search(
            self, query
        )
        return found

    # -- on the loop in the background

    async def _call(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await self._loop.call(work)
        except HelixError as error:
            _refuse(f"{what}: {error}", error)

    async def _write(self, change: RecordChange) -> None:
        epoch = await self._own()
        # Only what has not been written to from here: who has begun before a delete is refused after it.
        await self._records.write(self._id, change, epoch=epoch, create=self._create, revive=self._is_new)
        self._is_new = False

    async def _read(self, name: RecordName) -> bytes | None:
        await self._own()
        view = await self._records.read(self._id, WantedRecords(names=(name,)))
        return view.records[0].body if view.records else None

    async def _list(self, prefix: str) -> builtins.list[str]:
        await self._own()
        return [*await self._records.list_groups(self._id, _KIND, prefix=prefix)]

    async def _own(self) -> int | None:
        """The epoch that the first call took; None where the session is shared."""
        if not self._exclusive:
            return None
        if self._taking is None or (self._taking.done() and _has_failed(self._taking)):
            take_over = self._records.take_over(self._id, create=self._create, revive=self._is_new)
            self._taking = asyncio.ensure_future(take_over)
        # Others wait for the same one: a cancel of one of them must not take it from all.
        return await asyncio.shield(self._taking)


def _has_failed(task: "asyncio.Task[int]") -> bool:
    return task.cancelled() or task.exception() is not None


def _normalize_key(key: str) -> str:
    name = _normalize_prefix(key).rstrip("/")
    if not name:
        _refuse("storage key: empty")
    return name


def _normalize_prefix(prefix: str) -> str:
    if "\\" in prefix:
        _refuse(f"storage key {prefix!r}: backslashes are not allowed")
    name = re.sub(r"/+", "/", prefix).lstrip("/")
    if ".." in name.split("/"):
        _refuse(f"storage key {prefix!r}: '..' is not allowed between slashes")
    return name


def _refuse(message: str, cause: Exception | None = None) -> NoReturn:
    from strands.types.exceptions import StorageError  # noqa: PLC0415

    raise StorageError(message) from cause
