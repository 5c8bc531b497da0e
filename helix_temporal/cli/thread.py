"""``helix-temporal thread``: where a thread stands, what holds it, and whether all of it is sound."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from helix_temporal.backends import Backends
from helix_temporal.cli._errors import exit_on_error
from helix_temporal.cli._running import check_stores_shared
from helix_temporal.coldtier import ADAPTERS, TieredThreads, envelope_of
from helix_temporal.errors import HelixError, InvalidConfigError, InvalidRequestError
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ThreadFacts

R = TypeVar("R")
ThreadId = Annotated[str, typer.Argument(help="The thread; a session's main thread has the session's id.")]


class Adapter(StrEnum):
    """Zeitlich's adapters, by the names that they have there."""

    ANTHROPIC = "anthropic"
    GOOGLE = "googleGenAI"
    LANGCHAIN = "langChain"


NamedAdapter = Annotated[
    Adapter | None,
    typer.Option("--adapter", help="Zeitlich's adapter; found by the shape of rows without it."),
]


def show(thread_id: ThreadId) -> None:
    """Print where a thread stands and which objects hold it; changes nothing."""
    _run_with_backends(lambda backends: _print_thread(backends, thread_id))


def verify(thread_id: ThreadId) -> None:
    """Read all of a thread's archive and verify it; exit status 1 if something is wrong."""
    problems = _run_with_backends(lambda backends: _verify_thread(backends, thread_id))
    if problems:
        raise typer.Exit(1)


def import_v1(
    thread_ids: Annotated[
        list[str] | None, typer.Argument(metavar="THREAD_ID", help="The threads to take over.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="All whose snapshots lie below the prefix.")
    ] = False,
    adapter: NamedAdapter = None,
) -> None:
    """Take over threads of zeitlich's from their snapshots in the bucket; changes no snapshot.

    A session does the same when it opens such a thread, where HELIX_READ_V1 is set; this does it beforehand.
    Snapshots are looked for at HELIX_V1_PREFIX/HELIX_V1_THREAD_KEY/<thread id>.json.gz, or .json.  What was
    taken over already is found and left alone.  Exit status 1 if one failed; the others are taken over.
    """
    if bool(thread_ids) == everything:
        raise typer.BadParameter("name threads, or give --all", param_hint="THREAD_ID")

    async def take_over(backends: Backends) -> bool:
        tiered = _require_archive(backends)
        named = thread_ids or [each async for each in tiered.v1_threads()]

        async def import_thread(thread_id: str) -> str:
            facts = await tiered.import_v1(thread_id, adapter or "")
            return f"{facts.committed:,} messages, adapter {facts.adapter or 'unknown'}"

        return await _process_threads(named, import_thread)

    if not _run_with_backends(take_over, read_v1=True):
        raise typer.Exit(1)


def export_v1(
    thread_ids: Annotated[list[str], typer.Argument(metavar="THREAD_ID", help="The threads to give back.")],
    *,
    adapter: NamedAdapter = None,
    instructions: Annotated[
        str | None, typer.Option(help="The system prompt; becomes the first row of each snapshot.")
    ] = None,
) -> None:
    """Write all finished turns of threads as snapshots that zeitlich reads.

    Rows that came from zeitlich are written as they were, other messages in the envelope of the thread's
    adapter, or of the one that is named.  A snapshot that somebody else changed is never replaced.
    Exit status 1 if one of them failed; the others are written.
    """

    async def give_back(backends: Backends) -> bool:
        tiered = _require_archive(backends)

        async def export_thread(thread_id: str) -> str:
            facts = await tiered.read_facts(thread_id)
            if not (adapter or envelope_of(facts.adapter)):
                raise InvalidRequestError(
                    f"thread {thread_id!r}: it did not come from zeitlich, so it has no adapter of "
                    "zeitlich's; "
                    f"give --adapter ({', '.join(ADAPTERS)})"
                )
            return await tiered.export_v1(thread_id, instructions, adapter=adapter or "")

        return await _process_threads(thread_ids, export_thread)

    if not _run_with_backends(give_back, read_v1=True):
        raise typer.Exit(1)


async def _process_threads(thread_ids: Sequence[str], work: Callable[[str], Awaitable[str]]) -> bool:
    """Do it for one after the other, and say what became of each; whether all went well."""
    failed = 0
    for number, thread_id in enumerate(thread_ids, 1):
        place = f"{number}/{len(thread_ids)} {thread_id}"
        try:
            typer.echo(f"{place}: {await work(thread_id)}")
        except HelixError as error:
            failed += 1
            typer.secho(f"{place}: {type(error).__name__}: {error}", fg="red", err=True)
    if len(thread_ids) != 1:
        typer.echo(f"{len(thread_ids) - failed} of {len(thread_ids)} threads")
    return not failed


def _require_archive(backends: Backends) -> TieredThreads:
    if backends.tiered is None:
        raise InvalidConfigError("no archive is set; set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY")
    return backends.tiered


def _run_with_backends(look: Callable[[Backends], Awaitable[R]], *, read_v1: bool = False) -> R:
    async def run() -> R:
        settings = Settings.from_env(os.environ)
        check_stores_shared(settings)
        backends = Backends(settings.model_copy(update={"read_v1": True}) if read_v1 else settings)
        try:
            return await look(backends)
        finally:
            await backends.close()

    with exit_on_error():
        return asyncio.run(run())


async def _print_thread(backends: Backends, thread_id: str) -> None:
    facts = await backends.threads.read_facts(thread_id)
    for name, value in _rows_of_facts(facts, archives=backends.tiered is not None):
        typer.echo(f"{name:<11}{value}")
    if backends.tiered is None or backends.blobs is None:
        return
    prefix = backends.tiered.layout.thread_prefix(thread_id)
    objects = sorted([(each.key, each.size) async for each in backends.blobs.list(prefix)])
    size = sum(size for _, size in objects)
    typer.echo(f"{'objects':<11}{len(objects)}, {size:,} bytes below {prefix}")
    for key, size in objects:
        typer.echo(f"{size:>20,}  {key.removeprefix(prefix)}")


def _rows_of_facts(facts: ThreadFacts, *, archives: bool) -> list[tuple[str, str]]:
    opened = datetime.fromtimestamp(facts.epoch / 1e6, UTC).isoformat(timespec="seconds")
    unfinished = facts.head.position - facts.committed
    return [
        ("thread", facts.thread_id),
        (
            "messages",
            f"{facts.committed:,}" + (f" and {unfinished} of a turn under way" if unfinished else ""),
        ),
        ("bytes", f"{facts.size:,} packed"),
        ("last id", facts.head.last_id or "–"),
        ("hot", "yes" if facts.hot else "no"),
        ("archived", f"{max(facts.archived, 0):,} messages" if archives else "no cold tier is set"),
        ("epoch", f"{facts.epoch} (opened {opened}{', closed' if facts.closed else ''})"),
        ("owner", facts.owner),
        ("state", f"version {facts.slice_version}, {len(facts.slice):,} bytes"),
    ]


async def _verify_thread(backends: Backends, thread_id: str) -> tuple[str, ...]:
    facts = await backends.threads.read_facts(thread_id)
    if backends.tiered is None:
        typer.echo(f"{thread_id}: {facts.head.position:,} messages, no cold tier is set")
        return ()
    audit = await backends.tiered.upkeep.audit(thread_id)
    for problem in audit.problems:
        typer.secho(problem, fg="red")
    if not audit.problems:
        hot_only = f", {audit.unarchived:,} of them only in the hot tier" if audit.unarchived else ""
        typer.echo(f"{thread_id}: {facts.head.position:,} messages, all sound{hot_only}")
    return audit.problems
