"""The faults.  Each is done the same way to every store, and told from what is found there afterwards."""

import asyncio
import contextlib
import itertools
import json
import statistics
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from bench.faults.stores import Item, Store, Subject
from helix_temporal.testing.proxy import CutReply, FaultProxy

CUTS: Final = 40
TRIES: Final = 3
WRITES: Final = 10
REFUSALS: Final = 200
ROUNDS: Final = 5
PATIENCE: Final = 60.0
QUESTION: Final = Item("turn-0", "user", "question")
ANSWER: Final = Item("turn-1", "assistant", "answer")
FIRST: Final = Item("first", "user", "first")


@dataclass(frozen=True, slots=True)
class Trial:
    """A store and where it is.

    Attributes:
        framework: Its module.
        subject: The store under test.
        address: Of the server; empty for memory.
        sizes: How long the sessions are that are timed.
        fill_seconds: How long filling one may take.
    """

    framework: str
    subject: Subject
    address: str
    sizes: Sequence[int] = (1000, 10_000)
    fill_seconds: float = 180.0
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:10])

    @contextlib.asynccontextmanager
    async def opened(self, session: str, address: str | None = None) -> AsyncIterator[Store]:
        """A store of its own for a session."""
        at = self.address if address is None else address
        store = await self.subject.open(at, f"{self.prefix}-{session}")
        try:
            yield store
        finally:
            with contextlib.suppress(Exception):  # one whose connection was cut may not even close
                await store.close()

    async def look(self, session: str) -> list[str]:
        """What a program that comes afterwards finds there."""
        async with self.opened(session) as store:
            return await store.read()


@dataclass(frozen=True, slots=True)
class Told:
    """What whoever appended was told: whether it succeeded, and the errors on the way."""

    acknowledged: bool
    errors: tuple[str, ...] = ()


def judge(found: Sequence[str], expected: Sequence[str]) -> str:
    """``once``, or what is wrong with what was found."""
    counts = Counter(found)
    lost = sum(not counts[text] for text in expected)
    doubled = sum(counts[text] > 1 for text in expected)
    if lost:
        return f"{lost} of {len(expected)} lost"
    if doubled:
        return "doubled" if doubled == len(expected) else f"{doubled} of {len(expected)} doubled"
    if [text for text in found if text in set(expected)] != list(expected):
        return "out of order"
    return "once"


async def insist(trial: Trial, session: str, store: Store, items: Sequence[Item], address: str) -> Told:
    """Append as a caller who repeats what fails: on the same store, and at last on a new one."""
    errors: list[str] = []
    for last in (False, True):
        try:
            async with asyncio.timeout(PATIENCE):
                await store.append(items)
        except Exception as error:  # noqa: BLE001 (each store has errors of its own)
            errors.append(type(error).__name__)
            if not last:
                with contextlib.suppress(Exception):
                    await store.refresh()
        else:
            return Told(True, tuple(errors))
    try:
        async with asyncio.timeout(PATIENCE), trial.opened(session, address) as again:
            await again.append(items)
    except Exception as error:  # noqa: BLE001 (as above)
        return Told(False, (*errors, type(error).__name__))
    return Told(True, tuple(errors))


async def lose_answers(trial: Trial) -> str:
    """A turn whose write reaches the server; the connection is cut before the answer, at each exchange."""
    if not trial.address:
        return "no wire"
    verdicts: Counter[str] = Counter()
    async with _proxied(trial.address) as (proxy, address):
        for cut in range(CUTS):
            verdict = await _lose_answer(trial, proxy, address, cut)
            if verdict is None:
                break
            verdicts[verdict] += 1
    return tell_cuts(verdicts)


async def _lose_answer(trial: Trial, proxy: FaultProxy, address: str, cut: int) -> str | None:
    """What came of it; None if the write had fewer exchanges."""
    session = f"cut-{cut}"
    async with trial.opened(session, address) as store:
        await store.append([FIRST])
        before = proxy.replies
        proxy.fail(CutReply(), skip=cut)
        told = await insist(trial, session, store, [QUESTION, ANSWER], address)
        struck = proxy.replies - before > cut
        proxy.forget()
    if not struck:
        return None
    verdict = judge(await trial.look(session), [QUESTION.text, ANSWER.text])
    if told.acknowledged:
        return verdict
    return f"{told.errors[-1]}, {'kept' if verdict == 'once' else verdict}"


def tell_cuts(verdicts: Mapping[str, int]) -> str:
    """The verdicts of all cuts in a few words."""
    cuts = sum(verdicts.values())
    if not cuts:
        return "not struck"
    wrong = {verdict: times for verdict, times in verdicts.items() if verdict != "once"}
    if not wrong:
        return f"stands once ({cuts} {'cut' if cuts == 1 else 'cuts'})"
    return "; ".join(f"{verdict} at {times} of {cuts}" for verdict, times in sorted(wrong.items()))


async def ask_twice(trial: Trial) -> str:
    """The same turn again by another program that had looked before, as a retried request does."""
    async with trial.opened("twice") as first, trial.opened("twice") as second:
        await first.append([FIRST])
        await second.refresh()
        await first.append([QUESTION, ANSWER])
        told = await insist(trial, "twice", second, [QUESTION, ANSWER], trial.address)
    verdict = judge(await trial.look("twice"), [QUESTION.text, ANSWER.text])
    if told.acknowledged:
        return "stands once" if verdict == "once" else verdict
    return f"{told.errors[-1]}, {'kept' if verdict == 'once' else verdict}"


async def write_at_once(trial: Trial) -> str:
    """Two writers, each with connections of its own, append a message after the other."""
    texts = [[f"{writer}-{n}" for n in range(WRITES)] for writer in "ab"]
    async with trial.opened("both") as one, trial.opened("both") as two:
        await one.append([FIRST])
        await two.refresh()
        done = await asyncio.gather(_keep_writing(one, texts[0]), _keep_writing(two, texts[1]))
    return tell_writers(await trial.look("both"), [each for each, _ in done], sum(n for _, n in done))


async def _keep_writing(store: Store, texts: Sequence[str]) -> tuple[list[str], int]:
    """What was acknowledged, and how often it was refused before."""
    acknowledged: list[str] = []
    refused = 0
    for text in texts:
        for _ in range(REFUSALS):
            try:
                await store.append([Item(text, "user", text)])
            except Exception:  # noqa: BLE001 (each store has errors of its own)
                refused += 1
                await store.refresh()
            else:
                acknowledged.append(text)
                break
    return acknowledged, refused


def tell_writers(found: Sequence[str], acknowledged: Sequence[Sequence[str]], refused: int) -> str:
    """What is left of what each writer was told to be there."""
    every = [text for texts in acknowledged for text in texts]
    counts = Counter(found)
    lost, doubled = (
        sum(not counts[text] for text in every),
        sum(counts[text] > 1 for text in every),
    )
    told = f", {refused} refused and repeated" if refused else ""
    if lost:
        return f"lost {lost} of {len(every)}{told}"
    if doubled:
        return f"{doubled} of {len(every)} doubled{told}"
    if any([text for text in found if text in set(texts)] != list(texts) for texts in acknowledged):
        return f"all {len(every)} kept, out of order{told}"
    return f"all {len(every)} kept{told}"


async def read_elsewhere(trial: Trial) -> str:
    """Written by a process that ends, read by another one."""
    async with _child(trial, "restart") as child:
        error = await child.append([QUESTION, ANSWER])
    if error is not None:
        raise RuntimeError(f"a second process could not append: {error}")
    found = await trial.look("restart")
    verdict = judge(found, [QUESTION.text, ANSWER.text])
    return "the same" if verdict == "once" else "gone" if not found else verdict


async def write_after_delete(trial: Trial) -> str:
    """A program that has the session open appends after another one deleted it."""
    async with trial.opened("deleted") as late, trial.opened("deleted") as other:
        await late.append([FIRST])
        await other.refresh()
        await other.delete()
        told = Told(True)
        try:
            await late.append([QUESTION])
        except Exception as error:  # noqa: BLE001 (each store has errors of its own)
            told = Told(False, (type(error).__name__,))
    return tell_late(await _find_or_none(trial, "deleted"), told)


async def _find_or_none(trial: Trial, session: str) -> list[str]:
    """What is there; nothing if the store says that there is no such session."""
    try:
        return await trial.look(session)
    except Exception:  # noqa: BLE001 (each store has errors of its own)
        return []


def tell_late(found: Sequence[str], told: Told) -> str:
    """What a late writer did to a deleted session."""
    if FIRST.text in found:
        return "what was deleted is back"
    if QUESTION.text in found:
        return "begins anew" if told.acknowledged else f"{told.errors[-1]}, and begins anew"
    return "stays deleted; acknowledged" if told.acknowledged else f"stays deleted ({told.errors[-1]})"


async def kill_inside_turn(trial: Trial) -> str:
    """``kill -9`` between the two writes of a turn; a new process does the whole turn again."""
    async with _child(trial, "killed") as child:
        await child.append([QUESTION])
        child.kill()
    async with _child(trial, "killed") as child:
        error = await child.append([QUESTION]) or await child.append([ANSWER])
    found = await trial.look("killed")
    if not found:
        return "gone"
    verdict = judge(found, [QUESTION.text, ANSWER.text])
    words = {"once": "stands once", "1 of 2 doubled": "question doubled", "1 of 2 lost": "no answer stored"}
    told = words.get(verdict, verdict)
    return told if error is None else f"{error}, {told}"


async def time_lengths(trial: Trial) -> list[str]:
    """Milliseconds to append one item and to read the newest 20, at each length."""
    cells: list[str] = []
    filled = 0
    for size in trial.sizes:
        filled = await _fill(trial, filled, size)
        if filled < size:
            cells.append(f"{filled:,} filled in {trial.fill_seconds:.0f} s")
            continue
        async with trial.opened("long") as store:
            await store.refresh()
            numbers = itertools.count()
            append = await _time(lambda: store.append([_long_item(f"{size}-{next(numbers)}")]))  # noqa: B023
            read = await _time(lambda: store.read(20))
        cells.append(f"{append:.1f} / {read:.1f}")
    return cells


async def _fill(trial: Trial, filled: int, size: int) -> int:
    until = time.monotonic() + trial.fill_seconds
    async with trial.opened("long") as store:
        while filled < size and time.monotonic() < until:
            count = min(trial.subject.batch, size - filled)
            await store.append([_long_item(str(n)) for n in range(filled, filled + count)])
            filled += count
    return filled


async def _time(call: Callable[[], Awaitable[object]]) -> float:
    """The median in milliseconds, after one that is not counted."""
    await call()
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await call()
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


def _long_item(name: str) -> Item:
    return Item(f"long-{name}", "user", f"{name} {'word ' * 40}")


@contextlib.asynccontextmanager
async def _proxied(address: str) -> AsyncIterator[tuple[FaultProxy, str]]:
    parts = urlsplit(address)
    async with FaultProxy.start(f"{parts.hostname}:{parts.port}") as proxy:
        user, at, _ = parts.netloc.rpartition("@")
        yield proxy, parts._replace(netloc=f"{user}{at}{proxy.address}").geturl()


class _Child:
    """A process that appends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def append(self, items: Sequence[Item]) -> str | None:
        """Return when it was told that they are there, or the name of the error that it was told."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps([[each.name, each.role, each.text] for each in items])
        self._process.stdin.write(f"{line}\n".encode())
        told = (await self._process.stdout.readline()).decode().strip()
        if not told:
            raise RuntimeError("the process that appends has ended; its words are on standard error")
        return None if told == "done" else told

    def kill(self) -> None:
        """At once, with nothing of it left to clean up."""
        self._process.kill()


@contextlib.asynccontextmanager
async def _child(trial: Trial, session: str) -> AsyncIterator[_Child]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.faults.child", trial.framework, trial.subject.name, trial.address),
        f"{trial.prefix}-{session}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield _Child(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


FAULTS: Final[Mapping[str, Callable[[Trial], Awaitable[str]]]] = {
    "answer lost, call repeated": lose_answers,
    "same turn asked twice": ask_twice,
    "two writers": write_at_once,
    "another process": read_elsewhere,
    "writer after delete": write_after_delete,
    "kill −9 inside a turn": kill_inside_turn,
}


async def _check_store(trial: Trial) -> None:
    """What does not work here at all is no finding about it."""
    async with trial.opened("check") as store:
        await store.append([QUESTION, ANSWER])
        found = await store.read()
    if found != [QUESTION.text, ANSWER.text]:
        raise RuntimeError(f"{trial.subject.name} has {found} where nothing went wrong")


async def run_trials(trial: Trial) -> dict[str, str]:
    """A cell for each fault and length, by the column's name.

    Raises:
        RuntimeError: The store does not even keep an item where nothing goes wrong.
    """
    await _check_store(trial)
    cells: dict[str, str] = {}
    for name, fault in FAULTS.items():
        try:
            cells[name] = await fault(trial)
        except Exception as error:  # noqa: BLE001 (a store that fails outright is a finding, not the end)
            sys.stderr.write(f"{trial.subject.name}, {name}: {type(error).__name__}: {error}\n")
            cells[name] = f"fails: {type(error).__name__}"
    lengths = await time_lengths(trial)
    return cells | {f"{size:,} items": cell for size, cell in zip(trial.sizes, lengths, strict=True)}
