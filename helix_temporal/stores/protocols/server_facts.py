"""What servers say of themselves: for people who look for what is wrong, not for workers.

Times are milliseconds since 1970 by the server's clock, sizes bytes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """One Redis or Valkey, of a cluster the worst of its primaries.

    Attributes:
        where: Its address, without a password.
        policy: ``maxmemory-policy``.
        keeps_log: ``appendonly``: what it acknowledges survives its end.
        save_failed: Its last snapshot or rewrite of the log failed.
        max_memory: 0 where there is no bound.
        servers: Primaries.
    """

    where: str
    version: str
    policy: str
    keeps_log: bool
    save_failed: bool
    memory: int
    max_memory: int
    servers: int
    now: int


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """One PostgreSQL database.

    Attributes:
        where: Its address, without a password.
        tables_version, latest_version: Of its tables, and of those that this package needs.
        connections, max_connections: In use, and at most, on the whole server.
    """

    where: str
    version: str
    tables_version: int
    latest_version: int
    connections: int
    max_connections: int
    now: int
