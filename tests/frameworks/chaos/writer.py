"""A process that appends turns until it is killed: ``python -m … ADAPTER NAME DIRECTORY``."""

import asyncio
import importlib
import os
import sys
from pathlib import Path

from helix_temporal import Backends, Settings
from helix_temporal.errors import HelixError
from tests.frameworks.chaos.ledger import Ledger, read_turns


async def main(adapter_name: str, name: str, directory: Path) -> None:
    """Go on where the last process of that name was killed."""
    adapter = importlib.import_module(f"tests.frameworks.chaos.adapters.{adapter_name}")
    turns = read_turns(directory, name)
    number = turns[-1].number + 1 if turns else 0
    if adapter.NAMED and turns and turns[-1].acknowledged_at is None:
        number = turns[-1].number
    ledger = Ledger(directory, name)
    backends = Backends(Settings.from_env(os.environ))
    while True:
        ledger.note("begun", number)
        try:
            await adapter.append_turn(backends, f"{name}-{number}")
        except HelixError as error:
            sys.stderr.write(f"{name}-{number}: {type(error).__name__}\n")
            sys.stderr.flush()
            number += not adapter.NAMED
            await asyncio.sleep(0.2)
            continue
        ledger.note("acknowledged", number)
        number += 1
        # A turn of unknown fate is found again among the newest 200 rows: while one writer is held up for
        # seconds, the others may not write more than those.
        await asyncio.sleep(0.15)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
