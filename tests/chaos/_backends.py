"""Backends whose stores are wrapped: faults, and the book of what was appended."""

from collections.abc import Callable
from typing import Any

from helix_temporal.activities import Payloads
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.usage import UsageLog
from helix_temporal.backends import Backends, _make_tiered_threads
from helix_temporal.blobs import BlobStore
from helix_temporal.coldtier import StoreNames
from helix_temporal.plugin import HelixPlugin
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.hot import Appended, HotTier, StepAppend
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.faulty_hot import FaultyHot
from tests.chaos._agent import token_of
from tests.chaos._ledger import Ledger


class BookedHot(FaultyHot):
    """A hot tier that notes each answer of the model that stands, once its append has returned."""

    def __init__(self, inner: HotTier, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def append(self, step: StepAppend) -> Appended | None:
        """See `HotTier.append`."""
        appended = await super().append(step)
        token = token_of(appended.messages[-1].body) if appended is not None else None
        if token is not None:
            self._ledger.write("appended", token=token)
        return appended


Around = Callable[[Any, str], Any]
"""Wraps a store, whose calls are named after the given kind."""


class WrappedBackends(Backends):
    """`Backends` over wrapped stores, put together as the real ones are.

    Args:
        around: Of the session store's rows, the usage store and the streams.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        hot: Callable[[HotTier], HotTier] = lambda hot: hot,
        blobs: Callable[[BlobStore], BlobStore] = lambda blobs: blobs,
        around: Around = lambda store, _: store,
    ) -> None:
        super().__init__(settings)
        assert self.blobs is not None
        self.hot, self.blobs = hot(self.hot), blobs(self.blobs)
        self.threads = self.tiered = _make_tiered_threads(settings, self.hot, self.blobs, StoreNames())
        self.payloads = Payloads(self.tiered.payloads)
        self.usage = around(self.usage, "usage")
        if self.streams is not None:
            self.streams = around(self.streams, "streams")
            self._streaming = Streaming(self.streams)
        if self.keeps_sessions:
            rows = around(self._places[settings.state_in].sessions, "rows")
            self._sessions = RowSessions(rows, self.threads, together=False, streams=self.streams)
            self._states = SessionSync(RowSessions(rows), self.threads, traces=self.traces)
            self._used = UsageLog(self.usage)


def use_backends(plugin: HelixPlugin, backends: Backends) -> None:
    """Let a plugin's workers work on these."""
    plugin._backends = backends
