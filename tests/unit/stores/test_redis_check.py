"""The start-up check refuses servers that would lose data, and settings that don't fit the server."""

import asyncio
import re
import ssl
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004

from helix_temporal.devstack import Valkey, start_valkey
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    UnsafeRedisPolicyError,
    UnsupportedServerError,
)
from helix_temporal.stores.redis import RedisBackend
from helix_temporal.stores.redis.connection import NEEDED, is_damage, refuse_unsafe_policy, translate_error
from helix_temporal.stores.sessions import RowSessions
from tests.docs._pages import ROOT
from tests.unit.stores._redis import backend_on


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
async def test_a_policy_that_may_evict_threads_is_refused(policy: str) -> None:
    """Unarchived messages would vanish under memory pressure."""
    with start_valkey(arguments=("--maxmemory-policy", policy)) as server:
        async with backend_on(server.url) as backend:
            with pytest.raises(UnsafeRedisPolicyError, match=policy):
                await backend.check()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
def test_a_policy_that_spares_threads_is_accepted(policy: str) -> None:
    """Only keys with a time to live go: threads kept warm, payloads."""
    refuse_unsafe_policy("here", policy)


async def test_one_unsafe_node_of_a_cluster_is_enough(redis_cluster: str, redis_prefix: str) -> None:
    """Every primary is asked."""
    backend = RedisBackend(redis_cluster, prefix=redis_prefix, cluster=True)
    connection = backend.threads._connection
    *_, last = await connection.list_primaries()
    await connection.send_command("CONFIG SET", "maxmemory-policy", "allkeys-lru", at=last)
    try:
        with pytest.raises(UnsafeRedisPolicyError):
            await backend.check()
    finally:
        await connection.send_command("CONFIG SET", "maxmemory-policy", "noeviction", at=last)
    await backend.close()


async def test_a_replica_is_refused(own_valkey: Valkey) -> None:
    """It takes no writes."""
    with start_valkey(arguments=("--replicaof", "127.0.0.1", str(own_valkey.port))) as replica:
        async with backend_on(replica.url) as backend:
            with pytest.raises(UnsupportedServerError, match="replica"):
                await backend.check()


async def test_a_cluster_that_was_not_announced_is_refused(redis_cluster: str) -> None:
    """Half of the threads would live elsewhere."""
    async with backend_on(redis_cluster) as backend:
        with pytest.raises(InvalidConfigError, match="cluster"):
            await backend.check()
        calls = (backend.threads.read_header(f"t{n}") for n in range(20))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {type(None), InvalidConfigError}


async def test_a_cluster_that_is_none_is_refused(redis_url: str) -> None:
    """The setting is wrong: no retry will mend it."""
    backend = RedisBackend(redis_url, cluster=True)
    with pytest.raises(InvalidConfigError, match="cluster"):
        await backend.check()
    await backend.close()


ALLOWED = ("-@all", "+eval", "+evalsha", "+info", *(f"+{each.split()[0].lower()}" for each in NEEDED))
"""What the documentation tells to grant."""

User = Callable[..., str]


@pytest.fixture
def user(own_valkey: Valkey) -> User:
    """Gives a user such rights, beside the server's own; the URL that it has."""

    def make(*rights: str) -> str:
        own_valkey.ask("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights)
        return own_valkey.url.replace("//", "//app:secret@")

    return make


async def test_a_user_with_the_documented_rights_will_do(user: User) -> None:
    """It may ask neither who it is nor what it may."""
    async with backend_on(user("~helix:*", *ALLOWED)) as backend:
        await backend.check()
        await RowSessions(backend.sessions).create_session("s")


async def test_the_documented_rights_of_a_reader_will_do(user: User, own_valkey: Valkey) -> None:
    """Somebody who only looks at sessions is given no right to change one."""
    page = (ROOT / "docs/operations.md").read_text()
    (rules,) = re.findall(r"ACL SETUSER reader on >SECRET ~helix:\* (-@all [^`]*)```", page)
    async with backend_on(own_valkey.url) as backend:
        await RowSessions(backend.sessions).create_session("s")
    async with backend_on(user("~helix:*", *rules.split())) as backend:
        sessions = RowSessions(backend.sessions)
        assert (await sessions.load_state("s")) is not None
        assert [each.session_id for each in (await sessions.list_sessions()).sessions] == ["s"]
        assert await backend.threads.read_header("s") is None
        with pytest.raises(HelixError):
            await sessions.create_session("other")
    async with backend_on(own_valkey.url) as backend:
        assert not await RowSessions(backend.sessions).session_exists("other")


async def test_the_check_leaves_nothing_behind(user: User, own_valkey: Valkey) -> None:
    """Nobody else looks after its key."""
    async with backend_on(user("~helix:*", *ALLOWED)) as backend:
        await backend.check()
    assert own_valkey.ask("DBSIZE") == 0


@pytest.mark.parametrize("command", ["eval", "evalsha", "info", "hset", "xread"])
async def test_a_command_that_is_not_allowed_is_named_at_the_start(user: User, command: str) -> None:
    """Instead of sessions that fail one by one; the message says what to grant."""
    async with backend_on(user("~helix:*", "+@all", f"-{command}")) as backend:
        with pytest.raises(InvalidConfigError, match=f" {command.upper()}; .*[+]{command}$"):
            await backend.check()


async def test_all_that_is_not_allowed_is_named_at_once(user: User) -> None:
    """Whoever grants rights asks an administrator once."""
    async with backend_on(user("~helix:*", "-@all", "+eval", "+evalsha", "+info")) as backend:
        with pytest.raises(InvalidConfigError) as caught:
            await backend.check()
    assert caught.value.facts["commands"] == " ".join(each.split()[0] for each in NEEDED)
    assert "HSET, HSETNX, HVALS" in str(caught.value)


@pytest.mark.parametrize("keys", ["~other:*", "%R~helix:*"])
async def test_keys_that_are_not_allowed_are_told_at_the_start(user: User, keys: str) -> None:
    """The prefix is the setting that they must follow."""
    async with backend_on(user(keys, "+@all")) as backend:
        with pytest.raises(InvalidConfigError, match=r"key.*~<redis_prefix>"):
            await backend.check()


async def test_a_right_that_is_taken_away_is_named_when_it_is_missed(user: User) -> None:
    """By scripts and by commands; it is an error of configuration, and no damage."""
    async with backend_on(user("~helix:*", "+@all")) as backend:
        await backend.check()
        user("~helix:*", "+@all", "-hset", "-exists")
        with pytest.raises(InvalidConfigError, match="HSET"):
            await RowSessions(backend.sessions).create_session("s")
        with pytest.raises(InvalidConfigError, match="EXISTS"):
            await backend.usage.exists("s")


STUMBLED = "ERR Error running script (call to f_0): @user_script:9: @user_script: 9: The user executing the "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ERR ACL failure in script: User u has no permissions to run the 'hset' command", "HSET"),
        ("NOPERM this user has no permissions to run the 'hset' command or its subcommand", "HSET"),
        ("NOPERM this user has no permissions to access one of the keys used as arguments", "a key"),
        (STUMBLED + "script can't run this command or subcommand", "a command of a script"),
        (
            STUMBLED + "script can't access at least one of the keys mentioned in the command arguments",
            "a key",
        ),
    ],
)
def test_what_servers_say_of_rights_is_no_damage(text: str, told: str) -> None:
    """Redis 6 says it within the place in the script, which damage looks like."""
    assert is_damage(ResponseError(text)) is None
    error = translate_error(ResponseError(text), "here")
    assert isinstance(error, InvalidConfigError)
    assert told in str(error)


@pytest.mark.parametrize(("command", "told"), [("PERSIST", "PERSIST"), ("TIME", "TIME"), ("INFO", "INFO")])
async def test_a_command_that_the_server_lacks_is_named_at_the_start(command: str, told: str) -> None:
    """``rename-command`` takes it from everybody, and no right brings it back."""
    with start_valkey(arguments=("--rename-command", command, "")) as server:
        async with backend_on(server.url) as backend:
            with pytest.raises(UnsupportedServerError, match=f"not know {told}; remove rename-command"):
                await backend.check()


IN_SCRIPT = "ERR Error running script (call to f_0): @user_script:9: @user_script: 9: "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ERR unknown command 'PERSIST', with args beginning with: 'secret'", "PERSIST"),
        ("unknown command `unlink`, with args beginning with: `secret`, ", "UNLINK"),
        ("ERR Unknown Redis command called from script script: f_0, on @user_script:5.", "a command of a"),
        (IN_SCRIPT + "Unknown Redis command called from script", "a command of a script"),
    ],
)
def test_what_servers_say_of_a_command_that_they_lack_is_no_damage(text: str, told: str) -> None:
    """The name is in the server's text, beside arguments, which are not for the log."""
    assert is_damage(ResponseError(text)) is None
    error = translate_error(ResponseError(text), "here")
    assert isinstance(error, UnsupportedServerError)
    assert told in str(error)
    assert "secret" not in str(error)


async def said_to_callers(answer: bytes) -> str:
    """What the check says of a server that greets everybody so, and closes."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with backend_on(f"redis://127.0.0.1:{port}") as backend:
            with pytest.raises(InvalidConfigError) as caught:
                await backend.check()
    return str(caught.value)


async def test_protected_mode_is_a_matter_of_settings() -> None:
    """Waiting does not end it, and the driver takes it for a connection that was lost."""
    said = await said_to_callers(b"-DENIED Redis is running in protected mode because ...\r\n")
    assert "protected mode" in said


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_a_file_of_certificates_that_is_none_is_a_matter_of_settings(
    tmp_path: Path, own_valkey: Valkey, option: str, text: str | None
) -> None:
    """A worker that starts would wait for ever for a file that nobody brings."""
    file = tmp_path / "file.pem"
    if text is not None:
        file.write_text(text)
    url = f"rediss://127.0.0.1:{own_valkey.port}?{option}={file}"
    url += f"&ssl_certfile={file}" if option == "ssl_keyfile" else ""
    async with backend_on(url) as backend:
        with pytest.raises(InvalidConfigError, match=f"{option}.* in redis_url"):
            await backend.usage.exists("s")


def caused_by(cause: Exception) -> ConnectionError:
    """As the driver raises what came of another error."""
    error = ConnectionError("Error 1 connecting to here")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "CERTIFICATE_REQUIRED.*ssl_certfile"),
        ("TLSV1_ALERT_UNKNOWN_CA", "UNKNOWN_CA.*ssl_certfile"),
        ("WRONG_VERSION_NUMBER", "WRONG_VERSION_NUMBER"),
    ],
)
def test_what_tls_says_is_told(reason: str, told: str) -> None:
    """It may pass, when the server's certificates are renewed; meanwhile the log has the cause."""
    refused = ssl.SSLError(1, f"[SSL: {reason}]")
    refused.reason = reason
    error = translate_error(caused_by(refused), "here")
    assert isinstance(error, StoreUnavailableError)
    assert re.search(told, str(error))


def test_every_command_in_use_is_tried() -> None:
    """A store that learns a new command must not pass a check that does not know it."""
    found = set()
    for path in Path(str(files("helix_temporal.stores.redis"))).rglob("*.*"):
        if path.suffix == ".lua":
            found |= set(re.findall(r"(?:redis[.]call|in_parts)\('([A-Z]+)'", path.read_text("utf-8")))
        elif path.suffix == ".py" and path.name not in UNUSED:
            found |= set(re.findall(r'"([A-Z]{3,})"', path.read_text("utf-8")))
    words = {"BLOCK", "COUNT", "LIMIT", "MATCH", "STREAMS", "TYPE"}
    assert found - words - ERROR_WORDS - {"EVAL", "EVALSHA", "INFO"} == {each.split()[0] for each in NEEDED}


UNUSED = {"storage.py"}
"""The façade's storage looks after itself."""

ERROR_WORDS = {
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DENIED",
    "ERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "SENTINEL",
    "TRYAGAIN",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
}
"""What the first word of a server's error may be, and the command that only sentinels know."""
