"""Usage in a directory: one document a session, with a line an entry."""

from collections.abc import Mapping
from typing import Final

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.usage import UsageEntry
from helix_temporal.stores import usage as rules
from helix_temporal.stores.file._documents import DocumentChange, Documents, ListedDocument
from helix_temporal.stores.file._format import Part, Parts
from helix_temporal.stores.usage import UsageFilter, UsageLedger

_ENTRIES: Final = "entries"
_NOTHING: Final[Mapping[str, UsageEntry]] = {}


class FileUsage(UsageLedger):
    """`UsageStore` for the processes of one machine.  Made by `FileBackend`.

    Recording writes the session's document anew; a query reads the documents of all sessions that have
    entries in its range of time.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def _add(self, entry: UsageEntry, body: bytes) -> bool:
        def decide(parts: Parts) -> DocumentChange[bool]:
            known = _entries(entry.session_id, parts)
            if entry.id in known:
                return DocumentChange(False)
            lines = (parts[_ENTRIES].body if parts else b"") + body + b"\n"
            return DocumentChange(True, {_ENTRIES: _part({**known, entry.id: entry}, lines)})

        return await self._documents.change(entry.session_id, decide)

    async def _of_session(
        self, session_id: str, wanted: UsageFilter, limit: int | None, offset: int
    ) -> list[UsageEntry]:
        found = _entries(session_id, await self._documents.read(session_id))
        return rules.part(rules.chosen(found.values(), wanted), limit, offset)

    async def _of_all(self, wanted: UsageFilter, limit: int, offset: int) -> tuple[list[UsageEntry], int]:
        found: list[UsageEntry] = []
        for session_id in await self._named(wanted):
            entries = _entries(session_id, await self._documents.read(session_id))
            found += filter(wanted.matches, entries.values())
        found = rules.chosen(found, wanted)
        return rules.part(found, limit, offset), len(found)

    async def _any(self, session_id: str) -> bool:
        return bool(await self._documents.read(session_id))

    async def _drop(self, session_id: str) -> bool:
        return await self._documents.change(
            session_id, lambda parts: DocumentChange(bool(parts), {} if parts else None)
        )

    async def _named(self, wanted: UsageFilter) -> list[str]:
        if wanted.session_id is not None:
            return [wanted.session_id]
        return [listed.id async for listed in self._documents.entries() if _may_match(listed, wanted)]


def _part(entries: Mapping[str, UsageEntry], lines: bytes) -> Part:
    times = [entry.timestamp for entry in entries.values()]
    return Part({"count": len(entries), "first": min(times), "last": max(times)}, lines, entries)


def _entries(session_id: str, parts: Parts) -> Mapping[str, UsageEntry]:
    """The entries of a document by id, read once."""
    if not parts:
        return _NOTHING
    where = f"usage of session {session_id!r}"
    if (part := parts.get(_ENTRIES)) is None:
        raise StoreCorruptError(f"{where}: its document holds no entries; restore it")
    if not isinstance(part.value, Mapping):
        found = [rules.from_body(line, where) for line in part.body.splitlines()]
        part.value = {entry.id: entry for entry in found}
    known: Mapping[str, UsageEntry] = part.value
    return known


def _may_match(listed: ListedDocument, wanted: UsageFilter) -> bool:
    """Whether the times of a document's entries meet those that are wanted.

    Raises:
        StoreCorruptError: The document is damaged: a sum without it would be too low.
    """
    if listed.problem is not None:
        raise listed.problem
    if (facts := listed.headers.get(_ENTRIES)) is None:
        raise StoreCorruptError(f"usage of session {listed.id!r}: its document holds no entries; restore it")
    after = wanted.since is not None and facts["last"] < wanted.since
    before = wanted.until is not None and facts["first"] >= wanted.until
    return not after and not before
