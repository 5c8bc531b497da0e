"""The contract of `Records`.

::

    class TestMyRecords(RecordsContract):
        @pytest.fixture
        async def opened(self): ...    # an `OpenRecords`: records, and the session store of the same sessions

        @pytest.fixture
        async def another(self, opened): ...   # records of the same store, as another process has them

    class TestMyArchive(RecordArchiveContract):
        @pytest.fixture
        async def archive(self): ...   # an `OpenArchive.over(rows, FaultyBlobs(blobs))`
"""

from helix_temporal.testing.contracts._records_archive import OpenArchive, RecordArchiveContract
from helix_temporal.testing.contracts._records_base import OpenRecords
from helix_temporal.testing.contracts._records_reads import ReadContract, RecordNameContract
from helix_temporal.testing.contracts._records_writes import (
    GuardContract,
    RecordedSessionContract,
    WriteContract,
)

__all__ = ["OpenArchive", "OpenRecords", "RecordArchiveContract", "RecordsContract"]


class RecordsContract(
    ReadContract, RecordNameContract, WriteContract, GuardContract, RecordedSessionContract
):
    """Every promise of `Records`, one test each."""
