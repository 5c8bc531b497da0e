"""The contract of `LockManager`.

::

    class TestMyLocks(LocksContract):
        @pytest.fixture
        async def locks(self): ...     # an empty store

        @pytest.fixture
        async def another(self): ...   # a second manager on the same store, as another process has one

A store on a server binds `ServerClockContract` too.
"""

from helix_temporal.testing.contracts._locks_hold import FencingContract, HoldContract, ServerClockContract
from helix_temporal.testing.contracts._locks_lease import AcquireContract, RefreshContract, TokenContract

__all__ = ["LocksContract", "ServerClockContract"]


class LocksContract(AcquireContract, TokenContract, RefreshContract, HoldContract, FencingContract):
    """All of it."""
