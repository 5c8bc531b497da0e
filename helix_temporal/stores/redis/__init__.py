"""Stores on Redis or Valkey."""

from helix_temporal.stores.redis.backend import RedisBackend
from helix_temporal.stores.redis.locks import RedisLocks
from helix_temporal.stores.redis.payloads import RedisPayloads
from helix_temporal.stores.redis.sessions import RedisSessions
from helix_temporal.stores.redis.storage import RedisSessionStorage
from helix_temporal.stores.redis.streams import RedisStreams
from helix_temporal.stores.redis.threads import RedisThreads
from helix_temporal.stores.redis.usage import RedisUsage

__all__ = [
    "RedisBackend",
    "RedisLocks",
    "RedisPayloads",
    "RedisSessionStorage",
    "RedisSessions",
    "RedisStreams",
    "RedisThreads",
    "RedisUsage",
]
