"""``helix-temporal thread``: where a thread stands, what holds it, and whether all of it is sound."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import typer

from helix_temporal.backends import Backends
from helix_temporal.cli._backends import run_with_backends
from helix_temporal.cli._ids import check_ids
from helix_temporal.cli._output import (
    AsJson,
    format_number,
    format_time,
    print_facts,
    print_output,
    print_text,
    print_warning,
)
from helix_temporal.cli.outputs import ThreadMove, ThreadMoves
from helix_temporal.cli.session_outputs import StoredObject, StoredThread
from helix_temporal.cli.statuses import ExitStatus, find_status, sum_statuses
from helix_temporal.coldtier import ADAPTERS, TieredThreads, envelope_of
from helix_temporal.errors import HelixError, InvalidConfigError, InvalidRequestError
from helix_temporal.models.amounts import NOTHING
from helix_temporal.views.reading import stores_for_reading
from helix_temporal.views.storage import FoundThread, place_of

R = TypeVar("R")
_check_ids: Final = check_ids("thread id")
ThreadId = Annotated[
    str,
    typer.Argument(help="The thread; a session's main thread has the session's id.", callback=_check_ids),
]


class Adapter(StrEnum):
    """Zeitlich's adapters, by the names that they have there."""

    ANTHROPIC = "anthropic"
    GOOGLE = "googleGenAI"
    LANGCHAIN = "langChain"


NamedAdapter = Annotated[
    Adapter | None,
    typer.Option("--adapter", help="Zeitlich's adapter; found by the shape of rows without it."),
]


def show(thread_id: ThreadId, *, as_json: AsJson = False) -> None:
    """Print where a thread stands and which objects hold it; changes nothing."""
    found = run_with_backends(lambda backends: _read_thread(backends, thread_id))
    print_output(found, _print_thread, as_json=as_json)


def import_v1(
    thread_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="THREAD_ID", help="The threads to take over.", callback=_check_ids),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All whose snapshots lie below the prefix.")
    ] = False,
    adapter: NamedAdapter = None,
    as_json: AsJson = False,
) -> None:
    """Take over threads of zeitlich's from their snapshots in the bucket; changes no snapshot.

    A session does the same when it opens such a thread, where HELIX_READ_V1 is set; this does it beforehand.
    Snapshots are looked for at HELIX_V1_PREFIX/HELIX_V1_THREAD_KEY/<thread id>.json.gz, or .json.  What was
    taken over already is found and left alone.  Exit status 3 if one of several failed; the others are
    taken over.
    """
    if bool(thread_ids) == everything:
        raise typer.BadParameter("name threads, or give --all", param_hint="THREAD_ID")

    async def take_over(backends: Backends) -> ThreadMoves:
        tiered = _require_archive(backends)
        named = thread_ids or [each async for each in tiered.v1_threads()]

        async def import_thread(thread_id: str) -> ThreadMove:
            facts = await tiered.import_v1(thread_id, adapter or "")
            return ThreadMove(
                thread_id=thread_id, done=True, messages=facts.committed, adapter=facts.adapter or None
            )

        return await _move_threads(named, import_thread, statuses, shows=not as_json)

    statuses: list[ExitStatus] = []
    _print_moves(run_with_backends(take_over, read_v1=True), statuses, as_json=as_json)


def export_v1(
    thread_ids: Annotated[
        list[str],
        typer.Argument(metavar="THREAD_ID", help="The threads to give back.", callback=_check_ids),
    ],
    *,
    adapter: NamedAdapter = None,
    instructions: Annotated[
        str | None, typer.Option(help="The system prompt; becomes the first row of each snapshot.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write all finished turns of threads as snapshots that zeitlich reads.

    Rows that came from zeitlich are written as they were, other messages in the envelope of the thread's
    adapter, or of the one that is named.  A snapshot that somebody else changed is never replaced.
    Exit status 3 if one of several failed; the others are written.
    """

    async def give_back(backends: Backends) -> ThreadMoves:
        tiered = _require_archive(backends)

        async def export_thread(thread_id: str) -> ThreadMove:
            facts = await tiered.read_facts(thread_id)
            if not (adapter or envelope_of(facts.adapter)):
                raise InvalidRequestError(
                    f"thread {thread_id!r}: it did not come from zeitlich, so it has no adapter of "
                    "zeitlich's; "
                    f"give --adapter ({', '.join(ADAPTERS)})"
                )
            key = await tiered.export_v1(thread_id, instructions, adapter=adapter or "")
            return ThreadMove(
                thread_id=thread_id, done=True, adapter=adapter or facts.adapter or None, key=key
            )

        return await _move_threads(thread_ids, export_thread, statuses, shows=not as_json)

    statuses: list[ExitStatus] = []
    _print_moves(run_with_backends(give_back, read_v1=True), statuses, as_json=as_json)


async def _move_threads(
    thread_ids: Sequence[str],
    move: Callable[[str], Awaitable[ThreadMove]],
    statuses: list[ExitStatus],
    *,
    shows: bool,
) -> ThreadMoves:
    """Move one after the other, and say what became of each; ``statuses`` gets those of what failed."""
    moves = []
    for number, thread_id in enumerate(thread_ids, 1):
        try:
            found = await move(thread_id)
        except HelixError as error:
            found = ThreadMove(thread_id=thread_id, done=False, error=f"{type(error).__name__}: {error}")
            statuses.append(find_status(error))
        moves.append(found)
        if shows:
            _show_move(f"{number}/{len(thread_ids)} {thread_id}", found)
    done = sum(each.done for each in moves)
    return ThreadMoves(threads=tuple(moves), done=done, failed=len(moves) - done)


def _show_move(place: str, found: ThreadMove) -> None:
    if found.error is not None:
        print_warning(f"{place}: {found.error}")
    else:
        told = found.key or f"{found.messages:,} messages, adapter {found.adapter or 'unknown'}"
        print_text(f"{place}: {told}")


def _print_moves(found: ThreadMoves, statuses: Sequence[ExitStatus], *, as_json: bool) -> None:
    def show(moves: ThreadMoves) -> None:
        if len(moves.threads) != 1:
            print_text(f"{moves.done} of {len(moves.threads)} threads")

    print_output(found, show, as_json=as_json)
    status = sum_statuses(found.done, statuses)
    if status is not ExitStatus.DONE:
        raise typer.Exit(status)


def _require_archive(backends: Backends) -> TieredThreads:
    if backends.tiered is None:
        raise InvalidConfigError("no archive is set; set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY")
    return backends.tiered


async def _read_thread(backends: Backends, thread_id: str) -> StoredThread:
    facts = await stores_for_reading(backends).threads.read_facts(thread_id)
    place = place_of(thread_id, FoundThread(facts), archives=backends.tiered is not None)
    if backends.tiered is None or backends.blobs is None:
        return StoredThread(place=place, last_id=facts.head.last_id)
    prefix = backends.tiered.layout.thread_prefix(thread_id)
    objects = [StoredObject(key=each.key, bytes=each.size) async for each in backends.blobs.list(prefix)]
    return StoredThread(
        place=place,
        last_id=facts.head.last_id,
        prefix=prefix,
        objects=tuple(sorted(objects, key=lambda each: each.key)),
    )


def _print_thread(thread: StoredThread) -> None:
    print_facts(_facts_of(thread))
    prefix = thread.prefix or ""
    for each in thread.objects:
        print_text(f"{each.bytes:>20,}  {each.key.removeprefix(prefix)}")


def _facts_of(thread: StoredThread) -> Iterator[tuple[str, str]]:
    place = thread.place
    under_way = f" and {place.unfinished} of a turn under way" if place.unfinished else ""
    closed = ", closed" if place.closed else ""
    yield "thread", place.thread_id
    yield "messages", f"{format_number(place.messages)}{under_way}"
    yield "bytes", f"{format_number(place.bytes)} packed"
    yield "last id", thread.last_id or NOTHING
    yield "hot", "yes" if place.hot else "no"
    yield "archived", "no cold tier is set" if place.archived is None else f"{place.archived:,} messages"
    yield "epoch", f"{place.epoch} (opened {format_time(place.opened_at)}{closed})"
    yield "owner", place.owner
    yield "state", f"version {place.slice_version}, {format_number(place.slice_bytes)} bytes"
    if thread.prefix is not None:
        size = sum(each.bytes for each in thread.objects)
        yield "objects", f"{len(thread.objects)}, {size:,} bytes below {thread.prefix}"
