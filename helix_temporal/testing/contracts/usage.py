"""The contract of `UsageStore`.

::

    class TestMyUsage(UsageContract):
        @pytest.fixture
        async def usage(self): ...     # an empty store

        @pytest.fixture
        async def another(self): ...   # a second instance on the same store, as another process has one
"""

from helix_temporal.testing.contracts._usage_entries import EntriesContract, RowContract
from helix_temporal.testing.contracts._usage_sums import QueryContract, RollupContract

__all__ = ["UsageContract"]


class UsageContract(RowContract, EntriesContract, RollupContract, QueryContract):
    """All of it."""
