"""Stores on Redis or Valkey."""

from helix_temporal.stores.redis.backend import RedisBackend
from helix_temporal.stores.redis.payloads import RedisPayloads
from helix_temporal.stores.redis.threads import RedisThreads

__all__ = ["RedisBackend", "RedisPayloads", "RedisThreads"]
