"""Another process on the same directory: ``python -m tests.unit.stores._file_child <what> <directory> …``."""

import asyncio
import fcntl
import os
import sys
from functools import partial
from pathlib import Path

from helix_temporal.errors import HeadMovedError, HelixError
from helix_temporal.models.records import EMPTY
from helix_temporal.models.states import SessionState
from helix_temporal.stores.file import FileSessions, FileThreads
from helix_temporal.stores.file._documents import DocumentChange, Documents
from helix_temporal.stores.file._format import Part, Parts
from helix_temporal.stores.protocols.session_records import (
    RecordKind,
    SessionCommit,
    SessionRecord,
    SessionRow,
)
from helix_temporal.testing.builders import EPOCH, a_message, a_step

BODY = b"x" * 100_000


async def replace(documents: Documents, body: bytes) -> None:
    """Write a document, or remove it where the body is empty."""
    parts = {"part": Part({}, body)} if body else {}
    await documents.change("id", lambda _: DocumentChange(None, parts))


async def die_at(directory: Path, step: str, letter: str) -> None:
    """Write, and be gone right after one step of it, as by SIGKILL."""

    def after(done: str) -> None:
        if done == step:
            os._exit(9)

    await replace(Documents(directory, after=after), BODY.replace(b"x", letter.encode()))


def the_commit(session_id: str) -> SessionCommit:
    """State, a record, and a step of the thread, over what `tests.unit.stores` put there."""
    return SessionCommit(
        session_id,
        revision=1,
        max_epoch=EPOCH,
        row=SessionRow(SessionState(session_id=session_id), b"new state"),
        puts=(SessionRecord(RecordKind.CHECKPOINT, "c1", b"new checkpoint"),),
        append=a_step(session_id, inputs=[a_message("new", message_id="new")]),
    )


async def commit_and_die_at(directory: Path, step: str) -> None:
    """Commit a session with its thread, and be gone right after one step of it."""

    def after(done: str) -> None:
        if done == step:
            os._exit(9)

    await FileSessions(Documents(directory, after=after)).commit(the_commit("s"))


async def append_until_killed(directory: Path) -> None:
    """Append to a thread for ever; a line for each message that was acknowledged."""
    threads = FileThreads(Documents(directory))
    while True:
        header = await threads.header("t")
        assert header is not None
        at = header.head.position
        step = a_step("t", header.head, inputs=[a_message(BODY[:20_000], message_id=f"m{at}")])
        assert await threads.append(step) is not None
        sys.stdout.write(f"{at + 1}\n")
        sys.stdout.flush()


async def append_some(directory: Path, who: str, count: str) -> None:
    """Append messages of one's own to a thread that others append to as well."""
    threads = FileThreads(Documents(directory))
    for number in range(int(count)):
        await _append_one(threads, f"{who}-{number}")


async def _append_one(threads: FileThreads, message_id: str) -> None:
    while True:
        header = await threads.header("t")
        head = EMPTY if header is None else header.head
        try:
            await threads.append(a_step("t", head, inputs=[a_message(message_id=message_id)]))
        except HeadMovedError:
            continue
        return


async def put_and_take(directory: Path, who: str, count: str) -> None:
    """Put marks into a document that is taken away, with its lock, whenever it holds three."""
    documents = Documents(directory, patience=60)

    def decide(parts: Parts, mark: str) -> DocumentChange[str]:
        marks = f"{parts['marks'].body.decode()} {mark}" if parts else mark
        if marks.count(" ") >= 2:
            return DocumentChange(marks, {})
        return DocumentChange("", {"marks": Part({}, marks.encode())})

    for number in range(int(count)):
        taken = await documents.change("id", partial(decide, mark=f"{who}-{number}"))
        sys.stdout.write(f"{taken}\n")


async def hold(directory: Path) -> None:
    """Hold the lock of a document until the end of the input."""
    with (directory / "id.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


async def without_rights(directory: Path) -> None:
    """Write and read as somebody who may only read."""
    await asyncio.to_thread(int)  # afterwards nothing can be imported
    if os.getuid() == 0:
        os.setgroups([])
        os.setuid(65534)
    documents = Documents(directory)
    try:
        await replace(documents, b"new")
    except HelixError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
    sys.stdout.write((await documents.read("id"))["part"].body.decode())
    sys.stdout.write("".join([listed.id async for listed in documents.entries()]))


COMMANDS = {
    each.__name__: each
    for each in (
        die_at,
        commit_and_die_at,
        append_until_killed,
        append_some,
        put_and_take,
        hold,
        without_rights,
    )
}

if __name__ == "__main__":
    asyncio.run(COMMANDS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:]))
