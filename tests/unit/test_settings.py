"""Settings: what is accepted, what is refused, and that secrets stay secret."""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from helix_temporal._setting_rules import sentinel_address
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings, Timeouts


def test_the_defaults_alone_are_valid() -> None:
    """A first program needs no setting at all."""
    settings = Settings()
    assert settings.temporal_address == "localhost:7233"
    assert settings.flush == "step"
    assert not settings.has_cold_tier


def test_a_directory_may_begin_with_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell has read what stands in a compose file; a directory named ``~`` is nobody's wish."""
    monkeypatch.setenv("HOME", "/home/anna")
    settings = Settings.from_env({"HELIX_DATA_DIRECTORY": "~/data", "HELIX_COLD_DIRECTORY": "~"})
    assert (str(settings.data_directory), str(settings.cold_directory)) == ("/home/anna/data", "/home/anna")
    with pytest.raises(InvalidConfigError, match="nobody's home"):
        Settings.from_env({"HELIX_DATA_DIRECTORY": "~no-such-user/data"})


def test_every_field_is_read_from_its_variable() -> None:
    """Deployments are configured by the environment alone."""
    settings = Settings.from_env(
        {
            "HELIX_TEMPORAL_ADDRESS": "temporal.local:7233",
            "HELIX_TEMPORAL_TLS": "true",
            "HELIX_REDIS_URL": "rediss://cache.example:6380/1",
            "HELIX_S3_BUCKET": "threads",
            "HELIX_FLUSH": "exit",
            "HELIX_KEEP_WARM": "true",
            "HELIX_WARM_TTL": "48h",
            "HELIX_TIMEOUT_HEARTBEAT_EVERY": "200ms",
            "HELIX_LIMIT_MESSAGE_BYTES": "65536",
        }
    )
    assert settings.temporal_address == "temporal.local:7233"
    assert settings.redis_url == "rediss://cache.example:6380/1"
    assert (settings.s3_bucket, settings.flush, settings.keep_warm) == ("threads", "exit", True)
    assert settings.warm_ttl == timedelta(hours=48)
    assert settings.timeouts.heartbeat_every == timedelta(milliseconds=200)
    assert settings.limits.message_bytes == 65536


def test_the_version_of_a_worker_is_what_the_controller_says_or_what_is_set() -> None:
    """The Temporal Worker Controller sets its own variables in each pod, and none of ours."""
    controller = {"TEMPORAL_DEPLOYMENT_NAME": "shop/helix", "TEMPORAL_WORKER_BUILD_ID": "v1-77ab"}
    settings = Settings.from_env(controller)
    assert (settings.worker_deployment, settings.build_id) == ("shop/helix", "v1-77ab")
    settings = Settings.from_env({**controller, "HELIX_BUILD_ID": "2", "HELIX_WORKER_DEPLOYMENT": "other"})
    assert (settings.worker_deployment, settings.build_id) == ("other", "2")
    assert Settings.from_env({}).build_id is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"build_id": "two words"}, r"build_id \(HELIX_BUILD_ID\): 'two words': 1-128 of"),
        ({"worker_deployment": "a.b"}, r"worker_deployment \(HELIX_WORKER_DEPLOYMENT\): 'a.b': 1-200 of"),
        ({"worker_deployment": "__mine"}, "no two underscores first"),
        (
            {"build_id": "1", "task_queue": "a.b"},
            "worker_deployment is the task queue: 'a.b': .*; set another",
        ),
    ],
)
def test_a_version_that_temporal_refuses_is_refused_at_once(fields: dict[str, str], message: str) -> None:
    """Its worker would poll in vain, and only its log would say why."""
    with pytest.raises(InvalidConfigError, match=message):
        Settings.model_validate(fields)


def test_an_empty_variable_counts_as_absent() -> None:
    """Compose files hand unset variables on as empty ones."""
    assert Settings.from_env({"HELIX_S3_ENDPOINT": "", "HELIX_WARM_TTL": ""}) == Settings()


def test_a_partial_override_of_timeouts_keeps_the_rest() -> None:
    """Changing one time-out must not switch the heartbeat off."""
    settings = Settings.from_env({"HELIX_TIMEOUT_MODEL_START_TO_CLOSE": "30m"})
    assert settings.timeouts == Timeouts(model_start_to_close=timedelta(minutes=30))
    assert settings.timeouts.heartbeat_timeout == timedelta(seconds=10)


@pytest.mark.parametrize("profile", ["fast", "cloud"])
def test_a_short_time_out_of_heartbeats_needs_no_other_setting(profile: str) -> None:
    """One was refused for the name of a setting that nobody had given."""
    seconds = {"fast": "1", "cloud": "30"}[profile]
    settings = Settings.from_env({"HELIX_PROFILE": profile, "HELIX_TIMEOUT_HEARTBEAT_TIMEOUT": seconds})
    assert settings.timeouts.heartbeat_timeout == timedelta(seconds=int(seconds))


def test_a_profile_sets_what_is_not_given() -> None:
    """From variables and in Python, as a whole and in part."""
    cloud = Settings(profile="cloud").timeouts
    assert (cloud.heartbeat_timeout, cloud.heartbeat_every) == (timedelta(seconds=60), timedelta(seconds=10))
    assert Settings.from_env({"HELIX_PROFILE": "cloud"}).timeouts == cloud
    given = {"HELIX_PROFILE": "cloud", "HELIX_TIMEOUT_HEARTBEAT_EVERY": "5"}
    changed = cloud.model_copy(update={"heartbeat_every": timedelta(seconds=5)})
    assert Settings.from_env(given).timeouts == changed
    own = Timeouts(heartbeat_every=timedelta(seconds=5))
    assert Settings(profile="cloud", timeouts=own).timeouts == changed
    assert Settings(profile="fast", timeouts=own).timeouts == own
    assert (
        Settings.model_validate({"profile": "cloud", "timeouts": {"heartbeat_every": "5s"}}).timeouts
        == changed
    )
    with pytest.raises(InvalidConfigError, match="HELIX_PROFILE"):
        Settings.from_env({"HELIX_PROFILE": "clouds"})


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    """As that of a variable."""
    said = "temporal_adress is no setting: perhaps temporal_address is meant"
    with pytest.raises(InvalidConfigError, match=said):
        Settings(temporal_adress="localhost:7233")  # type: ignore[call-arg]  # that is what is tested


def test_settings_are_frozen() -> None:
    """A worker's stores all see the same settings, for its whole life."""
    with pytest.raises(ValidationError):
        Settings().task_queue = "other"  # type: ignore[misc]  # that is what is tested


@pytest.mark.parametrize("prefix", ['x"; DROP TABLE s;--', "x" * 70, "Üser_", "", "1abc", "a-b"])
def test_a_table_prefix_that_is_no_short_name_is_refused(prefix: str) -> None:
    """It becomes part of table names, which PostgreSQL cuts silently at 63 bytes."""
    with pytest.raises(InvalidConfigError, match=r"table_prefix \(HELIX_TABLE_PREFIX\): .* must match"):
        Settings(table_prefix=prefix)


@pytest.mark.parametrize("prefix", ["__agents_", "A", "x" * 30])
def test_a_table_prefix_may_be_a_name_of_thirty_characters(prefix: str) -> None:
    """The rule refuses nothing that works."""
    assert Settings(table_prefix=prefix).table_prefix == prefix


@pytest.mark.parametrize("prefix", ["a*", "{x}", "a?", "a[b]", "a b", "a\n", "x" * 65])
def test_a_redis_prefix_that_means_something_in_a_pattern_is_refused(prefix: str) -> None:
    """The maintenance worker scans by prefix; a star would make it sweep other people's keys."""
    with pytest.raises(InvalidConfigError, match=r"redis_prefix \(HELIX_REDIS_PREFIX\): .* must match"):
        Settings(redis_prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "helix:", "team.a-b_c:1:", "x" * 64])
def test_a_redis_prefix_may_hold_letters_digits_and_separators(prefix: str) -> None:
    """The rule refuses nothing that works."""
    assert Settings(redis_prefix=prefix).redis_prefix == prefix


@pytest.mark.parametrize("prefix", ["/a/../b", "a//b", "a/", "/a", ".", "a/./b", "", "a\x00b", "a\\b"])
def test_an_object_prefix_that_could_climb_is_refused(prefix: str) -> None:
    """Directory stores and some gateways resolve such segments; two prefixes would share objects."""
    with pytest.raises(InvalidConfigError, match="s3_prefix"):
        Settings(s3_prefix=prefix)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 1e12, 0.5, True, "soon", "", None])
def test_a_time_to_live_outside_one_second_to_400_days_is_refused(seconds: Any) -> None:
    """Zero would drop threads at once, and huge ones overflow in the server."""
    with pytest.raises(InvalidConfigError, match="warm_ttl"):
        Settings(warm_ttl=seconds)


def test_unarchived_threads_expire_only_without_a_cold_tier() -> None:
    """With a cold tier, expiry could take what the archive does not hold yet."""
    with pytest.raises(InvalidConfigError, match="expire_unarchived_after"):
        Settings(s3_bucket="threads", expire_unarchived_after=timedelta(hours=1))
    assert Settings(expire_unarchived_after=timedelta(hours=1)).expire_unarchived_after is not None


def test_workspaces_are_named_by_where_to_import_them() -> None:
    """Scripts and commands have no code of the application's."""
    read = Settings.from_env({"HELIX_WORKSPACES": "disk=acme.disks:provider, s3=acme:Buckets"})
    assert read.workspaces == {"disk": "acme.disks:provider", "s3": "acme:Buckets"}


@pytest.mark.parametrize(
    "value", ["acme.disks:provider", "disk=acme.disks", "disk=", "a=x:y,a=x:z", "a=x:y,"]
)
def test_what_names_no_workspace_is_refused(value: str) -> None:
    """At the start, rather than at the first clean-up."""
    with pytest.raises(InvalidConfigError, match="workspaces"):
        Settings.from_env({"HELIX_WORKSPACES": value})


@pytest.mark.parametrize("others", [{}, {"redis_url": "redis://localhost", "session_store": "none"}])
def test_a_time_to_live_of_sessions_is_for_state_in_redis(others: dict[str, Any]) -> None:
    """Elsewhere it would be taken for something that happens."""
    with pytest.raises(InvalidConfigError, match="session_ttl"):
        Settings(session_ttl=timedelta(hours=1), **others)


@pytest.mark.parametrize(
    "values",
    [
        {"temporal_address": "temporal.example:7233"},
        {"temporal_address": "192.0.2.2:7233", "temporal_api_key": "secret"},
        {"redis_url": "redis://cache.example:6379"},
        {"s3_endpoint": "http://objects.example", "s3_bucket": "threads"},
        {"postgres_dsn": "postgresql://db.example/app?sslmode=disable"},
        {"postgres_dsn": "postgresql://localhost/app?host=db.example&sslmode=disable"},
    ],
)
def test_plain_connections_to_other_hosts_are_refused_unless_allowed(values: dict[str, Any]) -> None:
    """Conversations must not cross a network in the clear because somebody forgot a letter."""
    with pytest.raises(InvalidConfigError, match="HELIX_ALLOW_PLAINTEXT"):
        Settings(**values)
    assert Settings(**values, allow_plaintext=True).allow_plaintext


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379", "redis://127.0.0.5", "redis://[::1]:1", "unix:///run/valkey.sock"]
)
def test_plain_connections_to_this_host_are_fine(url: str) -> None:
    """Development needs no certificates."""
    assert Settings(redis_url=url).redis_url == url


@pytest.mark.parametrize("address", ["localhost:7233", "127.0.0.1:1", "[::1]:7233"])
def test_a_plain_temporal_on_this_host_is_fine(address: str) -> None:
    """As `helix-temporal dev` starts it."""
    assert Settings(temporal_address=address).temporal_address == address


def test_an_encrypted_temporal_may_be_anywhere() -> None:
    """With a key, as Temporal Cloud."""
    settings = Settings(
        temporal_address="eu.example:7233", temporal_tls=True, temporal_api_key=SecretStr("secret")
    )
    assert settings.temporal_tls


@pytest.mark.parametrize(
    ("url", "hosts", "service", "db"),
    [
        ("redis+sentinel://localhost/main", (("localhost", 26379),), "main", 0),
        ("redis+sentinel://u:p%40@127.0.0.1:1,[::1]:2/a-b/3", (("127.0.0.1", 1), ("::1", 2)), "a-b", 3),
        (
            "rediss+sentinel://one.example:1,two.example:2/main",
            (("one.example", 1), ("two.example", 2)),
            "main",
            0,
        ),
    ],
)
def test_sentinels_are_an_address(
    url: str, hosts: tuple[tuple[str, int], ...], service: str, db: int
) -> None:
    """Several hosts, a service and a database, in the form that other clients use."""
    found = sentinel_address(Settings(redis_url=url).redis_url or "")
    assert (found.hosts, found.service, found.db) == (hosts, service, db)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://localhost",
        "redis+sentinel:///main",
        "redis+sentinel://localhost:99999/main",
        "redis+sentinel://localhost:x/main",
        "redis+sentinel://localhost/main/x",
        "redis+sentinel://app:hunter2@one.example,localhost/main",
    ],
)
def test_a_bad_address_of_sentinels_is_refused(url: str) -> None:
    """Said at the start, and without a password; another host without TLS is refused as elsewhere."""
    with pytest.raises(InvalidConfigError, match="redis_url") as refused:
        Settings(redis_url=url)
    assert "hunter2" not in str(refused.value)


def test_secrets_never_show_in_repr() -> None:
    """Settings end up in logs and tracebacks."""
    settings = Settings.from_env(
        {
            "HELIX_REDIS_URL": "rediss://app:hunter2@cache.example",
            "HELIX_POSTGRES_DSN": "postgresql://app:hunter2@db.example/app?password=hunter2",
            "HELIX_S3_ACCESS_KEY": "hunter2",
            "HELIX_S3_SECRET_KEY": "hunter2",
            "HELIX_ARCHIVE_HMAC_KEY": "hunter2-hunter2-hunter2",
            "HELIX_TEMPORAL_API_KEY": "hunter2",
        }
    )
    assert "hunter2" not in f"{settings!r} {settings}"
    assert "cache.example" in repr(settings)


@pytest.mark.parametrize(
    "name",
    ["redis_url", "postgres_dsn", "s3_endpoint"],
)
@pytest.mark.parametrize("scheme", ["ftp", "redis", "postgresql", "http", "nonsense"])
@pytest.mark.parametrize(
    "rest", ["app:hunter2@host.example:99999999", "hunter2@", "app:hunter2@h?password=hunter2"]
)
def test_secrets_never_show_in_errors(name: str, scheme: str, rest: str) -> None:
    """A refused address is printed at start-up, where everyone reads it."""
    with pytest.raises(InvalidConfigError) as refused:
        Settings(**{name: f"{scheme}://{rest}", "s3_bucket": None, "warm_ttl": 0})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"temporal_address": "localhost"}, "host:port"),
        ({"s3_bucket": "a"}, "bucket name"),
        ({"s3_bucket": "threads", "cold_directory": "/tmp/x"}, "set one of them"),
        ({"s3_endpoint": "https://objects.example"}, "s3_bucket is not"),
        ({"s3_access_key": "key", "s3_bucket": "threads"}, "set both or neither"),
        ({"archive_hmac_key": "short"}, "fewer than 16"),
        ({"other_reference_key": "short"}, "other_reference_key has fewer than 16"),
        ({"s3_endpoint": "https://a:b@objects.example", "s3_bucket": "threads"}, "s3_access_key"),
        ({"timeouts": {"heartbeat_every": 20}}, "heartbeat_every must not be longer"),
        ({"flush": "never"}, "'step' or 'exit'"),
        ({"redis_uri": "redis://localhost"}, "redis_uri"),
        ({"limits": {"message_bytes": 0}}, r"message_bytes \(HELIX_LIMIT_MESSAGE_BYTES\): "),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(values: dict[str, Any], said: str) -> None:
    """A mistake shows at start-up, with the field and the rule, not as a strange failure later."""
    with pytest.raises(InvalidConfigError, match=said):
        Settings(**values)


class Outer(BaseModel):
    """An application's own settings."""

    settings: Settings


WITH_SECRETS: dict[str, Any] = {
    "redis_url": "rediss://user:hunter2@cache.example/1",
    "postgres_dsn": "postgresql://user:hunter2@db.example/app?password=hunter2",
    "s3_bucket": "threads",
    "s3_access_key": "hunter2",
    "s3_secret_key": "hunter2",
    "archive_hmac_key": "hunter2-hunter2-hunter2",
    "reference_key": "hunter2-hunter2-hunter2",
    "other_reference_key": "hunter2-hunter2-hunter2",
    "temporal_api_key": "hunter2",
}


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        lambda each: repr(each.model_dump()),
        lambda each: repr(each.model_dump(mode="json")),
        lambda each: each.model_dump_json(),
        lambda each: repr(Outer(settings=each).model_dump()),
        lambda each: Outer(settings=each).model_dump_json(),
    ],
    ids=["repr", "str", "dump", "json", "text", "within", "text-within"],
)
def test_nothing_that_settings_are_shown_as_has_a_password(show: Callable[[Settings], str]) -> None:
    """Programs log their settings, and pages show them."""
    shown = show(Settings(**WITH_SECRETS))
    assert "hunter2" not in shown
    assert "cache.example" in shown


def test_a_copy_has_the_passwords_all_the_same() -> None:
    """What is used is not what is shown."""
    settings = Settings(**WITH_SECRETS)
    assert settings.model_copy(update={"flush": "exit"}).redis_url == WITH_SECRETS["redis_url"]
    assert Settings(**dict(settings)) == settings


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HELIX_REDIS_URI", "HELIX_REDIS_URL"),
        ("HELIX_POSTGRES_URL", "HELIX_POSTGRES_DSN"),
        ("HELIX_S3_BUKET", "HELIX_S3_BUCKET"),
        ("HELIX_TIMEOUT_HEARTBEATS_EVERY", "HELIX_TIMEOUT_HEARTBEAT_EVERY"),
        ("HELIX_LIMITS_MESSAGE_BYTES", "HELIX_LIMIT_MESSAGE_BYTES"),
        ("HELIX_NAMES", "HELIX_NAME"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_nearest(name: str, meant: str) -> None:
    """A worker whose Redis was misspelt would serve from memory."""
    with pytest.raises(InvalidConfigError, match=f"{name} is no setting: perhaps {meant} is meant"):
        Settings.from_env({name: "redis://user:hunter2@cache.example"})


@pytest.mark.parametrize("name", ["HELIX_ZZZZZZZZ9", "HELIX_FOO", "HELIX_BAR"])
def test_a_variable_that_is_like_none_is_refused(name: str) -> None:
    """The message says where the names are, never a value, nor a name that only begins like it."""
    with pytest.raises(InvalidConfigError, match=f"{name} is no setting: docs/.*HELIX_APP_") as refused:
        Settings.from_env({name: "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HELIX_AGENTS", "agent:support"),
        ("HELIX_REQUIRE_SERVICES", "1"),
        ("HELIX_CAMPAIGN", "1"),
        ("HELIX_TEST_REDIS_URL", "redis://localhost"),
        ("HELIX_VALKEY_BINARY", "/usr/bin/valkey-server"),
        ("HELIX_APP_COLOUR", "blue"),
        ("HELIX_SERVICE_HOST", "10.0.0.1"),
        ("HELIX_REDIS_SERVICE_PORT_TCP_REDIS", "6379"),
        ("HELIX_REDIS_PORT", "tcp://10.0.0.1:6379"),
        ("HELIX_REDIS_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ("HELIX_UNUSED", ""),
        ("OTHER", "x"),
    ],
)
def test_variables_of_others_are_left_alone(name: str, value: str) -> None:
    """Those of the tests and the development servers, of Kubernetes, an application's own, and empty ones."""
    assert Settings.from_env({name: value}) == Settings()


@pytest.mark.parametrize("password", ["p@ss/w0rd", "p@x?q", "tok@en#1", "ab/cd", "pa#ss", "pa?ss"])
@pytest.mark.parametrize(
    ("name", "start"),
    [("HELIX_REDIS_URL", "redis://:"), ("HELIX_POSTGRES_DSN", "postgresql://me:")],
    ids=["redis", "postgres"],
)
def test_no_end_of_an_unquoted_password_is_shown(name: str, start: str, password: str) -> None:
    """It would be taken for a host, a path or a query, and shown, and looked up in the DNS."""
    with pytest.raises(InvalidConfigError) as raised:
        Settings.from_env({name: f"{start}{password}@far.example:6399/0"})
    shown = str(raised.value)
    assert "is not shown" in shown
    assert not any(
        part in shown for part in ("w0rd", "x?q", "en#1", "ab/", "cd", "pa#", "pa?", "far.example")
    )


def test_all_mistakes_are_told_at_once_by_the_names_of_variables() -> None:
    """Whoever starts a container sets variables, and would start it once for each mistake."""
    variables = {
        "HELIX_TIMEOUT_ROLL_OUT": "soon",
        "HELIX_TIMEOUT_MODEL_START_TO_CLOSE": "-4",
        "HELIX_LIMIT_MESSAGE_BYTES": "many",
        "HELIX_TEMPORAL_TLS": "maybe",
    }
    with pytest.raises(InvalidConfigError) as refused:
        Settings.from_env(variables)
    assert all(f"({name}): " in str(refused.value) for name in variables)
    assert "'-4' is no duration; write a positive number of seconds" in str(refused.value)
