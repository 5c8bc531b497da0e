"""Turns through `HelixSessionService`: each is one event, whose id names it; who is overtaken reads again."""

from typing import Any, Final

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types

from helix_temporal import Backends
from helix_temporal.frameworks.google_adk import HelixSessionService

NAMED = True
_KEY: Final[Any] = {"app_name": "chaos", "user_id": "chaos", "session_id": "chaos"}


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, in one commit."""
    service = HelixSessionService(backends.sessions)
    parts = [types.Part(text=f"{name} {part}") for part in "qa"]
    event = Event(id=name, author="user", content=types.Content(role="user", parts=parts))
    while True:
        session = await _open(service)
        if any(each.id == name for each in session.events):
            return
        try:
            await service.append_event(session, event)
        except StaleSessionError:
            continue
        return


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    session = await _open(HelixSessionService(backends.sessions))
    return [str(part.text) for event in session.events for part in event.content.parts]


async def _open(service: HelixSessionService) -> Session:
    while True:
        session = await service.get_session(**_KEY)
        if session is not None:
            return session
        try:
            await service.create_session(**_KEY)
        except AlreadyExistsError:
            continue
