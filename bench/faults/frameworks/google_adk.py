"""Google ADK: `DatabaseSessionService` and `HelixSessionService`.

Events have ids.  A session object is got once, and again where the service says that it is stale.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, Part

from bench.faults.stores import Item, OurBackends, Subject
from helix_temporal.frameworks.google_adk import HelixSessionService

_WHERE = {"app_name": "faults", "user_id": "user"}


class AdkSession:
    """One session of any service, and what closes it."""

    def __init__(self, service: Any, session_id: str, close: Any) -> None:
        self._service, self._close = service, close
        self._where = {**_WHERE, "session_id": session_id}
        self._session: Any = None

    @classmethod
    async def open_database(cls, address: str, session_id: str) -> "AdkSession":
        """A service of its own, and tables."""
        service = DatabaseSessionService(address.replace("postgresql://", "postgresql+asyncpg://"))
        return cls(service, session_id, service.close)

    @classmethod
    async def open_ours(cls, address: str, session_id: str) -> "AdkSession":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        return cls(HelixSessionService(backends.sessions), session_id, backends.close)

    async def append(self, items: Sequence[Item]) -> None:
        """An ``append_event`` each, as a runner does."""
        if self._session is None:
            await self._begin()
        for each in items:
            role = "user" if each.role == "user" else "model"
            content = Content(role=role, parts=[Part(text=each.text)])
            event = Event(id=each.name, invocation_id="turn", author=each.role, content=content)
            await self._service.append_event(self._session, event)

    async def read(self, newest: int | None = None) -> list[str]:
        """The session's events."""
        config = None if newest is None else GetSessionConfig(num_recent_events=newest)
        session = await self._service.get_session(**self._where, config=config)
        return [] if session is None else [each.content.parts[0].text for each in session.events]

    async def refresh(self) -> None:
        """The session as it is now, with its newest event only: the cheapest that it offers."""
        config = GetSessionConfig(num_recent_events=1)
        self._session = await self._service.get_session(**self._where, config=config)

    async def delete(self) -> None:
        """The session."""
        await self._service.delete_session(**self._where)

    async def close(self) -> None:
        """Close the connections."""
        await self._close()

    async def _begin(self) -> None:
        with contextlib.suppress(AlreadyExistsError):
            await self._service.create_session(**self._where)
        await self.refresh()


SUBJECTS = [
    Subject("DatabaseSessionService", "postgres", AdkSession.open_database),
    Subject("HelixSessionService, PostgreSQL", "postgres", AdkSession.open_ours, ours=True),
    Subject("HelixSessionService, Redis", "redis", AdkSession.open_ours, ours=True),
]
