"""Google ADK: `DatabaseSessionService`; a turn is two events, the second with the change of state."""

import contextlib

from _speak import RefusedError, Turn, serve
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai.types import Content, Part

_APP, _USER = "bench", "user"


class GoogleAdk:
    """A session object, as its documentation has it: got once, and again where it is stale."""

    def __init__(self, service: DatabaseSessionService, session_id: str) -> None:
        self._service, self._session_id = service, session_id
        self._session = None
        self._stored: set[str] = set()

    @classmethod
    async def open(cls, dsn: str, session_id: str) -> "GoogleAdk":
        """A service of its own, and tables."""
        service = DatabaseSessionService(dsn.replace("postgresql://", "postgresql+asyncpg://"))
        writer = cls(service, session_id)
        with contextlib.suppress(AlreadyExistsError):
            await service.create_session(app_name=_APP, user_id=_USER, session_id=session_id)
        await writer.refresh()
        return writer

    async def write(self, turn: Turn) -> None:
        """Two events; one that was stored before a refusal is not sent again."""
        for author, text, delta in (("user", turn.user, {}), ("agent", turn.answer, {"note": turn.note})):
            name = f"{turn.name}-{author}"
            if name in self._stored:
                continue
            event = Event(
                id=name,
                invocation_id=turn.name,
                author=author,
                content=Content(role="user" if author == "user" else "model", parts=[Part(text=text)]),
                actions=EventActions(state_delta=delta),
            )
            try:
                await self._service.append_event(self._session, event)
            except StaleSessionError as error:
                raise RefusedError from error
            self._stored.add(name)

    async def hydrate(self) -> list[str]:
        """The session with all events."""
        session = await self._service.get_session(app_name=_APP, user_id=_USER, session_id=self._session_id)
        return [event.content.parts[0].text for event in session.events]

    async def refresh(self) -> None:
        """The session as it is now, with its newest event only: the cheapest that it offers."""
        self._session = await self._service.get_session(
            app_name=_APP,
            user_id=_USER,
            session_id=self._session_id,
            config=GetSessionConfig(num_recent_events=1),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()


if __name__ == "__main__":
    serve(GoogleAdk.open, "google-adk", "SQLAlchemy", "asyncpg")
