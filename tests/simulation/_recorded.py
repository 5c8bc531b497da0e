"""Programs that keep records in one session: they write, count, take over and read, beside the archive.

A write is judged as one of a register: it happened at one moment between its first attempt and its answer,
and not after somebody has read it.  One without an answer may happen until the end.
"""

import asyncio
import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.errors import (
    FencedError,
    SessionNotFoundError,
    StaleStateError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.protocols.records import Record, RecordChange, RecordName, WantedRecords
from helix_temporal.stores.protocols.session_rows import RowKind
from helix_temporal.stores.record_packs import RecordPacks
from helix_temporal.stores.records import RecordUpkeep, RowRecords
from helix_temporal.stores.sessions.store import RowSessions
from tests.simulation._blobs import SimBlobs
from tests.simulation._log import NoLog
from tests.simulation._rows import SimRows
from tests.simulation._run import Verdict, run_seed
from tests.simulation._world import Trace, World

SESSION = "kept"
KIND = "note"
GROUPS = ("", "a")
KEYS = ("k1", "k2", "k3")
PROGRAMS = 3
CHANGES = 9
"""Of each program."""
LONG = "." * 600
"""Makes a body worth archiving."""
COUNT = RecordName("count", "n")
ALL = WantedRecords(groups=tuple((KIND, group) for group in GROUPS))


@dataclass
class _Write:
    """One write of one name: ``value`` is empty for a removal.

    Attributes:
        begun: Of its first attempt.
        ended: When it was answered; infinite if it never was.
        latest: When it must have happened: by its answer, or by the end of the first read that saw it.
    """

    value: str
    begun: float
    ended: float = math.inf
    latest: float = math.inf


@dataclass(frozen=True)
class _TakeOver:
    epoch: int
    ended: float


@dataclass
class _Program:
    """One process: its store, and the epoch under which it writes, if it has taken over."""

    name: str
    store: RowSessions
    epoch: int | None = None


@dataclass
class _Told:
    """What programs were told."""

    writes: dict[RecordName, list[_Write]] = field(default_factory=dict)
    counted: int = 0
    unclear: int = 0
    taken_over: list[_TakeOver] = field(default_factory=list)


class _Recorded:
    """The programs' lives, the archive beside them, and the judgement."""

    def __init__(self, world: World) -> None:
        clock = world.loop.time
        self._world = world
        self._memory, self._archived = MemorySessions(clock=clock), MemoryBlobs(clock)
        self._rows = SimRows(world, self._memory)
        self._blobs = SimBlobs(world, self._archived, NoLog())  # type: ignore[arg-type]
        self._recalls = world.chance(0.5)
        self._programs = [_Program(f"p{n}", self._store()) for n in range(PROGRAMS)]
        self._told, self._busy = _Told(), PROGRAMS
        self._deletes, self._deleted_at = world.seed % 4 == 3, math.inf

    def _store(self) -> RowSessions:
        return RowSessions(
            self._rows,  # type: ignore[arg-type]
            packs=RecordPacks(self._blobs),
            recalls=self._recalls,
        )

    async def run(self) -> None:
        """From the first write to the judgement."""
        try:
            await self._run()
        except StoreCorruptError as error:
            self._world.fail(f"nothing was damaged, and {error}")

    async def _run(self) -> None:
        await RowSessions(self._memory).create_session(SESSION, CreateSession(user_id="u"))
        await asyncio.gather(*map(self._live, self._programs), self._keep(), self._keep(), self._delete())
        await asyncio.sleep(30)  # what is late arrives
        self._world.calm = True
        if self._deletes:
            await self._judge_deletion()
        else:
            await self._judge()

    async def _live(self, program: _Program) -> None:
        changes = (self._write, self._write, self._write, self._count, self._read, self._take_over)
        try:
            for number in range(CHANGES):
                await asyncio.sleep(self._world.between(0.001, 1.0))
                if self._world.chance(0.08):
                    program.store = self._store()  # another process goes on
                change = changes[int(self._world.draw() * len(changes))]
                with suppress(FencedError, SessionNotFoundError):  # taken over by another one, or deleted
                    await change(program, f"{program.name}.{number}")
        finally:
            self._busy -= 1

    # ---- what programs do

    async def _write(self, program: _Program, value: str) -> None:
        """Put some records, remove one, or clear a group."""
        names = [RecordName(KIND, key, group) for key in KEYS for group in GROUPS]
        if self._world.chance(0.15):
            group = GROUPS[int(self._world.draw() * len(GROUPS))]
            change = RecordChange(clears=((KIND, group),))
            values = {name: "" for name in names if name.group == group}
        elif self._world.chance(0.15):
            name = names[int(self._world.draw() * len(names))]
            change, values = RecordChange(removes=(name,)), {name: ""}
        else:
            some = self._world.random.sample(names, 1 + int(self._world.draw() * 3))
            change = RecordChange(puts=tuple(_record(name, value) for name in some))
            values = dict.fromkeys(some, value)
        begun = self._world.loop.time()
        writes = {name: _Write(each, begun) for name, each in values.items()}
        for name, write in writes.items():
            self._told.writes.setdefault(name, []).append(write)
        records, epoch = RowRecords(program.store), program.epoch
        # One that is fenced may have happened in an attempt before: it is without an answer.
        done = await self._world.insist(
            lambda: records.write(SESSION, change, epoch=epoch, operation_id=f"w{value}")
        )
        if done is not None:
            self._world.note("records written", value)
            self._end(writes.values(), begun, epoch)

    def _end(self, writes: Iterable[_Write], begun: float, epoch: int | None) -> None:
        now = self._world.loop.time()
        for write in writes:
            write.ended, write.latest = now, min(write.latest, now)
        if self._deleted_at < begun:
            self._world.fail("a write was answered, begun after the session was deleted")
        if epoch is None:
            return
        later = [each for each in self._told.taken_over if each.epoch > epoch and each.ended < begun]
        if later:
            self._world.fail(f"a write under epoch {epoch} was answered, begun after {later[0]}")

    async def _count(self, program: _Program, value: str) -> None:
        """Add one to what was read, by the revision that was read."""
        records = RowRecords(program.store)
        while True:
            seen = await self._world.insist(lambda: records.read(SESSION, WantedRecords(names=(COUNT,))))
            if seen is None:
                return
            found = seen.find_record(*COUNT)
            count = 1 + (int(_value_of(found)) if found else 0)
            change = RecordChange(puts=(_record(COUNT, str(count)),))
            name = f"c{value}.{self._world.unique()}"
            revision = seen.revision
            try:
                done = await self._world.insist(
                    lambda: records.write(SESSION, change, revision=revision, operation_id=name)  # noqa: B023
                )
            except StaleStateError:
                self._world.note("counted anew")
                continue
            if done is None:
                self._told.unclear += 1
            else:
                self._told.counted += 1
                self._world.note("counted", count)
            return

    async def _take_over(self, program: _Program, _: str) -> None:
        epoch = await self._world.insist(lambda: RowRecords(program.store).take_over(SESSION))
        if epoch is None:
            return
        if any(each.epoch == epoch for each in self._told.taken_over):
            self._world.fail(f"epoch {epoch} was given twice")
        self._world.note("taken over", epoch)
        program.epoch = epoch
        self._told.taken_over.append(_TakeOver(epoch, self._world.loop.time()))

    async def _read(self, program: _Program, _: str) -> None:
        begun = self._world.loop.time()
        seen = await self._world.insist(lambda: RowRecords(program.store).read(SESSION, ALL))
        if seen is not None and seen.exists and self._deleted_at < begun:
            self._world.fail("a session was read that had been deleted")
        if seen is not None and seen.exists:
            self._check_read({each.name: _value_of(each) for each in seen.records}, begun)

    def _check_read(self, found: dict[RecordName, str], begun: float) -> None:
        """Each value was there at one moment since ``begun``."""
        ended = self._world.loop.time()
        for name, writes in self._told.writes.items():
            value = found.pop(name, "")
            same = [write for write in writes if write.value == value]
            if value == "":
                same.append(_Write("", -math.inf, -math.inf, -math.inf))
            if not any(_may_be_seen(write, writes, begun) for write in same):
                self._world.fail(f"{name} is {value!r}, and {writes} were written")
            if len(same) == 1:
                same[0].latest = min(same[0].latest, ended)
        if found:
            self._world.fail(f"nobody wrote {list(found)}")

    async def _keep(self) -> None:
        """Archive, and free what is not referred to."""
        while self._busy:
            await asyncio.sleep(self._world.between(0.05, 2.0))
            store = self._store()
            with suppress(StoreUnavailableError, SessionNotFoundError):
                group = GROUPS[int(self._world.draw() * len(GROUPS))]
                moved = await RowRecords(store).archive(SESSION, KIND, group)
                moved += await RowRecords(store).archive(SESSION, COUNT.kind)
                self._world.note("archived" if moved else "nothing to archive")
                if self._world.chance(0.4):
                    freed = await RecordUpkeep(store, after=0, abandoned_after=3000).free_packs(SESSION)
                    self._world.note("packs freed" if freed else "no pack to free")

    # ---- the end

    async def _judge(self) -> None:
        store, world = self._store(), self._world
        records = RowRecords(store)
        begun = world.loop.time()
        seen = await records.read(SESSION, WantedRecords(groups=(*ALL.groups, (COUNT.kind, ""))))
        found = {each.name: _value_of(each) for each in seen.records}
        count = int(found.pop(COUNT, "0"))
        if not self._told.counted <= count <= self._told.counted + self._told.unclear:
            world.fail(f"{count} was counted to, by {self._told.counted} and {self._told.unclear} unclear")
        self._check_read(found, begun)
        await asyncio.sleep(60)  # what was begun is given up
        await RecordUpkeep(store, after=0, abandoned_after=3000).run()
        again = await RowRecords(self._store()).read(SESSION, ALL)
        if {each.name: each.body for each in again.records} != {
            each.name: each.body for each in seen.records if each.kind == KIND
        }:
            world.fail("the upkeep changed what is read")
        await self._check_packs(bool(found))

    async def _check_packs(self, wanted: bool) -> None:
        """After an upkeep of everything, all that is worth it is in a pack, and no pack is for nothing."""
        world = self._world
        listed = [info.key async for info in self._archived.list("records/")]
        named = await self._memory.read_page(SESSION, RowKind.PACK, limit=200)
        if sorted(key.rpartition("/")[2] for key in listed) != sorted(row.key for row in named.rows):
            world.fail(f"packs {listed} are there, and {[row.key for row in named.rows]} are named")
        if wanted and not listed:
            world.fail("nothing was archived")

    async def _delete(self) -> None:
        """In one story of four, while the others write."""
        if not self._deletes:
            return
        await asyncio.sleep(self._world.between(0.5, 8.0))
        store = self._store()
        while await self._world.insist(lambda: store.delete_session(SESSION)) is None:
            self._world.note("deleted again")
        self._deleted_at = self._world.loop.time()
        self._world.note("deleted")

    async def _judge_deletion(self) -> None:
        seen = await RowRecords(self._store()).read(SESSION, ALL)
        await RecordUpkeep(self._store(), after=0).run()
        left = [info.key async for info in self._archived.list("records/")]
        if seen.exists or seen.records or left:
            self._world.fail(f"of a deleted session {len(seen.records)} records and {left} are there")


def _record(name: RecordName, value: str) -> Record:
    return Record(name.kind, name.key, (value + LONG).encode(), name.group)


def _value_of(record: Record) -> str:
    return record.body.decode().rstrip(".")


def _may_be_seen(write: _Write, writes: list[_Write], begun: float) -> bool:
    """Whether no other one is between it and a read that began then."""
    return not any(write.latest < each.begun and each.latest < begun for each in writes)


def simulate_recorded(
    seed: int, *, trace: Trace | None = None, broken: AbstractContextManager[Any] | None = None
) -> Verdict:
    """Run one seed; ``broken`` removes a guard of the code under test while it runs."""
    return run_seed(World(seed, trace=trace), lambda world: _Recorded(world).run(), broken)
