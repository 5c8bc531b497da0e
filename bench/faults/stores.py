"""What a store under test is to the faults, whatever its framework calls things."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from helix_temporal import Backends, Settings
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.sessions import SessionStore

Place = Literal["memory", "postgres", "redis"]


@dataclass(frozen=True, slots=True)
class Item:
    """A message, which a framework's module makes one of its own.

    Attributes:
        name: Goes into the framework's own id of a message, where a caller can give one.
        role: ``user`` or ``assistant``.
        text: Told apart from all others of a session.
    """

    name: str
    role: Literal["user", "assistant"]
    text: str


class Store(Protocol):
    """One program's way to one session, with connections of its own."""

    async def append(self, items: Sequence[Item]) -> None:
        """Store items as the framework's runner does; a second call with the same items is a repeat."""

    async def read(self, newest: int | None = None) -> list[str]:
        """Texts, oldest first: the newest ones if the framework can ask for them, or all."""
        ...

    async def refresh(self) -> None:
        """Look again, as the framework's documentation says to do after a refusal."""

    async def delete(self) -> None:
        """Delete the session, or the nearest to it that the framework's interface has."""

    async def close(self) -> None:
        """Give back connections."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A store under test.

    Attributes:
        name: As the table shows it.
        place: Where it keeps things.
        open: From an address and a session's id to a store; makes tables where there are none.
        batch: Items of an append while a long session is filled.
        ours: Whether it is one of ours.
    """

    name: str
    place: Place
    open: Callable[[str, str], Awaitable[Store]]
    batch: int = 250
    ours: bool = False


class OurBackends:
    """Backends at an address; a place in memory is one for the whole process."""

    _memory: Backends | None = None

    def __init__(self, address: str) -> None:
        self._backends, self._shared = self._make(address), not address

    @classmethod
    async def open(cls, address: str) -> "OurBackends":
        """With tables, where it is PostgreSQL."""
        if address.startswith("postgresql"):
            backend = PostgresBackend(address)
            try:
                await backend.migrations.run()
            finally:
                await backend.close()
        return cls(address)

    @property
    def sessions(self) -> SessionStore:
        """The session store."""
        found = self._backends.sessions
        assert found is not None
        return found

    @property
    def records(self) -> Any:
        """Bytes beside sessions, for adapters that keep those."""
        return self._backends.records

    async def close(self) -> None:
        """Close the connections."""
        if not self._shared:
            await self._backends.close()

    @classmethod
    def _make(cls, address: str) -> Backends:
        variables = {"HELIX_ALLOW_PLAINTEXT": "true"}
        if not address:
            cls._memory = cls._memory or Backends(Settings.from_env(variables))
            return cls._memory
        name = "HELIX_POSTGRES_DSN" if address.startswith("postgresql") else "HELIX_REDIS_URL"
        return Backends(Settings.from_env({**variables, name: address, "HELIX_REDIS_PREFIX": prefix()}))


def prefix() -> str:
    """Before the names of keys in Redis, which all subjects share."""
    return os.environ.get("FAULTS_PREFIX", "faults:")
