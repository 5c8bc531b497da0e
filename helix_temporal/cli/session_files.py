"""``helix-temporal session export`` and ``import``: sessions as files."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final, cast

import typer

from helix_temporal.backends import Backends
from helix_temporal.cli._backends import check_servers, run_with_backends
from helix_temporal.cli._output import AsJson, print_facts, print_note, print_output
from helix_temporal.cli._progress import open_progress
from helix_temporal.cli._session_reads import SessionId
from helix_temporal.cli._store_checks import StoreUse
from helix_temporal.errors import InvalidRequestError
from helix_temporal.session_files import FORMATS, Exported, Imported, Redaction, check_output
from helix_temporal.session_files import export_session as write_session
from helix_temporal.session_files import import_session as make_session
from helix_temporal.session_files.export import open_spool

_STANDARD: Final = "-"


class FormatName(StrEnum):
    """How a session is written; ``jsonl`` alone can be imported."""

    JSONL = "jsonl"
    MD = "md"
    OPENAI = "openai"
    AF = "af"


def export_session(
    session_id: SessionId,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to; standard output without it, or for -."
        ),
    ] = None,
    format_name: Annotated[
        FormatName,
        typer.Option(
            "--format",
            help="jsonl can be imported; md is a transcript; openai chat messages; af Letta's agent file.",
        ),
    ] = FormatName.JSONL,
    redact: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Take out what matches this regular expression; repeatable."),
    ] = None,
    children: Annotated[
        bool, typer.Option("--with-children", help="With the sessions of its sub-agents, and of theirs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a session's finished turns into a file; the session may be in use.

    The file appears under its name once all of it is on the disk.  The page "Session files" of the
    documentation says what is in it, and what is not.  With --json, --output names a file.
    """
    path = _check_output_option(output, as_json=as_json)
    redaction = Redaction(redact) if redact else None

    async def export(backends: Backends) -> Exported:
        with open_progress() as line:
            return await write_session(
                backends,
                session_id,
                cast("BinaryIO", sys.stdout.buffer) if path is None else path,
                file_format=FORMATS[format_name.value],
                children=children,
                redaction=redaction,
                progress=lambda done, total: line.show("read", done, total, "messages"),
            )

    exported = run_with_backends(export)
    if path is not None:
        print_output(exported, _print_exported, as_json=as_json)


def _check_output_option(output: Path | None, *, as_json: bool) -> Path | None:
    """The file that is written; None for standard output, where nothing else may be printed."""
    if output is not None and str(output) != _STANDARD and not _is_standard_output(output):
        check_output(output)
        return output
    if as_json:
        raise typer.BadParameter("--json prints what was written: name a file", param_hint="--output")
    return None


def _is_standard_output(path: Path) -> bool:
    """Whether a path, such as ``/dev/stdout``, names standard output."""
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except OSError:
        return False  # It is not there yet; or nothing is standard output.


def _print_exported(exported: Exported) -> None:
    print_facts(
        [
            ("session", exported.session_id),
            ("format", exported.format),
            ("sessions", f"{exported.sessions:,}"),
            ("messages", f"{exported.messages:,}"),
            ("bytes", f"{exported.bytes:,}"),
            *([("redacted", "yes: this is no copy of the session")] if exported.redacted else []),
        ]
    )


def import_session(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file of session export; - is standard input.")
    ],
    *,
    new_id: Annotated[
        str | None,
        typer.Option("--as", metavar="ID", help="The session's id here; its own in the file without it."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Verify the file and look whether its ids are free.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the sessions of a file, after verifying all of it.

    A file that is damaged changes nothing.  Imported a second time it changes nothing either; after it was
    broken off it goes on where it was.  A session that is there, and is another, is left alone: status 5.
    """

    async def take_in(backends: Backends) -> Imported:
        with open_progress() as line:

            async def check() -> None:
                line.clear()  # a note may follow
                await check_servers(backends, use)

            units = {"verify": "bytes", "import": "messages"}
            return await make_session(
                backends,
                opened,
                new_id=new_id,
                dry_run=dry_run,
                when_verified=check,
                progress=lambda what, done, total: line.show(what, done, total, units[what]),
            )

    use = StoreUse.TRIAL if dry_run else StoreUse.WRITING
    # First: of a file that is not there, or damaged, no server is asked.
    with _open_input(file) as opened:
        imported = run_with_backends(take_in, use)
    print_output(imported, _print_imported, as_json=as_json)


_OUTCOMES: Final = {
    "imported": "imported",
    "there": "all of it is there already; nothing was changed",
    "sound": "sound; it can be imported",
}


def _print_imported(imported: Imported) -> None:
    print_facts(
        [
            ("session", imported.session_id),
            ("outcome", _OUTCOMES[imported.outcome]),
            ("sessions", f"{imported.sessions:,}"),
            ("messages", f"{imported.messages:,}"),
        ]
    )
    if imported.redacted:
        print_note("texts were taken out of this file when it was written")


@contextmanager
def _open_input(file: Path) -> Iterator[BinaryIO]:
    """The file; what cannot be read twice, as a pipe, put aside."""
    if str(file) == _STANDARD:
        with _put_aside(sys.stdin.buffer) as kept:
            yield kept
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise InvalidRequestError(f"{file}: cannot be read: {error.strerror}") from None
    with opened:
        if opened.seekable():
            yield opened
            return
        with _put_aside(opened) as kept:
            yield kept


@contextmanager
def _put_aside(stream: BinaryIO) -> Iterator[BinaryIO]:
    with open_spool() as kept:
        shutil.copyfileobj(stream, kept, 1024 * 1024)
        yield kept
