"""A lamp shop's sessions, and the inspector over them: ``make example NAME=lamp_shop``.

``PORT`` chooses the inspector's port, a free one otherwise.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final

from shop_agents import AGENTS
from shop_talk import CHAT, RETURNS, fill_shop, talk_on

from helix_temporal import HelixWorker, SessionClient, SessionOptions, Settings, connect

HERE: Final = Path(__file__).parent
INSPECT: Final = ("inspect", "--allow-actions", "--agents", "shop_agents:AGENTS")


async def inspect() -> None:
    """Run ``helix-temporal inspect``, which prints its link, until Ctrl-C."""
    command = str(Path(sys.executable).with_name("helix-temporal"))
    inspector = await asyncio.create_subprocess_exec(
        *(command, *INSPECT, "--port", os.environ.get("PORT", "0")),
        cwd=HERE,
        start_new_session=True,  # Ctrl-C is for this program, which then ends the inspector
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, inspector.terminate)
    await inspector.wait()


async def main() -> None:
    """Let customers talk, then show what they said, while one of them goes on."""
    settings = Settings.from_env(os.environ)
    client, helix = await connect(settings, AGENTS)
    options = SessionOptions(suspend="exit")
    sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
    async with HelixWorker(client, helix):
        print("Customers talk to the shop; that takes half a minute.", flush=True)
        await fill_shop(sessions)
        print(f"  {RETURNS} waits for your approval", flush=True)
        print(f"  {CHAT} is talked in while you look", flush=True)
        talking = asyncio.create_task(talk_on(sessions))
        try:
            await inspect()
        finally:
            talking.cancel()
            await asyncio.wait([talking])


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
