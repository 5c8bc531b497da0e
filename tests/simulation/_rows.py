"""Sessions in a store that fails: lost replies, commits that run late."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    RowPage,
    RowsCommitted,
    SessionCommit,
    SessionRow,
    SessionView,
    WantedRows,
)
from tests.simulation._world import World, run_now


class SimRows:
    """Of `SessionRows` what records and their upkeep use, over `MemorySessions`, through a bad network."""

    keeps_threads = False
    durable = True

    def __init__(self, world: World, inner: MemorySessions) -> None:
        self._world, self.inner = world, inner

    async def view(self, session_id: str, wanted: WantedRows = WantedRows()) -> SessionView:  # noqa: B008
        return await self._read("view", lambda: self.inner.view(session_id, wanted))  # type: ignore[no-any-return]

    async def read_page(self, session_id: str, kind: RowKind, **options: Any) -> RowPage:
        return await self._read("read_page", lambda: self.inner.read_page(session_id, kind, **options))  # type: ignore[no-any-return]

    async def read_group(
        self, session_id: str, kind: RowKind, group: str, **options: Any
    ) -> tuple[SessionRow, ...]:
        return await self._read(  # type: ignore[no-any-return]
            "read_group", lambda: self.inner.read_group(session_id, kind, group, **options)
        )

    async def list_groups(self, session_id: str, kind: RowKind, **options: Any) -> tuple[str, ...]:
        return await self._read("list_groups", lambda: self.inner.list_groups(session_id, kind, **options))  # type: ignore[no-any-return]

    async def scan(self) -> AsyncIterator[str]:
        await self._world.boundary()
        async for session_id in self.inner.scan():
            yield session_id

    async def now(self) -> int:
        return await self._read("now", self.inner.now)  # type: ignore[no-any-return]

    async def commit(self, change: SessionCommit) -> RowsCommitted | None:
        world, rates = self._world, self._world.rates
        await world.boundary()
        luck = 1.0 if world.calm else world.draw()
        if luck < rates.late_script:
            world.later(world.between(0.001, 10.0), lambda: self._late(change))
            raise StoreUnavailableError("session store: commit timed out")
        luck -= rates.late_script
        done: RowsCommitted | None = run_now(self.inner.commit(change))
        if luck < rates.reply_lost:
            world.note("commit, reply lost")
            raise StoreUnavailableError("session store: no reply to commit")
        await world.boundary()
        return done

    def _late(self, change: SessionCommit) -> None:
        try:
            done = run_now(self.inner.commit(change))
        except HelixError as error:
            self._world.say(f"late commit refused: {type(error).__name__}")
        else:
            self._world.note("late commit" if done else "late commit, overtaken")

    async def _read(self, name: str, effect: Callable[[], Awaitable[Any]]) -> Any:
        world = self._world
        await world.boundary()
        if not world.calm and world.chance(world.rates.transient):
            raise StoreUnavailableError(f"session store: {name} timed out")
        result = run_now(effect())
        await world.boundary()
        return result
