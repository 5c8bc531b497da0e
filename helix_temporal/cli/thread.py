"""``helix-temporal thread``: where a thread stands, what holds it, and whether all of it is sound."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from helix_temporal.backends import Backends
from helix_temporal.errors import HelixError
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ThreadFacts

R = TypeVar("R")
ThreadId = Annotated[str, typer.Argument(help="The thread; a session's main thread has the session's id.")]

app = typer.Typer(help="Look at one thread; addresses come from HELIX_… variables.", no_args_is_help=True)


@app.command()
def show(thread_id: ThreadId) -> None:
    """Print where a thread stands and which objects hold it; changes nothing."""
    _run(lambda backends: _show(backends, thread_id))


@app.command()
def verify(thread_id: ThreadId) -> None:
    """Read all of a thread's archive and verify it; exit status 1 if something is wrong."""
    problems = _run(lambda backends: _verify(backends, thread_id))
    if problems:
        raise typer.Exit(1)


def _run(look: Callable[[Backends], Awaitable[R]]) -> R:
    async def run() -> R:
        backends = Backends(Settings.from_env(os.environ))
        try:
            return await look(backends)
        finally:
            await backends.close()

    try:
        return asyncio.run(run())
    except HelixError as error:
        typer.secho(f"{type(error).__name__}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


async def _show(backends: Backends, thread_id: str) -> None:
    facts = await backends.threads.facts(thread_id)
    for name, value in _lines(facts, archives=backends.tiered is not None):
        typer.echo(f"{name:<11}{value}")
    if backends.tiered is None or backends.blobs is None:
        return
    prefix = backends.tiered.layout.thread(thread_id)
    objects = sorted([(each.key, each.size) async for each in backends.blobs.list(prefix)])
    size = sum(size for _, size in objects)
    typer.echo(f"{'objects':<11}{len(objects)}, {size:,} bytes below {prefix}")
    for key, size in objects:
        typer.echo(f"{size:>20,}  {key.removeprefix(prefix)}")


def _lines(facts: ThreadFacts, *, archives: bool) -> list[tuple[str, str]]:
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


async def _verify(backends: Backends, thread_id: str) -> tuple[str, ...]:
    facts = await backends.threads.facts(thread_id)
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
