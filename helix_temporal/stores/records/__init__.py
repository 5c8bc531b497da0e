"""Records beside sessions: named bytes, over the port `SessionRows`."""

from helix_temporal.stores.records.archive import RecordUpkeep
from helix_temporal.stores.records.store import RowRecords

__all__ = ["RecordUpkeep", "RowRecords"]
