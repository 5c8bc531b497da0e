"""Ask an agent once, in a session of its own, and print the answer: AGENT TEXT."""

import asyncio
import os
import sys
import uuid

from helix_temporal import HelixError, SessionClient, Settings, connect


async def main(agent: str, text: str) -> int:
    settings = Settings.from_env(os.environ)
    client, _ = await connect(settings)
    sessions = SessionClient(client, task_queue=settings.task_queue)
    answer = await sessions.ask(f"helm-test-{uuid.uuid4()}", text, agent=agent)
    print(answer.text or answer.error or answer.status)
    return 0 if answer.text else 1


try:
    sys.exit(asyncio.run(main(*sys.argv[1:])))
except HelixError as error:
    sys.exit(f"{type(error).__name__}: {error}")
