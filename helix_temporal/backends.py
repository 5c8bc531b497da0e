"""From settings to stores: the one place that picks implementations.  Opens nothing by itself."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from helix_temporal._futures import discard_error
from helix_temporal.activities import (
    LockActivities,
    Payloads,
    SessionActivities,
    StepLimits,
    Stepper,
    ThreadActivities,
    ToolRunner,
    UsageActivities,
)
from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.executions import TemporalExecutions
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.maintenance import CleanupActivities, MaintenanceActivities, WakingActivities
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.rewinds import TakeBacks
from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.activities.stores import CheckpointActivities, SessionStoreActivities
from helix_temporal.activities.sub_agents import ChildActivities
from helix_temporal.activities.traces import TurnTraces
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import Agent, AgentRegistry
from helix_temporal.agents.checks import check_type
from helix_temporal.blobs import BlobStore
from helix_temporal.blobs.guarded import GuardedBlobs
from helix_temporal.blobs.probe import ProvedPlace, prove_once
from helix_temporal.coldtier import Backlog, KeepHot, StoreNames, TieredThreads, V1Snapshots
from helix_temporal.errors import HelixError, InvalidConfigError, StoreUnavailableError
from helix_temporal.models.limits import largest_result
from helix_temporal.models.maintenance import SweepInput, SweepResult
from helix_temporal.settings import Settings
from helix_temporal.stores.archive_mark import ArchiveMark, compare_archives
from helix_temporal.stores.cleanup import Cleanup
from helix_temporal.stores.protocols.hot import HotTier, PayloadStore
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.records import Records
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.protocols.threads import ThreadStore, Transform
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.stores.protocols.workspaces import WorkspaceProvider
from helix_temporal.stores.record_packs import RecordPacks
from helix_temporal.stores.records import RecordUpkeep, RowRecords
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.stores.threads.sweep import sweep_threads
from helix_temporal.stores.workspace_providers import import_providers
from helix_temporal.telemetry import Telemetry
from helix_temporal.telemetry.emitter import open_emitter
from helix_temporal.telemetry.metrics import OTHER

_GIVEN = "postgresql://a-pool-that-was-given"
"""Stands for the address of a database whose pool or `PostgresDatabase` is given; nothing connects to it."""


T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_WHERE: Final = {
    "redis": "HELIX_REDIS_URL",
    "postgres": "HELIX_POSTGRES_DSN",
    "sqlite": "HELIX_DATA_DIRECTORY",
    "s3": "HELIX_S3_ENDPOINT",
}


@contextmanager
def _name_setting_in_errors(kind: str) -> Iterator[None]:
    """Say in errors of a server that does not answer which setting says where it is."""
    try:
        yield
    except StoreUnavailableError as error:
        if kind not in _WHERE:
            raise
        raise StoreUnavailableError(f"{error}; see {_WHERE[kind]}") from error


_PROBED: Final = "probed-by-helix-health"
"""An id that no session has."""


async def _ask_store(read: Callable[[], Awaitable[object]], within: float) -> str:
    """Why a store does not answer; empty if it does.  Comes back in time also where the read does not end.

    A query that is cancelled on a silent connection of PostgreSQL ends seconds later.
    """
    asked = asyncio.ensure_future(read())
    try:
        done, _ = await asyncio.wait({asked}, timeout=within)
    finally:
        asked.cancel()
        asked.add_done_callback(discard_error)
    if not done:
        return f"did not answer within {within:.0f} s"
    try:
        asked.result()
    except HelixError as error:
        return _describe(error)
    return ""


def _describe(error: HelixError) -> str:
    return f"{type(error).__name__}: {error}"[:300]


class Backends:
    """Stores of one process, shared by all its activities.

    Connections are opened by the first call that needs one, on the loop that runs then; building this
    needs no server.

    Args:
        hot: A hot tier from elsewhere, with the payload store beside it; otherwise as settings say.
        blobs: A blob store from elsewhere; otherwise as settings say.
        locks, usage: From elsewhere; otherwise where the state of sessions is.
        postgres: A database that is there, instead of ``postgres_dsn``: an asyncpg pool, or a
            `helix_temporal.stores.postgres.PostgresDatabase`.  Whoever made it closes it.
        streams: From elsewhere; otherwise as settings say.
        workspaces: Providers of workspaces by id, for the clean-up; beside those that settings name.

    Attributes:
        threads: The thread store; `tiered` is the same one if there is a cold tier.
        locks, usage: Leases, and what sessions used.
        keeps_sessions: There is a session store; not so with ``session_store="none"``.
        streams: Where sessions are shown live; None with ``stream_store="none"``.
        traces: Who tells of turns in traces; nobody, before `start_traces`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        hot: tuple[HotTier, PayloadStore] | None = None,
        blobs: BlobStore | None = None,
        locks: LockManager | None = None,
        usage: UsageStore | None = None,
        postgres: Any = None,
        streams: StreamStore | None = None,
        workspaces: Mapping[str, WorkspaceProvider] | None = None,
    ) -> None:
        self.settings = settings
        self._places = _Places(settings, postgres)
        chosen = self._places.chosen
        self._hot_is_own, names = hot is None, _name_stores(settings, chosen.threads_in, hot, blobs)
        if hot is None:
            place = self._places[chosen.threads_in]
            self.hot, hot_payloads = place.threads, place.payloads
        else:
            self.hot, hot_payloads = hot
        self._mark: ArchiveMark | None = None
        if hot is None and blobs is None and chosen.threads_in != "memory":
            self._mark = ArchiveMark(hot_payloads, settings.archive_identity, settings.also_known_as)
        compared = self.hot if self._mark is None else compare_archives(self.hot, self._mark)
        self.locks: LockManager = self._places[chosen.state_in].locks if locks is None else locks
        self.usage: UsageStore = self._places[chosen.state_in].usage if usage is None else usage
        if streams is None and chosen.streams_in != "none":
            streams = self._places[chosen.streams_in].streams
        self.streams = streams
        self._streaming, self.traces = Streaming(streams), TurnTraces()
        self.blobs, self._proved = (blobs, None) if blobs is not None else _make_blob_store(settings)
        self.tiered: TieredThreads | None = None
        expiry = settings.expire_unarchived_after
        self.threads: ThreadStore = HotThreads(
            compared,
            expire_after=expiry.total_seconds() if expiry else None,
            backend=names.hot,
        )
        payloads: PayloadStore = hot_payloads
        if self.blobs is None and settings.archive == "required":
            raise InvalidConfigError(
                "HELIX_ARCHIVE is 'required', and there is no cold tier: set HELIX_S3_BUCKET or"
                " HELIX_COLD_DIRECTORY"
            )
        self._guarded = None if self.blobs is None else GuardedBlobs(self.blobs)
        if self._guarded is not None:
            self.threads = self.tiered = _make_tiered_threads(settings, compared, self._guarded, names)
            payloads = self.tiered.payloads
        self.payloads = Payloads(payloads)
        self.workspaces = import_providers(settings.workspaces) | dict(workspaces or {})
        self._sessions: SessionStore | None = None
        self._records: Records | None = None
        self._record_upkeep: RecordUpkeep | None = None
        self._states: SessionSync | None = None
        if settings.session_store != "none":
            self._sessions, self._records, self._states = self._make_session_store(shared=hot is None)
        self.keeps_sessions: bool = self._sessions is not None
        self._used = UsageLog(self.usage if self.keeps_sessions else None)

    @property
    def sessions(self) -> SessionStore:
        """The session store.

        Raises:
            InvalidConfigError: There is none: ``session_store="none"``.
        """
        return self._of_session_store(self._sessions)

    @property
    def records(self) -> Records:
        """Named bytes beside the sessions of the session store.

        Raises:
            InvalidConfigError: As `sessions`.
        """
        return self._of_session_store(self._records)

    def _of_session_store(self, part: T | None) -> T:
        if part is None:
            raise InvalidConfigError(
                "there is no session store: HELIX_SESSION_STORE is 'none'; leave it out, and sessions are "
                "kept where HELIX_POSTGRES_DSN, HELIX_REDIS_URL or HELIX_DATA_DIRECTORY says"
            )
        return part

    def _make_session_store(self, *, shared: bool) -> tuple[SessionStore, Records, SessionSync]:
        chosen = self._places.chosen
        rows = self._places[chosen.state_in].sessions
        beside = shared and chosen.threads_in == chosen.state_in
        # A durable store never gives a revision twice, so its rows may be remembered.
        recalls = rows.durable
        packs = None
        if self._guarded is not None:
            packs = RecordPacks(self._guarded, prefix=self.settings.s3_prefix)
        store = RowSessions(
            rows,
            self.threads,
            together=beside,
            streams=self.streams,
            packs=packs,
            recalls=recalls,
            archive_required=self.settings.archive == "required",
            check_archive=None if self._mark is None else self._mark.check,
        )
        if packs is not None:
            after = self.settings.archive_records_after
            self._record_upkeep = RecordUpkeep(store, after=int(after.total_seconds() * 1000))
        together = beside and self.tiered is None
        # The session workflow opens and cuts its thread itself.
        apart = RowSessions(rows, recalls=recalls)
        states = SessionSync(
            apart,
            self.threads,
            together=store if together else None,
            backend=chosen.state_in,
            traces=self.traces,
        )
        return store, RowRecords(store), states

    async def check(self) -> None:
        """Refuse servers that would lose data: eviction policy, conditional writes, versions of tables.

        Raises:
            UnsafeRedisPolicyError, ConditionalWritesUnsupportedError, UnsupportedServerError,
            SchemaVersionError: See there.
            ForeignDeploymentError: The threads of this hot store go to another archive.
            StoreUnavailableError: A server does not answer; names the setting that says where it is.
        """
        for check in self.list_checks().values():
            await check()
        await self.warn_of_threads_elsewhere()
        if not self.needs_archive:
            await self.check_archive()

    def list_checks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """`check` in parts, of all stores without which a worker can do nothing: by what is there, and where.

        The archive is among them where it is required.
        """
        chosen = self._places.chosen
        kinds = dict.fromkeys((chosen.threads_in, *self._places))
        checks = {self._describe_kind(kind): partial(self._check_kind, kind) for kind in kinds}
        return {**checks, "archive": self.check_archive} if self.needs_archive else dict(checks)

    def _describe_kind(self, kind: str) -> str:
        """What is in a kind of store first of all."""
        chosen = self._places.chosen
        if kind == chosen.threads_in:
            return self._describe_threads()
        return f"state in {kind}" if kind == chosen.state_in else f"streams in {kind}"

    def _describe_threads(self) -> str:
        where = self._places.chosen.threads_in if self._hot_is_own else "the store that the program gave"
        return f"threads in {where}"

    async def _check_kind(self, kind: str) -> None:
        has_threads = kind == self._places.chosen.threads_in
        with _name_setting_in_errors(kind):
            if has_threads:
                await self.hot.check()
            if kind in self._places:
                await self._places[kind].check()
            if has_threads and self._mark is not None:
                await self._mark.check()

    def find_server(self, kind: str) -> Any:
        """The backend of a kind of store, ``redis``, ``postgres`` or ``sqlite``; None where none is used."""
        chosen = self._places.chosen
        used = {chosen.threads_in, chosen.state_in, chosen.streams_in}
        return self._places[kind] if kind in used else None

    async def compare_archive(self) -> None:
        """Refuse an archive that is another one than the threads of the hot store go to; changes nothing.

        Raises:
            ForeignDeploymentError: It is another one.
            StoreUnavailableError: The hot store does not answer.
        """
        if self._mark is not None:
            await self._mark.compare()

    @property
    def needs_archive(self) -> bool:
        """Nobody is answered without the archive: ``archive="required"``."""
        return self.settings.archive == "required"

    async def check_archive(self) -> None:
        """Prove that the archive, if there is one, honours write conditions; from then on it is used.

        Raises:
            ConditionalWritesUnsupportedError, ArchiveAccessError, StoreUnavailableError: See there.
        """
        if self.blobs is None or self._guarded is None or self.tiered is None:
            return
        with _name_setting_in_errors("s3"):
            await prove_once(self.blobs, self.tiered.layout.probe_prefix(), self._proved)
        self._guarded.refusal = None

    def refuse_archive(self, why: HelixError) -> None:
        """Let no call use the archive before `check_archive` has passed; each raises this."""
        if self._guarded is not None:
            self._guarded.refusal = why

    async def warn_of_threads_elsewhere(self) -> None:
        """Say that a store which is named holds threads, where another one has taken them over."""
        if not self._hot_is_own:
            return
        here, file = self._places.chosen.threads_in, self.settings.sqlite_file
        there = {"postgres"} & self._places.keys()
        if file is not None and file.exists():
            there.add("sqlite")
        # Not Redis, which would have to be scanned whole: nothing takes its threads over.
        for kind in sorted(there - {here}):
            try:
                holds = bool((await self._places[kind].threads.scan_page(count=1)).threads)
            except HelixError as error:
                # No worker may fail to start for a store of threads that it does not use.
                _log.warning("whether the store of %s holds threads cannot be told: %s", _WHERE[kind], error)
                continue
            if holds:
                _log.warning(
                    "the store of %s holds threads, which are not seen: threads are in %s by the settings. "
                    "Conversations do not move from one store to another by themselves",
                    _WHERE[kind],
                    here,
                )

    async def sweep(self, *, evict: bool = False, parallel: int = 8) -> SweepResult:
        """Archive what is hot, once, as the maintenance worker does each minute; needs no Temporal.

        Args:
            evict: Also drop from the hot tier what is archived.
            parallel: Threads at a time.

        Raises:
            InvalidConfigError: There is no archive.
            StoreUnavailableError: A store answered for none of many threads; sweep again.
        """
        if self.tiered is None:
            raise InvalidConfigError(
                "there is no archive to sweep into: set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY"
            )
        return await sweep_threads(self.hot, self.threads, SweepInput(evict=evict, parallel=parallel))

    async def find_unanswered(self, within: float, *, every: bool = False) -> dict[str, str]:
        """Stores that do not answer a read within so many seconds, and what they say; for probes.

        Of the archive only where it is required, was found unfit (see `find_degraded`), or ``every`` store is
        asked: sessions go on without it otherwise.
        """
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            self._describe_threads(): lambda: self.hot.read_header(_PROBED)
        }
        if self._sessions is not None:
            asked[f"state in {self._places.chosen.state_in}"] = self._sessions.now
        if self.blobs is not None and (every or self.needs_archive):
            asked["archive"] = self._ask_archive
        found = await asyncio.gather(*(_ask_store(each, within) for each in asked.values()))
        unfit = self._guarded.refusal if self._guarded is not None else None
        said = {"archive": _describe(unfit)} if unfit is not None and not unfit.retryable else {}
        return said | {name: why for name, why in zip(asked, found, strict=True) if why}

    async def find_degraded(self, within: float) -> dict[str, str]:
        """The archive, where it does not answer and is not required, and what it says; for probes.

        Sessions that are open go on without it.  One that is new, or has ended, cannot be opened: the archive
        has its epoch, and perhaps its messages.
        """
        if self.blobs is None or self.needs_archive:
            return {}
        why = await _ask_store(self._ask_archive, within)
        return {"archive": why} if why else {}

    async def _ask_archive(self) -> None:
        if self.blobs is not None:
            await self.blobs.get(f"{self.settings.s3_prefix}/{_PROBED}")

    def start_traces(self, telemetry: Telemetry | None) -> None:
        """Tell of turns in traces, if ``telemetry`` has a provider for them or the settings say so."""
        settings = self.settings
        if self.traces.emitter is not None:
            return  # of another worker with the same stores
        emitter = open_emitter(telemetry, traces=settings.traces, content=settings.telemetry_content)
        self.traces.start(emitter, settings.traces_caller)

    async def close(self) -> None:
        """Close all connections, once usage and spans on their way have arrived, each for 5 s at most."""
        await self._used.close()
        await asyncio.to_thread(self.traces.close)
        await self.hot.close()
        for place in self._places.values():
            await place.close()
        if self.blobs is not None:
            await self.blobs.close()

    def make_activities(
        self, agents: Iterable[Agent], transforms: Mapping[str, Transform] | None = None
    ) -> list[Any]:
        """Every activity of the pack over these stores, ready to register."""
        settings = self.settings
        registry = AgentRegistry(agents, roll_out=settings.timeouts.roll_out.total_seconds())
        every = settings.timeouts.heartbeat_every.total_seconds()
        limits = settings.limits
        sessions = self.make_session_activities(registry)
        threads = self._make_thread_activities(transforms)
        maintenance = MaintenanceActivities(
            self.hot,
            self.threads,
            self.tiered.upkeep if self.tiered else None,
            self._record_upkeep,
            beat_every=every,
        )
        tools = ToolRunner(
            self.threads,
            self.payloads,
            inline_result=limits.inline_tool_result_bytes,
            inline_text=limits.inline_text_bytes,
            max_result=largest_result(limits.message_bytes),
            beat_every=every,
            states=self._states,
            streams=self._streaming,
            used=self._used,
            traces=self.traces,
        )
        locks = LockActivities(self.locks)
        usage = UsageActivities(self.usage, max_payload=limits.payload_bytes)
        holders = (
            *(sessions, threads, maintenance, locks, usage),
            WakingActivities(self._sessions, beat_every=every, deployment=settings.deployment),
            CleanupActivities(self._make_cleanup(), beat_every=every),
            DeletionActivities(
                self.threads, self.payloads, self.usage, self.streams, self._sessions, beat_every=every
            ),
            *self._make_further_activities(registry),
            *self._make_store_activities(),
        )
        found = [method for holder in holders for method in _activity_methods(holder)]
        return [*found, *(each for agent in registry for each in tools.define_activities(agent))]

    def _make_thread_activities(self, transforms: Mapping[str, Transform] | None) -> ThreadActivities:
        timeouts, limits = self.settings.timeouts, self.settings.limits
        return ThreadActivities(
            self.threads,
            transforms=transforms,
            max_payload=limits.payload_bytes,
            max_message=limits.message_bytes,
            max_batch=limits.batch_messages,
            beat_every=timeouts.heartbeat_every.total_seconds(),
            streams=self.streams,
            roll_out=timeouts.roll_out.total_seconds(),
        )

    def _make_further_activities(self, registry: AgentRegistry) -> tuple[object, ...]:
        limit = self.settings.limits.payload_bytes
        every = self.settings.timeouts.heartbeat_every.total_seconds()
        return (
            SessionReads(self.threads, self.usage, self._sessions, max_payload=limit, beat_every=every),
            TakeBacks(self.threads, self.payloads, self._sessions, beat_every=every),
            ChildActivities(self.threads, registry, self._sessions, max_payload=limit, beat_every=every),
        )

    def _make_store_activities(self) -> tuple[object, ...]:
        if self._sessions is None:
            return ()
        limit = self.settings.limits.payload_bytes
        return (
            SessionStoreActivities(self._sessions, max_payload=limit),
            CheckpointActivities(self._sessions, max_payload=limit),
        )

    def _make_cleanup(self) -> Cleanup | None:
        if self._sessions is None:
            return None
        return Cleanup(self._sessions, self.workspaces, self._temporal_executions())

    def make_session_activities(self, registry: AgentRegistry) -> SessionActivities:
        """What the session workflow asks for."""
        settings = self.settings
        return SessionActivities(
            self.threads,
            registry,
            self.make_stepper(registry),
            settings.call_policy.model_copy(
                update={
                    "keeps_state": self._sessions is not None,
                    "archives": self.tiered is not None,
                    **self._deployment_fields(),
                }
            ),
            self.payloads,
            beat_every=settings.timeouts.heartbeat_every.total_seconds(),
            inline_text=settings.limits.inline_text_bytes,
            inline_arguments=settings.limits.inline_tool_result_bytes,
            states=self._states,
            streams=self._streaming,
        )

    def _temporal_executions(self) -> TemporalExecutions:
        settings = self.settings
        return TemporalExecutions(deployment=settings.deployment, also_known_as=settings.also_known_as)

    def _deployment_fields(self) -> dict[str, str]:
        own = self.settings.deployment
        return {} if own.is_plain else {"deployment": str(own)}

    def make_stepper(self, registry: AgentRegistry) -> Stepper:
        """What runs steps, in activities or without Temporal."""
        limits = self.settings.limits
        return Stepper(
            self.threads,
            registry,
            self.payloads,
            StepLimits(
                inline_text=limits.inline_text_bytes,
                inline_arguments=limits.inline_tool_result_bytes,
                message=limits.message_bytes,
            ),
            flush_each_step=self.settings.flush == "step",
            archive_required=self.settings.archive == "required",
            archives=self.tiered is not None,
            states=self._states,
            streams=self._streaming,
            used=self._used,
            traces=self.traces,
        )


def _activity_methods(holder: object) -> list[Any]:
    """The activities of an instance: its methods that are defined as such."""
    methods = (getattr(holder, name) for name in dir(type(holder)) if not name.startswith("_"))
    return [method for method in methods if hasattr(method, "__temporal_activity_definition")]


class _Places(dict[str, Any]):
    """The backends that settings name, each made when it is asked for, and once.

    Drivers are imported where they are chosen: a process without Redis needs none.

    Args:
        postgres: A pool or a `PostgresDatabase`, as if ``postgres_dsn`` named its database.

    Attributes:
        chosen: The settings, by which stores are placed.

    Raises:
        InvalidConfigError: There are two databases.
    """

    def __init__(self, settings: Settings, postgres: Any = None) -> None:
        super().__init__()
        check_type(settings, Settings, "settings")
        if postgres is not None and settings.postgres_dsn is not None:
            raise InvalidConfigError("postgres is given, and postgres_dsn is set: one of them expected")
        self._settings, self._given = settings, postgres
        placed = {} if postgres is None else {"postgres_dsn": _GIVEN}
        self.chosen = settings.model_copy(update=placed)

    def __missing__(self, name: str) -> Any:
        made = {
            "redis": self._make_redis_backend,
            "postgres": self._make_postgres_backend,
            "sqlite": self._make_sqlite_backend,
            "memory": self._make_memory_backend,
        }
        self[name] = made[name]()
        return self[name]

    def _make_redis_backend(self) -> Any:
        from helix_temporal.stores.redis import RedisBackend  # noqa: PLC0415

        settings = self._settings
        return RedisBackend(
            settings.redis_url or "",
            prefix=settings.redis_prefix,
            cluster=settings.redis_cluster,
            session_ttl=settings.session_ttl.total_seconds() if settings.session_ttl else None,
            stream_limits=settings.stream_limits,
        )

    def _make_postgres_backend(self) -> Any:
        from helix_temporal.stores.postgres import PostgresBackend  # noqa: PLC0415

        settings = self._settings
        return PostgresBackend(
            self._given or settings.postgres_dsn or "",
            table_prefix=settings.table_prefix,
            statement_cache_size=settings.postgres_statement_cache_size,
            stream_limits=settings.stream_limits,
        )

    def _make_sqlite_backend(self) -> Any:
        from helix_temporal.stores.sqlite import SqliteBackend  # noqa: PLC0415

        settings = self._settings
        assert settings.sqlite_file is not None  # settings without it are refused
        return SqliteBackend(settings.sqlite_file, stream_limits=settings.stream_limits)

    def _make_memory_backend(self) -> Any:
        from helix_temporal.stores.memory.backend import MemoryBackend  # noqa: PLC0415

        return MemoryBackend(stream_limits=self._settings.stream_limits)


def _make_blob_store(settings: Settings) -> tuple[BlobStore | None, ProvedPlace | None]:
    """The archive that settings name, and which bucket it is."""
    if settings.s3_bucket is not None:
        from helix_temporal.blobs.s3 import S3Blobs  # noqa: PLC0415

        access, secret = settings.s3_access_key, settings.s3_secret_key
        timeouts = settings.timeouts
        read_timeout = max(timeouts.s3_read, timeouts.flush_attempt).total_seconds()
        blobs = S3Blobs(
            settings.s3_bucket,
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            access_key=access.get_secret_value() if access else None,
            secret_key=secret.get_secret_value() if secret else None,
            read_timeout=read_timeout,
            total_timeout=max(60.0, read_timeout),
        )
        place = ProvedPlace(
            settings.s3_endpoint,
            settings.s3_region,
            settings.s3_bucket,
            settings.s3_prefix,
            access.get_secret_value() if access else None,
        )
        return blobs, place
    if settings.cold_directory is not None:
        from helix_temporal.blobs.directory import DirectoryBlobs  # noqa: PLC0415

        return DirectoryBlobs(settings.cold_directory), None
    return None, None


def _name_stores(settings: Settings, hot_name: str, hot: object, blobs: object) -> StoreNames:
    """What the stores are called in metrics; those from elsewhere have no name."""
    archive = "directory" if settings.s3_bucket is None else "s3"
    return StoreNames(hot_name if hot is None else OTHER, archive if blobs is None else OTHER)


def _make_tiered_threads(
    settings: Settings, hot: HotTier, blobs: BlobStore, names: StoreNames
) -> TieredThreads:
    key = settings.archive_hmac_key
    limits = settings.limits
    return TieredThreads(
        hot,
        blobs,
        prefix=settings.s3_prefix,
        warm_ttl=settings.warm_ttl.total_seconds() if settings.keep_warm else None,
        key=key.get_secret_value().encode() if key else None,
        backlog=Backlog(limits.unarchived_bytes, limits.unarchived_for.total_seconds()),
        keep_hot=KeepHot(limits.hot_archived_bytes),
        step_seconds=settings.timeouts.flush_attempt.total_seconds(),
        legacy=_make_v1_snapshots(settings, blobs),
        names=names,
    )


def _make_v1_snapshots(settings: Settings, blobs: BlobStore) -> V1Snapshots | None:
    if not settings.read_v1:
        return None
    return V1Snapshots(
        blobs, prefix=settings.v1_prefix, thread_key=settings.v1_thread_key, adapter=settings.v1_adapter
    )
