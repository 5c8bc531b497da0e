"""Locks in Redis or Valkey: one hash a key, one script an operation, by the server's clock."""

from typing import Final

from helix_temporal.errors import InvalidIdError
from helix_temporal.models.store_calls import DEFAULT_TTL_MS, LockInfo
from helix_temporal.stores.locks import Claim, Leases
from helix_temporal.stores.redis.connection import RedisConnection, Value
from helix_temporal.stores.redis.scripts import Script, assemble_script

_TAKE: Final = assemble_script("lock_take", "_lock")
_EXTEND: Final = assemble_script("lock_extend", "_lock")
_FREE: Final = assemble_script("lock_free", "_lock")
_HELD: Final = assemble_script("lock_held", "_lock")


class RedisLocks(Leases):
    """`LockManager` on one Redis or Valkey, or one cluster.  Made by `RedisBackend`.

    A lease is as good as the one server that keeps it: this is not Redlock.  A failover to a replica that
    lags, or a restart without persistence, can grant a held lock again; the token of that grant is higher
    than all before as long as the new server's clock is not behind, so fenced writes stay safe.
    """

    def __init__(self, connection: RedisConnection, *, default_ttl_ms: int = DEFAULT_TTL_MS) -> None:
        super().__init__(default_ttl_ms=default_ttl_ms)
        self._connection = connection

    async def _take_lease(self, wanted: Claim) -> LockInfo | None:
        answer = await self._run_script(_TAKE, wanted.key, wanted.owner, wanted.claim, wanted.ttl_ms)
        if answer is None:
            return None
        token, acquired_at, expires_at = map(int, answer.split())
        return LockInfo(
            key=wanted.key,
            owner=wanted.owner,
            fencing_token=token,
            ttl_ms=wanted.ttl_ms,
            acquired_at=acquired_at,
            expires_at=expires_at,
        )

    async def _extend_lease(self, key: str, token: int, ttl_ms: int | None) -> bool:
        return await self._run_script(_EXTEND, key, token, "" if ttl_ms is None else ttl_ms) is not None

    async def _release_lease(self, key: str, token: int) -> bool:
        return await self._run_script(_FREE, key, token) is not None

    async def _is_held(self, key: str) -> bool:
        return await self._run_script(_HELD, key) is not None

    async def _run_script(self, script: Script, key: str, *args: Value) -> bytes | None:
        answer = await self._connection.run_script(
            script, [f"{self._connection.key_of(key)}:lock"], key, *args
        )
        assert answer is None or isinstance(answer, bytes)
        if answer == b"X":
            raise InvalidIdError(
                f"lock key {key!r}: the place of its row is that of another key with the same hashed form; "
                "use another key"
            )
        return answer
