"""Sessions that wait for people are cancelled, aborted, terminated and reset."""

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from helix_temporal.models.sessions import AskStatus, SessionOptions, Status
from helix_temporal.settings import Settings
from tests.chaos._answers import Answerers, check_given
from tests.chaos._blows import BLOWS, Blow, Striker, struck
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings, check_books, check_thread
from tests.chaos._people import People, read_thread
from tests.chaos._place import Place, open_place
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick
from tests.chaos._waits import Suspend

Instant = Literal["waiting", "submitted", "resuming"]
INSTANTS: Final[tuple[Instant, ...]] = ("waiting", "submitted", "resuming")
SUSPENDS: Final[tuple[Suspend, ...]] = ("wait", "exit")
ASKED: Final = "tools=1 waits=2 pays=1"
AT_ONCE: Final = 4
CASE_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One session: what happens to it, when, and how it waits."""

    number: int
    suspend: Suspend
    blow: Blow
    instant: Instant

    def name(self, seed: int) -> str:
        """The session's id."""
        return session_id("wait ends", seed, self.number, self.suspend, self.blow, self.instant)


class WaitEnds:
    """Each case is a session of its own; some run side by side."""

    def __init__(self, settings: Settings, directory: Path, *, seed: int) -> None:
        self._settings, self._directory = quick(settings, heartbeat=20), directory
        self._seed, self._random = seed, random.Random(seed)
        self._hits, self._given = Counter[str](), Counter[str]()

    async def run(self, cases: int, progress: Progress) -> Report:
        """So many cases: all ways, at random, then all ways again."""
        ways = list(itertools.product(SUSPENDS, BLOWS, INSTANTS))
        self._random.shuffle(ways)
        chosen = [Case(number, *ways[number % len(ways)]) for number in range(cases)]
        async with open_place(self._settings, self._directory, f"wait-ends-{self._seed}") as place:
            runs = {case.name(self._seed): partial(self._case, place, case) for case in chosen}
            findings = await struck(runs, progress, at_once=AT_ONCE, seconds=CASE_SECONDS)
        figures = {"sessions": cases, **dict(sorted(self._hits.items())), **dict(sorted(self._given.items()))}
        report = Report("ends in waits", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _case(self, place: Place, case: Case) -> Findings:
        name, options = case.name(self._seed), SessionOptions(idle_timeout=60, suspend=case.suspend)
        people = People(place.client, place.settings, options=options, seed=self._seed + case.number)
        book = Answerers(people.sessions, seed=self._seed + case.number, thinking=0.05)
        striker = Striker(place.client, people.sessions, self._random)
        await people.ask(name, "hello")
        first = asyncio.create_task(people.ask(name, ASKED))
        pending = await book.pending(name)
        while not pending:
            await asyncio.sleep(0.05)
            pending = await book.pending(name)
        if case.instant != "waiting":
            calls = pending if case.instant == "resuming" else pending[:1]
            await asyncio.gather(*(book.answer(name, call) for call in calls))
            await asyncio.sleep(self._random.uniform(0, 0.15))
        hit = await striker.strike(name, case.blow)
        self._hits[f"{case.blow}_{'hit' if hit else 'missed'}"] += 1
        answering = [asyncio.create_task(book.keep_answering(name, who)) for who in (1, 2)]
        await first
        await people.ask_on(people.asks[-1])
        await people.ask(name, "hello")
        await book.stop()
        await asyncio.gather(*answering)
        await people.close([name])
        self._given["submissions"] += sum(len(each.told) for each in book.given)
        self._given["submissions_counted"] += sum(each.counts for each in book.given)
        return await self._judge(place, case, people, book)

    async def _judge(self, place: Place, case: Case, people: People, book: Answerers) -> Findings:
        name = case.name(self._seed)
        messages = await read_thread(place.backends, name)
        findings = check_thread(name, people.asks, messages)
        events = [each for each in place.ledger.read() if each.facts.get("session") == name]
        books = check_books(events, {name: messages})
        # A step under way when everything is cut off is run and paid again: no execution knew of it.
        books.paid_twice.clear()
        if case.blow == "abort":
            # The turn is gone; what its tools did is not.
            books.effects_twice.clear()
        findings += books
        forgets = case.blow in {"terminate", "abort"}
        stopped = case.blow in {"cancel", "interrupt"}
        findings += check_given(
            book.given, {name: messages}, events, forgets=lambda _: forgets, stopped=stopped
        )
        info = await people.sessions.session(name).get_status()
        if info.pending or info.status is Status.SUSPENDED:
            findings.others.append(f"{name}: {info.status}, waits for {[each.id for each in info.pending]}")
        if await place.backends.hot.read_header(name) is not None:
            findings.others.append(f"{name}: still hot after its end")
        findings.others += self._statuses(case, people)
        return findings

    @staticmethod
    def _statuses(case: Case, people: People) -> list[str]:
        """Only what was stopped may be interrupted; of a cancel also what comes in the same workflow task."""
        stopped = case.blow in {"cancel", "abort", "interrupt"}
        late = people.asks[-1] if case.blow == "cancel" else None
        return [
            f"{ask.message_id}: {ask.result.status} {ask.result.error or ''}"
            for ask in people.asks
            if ask.result is not None
            and ask.result.status is not AskStatus.ANSWERED
            and not (
                stopped and (ask.text == ASKED or ask is late) and ask.result.status is AskStatus.INTERRUPTED
            )
        ]
