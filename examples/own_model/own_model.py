"""An agent with a model of one's own: ``make example NAME=own_model``.

``OWN_MODEL_URL`` (and ``OWN_MODEL_KEY``) name a real server; without them a stand-in answers.
"""

import asyncio
import logging
import os
from contextlib import AsyncExitStack

from http_model import HttpModel
from http_standin import serving

from helix_temporal import Agent, HelixWorker, SessionClient, Settings, connect


async def main() -> None:
    """A worker and two turns; the stand-in is busy when it is asked first, and says for how long."""
    async with AsyncExitStack() as stack:
        url = os.environ.get("OWN_MODEL_URL", "")
        url = url or await stack.enter_async_context(serving())
        agent = Agent(name="rhymer", model=HttpModel(url, os.environ.get("OWN_MODEL_KEY")))
        client, plugin = await connect(Settings.from_env(os.environ), [agent])
        await stack.enter_async_context(HelixWorker(client, plugin))
        sessions = SessionClient(client, task_queue=plugin.settings.task_queue)
        session = sessions.session("own-model", agent="rhymer")
        for text in ("I like mountains.", "And the sea."):
            answer = await session.ask(text)
            print(f"you:   {text}\nmodel: {answer.text or answer.error or answer.status}")
        await session.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # Temporal warns of each failed attempt, with a traceback
    asyncio.run(main())
