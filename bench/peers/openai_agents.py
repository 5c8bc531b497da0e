"""openai-agents: `SQLAlchemySession`, which has messages and no state."""

from _speak import Turn, serve
from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


class OpenAIAgents:
    """Items of a session; a turn is one ``add_items``."""

    def __init__(self, engine: AsyncEngine, session_id: str) -> None:
        self._engine = engine
        self._session = SQLAlchemySession(session_id, engine=engine, create_tables=True)

    @classmethod
    async def open(cls, dsn: str, session_id: str) -> "OpenAIAgents":
        """An engine of its own, and tables."""
        engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
        writer = cls(engine, session_id)
        await writer.hydrate()
        return writer

    async def write(self, turn: Turn) -> None:
        """Both items at once."""
        items = [
            {"id": f"{turn.name}-user", "role": "user", "content": turn.user},
            {"id": f"{turn.name}-answer", "role": "assistant", "content": turn.answer},
        ]
        await self._session.add_items(items)

    async def hydrate(self) -> list[str]:
        """All items."""
        return [item["content"] for item in await self._session.get_items()]

    async def refresh(self) -> None:
        """It holds nothing."""

    async def close(self) -> None:
        """Close the connections."""
        await self._engine.dispose()


if __name__ == "__main__":
    serve(OpenAIAgents.open, "openai-agents", "SQLAlchemy", "asyncpg")
