"""Sessions in a store of one's own: ``make example NAME=own_store``, or run this file.

It asks twice, in two sessions objects as two programs would, then forks, and shows the table.
"""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from sqlite_storage import SqliteSessionStorage

from helix_temporal import Agent, ModelRequest, ScriptedModel
from helix_temporal.facade import Session, create_session, fork_session, resume_session


def answer(request: ModelRequest) -> str:
    """Shows that the model is given what was said before."""
    said = [message.text for message in request.messages if message.role == "user"]
    return f"You have said {len(said)}: {', '.join(said)}"


AGENT = Agent(name="parrot", model=ScriptedModel(answer))


async def ask(session: Session, text: str) -> None:
    """Send a text and print what comes."""
    await session.send(text)
    async for event in session.receive():
        if event.type == "result":
            print(f"{session.id}: {text!r} -> {event.text!r}")


async def main(path: Path) -> None:
    """Create, resume, fork."""
    storage = SqliteSessionStorage(path)
    async with await create_session(AGENT, storage=storage, session_id="trip") as session:
        await ask(session, "Lisbon")
    async with await resume_session("trip", AGENT, storage=storage) as session:
        await ask(session, "in May")
    async with await fork_session("trip", AGENT, new_session_id="trip-2", storage=storage) as fork:
        await ask(fork, "or Porto?")
    with sqlite3.connect(path) as db:
        for row in db.execute("SELECT id, length(state) FROM sessions ORDER BY id"):
            print(f"row {row[0]}: {row[1]} characters of state")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory) / "sessions.db"))
