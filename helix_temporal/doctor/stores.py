"""Checks of the stores that settings name."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from helix_temporal.backends import Backends
from helix_temporal.doctor.checks import Check, Probe, make_check
from helix_temporal.doctor.clocks import ask_timed, check_clock
from helix_temporal.errors import HelixError, StoreUnavailableError, ThreadNotFoundError
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.hot import HotHeader, HotTier
from helix_temporal.stores.protocols.server_facts import PostgresFacts, RedisFacts
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.views.reading import stores_for_reading

FULL: Final = 0.9
"""Of memory, connections or a disk: more in use is worth a warning."""
BEHIND_AFTER: Final = 600.0
"""Seconds for which a hot thread may lie unarchived: the sweep comes each minute."""
_LOOK_SECONDS: Final = 2.0
"""For a look through a database file."""
_AT_ONCE: Final = 20
"""Threads that are read side by side."""
_PROBED: Final = "probed-by-helix-doctor"
_redis: Final = partial(make_check, "redis")
_postgres: Final = partial(make_check, "postgres")
_sqlite: Final = partial(make_check, "sqlite")
_archive: Final = partial(make_check, "archive")


@runtime_checkable
class _Dated(Protocol):
    """A blob store whose server tells the time."""

    async def read_clock(self, key: str) -> float | None: ...


def list_store_probes(backends: Backends, settings: Settings, *, writes: bool) -> list[Probe]:
    """Of all stores that are used.

    Args:
        backends: The stores.
        settings: Where they are.
        writes: Also prove, on objects of their own that are removed, that the archive honours write
            conditions, and that the database file takes writes.
    """
    probes: list[Probe] = []
    redis, postgres = backends.find_server("redis"), backends.find_server("postgres")
    if redis is not None:
        probes += _list_redis_probes(redis, settings)
    if postgres is not None:
        probes += _list_postgres_probes(postgres)
    if settings.sqlite_file is not None and (sqlite := backends.find_server("sqlite")) is not None:
        probes += _list_sqlite_probes(sqlite, settings.sqlite_file, writes=writes)
    if backends.blobs is not None:
        probes += _list_archive_probes(backends, settings, writes=writes)
    return probes


# ---- Redis ------------------------------------------------------------------------------------------


def _list_redis_probes(redis: Any, settings: Settings) -> list[Probe]:
    async def look() -> Sequence[Check]:
        facts, asked = await ask_timed(redis.read_facts)
        return [*judge_redis(facts, settings), check_clock("redis", asked.find_difference(facts.now / 1000))]

    async def check() -> Sequence[Check]:
        await redis.check()
        return [_redis("rights", "ok", "takes every command that is used")]

    return [Probe("redis", "server", look), Probe("redis", "rights", check)]


def judge_redis(facts: RedisFacts, settings: Settings) -> list[Check]:
    """What is to be said of a server that answers; of its policy its `check` refuses what would lose data."""
    many = f", {facts.servers} primaries" if facts.servers > 1 else ""
    bound = f" of {facts.max_memory:,}" if facts.max_memory else ""
    found = [
        _redis("server", "ok", f"{facts.version} at {facts.where}{many}, {facts.memory:,}{bound} bytes used")
    ]
    found += _judge_memory(facts)
    if facts.save_failed:
        found.append(
            _redis("persistence", "failed", "its last snapshot or log could not be written; see its log")
        )
    elif not facts.keeps_log:
        found.append(_judge_without_log(settings))
    else:
        found.append(_redis("persistence", "ok", "appendonly is on"))
    return found


def _judge_memory(facts: RedisFacts) -> Iterable[Check]:
    if facts.max_memory and facts.memory > FULL * facts.max_memory:
        yield _redis(
            "memory",
            "warning",
            f"{facts.memory / facts.max_memory:.0%} of maxmemory is in use; beyond it writes fail: raise "
            "it, or see whether the archive is behind",
        )
    yield _redis("eviction", "ok", f"maxmemory-policy is {facts.policy or 'not told'}")


def _judge_without_log(settings: Settings) -> Check:
    keeps_state = settings.state_in == "redis" and settings.session_store != "none"
    lost = "sessions" if keeps_state else "what is not archived yet" if settings.has_cold_tier else "threads"
    return _redis(
        "persistence",
        "warning",
        f"appendonly is off: {lost} would be lost with its process; set appendonly yes",
    )


# ---- PostgreSQL -------------------------------------------------------------------------------------


def _list_postgres_probes(postgres: Any) -> list[Probe]:
    async def look() -> Sequence[Check]:
        facts, asked = await ask_timed(postgres.read_facts)
        clock = check_clock("postgres", asked.find_difference(facts.now / 1000))
        return [*judge_postgres(facts), clock]

    async def check() -> Sequence[Check]:
        await postgres.check()
        return [_postgres("rights", "ok", "on all tables, as needed")]

    return [Probe("postgres", "server", look), Probe("postgres", "tables and rights", check)]


def judge_postgres(facts: PostgresFacts) -> list[Check]:
    """What is to be said of a server that answers; versions of tables that do not fit its `check` refuses."""
    known = f"PostgreSQL {facts.version} at {facts.where}"
    found = [_postgres("server", "ok", known)]
    if facts.connections > FULL * facts.max_connections:
        said = (
            f"{facts.connections} of {facts.max_connections} connections are in use; beyond that workers are "
            "refused: raise max_connections, or put a pooler between"
        )
        found.append(_postgres("connections", "warning", said))
    tables = f"version {facts.tables_version}, {facts.latest_version} needed"
    if facts.tables_version == facts.latest_version:
        found.append(_postgres("tables", "ok", tables))
    return found


# ---- SQLite -----------------------------------------------------------------------------------------


def _list_sqlite_probes(sqlite: Any, file: Path, *, writes: bool) -> list[Probe]:
    async def look() -> Sequence[Check]:
        found = check_disk("sqlite", file.parent)
        if not await asyncio.to_thread(file.exists):
            said = f"{str(file)!r} is not there yet; the first worker makes it"
            return [_sqlite("file", "ok", said), *found]
        await sqlite.threads.read_header(_PROBED)
        if writes:
            await sqlite.check()
        tried = "answers and takes writes" if writes else "answers (--write-probe tries a write)"
        return [_sqlite("file", "ok", f"{str(file)!r} {tried}"), *found]

    async def look_for_damage() -> Sequence[Check]:
        if not await asyncio.to_thread(file.exists):
            return []
        return [judge_damage(await sqlite.find_damage(_LOOK_SECONDS), file)]

    return [Probe("sqlite", "file", look), Probe("sqlite", "structure", look_for_damage)]


def judge_damage(findings: Sequence[str] | None, file: Path) -> Check:
    """What is to be said of what is wrong with a database file; None: it was not looked through."""
    if findings is None:
        said = (
            "not looked at, because the file is too large for it; "
            "helix-temporal thread verify --all reads all threads"
        )
        return _sqlite("structure", "ok", said)
    if findings:
        said = (
            f"{str(file)!r} is damaged, {findings[0]}; stop the workers and restore it from a backup; "
            "helix-temporal thread verify --all says which threads can still be read"
        )
        return _sqlite("structure", "failed", said)
    said = "sound; whether each message is as it was written, helix-temporal thread verify --all says"
    return _sqlite("structure", "ok", said)


def check_disk(about: str, directory: Path) -> list[Check]:
    """What is to be said of the disk below a directory, or below what of it is there."""
    there = next(each for each in (directory, *directory.parents) if each.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        said = f"{str(there)!r} takes no files from this user; give the right, or set another directory"
        return [make_check(about, "disk", "failed", said)]
    usage = shutil.disk_usage(there)
    said = f"{usage.free:,} bytes free of {usage.total:,}"
    if usage.free < (1 - FULL) * usage.total:
        return [make_check(about, "disk", "warning", f"{said}; make room")]
    return [make_check(about, "disk", "ok", said)]


# ---- archive ----------------------------------------------------------------------------------------


def _list_archive_probes(backends: Backends, settings: Settings, *, writes: bool) -> list[Probe]:
    async def look() -> Sequence[Check]:
        return await _look_at_archive(backends, settings)

    async def prove() -> Sequence[Check]:
        await backends.check_archive()
        return [_archive("writes", "ok", "conditional writes are honoured")]

    async def compare() -> Sequence[Check]:
        if await _is_yet_to_come(settings):
            return []
        await backends.compare_archive()
        return [_archive("same", "ok", "is the one that the threads of the hot store go to")]

    async def count() -> Sequence[Check]:
        if await _is_yet_to_come(settings):
            return []
        return [await _look_at_backlog(backends)]

    probes = [
        Probe("archive", "server", look),
        Probe("archive", "same", compare),
        Probe("archive", "backlog", count),
    ]
    return [*probes, Probe("archive", "writes", prove)] if writes else probes


async def _is_yet_to_come(settings: Settings) -> bool:
    """Whether the hot store is a file that no worker has made yet: to ask it would make it."""
    file = settings.sqlite_file
    return settings.threads_in == "sqlite" and file is not None and not await asyncio.to_thread(file.exists)


async def _look_at_archive(backends: Backends, settings: Settings) -> list[Check]:
    blobs = backends.blobs
    assert blobs is not None
    assert backends.tiered is not None
    key = f"{backends.tiered.layout.probe_prefix()}{_PROBED}"
    await blobs.get(key)
    async for _ in blobs.list(backends.tiered.layout.part_prefix(0)):
        break
    where = str(settings.cold_directory)
    if settings.s3_bucket is not None:
        where = f"bucket {settings.s3_bucket!r} at {settings.s3_endpoint or f'AWS, {settings.s3_region}'}"
    found = [_archive("server", "ok", f"{where}, below {settings.s3_prefix!r}: may be read and listed")]
    if settings.cold_directory is not None:
        found += check_disk("archive", settings.cold_directory)
    if isinstance(blobs, _Dated):
        there, asked = await ask_timed(lambda: blobs.read_clock(key))
        if there is not None:
            found.append(check_clock("archive", asked.find_difference(there, resolution=1.0)))
    return found


async def _look_at_backlog(backends: Backends) -> Check:
    """How much of the hot store is not archived, by one page of it."""
    hot = backends.hot
    page = await hot.scan_page()
    # The scan knows what the sweep has marked; a thread that each turn archives may be whole without it.
    unmarked = [each.thread_id for each in page.threads if not each.is_archived]
    behind = await _list_behind(stores_for_reading(backends).threads, hot, unmarked)
    more = "the first " if page.cursor is not None else ""
    verb = "has" if len(behind) == 1 else "have"
    said = (
        f"of {more}{len(page.threads):,} hot threads {len(behind):,} {verb} messages "
        "that are not archived yet"
    )
    oldest = min((each.unarchived_since for each in behind if each.unarchived_since), default=0)
    age = time.time() - oldest / 1000 if oldest else 0.0
    if age > BEHIND_AFTER:
        advice = f"{said}, one for {age:.0f} s; does the maintenance worker run, and does the archive answer?"
        return _archive("backlog", "warning", advice)
    return _archive("backlog", "ok", said)


async def _list_behind(threads: ThreadStore, hot: HotTier, thread_ids: Sequence[str]) -> list[HotHeader]:
    """Headers of those of which the archive lacks messages; of a damaged one `thread verify` tells.

    The archive is asked where the hot store does not know that it has all: each append tells it of the flush
    before, so of the last flush of a session that waits it is told by the next append.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(thread_id: str) -> HotHeader | None:
        async with gate:
            try:
                header = await hot.read_header(thread_id)
            except StoreUnavailableError:
                raise
            except HelixError:
                return None
            if header is None or header.deleted or header.head.position <= max(header.archived, 0):
                return None
            return header if await _lacks_messages(threads, thread_id) else None

    found = await asyncio.gather(*map(read, thread_ids))
    return [each for each in found if each is not None]


async def _lacks_messages(threads: ThreadStore, thread_id: str) -> bool:
    """Whether the archive lacks messages of a thread; also where it does not answer."""
    try:
        facts = await threads.read_facts(thread_id)
    except ThreadNotFoundError:
        return False
    except HelixError:
        return True
    return facts.hot and facts.archived < facts.head.position
