"""Settings: everything that differs between one deployment and the next.

`Settings.from_env` is the only place of the package that knows names of environment variables: a field
is ``HELIX_`` and its name in capitals, `Timeouts` are ``HELIX_TIMEOUT_…``, `Limits` ``HELIX_LIMIT_…``.
The package itself never reads the environment; a program passes ``os.environ`` at its edge.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_serializer,
    model_validator,
)

from helix_temporal import _setting_rules as rules
from helix_temporal._setting_rules import Directory, Duration
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.deployments import DEFAULT_NAME, Deployment, digest_location
from helix_temporal.models.limits import INLINE_RESULT, INLINE_TEXT, MAX_TEXT
from helix_temporal.models.sessions import ArchiveMode, CallPolicy
from helix_temporal.models.streams import StreamLimits

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_MIN_HMAC_KEY: Final = 16


class _Group(BaseModel):
    """Frozen; unknown names are refused, errors are `InvalidConfigError` and never show a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)

    VARIABLES: ClassVar[str] = "HELIX_"
    """What the names of its environment variables begin with."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidConfigError("; ".join(self._describe_problems(error))) from None

    @classmethod
    def _describe_problems(cls, error: ValidationError) -> Iterable[str]:
        for problem in error.errors(include_url=False, include_input=False):
            place = [str(part) for part in problem["loc"]]
            if problem["type"] == "extra_forbidden" and len(place) == 1:
                yield rules.not_known(place[0], cls.model_fields)
                continue
            if place and place[0] in cls.model_fields:
                place[0] = f"{place[0]} ({cls.VARIABLES}{place[0].upper()})"
            yield ": ".join([*place, problem["msg"].removeprefix("Value error, ")])


Group = TypeVar("Group", bound=_Group)


_PROFILES: Final[Mapping[str, Mapping[str, timedelta]]] = {
    "fast": {},
    "cloud": {
        "heartbeat_timeout": timedelta(seconds=60),
        "heartbeat_every": timedelta(seconds=10),
        "max_heartbeat_throttle_interval": timedelta(seconds=60),
    },
}
"""Time-outs with other defaults: a hosted Temporal has a price for each heartbeat that it is sent."""


_CONTROLLER: Final[Mapping[str, str]] = {
    "build_id": "TEMPORAL_WORKER_BUILD_ID",
    "worker_deployment": "TEMPORAL_DEPLOYMENT_NAME",
}
"""Variables that the Temporal Worker Controller sets in each pod, by the setting whose default they are."""


def _read_group(
    group: type[Group],
    environment: Mapping[str, str],
    problems: list[str],
    defaults: Mapping[str, Any] | None = None,
    **more: Any,
) -> Group | None:
    """A group from its variables, and ``more`` fields; None, and what is wrong, where some are refused."""
    names = (name for name in group.model_fields if name not in more)
    values = {name: environment.get(f"{group.VARIABLES}{name.upper()}") for name in names}
    given = {name: value for name, value in values.items() if value}
    try:
        return group(**{**(defaults or {}), **given}, **more)
    except InvalidConfigError as error:
        problems.append(str(error))
        return None


class Timeouts(_Group):
    """How long things may take and how often they are tried; a partial override keeps the rest.

    Attributes:
        store_start_to_close: One attempt of a store operation.
        store_schedule_to_close: All attempts of it together.
        store_retry_initial: Pause before the second attempt; it doubles up to ``store_retry_maximum``.
        heartbeat_timeout: A worker that is silent for so long is taken for dead.
        heartbeat_every: Interval of the background beat of model calls, tools, flush and hydrate; at most a
            third of the time-out of the activity that beats.
        model_start_to_close: One attempt of a model call.
        model_schedule_to_close: All attempts of one model call together, with the pauses between them; by
            default three times ``model_start_to_close``.
        tool_start_to_close: One attempt of a tool that names no time of its own.
        roll_out: What a worker lacks (an agent, tool, hook or transform) is asked of other workers for so
            long: those of a new version may not all have been started yet.
        flush_attempt: The one try of a flush after a step; what fails is caught up later.
        s3_read: S3 may send nothing of an answer for so long; at least ``flush_attempt``.
        flush_retry_maximum: Longest pause before a failed flush is tried again.
        finaliser_budget: Save and flush at the end of a session; past it the maintenance worker takes over.
        max_heartbeat_throttle_interval: Longest time that a beat or a cancel waits in the worker; at most
            80 % of the time-out of the activity that beats, as Temporal's SDK has it.
        sticky_queue_schedule_to_start_timeout: Wait for the worker that holds the workflow in its cache.
    """

    VARIABLES: ClassVar[str] = "HELIX_TIMEOUT_"

    store_start_to_close: Duration = timedelta(seconds=30)
    store_schedule_to_close: Duration = timedelta(minutes=5)
    store_retry_initial: Duration = timedelta(milliseconds=200)
    store_retry_backoff: float = Field(default=2.0, ge=1.0, le=10.0)
    store_retry_maximum: Duration = timedelta(seconds=10)
    heartbeat_timeout: Duration = timedelta(seconds=10)
    heartbeat_every: Duration = timedelta(seconds=1)
    model_start_to_close: Duration = timedelta(minutes=10)
    model_schedule_to_close: Duration | None = None
    tool_start_to_close: Duration = timedelta(minutes=5)
    roll_out: Duration = timedelta(minutes=10)
    flush_attempt: Duration = timedelta(seconds=2)
    s3_read: Duration = timedelta(seconds=5)
    flush_retry_maximum: Duration = timedelta(seconds=60)
    finaliser_budget: Duration = timedelta(minutes=2)
    max_heartbeat_throttle_interval: Duration = timedelta(seconds=2)
    sticky_queue_schedule_to_start_timeout: Duration = timedelta(seconds=2)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for shorter, longer in (
            ("heartbeat_every", "heartbeat_timeout"),
            ("store_start_to_close", "store_schedule_to_close"),
            ("store_retry_initial", "store_retry_maximum"),
        ):
            if getattr(self, shorter) > getattr(self, longer):
                raise ValueError(f"{shorter} must not be longer than {longer}")
        if self.model_budget < self.model_start_to_close:
            raise ValueError("model_start_to_close must not be longer than model_schedule_to_close")
        return self

    @property
    def model_budget(self) -> timedelta:
        """What all attempts of one model call may take together."""
        return self.model_schedule_to_close or 3 * self.model_start_to_close


class Limits(_Group):
    """Sizes in bytes, numbers of messages, and how far the archive may lag.

    Attributes:
        message_bytes: The largest body of a message that comes through a workflow: of a user, or appended by
            a workflow of one's own.  One whose content travels by reference (long texts, larger results of
            tools) may have 64 times as much; a text that a client sends has 1 MiB at most.  Answers of models
            are not bounded by it; no message is larger than 64 MiB.
        batch_messages: The most messages that a workflow appends to a thread in one call.
        inline_text_bytes: Longer answers of turns, and texts that a hook has changed, travel by reference.
            What clients send does above 8 KiB, whatever is set here.
        inline_tool_result_bytes: Larger tool results go to a blob before the tool completes, and larger
            arguments of calls stay in the thread.
        payload_bytes: What an activity may return; more is a typed error or a blob.
        unarchived_bytes: Past this, and past ``unarchived_for``, turns are refused until the archive
            has caught up.
        hot_archived_bytes: Of what is archived, an open thread keeps about so much hot beyond what its
            next step reads.
    """

    VARIABLES: ClassVar[str] = "HELIX_LIMIT_"

    message_bytes: int = Field(default=MAX_TEXT, ge=_KIB, le=64 * _MIB)
    batch_messages: int = Field(default=10_000, ge=2, le=10_000)
    inline_text_bytes: int = Field(default=INLINE_TEXT, ge=256, le=256 * _KIB)
    inline_tool_result_bytes: int = Field(default=INLINE_RESULT, ge=0, le=256 * _KIB)
    payload_bytes: int = Field(default=256 * _KIB, ge=_KIB, le=2 * _MIB)
    unarchived_bytes: int = Field(default=64 * _MIB, ge=_MIB, le=1024 * _MIB)
    unarchived_for: Duration = timedelta(hours=1)
    hot_archived_bytes: int = Field(default=8 * _MIB, ge=0, le=1024 * _MIB)


class Settings(_Group):
    """Where the servers are and how threads are kept.  Secrets never show in ``repr`` or in errors.

    Attributes:
        name: The deployment's, where several share a Temporal namespace or servers.  Task queue, prefixes of
            keys, objects and tables, ids of workflows and schedules follow from it; each prefix, and the
            queue, can be set alone.
        profile: ``"cloud"``: fewer heartbeats, each of which has a price on a hosted Temporal.  A worker that
            was lost, and a cancel of a call, are then noticed within a minute, not within ten seconds.
            Time-outs that are given themselves count for more.
        also_known_as: Identities that are this deployment as well (see `deployment`): the same stores under
            other addresses, or where they were before they were moved.
        redis_cluster: The address is one node of a Redis Cluster.
        postgres_statement_cache_size: By default 256, and 0 where PgBouncer or the like stands between.
        data_directory: Everything in one SQLite database, ``helix.db`` in this directory of a local disk,
            where there is neither Redis nor PostgreSQL; made by the first use.
        thread_store: Where hot threads are; by default the first of Redis, PostgreSQL and the data
            directory that is given, else this process's memory.
        session_store: Where state, runs and checkpoints are, and locks and usage with them; by default
            the first of PostgreSQL, Redis and the data directory that is given, else this process's
            memory.  ``"none"`` keeps what a session must know with its thread and nothing more.
        session_ttl: Only with state in Redis: a session is gone so long after its last commit, whatever it
            waits for.  The server must not evict.
        workspaces: Providers of workspaces for the clean-up, by id: ``disk=package.module:provider``, and
            more after commas.  What is named is a `WorkspaceProvider`, or makes one.
        stream_store: Where sessions are shown live; by default the first of Redis, PostgreSQL and the data
            directory that is given, else this process's memory, where other processes see nothing.
            ``"none"`` shows them nowhere.
        stream_ttl: A stream is kept for so long after its last chunk.
        stream_max_chunks: Of a stream the newest so many are kept; 0 for all.
        stream_max_chunk_bytes: The largest chunk.
        stream_abandoned_after: Readers take a producer for gone that has been silent for so long.
        s3_bucket: Turns the cold tier on.  ``s3_endpoint`` is for servers other than AWS.
        s3_access_key: With ``s3_secret_key``; without them the SDK finds credentials its own way.
        cold_directory: The cold tier in a directory instead of a bucket, for one machine.  It must exist, as
            a bucket must: an archive that is not mounted is not an empty one.
        flush: Archive with every ``"step"``, or at open and ``"exit"`` only: cheaper, and only as safe
            as Redis.
        archive: ``"required"``: nobody is answered before the archive has the step; ``"eventual"``: while it
            does not answer, the hot store is enough.  A session may say otherwise.
        keep_warm: Keep a flushed thread in Redis for ``warm_ttl`` instead of dropping it.
        expire_unarchived_after: Only without a cold tier: idle threads are lost after this time.
        read_v1: Threads without a manifest begin as their version 1 snapshot, if there is one.
        v1_prefix, v1_thread_key: Where those lie.
        v1_adapter: The format of their rows; found by their shape if empty.
        archive_records_after: With a cold tier: records of sessions go to the archive so long after they
            were written.
        archive_hmac_key: Signs manifests; at least 16 characters.
        reference_key: Signs references to conversations in workflows of other frameworks; at least 16
            characters, and the same for all workers.
        other_reference_key: Is taken for such a reference too, and signs none: the next ``reference_key``,
            then the former one, while workers get a new one.
        allow_plaintext: Permit unencrypted connections to other hosts than this one.
        build_id: Which build of the program this is, on a worker with Temporal's Worker Versioning; without
            one the worker has no version.  By default what the Temporal Worker Controller says.
        worker_deployment: Temporal's Worker Deployment, of which builds are versions; by default the
            controller's, else as the task queue.  Not the deployment that ``name`` names.
        max_concurrent_activities: So many activities a worker runs at once: model calls, tools and store
            operations together.  Each costs memory and no thread.
        health_port: Where a worker answers probes, by HTTP without encryption; on all addresses of IPv4 and
            IPv6, or on ``health_host``.
        metrics_prometheus: Address at which metrics of Temporal's SDK and of the pack are given out for
            Prometheus, as ``0.0.0.0:9464``.  Each process needs a port of its own.
        metrics_otlp: Address of a collector that they are sent to instead, as ``http://collector:4317``.
        traces: Tell of turns in traces of OpenTelemetry, where its ``OTEL_…`` variables say, or the provider
            that the application has set.
        traces_caller: What the span of a message's sender is to its turn: the ``"parent"``, in whose trace
            the turn is then, or a ``"link"`` from a trace of the turn's own.  Sub-agents' callers likewise.
        telemetry_content: Put texts of messages, arguments and results on spans.

    Raises:
        InvalidConfigError: A value is outside its range, or two contradict each other.
    """

    name: Annotated[str, AfterValidator(rules.deployment_name)] = DEFAULT_NAME
    also_known_as: Annotated[tuple[str, ...], BeforeValidator(rules.parse_identities)] = ()

    profile: Literal["fast", "cloud"] = "fast"
    temporal_address: Annotated[str, AfterValidator(rules.check_host_port)] = "localhost:7233"
    temporal_namespace: str = Field(default="default", min_length=1, max_length=255)
    temporal_tls: bool = False
    temporal_api_key: SecretStr | None = None
    task_queue: str = Field(default="helix", min_length=1, max_length=255)

    redis_url: Annotated[str, AfterValidator(rules.redis_url)] | None = None
    redis_cluster: bool = False
    redis_prefix: Annotated[str, AfterValidator(rules.redis_prefix)] = "helix:"

    postgres_dsn: (
        Annotated[str, AfterValidator(partial(rules.check_url, schemes=("postgresql", "postgres")))] | None
    ) = None
    table_prefix: Annotated[str, AfterValidator(rules.table_prefix)] = "__agents_"

    postgres_statement_cache_size: int | None = Field(default=None, ge=0, le=10_000)

    data_directory: Directory | None = None

    thread_store: Literal["redis", "postgres", "sqlite", "memory"] | None = None
    session_store: Literal["postgres", "redis", "sqlite", "memory", "none"] | None = None
    session_ttl: Annotated[Duration, AfterValidator(rules.time_to_live)] | None = None

    workspaces: Annotated[Mapping[str, str], BeforeValidator(rules.import_paths)] = {}

    stream_store: Literal["redis", "postgres", "sqlite", "memory", "none"] | None = None
    stream_ttl: Annotated[Duration, AfterValidator(rules.time_to_live)] = timedelta(hours=24)
    stream_max_chunks: int = Field(default=10_000, ge=0, le=10_000_000)
    stream_max_chunk_bytes: int = Field(default=_MIB, ge=_KIB, le=64 * _MIB)
    stream_abandoned_after: Duration = timedelta(minutes=10)

    s3_endpoint: Annotated[str, AfterValidator(rules.check_s3_endpoint)] | None = None
    s3_bucket: Annotated[str, AfterValidator(rules.check_bucket_name)] | None = None
    s3_prefix: Annotated[str, AfterValidator(rules.object_prefix)] = "helix"
    s3_region: str = Field(default="us-east-1", min_length=1, max_length=64)
    s3_access_key: SecretStr | None = None
    s3_secret_key: SecretStr | None = None
    cold_directory: Directory | None = None

    flush: Literal["step", "exit"] = "step"
    archive: ArchiveMode = "eventual"
    keep_warm: bool = False
    warm_ttl: Annotated[Duration, AfterValidator(rules.time_to_live)] = timedelta(hours=24)
    expire_unarchived_after: Annotated[Duration, AfterValidator(rules.time_to_live)] | None = None
    read_v1: bool = False
    v1_prefix: str = "threads"
    v1_thread_key: str = "messages"
    v1_adapter: str = ""
    archive_records_after: Annotated[Duration, AfterValidator(rules.time_to_live)] = timedelta(days=7)
    archive_hmac_key: SecretStr | None = None
    reference_key: SecretStr | None = None
    other_reference_key: SecretStr | None = None
    allow_plaintext: bool = False
    build_id: Annotated[str, AfterValidator(rules.build_id)] | None = None
    worker_deployment: Annotated[str, AfterValidator(rules.worker_deployment)] | None = None
    max_concurrent_activities: int = Field(default=1000, ge=1, le=100_000)
    health_port: int | None = Field(default=None, ge=1, le=65_535)
    health_host: str | None = Field(default=None, min_length=1)
    metrics_prometheus: str | None = Field(default=None, min_length=1)
    metrics_otlp: str | None = Field(default=None, min_length=1)
    traces: bool = False
    traces_caller: Literal["parent", "link"] = "parent"
    telemetry_content: bool = False

    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()

    @model_validator(mode="before")
    @classmethod
    def _take_timeouts_of_profile(cls, values: Any) -> Any:
        profile = _PROFILES.get(values.get("profile", "fast")) if isinstance(values, dict) else None
        if not profile:
            return values
        given = values.get("timeouts", {})
        if isinstance(given, Timeouts):
            given = {name: getattr(given, name) for name in given.model_fields_set}
        return {**values, "timeouts": {**profile, **given} if isinstance(given, dict) else given}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Read settings from variables such as ``HELIX_REDIS_URL``; an empty one counts as absent.

        The worker's version is also read from what the Temporal Worker Controller sets,
        ``TEMPORAL_WORKER_BUILD_ID`` and ``TEMPORAL_DEPLOYMENT_NAME``.

        Raises:
            InvalidConfigError: As for `Settings`; the message names the field, not the value of a secret.
                Also for a variable that begins with ``HELIX_`` and is none of them.
        """
        try:
            rules.refuse_unknown(environment, _variable_names(cls))
        except ValueError as error:
            raise InvalidConfigError(str(error)) from None
        problems: list[str] = []
        defaults = _PROFILES.get(environment.get("HELIX_PROFILE", ""))
        timeouts = _read_group(Timeouts, environment, problems, defaults) or Timeouts()
        limits = _read_group(Limits, environment, problems) or Limits()
        version = {field: environment[name] for field, name in _CONTROLLER.items() if environment.get(name)}
        found = _read_group(cls, environment, problems, version, timeouts=timeouts, limits=limits)
        if found is None or problems:
            raise InvalidConfigError("; ".join(problems))
        return found

    @property
    def deployment(self) -> Deployment:
        """Whose sessions these are: the name, and a mark for each store that keeps something.  No secrets."""
        found: dict[str, str] = {}
        keeping = {self.threads_in, self.state_in, self.streams_in}
        if self.redis_url is not None and "redis" in keeping:
            found["redis"] = _redis_mark(self.redis_url, self.redis_prefix, cluster=self.redis_cluster)
        if self.postgres_dsn is not None and "postgres" in keeping:
            found["postgres"] = _postgres_mark(self.postgres_dsn, self.table_prefix)
        if self.sqlite_file is not None and "sqlite" in keeping:
            found["sqlite"] = _directory_mark(self.sqlite_file)
        if self.s3_bucket is not None:
            found["archive"] = _bucket_mark(self.s3_endpoint, self.s3_bucket, self.s3_prefix)
        elif self.cold_directory is not None:
            found["archive"] = _directory_mark(self.cold_directory, self.s3_prefix)
        return Deployment(self.name, tuple(found.items()))

    @property
    def archive_identity(self) -> Deployment:
        """Which archive threads go to, by bucket and prefix: it may be reached under several addresses."""
        found: dict[str, str] = {}
        if self.s3_bucket is not None:
            found["archive"] = digest_location("s3", self.s3_bucket, self.s3_prefix)
        elif self.cold_directory is not None:
            found["archive"] = _directory_mark(self.cold_directory, self.s3_prefix)
        return Deployment(self.name, tuple(found.items()))

    @property
    def sqlite_file(self) -> Path | None:
        """The deployment's own database in the data directory."""
        if self.data_directory is None:
            return None
        own = () if self.name == DEFAULT_NAME else ("deployments", self.name)
        return self.data_directory.joinpath(*own, "helix.db")

    @property
    def has_cold_tier(self) -> bool:
        """Whether threads are archived at all."""
        return self.s3_bucket is not None or self.cold_directory is not None

    @property
    def threads_in(self) -> Literal["redis", "postgres", "sqlite", "memory"]:
        """The store that hot threads are in."""
        if self.thread_store is not None:
            return self.thread_store
        if self.redis_url is not None:
            return "redis"
        if self.postgres_dsn is not None:
            return "postgres"
        return "memory" if self.data_directory is None else "sqlite"

    @property
    def state_in(self) -> Literal["postgres", "redis", "sqlite", "memory"]:
        """The store that state, locks and usage are in."""
        if self.session_store is not None and self.session_store != "none":
            return self.session_store
        if self.postgres_dsn is not None:
            return "postgres"
        if self.redis_url is not None:
            return "redis"
        return "memory" if self.data_directory is None else "sqlite"

    @property
    def streams_in(self) -> Literal["redis", "postgres", "sqlite", "memory", "none"]:
        """The store that streams are in."""
        if self.stream_store is not None:
            return self.stream_store
        if self.redis_url is not None:
            return "redis"
        if self.postgres_dsn is not None:
            return "postgres"
        return "memory" if self.data_directory is None else "sqlite"

    @property
    def stream_limits(self) -> StreamLimits:
        """What a store keeps of streams."""
        return StreamLimits(
            ttl=self.stream_ttl.total_seconds(),
            max_chunks=self.stream_max_chunks,
            max_chunk_bytes=self.stream_max_chunk_bytes,
            abandoned_after=self.stream_abandoned_after.total_seconds(),
        )

    @property
    def call_policy(self) -> CallPolicy:
        """Time-outs and retries of activities, for workflows, which read no settings."""
        timeouts = self.timeouts
        return CallPolicy(
            store_start_to_close=timeouts.store_start_to_close.total_seconds(),
            store_schedule_to_close=timeouts.store_schedule_to_close.total_seconds(),
            retry_initial=timeouts.store_retry_initial.total_seconds(),
            retry_backoff=timeouts.store_retry_backoff,
            retry_maximum=timeouts.store_retry_maximum.total_seconds(),
            heartbeat=timeouts.heartbeat_timeout.total_seconds(),
            model_start_to_close=timeouts.model_start_to_close.total_seconds(),
            tool_start_to_close=timeouts.tool_start_to_close.total_seconds(),
            model_schedule_to_close=timeouts.model_budget.total_seconds(),
            roll_out=timeouts.roll_out.total_seconds(),
            finaliser_budget=timeouts.finaliser_budget.total_seconds(),
            flush_retry_maximum=timeouts.flush_retry_maximum.total_seconds(),
            flush_each_step=self.flush == "step",
        )

    @model_validator(mode="before")
    @classmethod
    def _follow_the_name(cls, given: Any) -> Any:
        """What is not set alone is named after the deployment."""
        name = given.get("name", DEFAULT_NAME) if isinstance(given, dict) else DEFAULT_NAME
        if name == DEFAULT_NAME or not isinstance(name, str):
            return given
        following = {
            "task_queue": name,
            "redis_prefix": f"{name}:",
            "table_prefix": f"__{name.replace('-', '_')}_agents_",
            "s3_prefix": name,
        }
        return following | given

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        needed = {"redis": "redis_url", "postgres": "postgres_dsn", "sqlite": "data_directory"}
        places = {
            "thread_store": self.threads_in,
            "session_store": self.state_in,
            "stream_store": self.streams_in,
        }
        for name, place in places.items():
            address = needed.get(place)
            if address is not None and getattr(self, address) is None:
                raise ValueError(f"{name} is {place!r} but {address} is not set")
        if self.s3_bucket and self.cold_directory:
            raise ValueError("s3_bucket and cold_directory are both set; set one of them")
        if self.s3_endpoint and not self.s3_bucket:
            raise ValueError("s3_endpoint is set but s3_bucket is not; set both")
        if (self.s3_access_key is None) != (self.s3_secret_key is None):
            raise ValueError("one of s3_access_key and s3_secret_key is missing; set both or neither")
        if self.expire_unarchived_after and self.has_cold_tier:
            raise ValueError(
                "expire_unarchived_after is set with a cold tier, and would drop what isn't archived yet; "
                "leave it out"
            )
        if self.session_ttl and (self.session_store == "none" or self.state_in != "redis"):
            raise ValueError(
                "session_ttl is set, and is for state in Redis alone; leave it out, as other stores keep "
                "sessions until deleted"
            )
        self._check_keys()
        if not self.allow_plaintext:
            self._refuse_plain_connections()
        return self

    def _check_keys(self) -> None:
        for name in ("archive_hmac_key", "reference_key", "other_reference_key"):
            key: SecretStr | None = getattr(self, name)
            if key and len(key.get_secret_value()) < _MIN_HMAC_KEY:
                raise ValueError(f"{name} has fewer than {_MIN_HMAC_KEY} characters; set a longer one")

    @model_validator(mode="after")
    def _check_worker_deployment(self) -> Self:
        if self.build_id is not None and self.worker_deployment is None:
            try:
                rules.worker_deployment(self.task_queue)
            except ValueError as error:
                raise ValueError(f"worker_deployment is the task queue: {error}; set another one") from None
        return self

    @model_validator(mode="after")
    def _archive_each_step(self) -> Self:
        if self.archive == "required" and self.flush == "exit":
            raise ValueError("archive is 'required' and flush is 'exit'; set flush to 'step'")
        return self

    def _refuse_plain_connections(self) -> None:
        if not self.temporal_tls:
            rules.refuse_plain_temporal(self.temporal_address)
        rules.refuse_plain("redis_url", self.redis_url, encrypted_scheme="rediss")
        rules.refuse_plain("s3_endpoint", self.s3_endpoint, encrypted_scheme="https")
        # The driver negotiates TLS unless it is told not to.
        if self.postgres_dsn and "sslmode=disable" in self.postgres_dsn:
            rules.refuse_plain("postgres_dsn", self.postgres_dsn, encrypted_scheme=None)

    @field_serializer("redis_url", "postgres_dsn")
    def _hide_credentials(self, value: str | None) -> str | None:
        """A dump is for logs and pages: settings that are made of it would lack the passwords."""
        return None if value is None else rules.redact_url(value)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Shows addresses without the credentials in them."""
        for name, value in super().__repr_args__():
            yield name, rules.redact_url(value) if name in {"redis_url", "postgres_dsn"} and value else value

    __str__ = BaseModel.__repr__


def _variable_names(settings: type[Settings]) -> set[str]:
    groups: tuple[type[_Group], ...] = (settings, Timeouts, Limits)
    names = {f"{group.VARIABLES}{name.upper()}" for group in groups for name in group.model_fields}
    return names - {"HELIX_TIMEOUTS", "HELIX_LIMITS"}


# A mark is the digest of where a store is: two processes compare marks to know that they use the same one.
# Counted are hosts, ports, databases, prefixes, buckets and directories; not counted are users, passwords,
# encryption, time-outs and all other options of an address.  Names of this machine (localhost, 127.0.0.1) are
# one name.  An address that lists several servers, and one of a cluster or of sentinels, counts without its
# hosts: which of them is named, and in what order, says nothing about what is stored there.


def _redis_mark(url: str, prefix: str, *, cluster: bool) -> str:
    """Of a Redis, and the keys with a prefix."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    if parts.scheme == "unix":
        return digest_location("redis", parts.path, asked.get("db", ["0"])[0], prefix)
    database = asked.get("db", [parts.path.strip("/") or "0"])[0]
    if cluster:
        return digest_location("redis", "cluster", prefix)
    if "sentinel" in parts.scheme:
        service, _, database = parts.path.strip("/").partition("/")
        return digest_location("redis", "sentinel", service, database or "0", prefix)
    return digest_location("redis", _host_and_port(parts, 6379), database, prefix)


def _postgres_mark(dsn: str, table_prefix: str) -> str:
    """Of a database and the tables below a prefix."""
    parts = urlsplit(dsn)
    asked = parse_qs(parts.query)
    database = asked.get("dbname", asked.get("database", [parts.path.strip("/")]))[0]
    named = asked.get("host", [""])[0]
    host = f"{named}:{asked.get('port', ['5432'])[0]}" if named else _host_and_port(parts, 5432)
    return digest_location("postgres", "" if "," in host else host, database, table_prefix)


def _bucket_mark(endpoint: str | None, bucket: str, prefix: str) -> str:
    """Of a bucket and the objects below a prefix."""
    parts = None if endpoint is None else urlsplit(endpoint)
    where = "aws" if parts is None else _host_and_port(parts, 443 if parts.scheme == "https" else 80)
    return digest_location("s3", where, bucket, prefix)


def _directory_mark(directory: Path, prefix: str = "") -> str:
    """Of a directory or a file of this machine."""
    return digest_location("files", directory.absolute(), prefix)


def _host_and_port(parts: SplitResult, port: int) -> str:
    """Host and port; nothing where there are several."""
    place = parts.netloc.rpartition("@")[2]
    if "," in place:
        return ","
    here = rules.is_loopback(parts.hostname)
    return f"{'localhost' if here else parts.hostname}:{parts.port or port}"
