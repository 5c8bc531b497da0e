"""``python -m helix_temporal.inspector [PORT]``: the pages over the stores of HELIX_… variables."""

import asyncio
import contextlib
import os
import sys

from helix_temporal.backends import Backends
from helix_temporal.inspector.app import create_inspector
from helix_temporal.inspector.server import bind, link_to, serving
from helix_temporal.settings import Settings


async def main() -> None:
    """Serve until Ctrl-C."""
    backends = Backends(Settings.from_env(os.environ))
    try:
        app = create_inspector(backends)
        listening = bind("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8377)
        async with serving(app, listening):
            print(link_to(app, listening), flush=True)  # noqa: T201
            await asyncio.Event().wait()
    finally:
        await backends.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
