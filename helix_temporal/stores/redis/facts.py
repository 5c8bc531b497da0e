"""What a Redis says of itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from helix_temporal.errors import UnsupportedServerError
from helix_temporal.stores.protocols.server_facts import RedisFacts
from helix_temporal.stores.redis.connection import RedisConnection


async def read_facts(connection: RedisConnection) -> RedisFacts:
    """Ask every primary; changes nothing.

    Raises:
        UnsupportedServerError: An answer is not what it should be.
        HelixError: As any call of the connection.
    """
    found: list[Mapping[str, Any]] = []
    for server in await connection.list_primaries():
        info = await connection.send_command("INFO", at=server)
        if not isinstance(info, dict):
            raise UnsupportedServerError(f"Redis at {connection.where}: INFO is not what it should be")
        found.append(info)
    seconds, micros = await connection.send_to_owner(connection.key_of("check"), "TIME")
    return _sum_up(connection.where, found, int(seconds) * 1000 + int(micros) // 1000)


def _sum_up(where: str, found: Sequence[Mapping[str, Any]], now: int) -> RedisFacts:
    fullest = max(found, key=_fill_of)
    policies = sorted({str(each.get("maxmemory_policy", "")) for each in found})
    return RedisFacts(
        where=where,
        version=min(_version_of(each) for each in found),
        policy=", ".join(policies),
        keeps_log=all(str(each.get("aof_enabled")) == "1" for each in found),
        save_failed=any(_has_failed(each) for each in found),
        memory=int(fullest.get("used_memory", 0)),
        max_memory=int(fullest.get("maxmemory", 0)),
        servers=len(found),
        now=now,
    )


def _fill_of(info: Mapping[str, Any]) -> float:
    """How full a server is; without a bound by its bytes, as less than any part of one."""
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    return used / most if most else used / 2**63


def _version_of(info: Mapping[str, Any]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of unknown version')}"


def _has_failed(info: Mapping[str, Any]) -> bool:
    names = ("rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status")
    return any(str(info.get(name, "ok")) != "ok" for name in names)
