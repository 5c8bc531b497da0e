"""How a command uses the stores that the environment names: made for it, and closed after it."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from helix_temporal.backends import Backends
from helix_temporal.cli._running import check_stores_shared
from helix_temporal.settings import Settings

R = TypeVar("R")


def run_with_backends(look: Callable[[Backends], Awaitable[R]], *, read_v1: bool = False) -> R:
    """What ``look`` gives, of the stores of HELIX_… variables.

    Args:
        look: Uses them.
        read_v1: Threads without a manifest begin as their version 1 snapshot, whatever the variables say.

    Raises:
        InvalidConfigError: No store is named that other processes have, too; or a variable is wrong.
    """

    async def run() -> R:
        settings = Settings.from_env(os.environ)
        check_stores_shared(settings)
        backends = Backends(settings.model_copy(update={"read_v1": True}) if read_v1 else settings)
        try:
            return await look(backends)
        finally:
            await backends.close()

    return asyncio.run(run())
