"""The contract of `HotTier`: bind it by a class and two fixtures.

::

    class TestMyThreads(HotTierContract):
        @pytest.fixture
        async def store(self): ...            # an empty store

        @pytest.fixture
        async def time_to_live(self, store): ...  # async (thread id) -> seconds until it expires, or None
"""

from helix_temporal.testing.contracts._hot_append import AppendContract
from helix_temporal.testing.contracts._hot_append_extras import AppendExtrasContract
from helix_temporal.testing.contracts._hot_base import TimeToLive
from helix_temporal.testing.contracts._hot_fence import FenceContract, SliceContract
from helix_temporal.testing.contracts._hot_install import InstallContract
from helix_temporal.testing.contracts._hot_large import LargeContract
from helix_temporal.testing.contracts._hot_life import (
    DropContract,
    EvictContract,
    ExpiryContract,
    IdentityContract,
)
from helix_temporal.testing.contracts._hot_reads import PageContract, StepViewContract
from helix_temporal.testing.contracts._hot_rebase import RebaseContract
from helix_temporal.testing.contracts._hot_trim import TrimContract

__all__ = ["HotTierContract", "TimeToLive"]


class HotTierContract(
    AppendContract,
    AppendExtrasContract,
    FenceContract,
    SliceContract,
    PageContract,
    StepViewContract,
    RebaseContract,
    InstallContract,
    LargeContract,
    EvictContract,
    TrimContract,
    ExpiryContract,
    DropContract,
    IdentityContract,
):
    """Every promise of `HotTier`, one test each."""
