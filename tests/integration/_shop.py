"""The sessions of examples/lamp_shop, made by a real worker: everything that the inspector can show."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from shop_agents import make_agents
from shop_talk import fill_shop

from helix_temporal.client import SessionOptions
from helix_temporal.testing.environment import HelixEnv, helix_env


@contextlib.asynccontextmanager
async def opened_shop(directory: Path) -> AsyncIterator[HelixEnv]:
    """The shop's sessions in SQLite, with an archive in a directory, and the worker that serves them."""
    async with helix_env(make_agents(), options=SessionOptions(suspend="exit"), directory=directory) as env:
        await fill_shop(env.sessions)
        yield env
