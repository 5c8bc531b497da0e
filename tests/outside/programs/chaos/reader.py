"""A fresh process that reads sessions from the stores, without a worker: prints JSON."""

import asyncio
import json
import os
import sys

from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.messages import Message
from helix_temporal.settings import Settings
from helix_temporal.worker import connect


def plain(message: Message) -> dict[str, object]:
    """What matters of a message."""
    return {
        "id": message.id,
        "role": message.role,
        "text": message.text,
        "calls": [call.id for call in message.tool_calls],
        "call_id": message.tool_call_id,
    }


async def read(sessions: list[str]) -> dict[str, list[dict[str, object]]]:
    """Finished turns of each session; none where there is no thread."""
    settings = Settings.from_env(os.environ)
    client, _ = await connect(settings)
    backends = Backends(settings)
    found: dict[str, list[dict[str, object]]] = {}
    try:
        reading = SessionClient(client, stores=backends)
        for session in sessions:
            try:
                found[session] = [plain(each) for each in await reading.session(session).get_messages()]
            except SessionNotFoundError:
                found[session] = []
    finally:
        await backends.close()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(read(sys.argv[1:]))))
