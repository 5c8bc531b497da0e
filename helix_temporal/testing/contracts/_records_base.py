"""What the parts of the contract of `Records` share."""

from typing import NamedTuple

import pytest

from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, Records, WantedRecords
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.builders import an_id

NEW = CreateSession(agent_type="graph", metadata={"project": "p1"})
"""What a session of records begins with."""


class OpenRecords(NamedTuple):
    """Records, and the session store of the same sessions."""

    records: Records
    sessions: SessionStore


class RecordsFixtures:
    """Fixtures; a backend overrides the first two."""

    @pytest.fixture
    async def opened(self) -> OpenRecords:
        """An empty store."""
        raise NotImplementedError("bind the contract: override the fixture `opened`")

    @pytest.fixture
    async def another(self) -> Records:
        """The same store, as another process has it."""
        raise NotImplementedError("bind the contract: override the fixture `another`")

    @pytest.fixture
    def records(self, opened: OpenRecords) -> Records:
        """Its records."""
        return opened.records

    @pytest.fixture
    def sessions(self, opened: OpenRecords) -> SessionStore:
        """Its sessions."""
        return opened.sessions

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"


def a_record(key: str, group: str = "", kind: str = "k", body: bytes = b"") -> Record:
    """A record whose bytes name it."""
    return Record(kind, key, body or f"{kind}/{group}/{key}".encode(), group)


def putting(*records: Record) -> RecordChange:
    """A change that puts these."""
    return RecordChange(puts=records)


async def written(records: Records, session_id: str, *puts: Record) -> int:
    """Write into a session, which begins with it if there is none; the revision."""
    return await records.write(session_id, putting(*puts), create=NEW)


async def found(records: Records, session_id: str, *names: RecordName) -> list[bytes]:
    """The bodies of those that are there."""
    view = await records.read(session_id, WantedRecords(names=names))
    return [each.body for each in view.records]


async def keys_in(records: Records, session_id: str, kind: str = "k", group: str = "") -> list[str]:
    """The keys of a group."""
    view = await records.read(session_id, WantedRecords(groups=((kind, group),)))
    return [each.key for each in view.records]
