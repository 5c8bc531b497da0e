"""The cold tier: an archive of immutable segments and one manifest a thread, swapped whole."""

from helix_temporal.coldtier.flush import Backlog
from helix_temporal.coldtier.store import ArchiveContents, KeepHot, StoreNames, TieredThreads
from helix_temporal.coldtier.zeitlich import V1Snapshots
from helix_temporal.coldtier.zeitlich_format import ADAPTERS, envelope_of

__all__ = [
    "ADAPTERS",
    "ArchiveContents",
    "Backlog",
    "KeepHot",
    "StoreNames",
    "TieredThreads",
    "V1Snapshots",
    "envelope_of",
]
