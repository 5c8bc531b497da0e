"""Turns through `HelixStorage`: files of one session, each writer's under its own names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from strands.types.exceptions import StorageError

from helix_temporal import Backends
from helix_temporal.frameworks.background_loop import shared_loop
from helix_temporal.frameworks.strands import HelixStorage

NAMED = True


async def append_turn(backends: Backends, name: str) -> None:
    """A question and an answer, in one file."""
    writer, _, number = name.partition("-")
    async with _opened(backends) as storage:
        try:
            await storage.write(f"turns/{writer}-{int(number):06}", f"{name} q\n{name} a".encode())
        except StorageError as error:
            raise error.__cause__ or error from None


async def read_texts(backends: Backends) -> list[str]:
    """All that stands."""
    async with _opened(backends) as storage:
        files = [await storage.read(each) for each in await storage.list("turns/")]
    return [text for data in files for text in (data or b"").decode().split("\n")]


@asynccontextmanager
async def _opened(backends: Backends) -> AsyncIterator[HelixStorage]:
    """Over stores of its own: they belong to the loop in the background."""
    own = Backends(backends.settings)
    try:
        yield HelixStorage("chaos", own.records)
    finally:
        await shared_loop().call(own.close())
