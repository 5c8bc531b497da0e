"""Another process on the same database: ``python -m tests.unit.stores._sqlite_child <what> <file> …``."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from helix_temporal.errors import HeadMovedError, HelixError
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.stores.sqlite import SqliteBackend, SqliteThreads
from helix_temporal.testing.builders import a_message, a_step

BODY = b"x" * 20_000


async def append_until_killed(file: Path) -> None:
    """Append to a thread for ever; a line for each message that was acknowledged."""
    threads = SqliteBackend(file).threads
    while True:
        header = await threads.read_header("t")
        assert header is not None
        at = header.head.position
        step = a_step("t", header.head, inputs=[a_message(BODY, message_id=f"m{at}")])
        assert await threads.append(step) is not None
        sys.stdout.write(f"{at + 1}\n")
        sys.stdout.flush()


async def append_some(file: Path, who: str, count: str) -> None:
    """Append messages of one's own to a thread that others append to as well; close nothing at the end."""
    threads = SqliteBackend(file, timeout=60).threads
    for number in range(int(count)):
        await _append_one(threads, f"{who}-{number}")


async def _append_one(threads: SqliteThreads, message_id: str) -> None:
    while True:
        header = await threads.read_header("t")
        head = EMPTY if header is None else header.head
        try:
            await threads.append(a_step("t", head, inputs=[a_message(message_id=message_id)]))
        except HeadMovedError:
            continue
        return


async def hold(file: Path) -> None:
    """Write for as long as the input lasts."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


async def without_rights(file: Path) -> None:
    """Use it as somebody who may only read."""
    await asyncio.to_thread(int)  # afterwards nothing can be imported
    backend = SqliteBackend(file)
    if os.getuid() == 0:
        os.setgroups([])
        os.setuid(65534)
    try:
        await backend.threads.read_header("t")
    except HelixError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")


COMMANDS = {each.__name__: each for each in (append_until_killed, append_some, hold, without_rights)}

if __name__ == "__main__":
    asyncio.run(COMMANDS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:]))
