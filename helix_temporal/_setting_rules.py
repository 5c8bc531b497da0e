"""What a setting may be: pure checks, each returning the value or raising ValueError.

`settings` makes of that an `InvalidConfigError` which names the field.  A message names the rule, what was
found and what to write instead.  What was found is shown only where it cannot be a secret.
"""

import difflib
import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator

from helix_temporal.models.deployments import NAME, Deployment

MIN_TTL: Final = timedelta(seconds=1)
MAX_TTL: Final = timedelta(days=400)

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_REDIS_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{0,64}")
TABLE_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,29}")
_SENTINEL: Final = re.compile(
    r"redis(?P<tls>s)?\+sentinel://(?:(?P<credentials>[^@/]*)@)?(?P<hosts>[^@/?#]+)/(?P<service>[^/?#]+)(?:/(?P<db>\d{1,5}))?/?"
)
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^:\[\]\s]+))(?::(?P<port>\d{1,5}))?")
_SENTINEL_PORT: Final = 26379
_BUILD_ID: Final = re.compile(r"[A-Za-z0-9_.+-]{1,128}")
_WORKER_DEPLOYMENT: Final = re.compile(r"[A-Za-z0-9_/-]{1,200}")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")


_IMPORT_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


_NOT_SETTINGS: Final = re.compile(
    r"HELIX_(?:AGENTS|REQUIRE_SERVICES|CAMPAIGN|APP_\w+|TEST_\w+|\w+_BINARY|REDIS_CLUSTER_URL"
    # What Kubernetes gives every container for a service of such a name.
    r"|(?:\w+_)?SERVICE_(?:HOST|PORT)\w*|(?:\w+_)?PORT_[0-9]+_(?:TCP|UDP|SCTP)\w*)"
)
_SERVICE_PORT: Final = re.compile(r"HELIX_(?:\w+_)?PORT=(?:tcp|udp|sctp)://.*")


def refuse_unknown(environment: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse variables that begin as ours and are none: a misspelt address would mean other stores.

    Raises:
        ValueError: There are such; names the nearest that there is.
    """
    unknown = sorted(
        name
        for name, value in environment.items()
        if name.startswith("HELIX_")
        and value
        and name not in names
        and not _NOT_SETTINGS.fullmatch(name)
        and not _SERVICE_PORT.fullmatch(f"{name}={value}")
    )
    if unknown:
        raise ValueError("; ".join(_describe_unknown(name, names) for name in unknown[:10]))


def _describe_unknown(name: str, names: Collection[str]) -> str:
    return not_known(name, names, "docs/settings.md has all; names of your own begin with HELIX_APP_")


def not_known(name: str, names: Collection[str], otherwise: str = "docs/settings.md has all") -> str:
    """That there is no such setting, and the nearest that there is."""
    # The beginning that all variables have would make any two of them alike.
    own = {each.removeprefix("HELIX_"): each for each in names}
    near = difflib.get_close_matches(name.removeprefix("HELIX_"), own, n=1, cutoff=0.7)
    return f"{name} is no setting: {f'perhaps {own[near[0]]} is meant' if near else otherwise}"


def quote_value(value: object) -> str:
    """A value as errors print it: quoted, printable, at most 60 characters."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:56]}…{text[-1]}"


def parse_duration(value: object) -> timedelta:
    """Seconds as a number, text such as ``"1.5"``, ``"200ms"``, ``"24h"``, or a timedelta; positive."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())) and len(value) < 20:
        seconds = float(match[1]) * _UNITS[match[2] or "s"]
    else:
        raise ValueError(
            f"{quote_value(value)} is no duration; write a positive number of seconds, or one with a unit: "
            "30, 1.5s, 200ms, 24h, 7d"
        )
    # Below a microsecond it would be no time; and NaN is not in any span.
    if not 1e-6 <= seconds <= MAX_TTL.total_seconds():
        raise ValueError(f"a duration of {quote_value(seconds)} s; 1 ms to 400 days are possible")
    return timedelta(seconds=seconds)


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
"""A positive time span of at most 400 days; see `parse_duration` for what is accepted."""


def expand_home(value: Path) -> Path:
    """``~`` as a shell reads it: in a compose file, or a file of variables, no shell has."""
    try:
        return value.expanduser()
    except RuntimeError:
        raise ValueError(f"{quote_value(value.parts[0])} is nobody's home directory here") from None


Directory = Annotated[Path, AfterValidator(expand_home)]
"""A directory of this machine; ``~`` is its user's home."""


def time_to_live(value: timedelta) -> timedelta:
    """A time to live lies between 1 second and 400 days."""
    if not MIN_TTL <= value <= MAX_TTL:
        raise ValueError(f"{value.total_seconds()} s; between 1 s and 400 days are allowed")
    return value


def import_paths(value: object) -> object:
    """``name=package.module:attribute``, and more of them after commas."""
    if not isinstance(value, str):
        return value
    found: dict[str, str] = {}
    for each in value.split(","):
        name, _, path = (part.strip() for part in each.partition("="))
        if not name or name in found or not _IMPORT_PATH.fullmatch(path):
            raise ValueError(
                f"{quote_value(each)} is not name=package.module:attribute under a name of its own"
            )
        found[name] = path
    return found


def deployment_name(value: str) -> str:
    """Lower-case letters, digits and dashes, at most 20: it becomes part of keys, tables and workflow ids."""
    if not NAME.fullmatch(value):
        raise ValueError(
            f"{quote_value(value)} is no name of a deployment: 1 to 20 of a-z, 0-9, -; "
            "a letter first, no - last"
        )
    if value.endswith("-maintenance"):
        raise ValueError(
            f"{quote_value(value)}: a name that does not end in -maintenance expected, as the task queue of "
            "another deployment's maintenance workers does"
        )
    return value


def parse_identities(value: object) -> object:
    """Identities of deployments, separated by commas."""
    texts = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if isinstance(texts, list | tuple):
        return tuple(str(Deployment.parse(str(each))) for each in texts if each)
    return value


def redis_prefix(value: str) -> str:
    """Letters, digits and ``_ . : -``, at most 64: nothing that means something in a SCAN pattern."""
    if not _REDIS_PREFIX.fullmatch(value):
        raise ValueError(f"{quote_value(value)} must match [A-Za-z0-9_.:-]* and have at most 64 characters")
    return value


def table_prefix(value: str) -> str:
    """An SQL name of at most 30 characters, so that no table name reaches 63 bytes and is cut."""
    if not TABLE_PREFIX.fullmatch(value):
        raise ValueError(
            f"{quote_value(value)} must match [A-Za-z_][A-Za-z0-9_]* and have at most 30 characters"
        )
    return value


def check_bucket_name(value: str) -> str:
    """A bucket name: 3 to 63 letters, digits, dots, dashes."""
    if not _BUCKET.fullmatch(value) or ".." in value:
        raise ValueError(f"{quote_value(value)} is no bucket name: 3 to 63 letters, digits, dots and dashes")
    return value


def object_prefix(value: str) -> str:
    """Path segments separated by ``/``; none empty, ``.`` or ``..``, so that it cannot climb."""
    segments = value.split("/")
    if any(segment in {"", ".", ".."} for segment in segments):
        raise ValueError(
            f"{quote_value(value)} has an empty, '.' or '..' segment; write it like 'team/agents'"
        )
    if not value.isprintable() or "\\" in value or len(value.encode("utf-8", "replace")) > 256:
        raise ValueError(f"{quote_value(value)} must be printable, without '\\', and at most 256 bytes")
    return value


def check_url(value: str, schemes: tuple[str, ...]) -> str:
    """An address with one of the schemes and a host (or, for a socket, a path)."""
    parts = _split_url(value)
    if parts.scheme not in schemes:
        raise ValueError(f"{redact_url(value)!r} must begin with {' or '.join(f'{s}://' for s in schemes)}")
    socket = parts.scheme == "unix" or "host=/" in parts.query
    if not parts.hostname and not (socket and (parts.path or parts.query)):
        raise ValueError(f"{redact_url(value)!r} names no host; write one after ://")
    return value


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """What a Redis Sentinel URL says; user and password are those of the Redis servers."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        """Service and sentinels, without credentials."""
        return f"{self.service} (sentinels {','.join(f'{host}:{port}' for host, port in self.hosts)})"


def is_sentinel(value: str) -> bool:
    """Whether a URL names sentinels rather than a server."""
    return value.partition("://")[0].lower() in {"redis+sentinel", "rediss+sentinel"}


def sentinel_address(value: str) -> SentinelAddress:
    """``redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/db]``, or ``rediss+sentinel://``."""
    found = _SENTINEL.fullmatch(value)
    if not found:
        raise ValueError(
            "redis+sentinel://[user:password@]host:port[,host:port…]/service[/db] expected; the text may hold"
            " a secret and is not shown"
        )
    user, _, password = (found["credentials"] or "").partition(":")
    hosts = tuple(_sentinel_host(each) for each in found["hosts"].split(","))
    return SentinelAddress(
        hosts,
        unquote(found["service"]),
        int(found["db"] or 0),
        unquote(user) or None,
        unquote(password) or None,
        tls=found["tls"] is not None,
    )


def _sentinel_host(text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if not found or not 0 < int(found["port"] or _SENTINEL_PORT) < 65536:
        raise ValueError("a sentinel's address must be host:port, for example sentinel-1:26379")
    return found["v6"] or found["name"], int(found["port"] or _SENTINEL_PORT)


def redis_url(value: str) -> str:
    """The address of a Redis server, of a node of a cluster, or of sentinels."""
    if is_sentinel(value):
        sentinel_address(value)
        return value
    return check_url(value, ("redis", "rediss", "unix", "redis+sentinel"))


def build_id(value: str) -> str:
    """Names a build to Temporal and to people: one word."""
    if not _BUILD_ID.fullmatch(value):
        raise ValueError(f"{quote_value(value)}: 1-128 of A-Z a-z 0-9 _ . + - expected, such as a git commit")
    return value


def worker_deployment(value: str) -> str:
    """Names a Worker Deployment to Temporal, which joins it to the build's id with a dot."""
    if not _WORKER_DEPLOYMENT.fullmatch(value) or value.startswith("__"):
        raise ValueError(
            f"{quote_value(value)}: 1-200 of A-Z a-z 0-9 _ / - expected, and no two underscores first"
        )
    return value


def check_s3_endpoint(value: str) -> str:
    """An http(s) address without credentials in it, such as ``https://host:port``."""
    parts = _split_url(check_url(value, ("http", "https")))
    if parts.query or parts.fragment:
        raise ValueError(f"{redact_url(value)!r} has a query or a fragment; write it like https://host:port")
    if parts.username or parts.password:
        raise ValueError(
            f"{redact_url(value)!r} carries credentials; give them as s3_access_key and s3_secret_key"
        )
    return value.rstrip("/")


def check_host_port(value: str) -> str:
    """``host:port``."""
    host, _, port = value.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(f"{quote_value(value)} must be host:port, for example localhost:7233")
    return value


def list_hosts(address: str) -> list[str]:
    """The hosts that an address names: none for a socket, several for sentinels and for a list of servers.

    Args:
        address: A URL of Redis, PostgreSQL or S3, or Temporal's ``host:port``.
    """
    if is_sentinel(address):
        return [host for host, _ in sentinel_address(address).hosts]
    parts = urlsplit(address if "://" in address else f"//{address}")
    # PostgreSQL takes the host from the query, and there the directory of a socket as well.
    asked = parse_qs(parts.query).get("host", [])
    named = asked or [parts.hostname or ""]
    hosts = [host for each in named for host in each.split(",")]
    return [host for host in hosts if host and not host.startswith("/")]


def is_remote(address: str) -> bool:
    """Whether an address names another machine than this one."""
    return not all(is_loopback(host) for host in list_hosts(address))


def refuse_plain(field: str, value: str | None, *, encrypted_scheme: str | None) -> None:
    """Refuse to speak in the clear to another host than this one."""
    if value is None or not is_remote(value):
        return
    scheme = value.partition("://")[0].lower().removesuffix("+sentinel")
    if scheme == encrypted_scheme:
        return
    raise ValueError(
        f"{field}: {redact_url(value)!r} is another host without TLS; use an encrypted address, or set"
        " allow_plaintext (HELIX_ALLOW_PLAINTEXT=true) if the network between is private"
    )


def refuse_plain_temporal(address: str) -> None:
    """Refuse to speak in the clear, perhaps with an API key, to a Temporal on another host than this one."""
    if is_remote(address):
        raise ValueError(
            f"temporal_address: {quote_value(address)} is another host without TLS; set temporal_tls"
            " (HELIX_TEMPORAL_TLS=true), or allow_plaintext (HELIX_ALLOW_PLAINTEXT=true) if the network"
            " between is private"
        )


def redact_url(value: str) -> str:
    """A URL without the user and password in it, and without its query if that may hold one."""
    try:
        parts = urlsplit(value)
        if not is_sentinel(value):
            _ = parts.port
    except ValueError:
        return "<not a URL>"
    if _is_cut_short(parts):
        return f"{parts.scheme}://***"
    place = parts.netloc.rpartition("@")[2]
    hidden = f"***@{place}" if "@" in parts.netloc else place
    query = "***" if re.search("pass|secret|token", parts.query, re.IGNORECASE) else parts.query
    return urlunsplit((parts.scheme, hidden, parts.path, query, ""))


def _split_url(value: str) -> SplitResult:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("not a URL; its text may hold a secret and is not shown") from None
    if _is_cut_short(parts):
        raise ValueError(
            "a '/', '?' or '#' stands before the '@': in a password write %2F, %3F or %23; the text may hold "
            "a secret and is not shown"
        )
    return parts


def _is_cut_short(parts: SplitResult) -> bool:
    """Whether a password was not quoted, so that its end is taken for a path, a query or a fragment."""
    return parts.scheme != "unix" and "@" in f"{parts.path}{parts.query}{parts.fragment}"


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine; so is none."""
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
