"""Settings that contradict each other, or do not do what they seem to.  Pure.

What cannot work at all `Settings` refuses itself.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from helix_temporal._setting_rules import is_remote, list_hosts
from helix_temporal.doctor.checks import Check, make_check
from helix_temporal.settings import Settings

_ENCRYPTED_POSTGRES: Final = frozenset({"require", "verify-ca", "verify-full"})
"""Values of ``sslmode`` by which a server without TLS is refused."""


class _RemoteServer(NamedTuple):
    """A server on another machine.

    Attributes:
        name: What it is, for people.
        hosts: Where it is, without credentials.
        is_encrypted: Whether it is spoken to by TLS or not at all.
    """

    name: str
    hosts: str
    is_encrypted: bool

    def __str__(self) -> str:
        """``Redis at cache.example``."""
        return f"{self.name} at {self.hosts}"


def check_settings(settings: Settings) -> list[Check]:
    """What is to be said of the settings; one line where nothing is."""
    said = f"deployment {settings.name!r}, task queue {settings.task_queue!r}, {_describe_places(settings)}"
    return [make_check("settings", "read", "ok", said), *_find_faults(settings)]


def _warn(name: str, says: str) -> Check:
    return make_check("settings", name, "warning", says)


def _describe_places(settings: Settings) -> str:
    archive = "no archive"
    if settings.s3_bucket is not None:
        archive = f"archive in bucket {settings.s3_bucket!r}"
    elif settings.cold_directory is not None:
        archive = f"archive in {str(settings.cold_directory)!r}"
    state = "nowhere" if settings.session_store == "none" else settings.state_in
    return f"threads in {settings.threads_in}, state in {state}, streams in {settings.streams_in}, {archive}"


def _find_faults(settings: Settings) -> Iterable[Check]:
    yield from _find_places(settings)
    yield from _find_without_effect(settings)
    yield from _find_risks(settings)


def _find_places(settings: Settings) -> Iterable[Check]:
    if settings.threads_in == "memory":
        yield make_check(
            "settings",
            "places",
            "failed",
            "no store of threads is set, so each process has its own memory; set HELIX_REDIS_URL, "
            "HELIX_POSTGRES_DSN or HELIX_DATA_DIRECTORY as the workers have them",
        )
    elif settings.state_in == "memory" and settings.session_store != "none":
        yield _warn(
            "places",
            f"threads are in {settings.threads_in} and the state of sessions in memory, where it is lost "
            "with each worker; leave HELIX_SESSION_STORE out, or set it to 'none'",
        )
    elif settings.streams_in == "memory":
        yield _warn(
            "streams",
            "streams are in the worker's memory, where no other process sees them; leave HELIX_STREAM_STORE "
            "out, or set it to 'none'",
        )


def _find_without_effect(settings: Settings) -> Iterable[Check]:
    archives = settings.has_cold_tier
    needless = [
        ("HELIX_KEEP_WARM", settings.keep_warm and not archives, "there is no archive"),
        ("HELIX_READ_V1", settings.read_v1 and not archives, "there is no archive"),
        ("HELIX_ARCHIVE_HMAC_KEY", bool(settings.archive_hmac_key) and not archives, "there is no archive"),
        ("HELIX_REDIS_CLUSTER", settings.redis_cluster and settings.redis_url is None, "there is no Redis"),
        (
            "HELIX_OTHER_REFERENCE_KEY",
            bool(settings.other_reference_key) and settings.reference_key is None,
            "HELIX_REFERENCE_KEY is not set",
        ),
        (
            "HELIX_TELEMETRY_CONTENT",
            settings.telemetry_content and not settings.traces,
            "HELIX_TRACES is not set",
        ),
        (
            "HELIX_WORKER_DEPLOYMENT",
            settings.worker_deployment is not None and settings.build_id is None,
            "HELIX_BUILD_ID is not set",
        ),
        (
            "HELIX_TEMPORAL_API_KEY",
            bool(settings.temporal_api_key) and not settings.temporal_tls,
            "a server that takes keys is spoken to with HELIX_TEMPORAL_TLS",
        ),
        *_find_unused_stores(settings),
    ]
    for name, is_needless, why in needless:
        if is_needless:
            yield _warn("without effect", f"{name} is set and does nothing: {why}; leave it out")


def _find_unused_stores(settings: Settings) -> Iterable[tuple[str, bool, str]]:
    used = {settings.threads_in, settings.state_in, settings.streams_in}
    named = {
        "redis": ("HELIX_REDIS_URL", settings.redis_url),
        "postgres": ("HELIX_POSTGRES_DSN", settings.postgres_dsn),
        "sqlite": ("HELIX_DATA_DIRECTORY", settings.data_directory),
    }
    for kind, (name, value) in named.items():
        yield name, value is not None and kind not in used, "no store is there by the other settings"


def _find_risks(settings: Settings) -> Iterable[Check]:
    if settings.threads_in == "redis" and not settings.has_cold_tier:
        yield _warn(
            "archive",
            "threads are in Redis alone, and lost with it; set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY",
        )
    if settings.has_cold_tier and settings.flush == "exit":
        yield _warn(
            "archive",
            "HELIX_FLUSH is 'exit': what a session has said since it was opened is in the hot store alone "
            "until it ends; 'step' archives each turn",
        )
    yield from _find_split_archive(settings)
    yield from _find_plaintext(settings)
    if settings.stream_ttl < timedelta(minutes=5):
        yield _warn(
            "streams",
            f"HELIX_STREAM_TTL is {settings.stream_ttl.total_seconds():.0f} s: a reader who loses the "
            "connection for longer misses the end of a turn; an hour or more is usual",
        )


def _find_split_archive(settings: Settings) -> Iterable[Check]:
    """An archive on this machine of threads that workers on other machines have too."""
    remote = {each.name: each for each in _list_remote_servers(settings)}
    hot = remote.get({"redis": "Redis", "postgres": "PostgreSQL"}.get(settings.threads_in, ""))
    if settings.cold_directory is not None and hot is not None:
        yield _warn(
            "archive",
            f"the archive is a directory of one machine, and threads are in {hot}, on another one: workers "
            "on several machines would each have an archive of their own; use a bucket",
        )


def _find_plaintext(settings: Settings) -> Iterable[Check]:
    open_to = [str(each) for each in _list_remote_servers(settings) if not each.is_encrypted]
    if settings.allow_plaintext and open_to:
        yield _warn(
            "encryption",
            f"HELIX_ALLOW_PLAINTEXT is set, and messages may pass unencrypted to {' and '.join(open_to)}; "
            "use TLS there and leave it out",
        )


def _list_remote_servers(settings: Settings) -> Iterator[_RemoteServer]:
    """The servers that settings name and that are on other machines, each judged by its own address."""
    redis, postgres, s3 = settings.redis_url, settings.postgres_dsn, settings.s3_endpoint
    addresses = [
        ("Redis", redis, redis is not None and redis.lower().startswith("rediss")),
        ("PostgreSQL", postgres, postgres is not None and _requires_tls(postgres)),
        ("S3", s3, s3 is not None and s3.lower().startswith("https:")),
        ("Temporal", settings.temporal_address, bool(settings.temporal_tls)),
    ]
    for name, address, is_encrypted in addresses:
        if address is not None and is_remote(address):
            yield _RemoteServer(name, ", ".join(list_hosts(address)), is_encrypted)


def _requires_tls(postgres: str) -> bool:
    """Whether an address refuses a server without TLS; by default the driver then does without."""
    asked = parse_qs(urlsplit(postgres).query)
    return not _ENCRYPTED_POSTGRES.isdisjoint(asked.get("sslmode", ()))
