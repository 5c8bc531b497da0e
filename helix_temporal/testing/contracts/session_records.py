"""The contract of `SessionRecords`: bind it by a class and a fixture, or two.

::

    class TestMySessions(SessionRecordsContract):        # keeps no threads
        @pytest.fixture
        async def store(self): ...            # an empty store

    class TestMySessions(SessionRecordsWithThreadsContract):
        @pytest.fixture
        async def store(self): ...

        @pytest.fixture
        async def threads(self, store): ...   # the hot threads that lie with it
"""

from helix_temporal.testing.contracts._records_append import AppendCommitContract
from helix_temporal.testing.contracts._records_commit import CommitContract, DeleteContract, WriteContract
from helix_temporal.testing.contracts._records_list_pages import ListPageContract
from helix_temporal.testing.contracts._records_lists import ListContract
from helix_temporal.testing.contracts._records_reads import RecordPageContract, ViewContract
from helix_temporal.testing.contracts._records_upkeep import DueContract, PurgeContract, ScanContract

__all__ = ["SessionRecordsContract", "SessionRecordsWithThreadsContract"]


class SessionRecordsContract(
    CommitContract,
    WriteContract,
    DeleteContract,
    ViewContract,
    RecordPageContract,
    ListContract,
    ListPageContract,
    DueContract,
    PurgeContract,
    ScanContract,
):
    """Every promise of `SessionRecords` but those of threads, one test each."""


class SessionRecordsWithThreadsContract(SessionRecordsContract, AppendCommitContract):
    """Every promise of `SessionRecords` where ``keeps_threads`` is true."""
