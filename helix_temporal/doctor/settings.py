"""Settings that contradict each other, or do not do what they seem to.  Pure.

What cannot work at all `Settings` refuses itself.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from helix_temporal.doctor.checks import Check, Status
from helix_temporal.settings import Settings

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", None})


def check_settings(settings: Settings) -> list[Check]:
    """What is to be said of the settings; one line where nothing is."""
    said = f"deployment {settings.name!r}, task queue {settings.task_queue!r}, {_describe_places(settings)}"
    return [_check("read", "ok", said), *_find_faults(settings)]


def _check(name: str, status: Status, says: str) -> Check:
    return Check(about="settings", name=name, status=status, says=says)


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
        yield _check(
            "places",
            "failed",
            "no store of threads is set, so each process has its own memory; set HELIX_REDIS_URL, "
            "HELIX_POSTGRES_DSN or HELIX_DATA_DIRECTORY as the workers have them",
        )
    elif settings.state_in == "memory" and settings.session_store != "none":
        yield _check(
            "places",
            "warning",
            f"threads are in {settings.threads_in} and the state of sessions in memory, where it is lost "
            "with each worker; leave HELIX_SESSION_STORE out, or set it to 'none'",
        )
    elif settings.streams_in == "memory":
        yield _check(
            "streams",
            "warning",
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
            yield _check("without effect", "warning", f"{name} is set and does nothing: {why}; leave it out")


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
        yield _check(
            "archive",
            "warning",
            "threads are in Redis alone, and lost with it; set HELIX_S3_BUCKET or HELIX_COLD_DIRECTORY",
        )
    if settings.has_cold_tier and settings.flush == "exit":
        yield _check(
            "archive",
            "warning",
            "HELIX_FLUSH is 'exit': what a session has said since it was opened is in the hot store alone "
            "until it ends; 'step' archives each turn",
        )
    if settings.cold_directory is not None and settings.redis_url is not None and _is_remote(settings):
        yield _check(
            "archive",
            "warning",
            "the archive is a directory of one machine, and Redis is on another: workers on several machines "
            "would each have an archive of their own; use a bucket",
        )
    if settings.allow_plaintext and _is_remote(settings):
        yield _check(
            "encryption",
            "warning",
            "HELIX_ALLOW_PLAINTEXT is set, and a server is on another host: messages may pass unencrypted; "
            "use TLS and leave it out",
        )
    if settings.stream_ttl < timedelta(minutes=5):
        yield _check(
            "streams",
            "warning",
            f"HELIX_STREAM_TTL is {settings.stream_ttl.total_seconds():.0f} s: a reader who loses the "
            "connection for longer misses the end of a turn; an hour or more is usual",
        )


def _is_remote(settings: Settings) -> bool:
    addresses = [settings.redis_url, settings.s3_endpoint, f"//{settings.temporal_address}"]
    return any(urlsplit(each).hostname not in _LOCAL for each in addresses if each)
