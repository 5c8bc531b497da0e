"""Ask the support agent: ``python examples/quickstart/client.py [SESSION] [TEXT …]``."""

import asyncio
import os
import sys

from helix_temporal import HelixError, SessionClient, Settings, connect


async def main(session_id: str = "customer-42", *words: str) -> None:
    """Connect, ask, print."""
    settings = Settings.from_env(os.environ)
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    answer = await sessions.ask(session_id, " ".join(words) or "Where is NL-20417?", agent="support")
    print(answer.text or answer.error or answer.status)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except HelixError as error:
        sys.exit(f"{type(error).__name__}: {error}")
