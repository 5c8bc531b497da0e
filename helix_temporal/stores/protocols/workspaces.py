"""Workspaces of sessions live elsewhere; a clean-up needs only this of them."""

from collections.abc import Sequence
from typing import Protocol


class WorkspaceProvider(Protocol):
    """Knows the snapshots that were taken of sessions' workspaces."""

    async def list_snapshots(self, session_id: str) -> Sequence[str]:
        """Ids of the snapshots of a session."""
        ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        """Delete one; nothing if it is gone."""
        ...
