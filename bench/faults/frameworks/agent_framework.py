"""Microsoft agent-framework: `RedisHistoryProvider`, and `HelixHistoryProvider`.

Messages have the ``message_id`` that a caller can give them.  Theirs reads a session whole; ours has a limit.
"""

from collections.abc import Sequence
from typing import Any

from agent_framework import Message
from agent_framework_redis import RedisHistoryProvider

from bench.faults.stores import Item, OurBackends, Subject, prefix
from helix_temporal.frameworks.agent_framework import HelixHistoryProvider

_NEWEST = 20


class FrameworkHistory:
    """One session of any provider, and what closes it."""

    def __init__(self, full: Any, short: Any, session_id: str, delete: Any, close: Any) -> None:
        self._full, self._short, self._session_id = full, short, session_id
        self._delete, self.close = delete, close

    @classmethod
    async def open_redis(cls, address: str, session_id: str) -> "FrameworkHistory":
        """A client of its own."""
        provider = RedisHistoryProvider(
            redis_url=address, application_id="faults", key_prefix=f"{prefix()}agent-framework"
        )
        return cls(provider, provider, session_id, provider.clear, provider.aclose)

    @classmethod
    async def open_ours(cls, address: str, session_id: str) -> "FrameworkHistory":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        full = HelixHistoryProvider(backends.sessions)
        short = HelixHistoryProvider(backends.sessions, limit=_NEWEST)
        return cls(full, short, session_id, full.delete, backends.close)

    async def append(self, items: Sequence[Item]) -> None:
        """As ``after_run`` does."""
        messages = [Message(each.role, [each.text], message_id=each.name) for each in items]
        await self._full.save_messages(self._session_id, messages)

    async def read(self, newest: int | None = None) -> list[str]:
        """As ``before_run`` does."""
        provider = self._full if newest is None else self._short
        found = [each.text for each in await provider.get_messages(self._session_id)]
        return found if newest is None else found[-newest:]

    async def refresh(self) -> None:
        """It holds nothing."""

    async def delete(self) -> None:
        """``clear`` of theirs, ``delete`` of ours."""
        await self._delete(self._session_id)


SUBJECTS = [
    Subject("RedisHistoryProvider", "redis", FrameworkHistory.open_redis),
    Subject("HelixHistoryProvider, Redis", "redis", FrameworkHistory.open_ours, ours=True),
    Subject("HelixHistoryProvider, PostgreSQL", "postgres", FrameworkHistory.open_ours, ours=True),
]
