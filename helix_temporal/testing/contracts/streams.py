"""The contract of `StreamStore`: bind it by a class and one fixture, `make`; see `_streams_base`."""

from helix_temporal.testing.contracts._streams_read import StreamReadContract
from helix_temporal.testing.contracts._streams_resume import StreamResuming
from helix_temporal.testing.contracts._streams_runs import StreamRuns
from helix_temporal.testing.contracts._streams_status import StreamStatuses
from helix_temporal.testing.contracts._streams_write import StreamWriting


class StreamContract(StreamWriting, StreamReadContract, StreamResuming, StreamRuns, StreamStatuses):
    """All of it."""


__all__ = ["StreamContract"]
