"""OpenAI Agents SDK: `SQLAlchemySession` and `RedisSession`, and `HelixSession` on both servers.

An item that a model answered has an id, and what a user says has none: no session reads either.
"""

from collections.abc import Sequence
from typing import Any

from agents.extensions.memory import RedisSession, SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from bench.faults.stores import Item, OurBackends, Subject, prefix
from helix_temporal.frameworks.openai_agents import HelixSession


def make_item(item: Item) -> dict[str, Any]:
    """As the runner adds it."""
    if item.role == "user":
        return {"role": "user", "content": item.text}
    text = {"type": "output_text", "text": item.text, "annotations": []}
    return {
        "id": item.name,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }


def read_text(item: dict[str, Any]) -> str:
    """Of an item."""
    content = item["content"]
    return content if isinstance(content, str) else content[0]["text"]


class OpenAISession:
    """Any session of the SDK, and what closes it."""

    def __init__(self, session: Any, close: Any) -> None:
        self._session, self.close = session, close

    @classmethod
    async def open_sqlalchemy(cls, address: str, session_id: str) -> "OpenAISession":
        """An engine of its own, and tables."""
        engine = create_async_engine(address.replace("postgresql://", "postgresql+asyncpg://"))
        session = SQLAlchemySession(session_id, engine=engine, create_tables=True)
        await session.get_items(1)
        return cls(session, engine.dispose)

    @classmethod
    async def open_redis(cls, address: str, session_id: str) -> "OpenAISession":
        """A client of its own."""
        session = RedisSession.from_url(session_id, url=address, key_prefix=f"{prefix()}agents")
        return cls(session, session.close)

    @classmethod
    async def open_ours(cls, address: str, session_id: str) -> "OpenAISession":
        """Backends of its own."""
        backends = await OurBackends.open(address)
        return cls(HelixSession(session_id, backends.sessions), backends.close)

    async def append(self, items: Sequence[Item]) -> None:
        """One ``add_items``."""
        await self._session.add_items([make_item(each) for each in items])

    async def read(self, newest: int | None = None) -> list[str]:
        """``get_items``."""
        return [read_text(each) for each in await self._session.get_items(newest)]

    async def refresh(self) -> None:
        """It holds nothing."""

    async def delete(self) -> None:
        """``clear_session``: the interface has no other end of a session."""
        await self._session.clear_session()


SUBJECTS = [
    Subject("SQLAlchemySession", "postgres", OpenAISession.open_sqlalchemy),
    Subject("HelixSession, PostgreSQL", "postgres", OpenAISession.open_ours, ours=True),
    Subject("RedisSession", "redis", OpenAISession.open_redis),
    Subject("HelixSession, Redis", "redis", OpenAISession.open_ours, ours=True),
]
