"""Sessions in a directory, and commands that read them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import CreateSession
from helix_temporal.settings import Settings


def variables_of(directory: Path) -> dict[str, str]:
    """All stores in one SQLite file."""
    return {"HELIX_DATA_DIRECTORY": str(directory)}


def fill(variables: dict[str, str], write: Callable[[Backends], Awaitable[None]]) -> None:
    """Write into the stores, and close them."""

    async def run() -> None:
        backends = Backends(Settings.from_env(variables))
        try:
            await write(backends)
        finally:
            await backends.close()

    asyncio.run(run())


def conversation(turns: int = 1) -> list[Message]:
    """Turns with a question, a call, its result, and an answer."""
    found = []
    for number in range(1, turns + 1):
        call = ToolCall(id=f"call-{number}", name="weather", arguments={"city": "Bern"})
        found += [
            Message(id=f"u{number}", role="user", content=f"question {number}"),
            Message(id=f"a{number}", role="assistant", tool_calls=(call,)),
            Message(id=f"t{number}", role="tool", tool_call_id=call.id, name="weather", content="sunny"),
            Message(id=f"b{number}", role="assistant", content=f"answer {number}"),
        ]
    return found


async def add_session(backends: Backends, session_id: str, *messages: Message, **properties: Any) -> None:
    """A session with these messages."""
    await backends.sessions.create_session(session_id, CreateSession.model_validate(properties))
    if messages:
        await backends.sessions.append_messages(session_id, messages)


def call(variables: dict[str, str], *arguments: str) -> Result:
    """Call ``helix-temporal``."""
    return CliRunner().invoke(app, list(arguments), env=variables)


def json_of(found: Result) -> Any:
    """What a command that succeeded has printed."""
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)
