"""Executions of sessions, as far as a clean-up of the session store asks for them."""

from typing import Protocol


class Executions(Protocol):
    """The workflows that run sessions."""

    async def is_running(self, session_id: str) -> bool:
        """Whether an execution of the session is open.

        Raises:
            StoreUnavailableError: That cannot be told now.
        """
        ...

    async def close(self, session_id: str) -> None:
        """Ask it to finish what it does, save and end; nothing where none is open."""
        ...
