"""How a command uses the stores that the environment names: made for it, and closed after it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from helix_temporal.backends import Backends
from helix_temporal.cli._output import print_note
from helix_temporal.cli._store_checks import StoreUse, check_stores, is_database_missing
from helix_temporal.settings import Settings
from helix_temporal.startup import check_now_or_later

R = TypeVar("R")
_NO_ARCHIVE: Final = {"s3_bucket": None, "cold_directory": None, "archive": "eventual"}


def run_with_backends(
    work: Callable[[Backends], Awaitable[R]], use: StoreUse = StoreUse.THREADS, *, read_v1: bool = False
) -> R:
    """What ``work`` gives, of the stores of HELIX_… variables.

    Args:
        work: Uses them.
        use: What it needs of them.
        read_v1: Threads without a manifest begin as their version 1 snapshot, whatever the variables say.

    Raises:
        InvalidConfigError: What it needs is in no store that other processes have, too; there is no database
            where one is read; or a variable is wrong.
    """

    async def run() -> R:
        settings = Settings.from_env(os.environ)
        check_stores(settings, use)
        if use is StoreUse.LISTS:
            settings = settings.model_copy(update=_NO_ARCHIVE)
        if read_v1:
            settings = settings.model_copy(update={"read_v1": True})
        with _place_for_database(settings, use) as placed:
            backends = Backends(placed)
            try:
                return await work(backends)
            finally:
                await backends.close()

    return asyncio.run(run())


async def check_servers(backends: Backends, use: StoreUse) -> None:
    """Refuse servers that would lose what is written, as a worker does when it starts.

    Note that a database will be made, where there is none.

    Raises:
        UnsafeRedisPolicyError, UnsupportedServerError, SchemaVersionError, StoreUnavailableError, …: As
            `Backends.check`; an archive that is away and not required is not used, and is no error.
    """
    if use is StoreUse.TRIAL:
        await backends.hot.check()
    elif use is StoreUse.WRITING:
        if is_database_missing(backends.settings):
            print_note(f"there is no database at {backends.settings.sqlite_file} yet: it is made")
        for check in backends.list_checks().values():
            await check()
        if not backends.needs_archive and (later := await check_now_or_later(backends)):
            later.cancel()


@contextmanager
def _place_for_database(settings: Settings, use: StoreUse) -> Iterator[Settings]:
    """For a trial without a database one that is empty, which is gone afterwards; else the settings' own."""
    if use is StoreUse.TRIAL and is_database_missing(settings):
        print_note(f"there is no database at {settings.sqlite_file} yet")
        with TemporaryDirectory() as directory:
            yield settings.model_copy(update={"data_directory": Path(directory)})
    else:
        yield settings
