"""Settings that are valid, and do not do what somebody may think."""

from pathlib import Path
from typing import Any

import pytest

from helix_temporal.doctor.settings import check_settings
from helix_temporal.settings import Settings

WELL: dict[str, Any] = {"redis_url": "redis://localhost/0", "s3_bucket": "threads"}


def find_faults(**values: Any) -> list[tuple[str, str]]:
    """What is not well, and by which words."""
    found = check_settings(Settings(**{**WELL, **values}))
    return [(each.status, each.says) for each in found if each.status != "ok"]


def test_settings_that_are_well_are_one_line() -> None:
    """It says where everything is, as an issue should."""
    (only,) = check_settings(Settings(**WELL))
    assert only.says == (
        "deployment 'helix', task queue 'helix', threads in redis, state in redis, streams in redis, "
        "archive in bucket 'threads'"
    )


@pytest.mark.parametrize(
    ("values", "status", "said"),
    [
        ({"redis_url": None, "s3_bucket": None}, "failed", "no store of threads is set"),
        ({"session_store": "memory"}, "warning", "the state of sessions in memory"),
        ({"stream_store": "memory"}, "warning", "where no other process sees them"),
        ({"s3_bucket": None}, "warning", "threads are in Redis alone"),
        ({"s3_bucket": None, "keep_warm": True}, "warning", "HELIX_KEEP_WARM is set and does nothing"),
        ({"s3_bucket": None, "read_v1": True}, "warning", "HELIX_READ_V1 is set and does nothing"),
        (
            {"s3_bucket": None, "archive_hmac_key": "x" * 16},
            "warning",
            "HELIX_ARCHIVE_HMAC_KEY is set and does nothing",
        ),
        ({"flush": "exit"}, "warning", "HELIX_FLUSH is 'exit'"),
        ({"data_directory": Path("/data")}, "warning", "HELIX_DATA_DIRECTORY is set and does nothing"),
        ({"telemetry_content": True}, "warning", "HELIX_TRACES is not set"),
        ({"worker_deployment": "shop"}, "warning", "HELIX_BUILD_ID is not set"),
        ({"temporal_api_key": "sesame"}, "warning", "with HELIX_TEMPORAL_TLS"),
        ({"stream_ttl": 60}, "warning", "HELIX_STREAM_TTL is 60 s"),
        (
            {"redis_url": "redis://elsewhere/0", "allow_plaintext": True},
            "warning",
            "HELIX_ALLOW_PLAINTEXT is set",
        ),
        (
            {"redis_url": "rediss://elsewhere/0", "s3_bucket": None, "cold_directory": Path("/cold")},
            "warning",
            "threads are in Redis at elsewhere, on another one",
        ),
        (
            {
                "redis_url": None,
                "postgres_dsn": "postgresql://elsewhere/x",
                "s3_bucket": None,
                "cold_directory": Path("/cold"),
            },
            "warning",
            "threads are in PostgreSQL at elsewhere, on another one",
        ),
        (
            {"postgres_dsn": "postgresql://me@elsewhere/x", "allow_plaintext": True},
            "warning",
            "may pass unencrypted to PostgreSQL at elsewhere;",
        ),
        (
            {"postgres_dsn": "postgresql://localhost/x?host=elsewhere", "allow_plaintext": True},
            "warning",
            "may pass unencrypted to PostgreSQL at elsewhere;",
        ),
        (
            {
                "temporal_address": "elsewhere:7233",
                "s3_endpoint": "http://s3:1",
                "allow_plaintext": True,
            },
            "warning",
            "may pass unencrypted to S3 at s3 and Temporal at elsewhere;",
        ),
        (
            {"redis_url": "redis+sentinel://one,two/shop", "allow_plaintext": True},
            "warning",
            "may pass unencrypted to Redis at one, two;",
        ),
    ],
)
def test_a_setting_that_does_not_do_what_it_seems_to_is_named(
    values: dict[str, Any], status: str, said: str
) -> None:
    """With what to do; each is a mistake that somebody has searched for."""
    assert [each for each in find_faults(**values) if each[0] == status and said in each[1]]


@pytest.mark.parametrize(
    "values",
    [
        {"temporal_address": "shop.tmprl.cloud:7233", "temporal_tls": True},
        {"redis_url": "redis://127.0.0.2/0"},
        {"redis_url": "unix:///run/redis.sock"},
        {"redis_url": "redis+sentinel://localhost,[::1]/shop"},
        {"redis_url": None, "postgres_dsn": "postgresql:///x?host=/run/postgresql"},
    ],
)
def test_a_store_on_this_machine_may_have_its_archive_there(values: dict[str, Any]) -> None:
    """Where Temporal is says nothing of it: a worker at home may well use Temporal Cloud."""
    assert find_faults(**{"s3_bucket": None, "cold_directory": Path("/cold"), **values}) == []


def test_servers_that_are_spoken_to_by_tls_alone_draw_no_warning() -> None:
    """The setting may stand in a file for all environments."""
    servers = {
        "redis_url": "rediss://elsewhere/0",
        "postgres_dsn": "postgresql://elsewhere/x?sslmode=verify-full",
        "session_store": "postgres",
        "temporal_address": "elsewhere:7233",
        "temporal_tls": True,
    }
    assert find_faults(**servers, allow_plaintext=True) == []


def test_no_secret_is_told() -> None:
    """What a doctor prints goes into issues."""
    secrets = {
        "redis_url": "rediss://me:sesame@elsewhere/0",
        "postgres_dsn": "postgresql://me:sesame@elsewhere/x",
        "temporal_api_key": "sesame",
        "s3_access_key": "sesame",
        "s3_secret_key": "sesame",
        "archive_hmac_key": "sesame-sesame-sesame",
        "other_reference_key": "sesame-sesame-sesame",
    }
    assert "sesame" not in str(check_settings(Settings(**{**WELL, **secrets})))
