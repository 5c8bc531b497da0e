"""Where the sessions of ADK's apps and users are in a session store, and under which tags lists find them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.ids import encode_id
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionSummary

EVENT_FORMAT: Final = "google-adk/1"
SESSION_TYPE: Final = "google-adk"
"""What the store has as the agent type of these sessions."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whom a state belongs to: an application, or one of its users."""

    app: str
    user: str | None = None

    @property
    def store_id(self) -> str:
        """The id of the session that holds the scope's state."""
        # No id of an ADK session meets these: it has no second slash.
        return f"google-adk/{self._name}"

    @property
    def files_id(self) -> str:
        """The id of the session that has the scope's files."""
        return f"google-adk/files-of-{self._name}"

    @property
    def tag(self) -> str:
        """What all sessions of the scope have, so that one range of an index lists them."""
        return f"google-adk/sessions-of-{self._name}"

    @property
    def users_tag(self) -> str:
        """What the states of an application's users have."""
        return f"google-adk/users-of-app/{_encode_parts(self.app)}"

    @property
    def _name(self) -> str:
        if self.user is None:
            return f"app/{_encode_parts(self.app)}"
        return f"user/{_encode_parts(self.app, self.user)}"


@dataclass(frozen=True, slots=True)
class UserSessionKey:
    """Names a session as ADK does: its id alone is unique for one user of one application."""

    app: str
    user: str
    session: str

    @staticmethod
    def of(app: str, user: str, session: str) -> "UserSessionKey":
        """The key with the blanks around the session's id taken away, as ADK's own services do."""
        return UserSessionKey(app, user, session.strip())

    @property
    def store_id(self) -> str:
        """The session's id in the store."""
        return f"google-adk/{_encode_parts(self.app, self.user, self.session)}"

    @property
    def files_id(self) -> str:
        """The id of the session that has its files, and goes when it is deleted."""
        return f"google-adk/files/{_encode_parts(self.app, self.user, self.session)}"

    @property
    def contents_id(self) -> str:
        """The id of the session that has the contents of its model calls, and goes when it is deleted."""
        return f"google-adk/contents/{_encode_parts(self.app, self.user, self.session)}"

    @property
    def scopes(self) -> tuple[Scope, Scope]:
        """Whose states the session shares: the application's, the user's."""
        return Scope(self.app), Scope(self.app, self.user)

    @property
    def metadata(self) -> dict[str, Any]:
        """The key as the store keeps it: its id may be a hash."""
        return {"app_name": self.app, "user_id": self.user, "session_id": self.session}

    @staticmethod
    def read_from(stored: SessionState | SessionSummary) -> "UserSessionKey":
        """The key of a stored session.

        Raises:
            StoreCorruptError: It is no session of ADK.
        """
        names = [stored.metadata.get(name) for name in ("app_name", "user_id", "session_id")]
        if stored.agent_type != SESSION_TYPE or not all(isinstance(name, str) for name in names):
            raise StoreCorruptError(f"session {stored.session_id!r} is no session of Google's ADK")
        return UserSessionKey(*map(str, names))


def _encode_parts(*parts: str) -> str:
    return encode_id(json.dumps(parts))
