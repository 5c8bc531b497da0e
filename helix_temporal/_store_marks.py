"""Where a store is, as a digest: what two processes compare to know that they use the same one.

Counted: hosts, ports, databases, prefixes, buckets, directories.  Not counted: users, passwords, encryption,
time-outs and all other options of an address.  Names of this machine (``localhost``, ``127.0.0.1``) are one
name.  An address that lists several servers, and one of a cluster or of sentinels, counts without its
hosts: which of them is named, and in what order, says nothing about what is stored there.
"""

import ipaddress
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from helix_temporal.models.deployments import digest_location

_HERE: Final = "localhost"


def redis_mark(url: str, prefix: str, *, cluster: bool) -> str:
    """Of a Redis and the keys below a prefix."""
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


def postgres_mark(dsn: str, table_prefix: str) -> str:
    """Of a database and the tables below a prefix."""
    parts = urlsplit(dsn)
    asked = parse_qs(parts.query)
    database = asked.get("dbname", asked.get("database", [parts.path.strip("/")]))[0]
    named = asked.get("host", [""])[0]
    host = f"{named}:{asked.get('port', ['5432'])[0]}" if named else _host_and_port(parts, 5432)
    return digest_location("postgres", "" if "," in host else host, database, table_prefix)


def bucket_mark(endpoint: str | None, bucket: str, prefix: str) -> str:
    """Of a bucket and the objects below a prefix."""
    parts = None if endpoint is None else urlsplit(endpoint)
    where = "aws" if parts is None else _host_and_port(parts, 443 if parts.scheme == "https" else 80)
    return digest_location("s3", where, bucket, prefix)


def directory_mark(directory: Path, prefix: str = "") -> str:
    """Of a directory or a file of this machine."""
    return digest_location("files", directory.absolute(), prefix)


def _host_and_port(parts: SplitResult, port: int) -> str:
    """Host and port; nothing where there are several."""
    place = parts.netloc.rpartition("@")[2]
    if "," in place:
        return ","
    host = parts.hostname or _HERE
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = host == _HERE or host.endswith(f".{_HERE}")
    return f"{_HERE if here else host}:{parts.port or port}"
