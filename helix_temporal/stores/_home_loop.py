"""Which event loop a store's connections belong to."""

import asyncio
import threading

from helix_temporal.errors import InvalidConfigError


class HomeLoop:
    """The event loop that uses a store, until the store is closed or the loop has ended.

    Connections, and the locks around them, wait on the loop that opened them: what another one does with
    them would fail in the middle, for both.

    Args:
        where: What the store connects to, for the error.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._loop: asyncio.AbstractEventLoop | None = None
        self._claiming = threading.Lock()

    def claim_loop(self) -> bool:
        """Enter on the loop that runs; whether another one, which has ended, left its connections behind.

        Raises:
            InvalidConfigError: Another loop uses the store.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return False
        with self._claiming:
            before = self._loop
            if before is not None and not before.is_closed():
                raise InvalidConfigError(
                    f"{self._where}: these stores serve another event loop, perhaps a worker's in another"
                    " thread; each loop needs stores of its own: helix_temporal.backends.Backends(settings)"
                )
            self._loop = loop
        return before is not None

    def release_loop(self) -> None:
        """Nothing is open any more: any loop may be the next."""
        self._loop = None
