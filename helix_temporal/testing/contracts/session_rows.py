"""The contract of `SessionRows`: bind it by a class and a fixture, or two.

::

    class TestMySessions(SessionRowsContract):        # keeps no threads
        @pytest.fixture
        async def store(self): ...            # an empty store

    class TestMySessions(SessionRowsWithThreadsContract):
        @pytest.fixture
        async def store(self): ...

        @pytest.fixture
        async def threads(self, store): ...   # the hot threads that lie with it
"""

from helix_temporal.testing.contracts._rows_append import AppendCommitContract
from helix_temporal.testing.contracts._rows_commit import CommitContract, DeleteContract, WriteContract
from helix_temporal.testing.contracts._rows_list_pages import ListPageContract
from helix_temporal.testing.contracts._rows_lists import ListContract
from helix_temporal.testing.contracts._rows_reads import RowGroupContract, RowPageContract, ViewContract
from helix_temporal.testing.contracts._rows_upkeep import DueContract, PurgeContract, ScanContract

__all__ = ["SessionRowsContract", "SessionRowsWithThreadsContract"]


class SessionRowsContract(
    CommitContract,
    WriteContract,
    DeleteContract,
    ViewContract,
    RowPageContract,
    RowGroupContract,
    ListContract,
    ListPageContract,
    DueContract,
    PurgeContract,
    ScanContract,
):
    """Every promise of `SessionRows` but those of threads, one test each."""


class SessionRowsWithThreadsContract(SessionRowsContract, AppendCommitContract):
    """Every promise of `SessionRows` where ``keeps_threads`` is true."""
