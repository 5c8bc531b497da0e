"""The start-up check: refuse a server that would lose data."""

import re
from typing import Any, Final

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    UnsafeRedisPolicyError,
    UnsupportedServerError,
)
from helix_temporal.stores.redis._connection import Connection, Server
from helix_temporal.stores.redis._rights import check_rights

_OLDEST: Final = (6, 0)
_SAFE: Final = frozenset({"noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"})


async def check_server(connection: Connection, *, expiring: bool = False) -> bool:
    """Ask every primary; whether all of them keep an append-only file, so that what they acknowledge lasts.

    Args:
        connection: To all of it.
        expiring: Records of several keys have a time to live, so that no key at all may be evicted.

    Raises:
        UnsafeRedisPolicyError: It may evict keys without a time to live, or does not tell; with
            ``expiring``: it may evict any.
        UnsupportedServerError: It is older than Redis 6, a replica, or lacks Lua's ``struct``.
        InvalidConfigError: It is a node of a cluster that was not announced as one, or the reverse; or the
            user lacks rights; or it speaks TLS and the URL does not say so, or the reverse.
        StoreUnavailableError: It does not answer.
    """
    try:
        return await _check_primaries(connection, expiring=expiring)
    except StoreUnavailableError as error:
        wrong = await connection.find_tls_mismatch()
        if not wrong:
            raise
        raise InvalidConfigError(f"Redis at {connection.where} {wrong}") from error


async def _check_primaries(connection: Connection, *, expiring: bool) -> bool:
    durable = True
    for server in await connection.primaries():
        info = await connection.command("INFO", at=server)
        if not isinstance(info, dict):
            raise UnsupportedServerError(f"Redis at {connection.where}: INFO is not what it should be")
        _check_version(connection, info)
        if info.get("cluster_enabled") and not connection.cluster:
            raise InvalidConfigError(f"Redis at {connection.where} is a node of a cluster; set redis_cluster")
        policy = info.get("maxmemory_policy") or await _configured_policy(connection, server)
        refuse_unsafe_policy(connection.where, str(policy))
        if expiring and policy != "noeviction":
            raise UnsafeRedisPolicyError(
                f"Redis at {connection.where}: maxmemory-policy {policy!r} may evict a part of a session "
                "that has a time to live; set it to noeviction, or unset the time to live of sessions",
                policy=str(policy),
            )
        durable = durable and str(info.get("aof_enabled")) == "1"
    await check_rights(connection)
    await _check_scripts(connection)
    return durable


def refuse_unsafe_policy(where: str, policy: str) -> None:
    """Refuse every eviction policy that is not known to spare keys without a time to live.

    Raises:
        UnsafeRedisPolicyError: It names the policy and the ones to choose from.
    """
    if policy not in _SAFE:
        raise UnsafeRedisPolicyError(
            f"Redis at {where}: maxmemory-policy {policy!r} may evict unarchived threads; "
            "set it to noeviction or one of volatile-*",
            policy=policy,
        )


def _check_version(connection: Connection, info: dict[str, Any]) -> None:
    where = connection.where
    version = str(info.get("redis_version", ""))
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < _OLDEST:
        raise UnsupportedServerError(f"Redis at {where}: version {version or 'unknown'}, at least 6.0 needed")
    if info.get("role") == "slave":
        if connection.follows_failovers:
            raise StoreUnavailableError(
                f"Redis at {where} is a replica since a moment; repeat the call later"
            )
        raise UnsupportedServerError(f"Redis at {where} is a replica and takes no writes; name the primary")


async def _configured_policy(connection: Connection, server: Server) -> object:
    try:
        found = await connection.command("CONFIG GET", "maxmemory-policy", at=server)
    except HelixError as error:
        raise UnsafeRedisPolicyError(
            f"Redis at {connection.where} tells its maxmemory-policy neither by INFO nor by CONFIG"
        ) from error
    return found.get("maxmemory-policy", "unknown") if isinstance(found, dict) else "unknown"


async def _check_scripts(connection: Connection) -> None:
    key = connection.key("check")
    answer = await connection.command("EVAL", "return struct.pack('>I4', 1)", 1, key)
    if answer != b"\0\0\0\1":
        raise UnsupportedServerError(f"Redis at {connection.where}: Lua's struct library is missing")
