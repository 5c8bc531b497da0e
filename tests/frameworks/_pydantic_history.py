"""How large histories of workflows get: ``python -m tests.frameworks._pydantic_history ADDRESS``.

Chats with questions and answers of 2 KB, their messages in the workflow or in the store.
"""

import asyncio
import sys

from helix_temporal import Backends, Settings
from tests.frameworks._pydantic_workflows import PlainChat, StoredChat
from tests.frameworks.test_pydantic_ai_workflow import ask, serving

TURNS = (20, 60)


async def main(address: str) -> None:
    """Print both."""
    backends = Backends(Settings.from_env({}))
    async with serving(address, backends.sessions, "history") as bench:
        for name, chat, args in (("plain", PlainChat, ()), ("stored", StoredChat, ("c",))):
            handle = await bench.start(name, *args, chat=chat)
            for number in range(1, max(TURNS) + 1):
                await ask(handle, f"{number} ".ljust(2048, "x"))
                if number in TURNS:
                    events = (await handle.fetch_history()).events
                    size = sum(event.ByteSize() for event in events)
                    sys.stdout.write(f"{name} {number}: {size / 1e6:.2f} MB, {len(events)} events\n")
            await handle.signal("end")
    await backends.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
