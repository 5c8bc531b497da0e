"""The cold tier: an archive of immutable segments and one manifest a thread, swapped whole."""

from helix_temporal.coldtier._flushing import Backlog
from helix_temporal.coldtier._legacy import V1Snapshots
from helix_temporal.coldtier._tier import TieredThreads
from helix_temporal.coldtier._trimming import Held
from helix_temporal.coldtier._v1 import ADAPTERS, envelope_of

__all__ = ["ADAPTERS", "Backlog", "Held", "TieredThreads", "V1Snapshots", "envelope_of"]
