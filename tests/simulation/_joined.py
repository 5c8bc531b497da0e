"""Programs without a session workflow share one session: they append, and take the newest message back.

In one story of three the store of sessions and hot threads is wiped now and then: then all that was archived
comes back, and no more is lost than was not.
"""

import asyncio
from collections import Counter
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.errors import (
    HelixError,
    InvalidRequestError,
    SessionNotFoundError,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions.store import RowSessions
from tests.simulation._blobs import SimBlobs
from tests.simulation._hot import SimHot
from tests.simulation._log import NoLog
from tests.simulation._run import Verdict, run_seed
from tests.simulation._world import Trace, World, run_standing_still

SESSION = "shared"
PROGRAMS = 3
CHANGES = 7
"""Of each program."""


@dataclass(frozen=True)
class _Change:
    """What one call did, and when: from its first attempt to its answer."""

    ids: tuple[str, ...]
    begun: float
    ended: float

    def overlaps(self, other: "_Change") -> bool:
        """Whether neither was over before the other began."""
        return self.begun <= other.ended and other.begun <= self.ended


@dataclass(frozen=True)
class _Wipe:
    """When it was, and which messages the archive had."""

    at: float
    archived: frozenset[str]

    def may_lose(self, name: str, change: _Change) -> bool:
        """Whether what a call added before its end is in the archive alone by luck."""
        return change.begun <= self.at and name not in self.archived


@dataclass
class _Program:
    """One process: what it was told."""

    name: str
    store: RowSessions
    added: list[_Change] = field(default_factory=list)
    taken: list[_Change] = field(default_factory=list)


class _Joined:
    """The programs' lives, the maintenance beside them, and the judgement."""

    def __init__(self, world: World) -> None:
        self._world, log = world, NoLog()
        clock = world.loop.time
        self._rows = MemorySessions(clock=clock)
        memory, blobs = MemoryThreads(clock=clock), MemoryBlobs(clock)
        self._hot = SimHot(world, memory, log)  # type: ignore[arg-type]
        self._blobs = SimBlobs(world, blobs, log)  # type: ignore[arg-type]
        self._programs = [_Program(f"p{n}", self._store()) for n in range(PROGRAMS)]
        self._busy, self._given_up = PROGRAMS, False
        self._memory, self._archived = memory, blobs
        self._wipes, self._wiped = world.seed % 3 == 2, list[_Wipe]()

    def _threads(self) -> TieredThreads:
        return TieredThreads(self._hot, self._blobs, clock=self._world.loop.time, step_seconds=0.5)

    def _store(self) -> RowSessions:
        return RowSessions(self._rows, self._threads(), together=False)

    async def run(self) -> None:
        """From the first message to the judgement."""
        await self._create(RowSessions(self._rows))
        await asyncio.gather(*map(self._live, self._programs), self._maintain())
        await asyncio.sleep(30)  # what is late arrives
        self._world.calm = True
        await self._judge()

    async def _live(self, program: _Program) -> None:
        try:
            for number in range(CHANGES):
                await asyncio.sleep(self._world.between(0.001, 1.0))
                if self._world.chance(0.08):
                    program.store = self._store()  # another process goes on
                if self._world.chance(0.6):
                    await self._append(program, number)
                else:
                    await self._take_newest(program)
        finally:
            self._busy -= 1

    async def _append(self, program: _Program, number: int) -> None:
        names = tuple(f"{program.name}.{number}.{n}" for n in range(1 + int(self._world.draw() * 3)))
        messages = [Message(id=name, role="user", content=name) for name in names]
        begun = self._world.loop.time()
        if await self._world.insist(lambda: self._append_or_begin(program.store, messages)):
            self._world.note("appended", names)
            program.added.append(_Change(names, begun, self._world.loop.time()))

    async def _take_newest(self, program: _Program) -> None:
        operation, begun = f"{program.name}.{self._world.unique()}", self._world.loop.time()
        try:
            cut = await self._world.insist(
                lambda: program.store.cut_messages(SESSION, 1, operation_id=operation)
            )
        except (InvalidRequestError, SessionNotFoundError):
            self._given_up |= any(wipe.at >= begun for wipe in self._wiped)
            return  # there is none; or the last one was taken, and the wipe has taken the answer
        if cut is None:
            self._given_up = True  # whatever is missing may have been taken
            return
        names = tuple(message.id for message in cut.messages)
        self._world.note("taken back", names)
        ended = self._world.loop.time()
        # A repeat after the wipe takes another one: what was answered first is not remembered.
        self._given_up |= any(begun <= wipe.at <= ended for wipe in self._wiped)
        program.taken.append(_Change(names, begun, ended))

    async def _create(self, store: RowSessions) -> None:
        await store.create_session(SESSION, CreateSession(user_id="u"), if_not_exists=True)

    async def _append_or_begin(self, store: RowSessions, messages: list[Message]) -> bool:
        """As adapters do: a wipe may have taken a session of which nothing was archived."""
        try:
            await store.append_messages(SESSION, messages)
        except SessionNotFoundError:
            await self._create(store)
            await store.append_messages(SESSION, messages)
        return True

    async def _maintain(self) -> None:
        """Archive the thread now and then, and let it go cold."""
        while self._busy:
            await asyncio.sleep(self._world.between(0.1, 3.0))
            threads = self._threads()
            with suppress(HelixError):
                epoch = (await threads.read_facts(SESSION)).epoch
                await threads.flush(FlushThread(SESSION, epoch))
                self._world.note("archived")
                if self._world.chance(0.5):
                    self._world.note(f"evict: {await threads.evict(SESSION, epoch)}")
            if self._wipes and self._world.chance(0.3):
                await self._wipe()

    async def _wipe(self) -> None:
        """Sessions and hot threads are gone; the archive is looked at as it is at that very moment."""
        lone = RowSessions(
            MemorySessions(clock=self._world.loop.time),
            TieredThreads(MemoryThreads(clock=self._world.loop.time), self._archived),
            together=False,
        )
        page = run_standing_still(lambda: lone.get_messages(SESSION, limit=200))
        self._rows.clear()
        self._memory.wipe()
        self._world.note("all wiped")
        names = frozenset(message.id for message in page.messages)
        self._wiped.append(_Wipe(self._world.loop.time(), names))

    async def _judge(self) -> None:
        """A message that is taken back while its append goes on may be appended again: no other may."""
        page = await self._store().get_messages(SESSION, limit=200)
        state = await self._store().load_state(SESSION)
        if state is None or state.user_id != "u":
            self._world.fail(f"the session is not what it was: {state}")
        found, world = [message.id for message in page.messages], self._world
        added = {name: each for program in self._programs for each in program.added for name in each.ids}
        taken = [(name, each) for program in self._programs for each in program.taken for name in each.ids]
        if len(set(found)) != len(found):
            world.fail(f"a message stands twice: {found}")
        gone, clear = {name for name, _ in taken}, Counter[str]()
        for name, cut in taken:
            clear[name] += name in added and not added[name].overlaps(cut)
        for name, count in clear.items():
            if count > 1 or (count and name in found):
                world.fail(f"{name} was taken back {count} times, and {found} are there")
        for program in self._programs:
            left = [name for each in program.added for name in each.ids if name not in gone]
            if [name for name in found if name in left] != [name for name in left if name in found]:
                world.fail(f"{left} were added in this order; {found} are there")
            owed = {name for name in left if not self._may_be_lost(name, added[name])}
            if not self._given_up and not owed <= set(found):
                world.fail(f"{left} were acknowledged; {found} are there")

    def _may_be_lost(self, name: str, change: _Change) -> bool:
        return any(wipe.may_lose(name, change) for wipe in self._wiped)


def simulate_joined(
    seed: int, *, trace: Trace | None = None, broken: AbstractContextManager[Any] | None = None
) -> Verdict:
    """Run one seed; ``broken`` removes a guard of the code under test while it runs."""
    return run_seed(World(seed, trace=trace), lambda world: _Joined(world).run(), broken)
