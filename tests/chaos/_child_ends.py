"""Sessions whose sub-agents work are cancelled, aborted, interrupted, terminated and reset."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from helix_temporal.models.ids import encode_id
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.states import SessionStatus
from helix_temporal.settings import Settings
from tests.chaos._blows import BLOWS, Blow, Striker, struck
from tests.chaos._children import called, check_call
from tests.chaos._names import session_id
from tests.chaos._oracle import Ask, Findings, check_thread, malformed
from tests.chaos._people import read_thread
from tests.chaos._place import Place, open_place
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick

ASKED: Final = ("agents=3", "deep agents=2", "agents=4")
LAST: Final = "agents=3"
AT_ONCE: Final = 3
CASE_SECONDS: Final = 150.0
ORPHAN_SECONDS: Final = 60.0
"""How long what was asked to end may take for it."""
_PREFIX: Final = "helix-session/"


@dataclass(frozen=True, slots=True)
class Case:
    """One session: what is done to it, and how long (in seconds) after its second ask."""

    number: int
    blow: Blow
    text: str
    delay: float

    def name(self, seed: int) -> str:
        """The session's id."""
        return session_id("child ends", seed, self.number, self.blow)


class ChildEnds:
    """Each case is a session of its own; its sub-agents work side by side, some with others below them."""

    def __init__(self, settings: Settings, directory: Path, *, seed: int) -> None:
        self._settings, self._directory = quick(settings, heartbeat=20), directory
        self._seed, self._random = seed, random.Random(seed)
        self._figures = Counter[str]()

    async def run(self, cases: int, progress: Progress) -> Report:
        """So many cases, each at another instant."""
        chosen = [
            Case(number, BLOWS[number % len(BLOWS)], self._random.choice(ASKED), self._random.uniform(0, 1.5))
            for number in range(cases)
        ]
        options = SessionOptions(idle_timeout=120)
        async with open_place(
            self._settings, self._directory, f"child-ends-{self._seed}", options=options, seed=self._seed
        ) as place:
            runs = {case.name(self._seed): partial(self._case, place, case) for case in chosen}
            findings = await struck(runs, progress, at_once=AT_ONCE, seconds=CASE_SECONDS)
            orphans = await self._orphans(place)
            findings.others += [f"orphan: {each}" for each in orphans]
        figures = {"sessions": cases, **dict(sorted(self._figures.items())), "orphans": len(orphans)}
        report = Report("ends of callers", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _case(self, place: Place, case: Case) -> Findings:
        name, people = case.name(self._seed), place.people
        await people.ask(name, "hello")
        second = asyncio.create_task(people.ask(name, case.text))
        await asyncio.sleep(case.delay)
        hit = await Striker(place.client, people.sessions, self._random).strike(name, case.blow)
        self._figures[f"{case.blow}_{'hit' if hit else 'missed'}"] += 1
        ask = await second
        await people.ask_on(ask)
        last = await people.ask(name, LAST)
        await people.ask_on(last)
        await people.close([name])
        return await self._judge(place, case, ask, last)

    async def _judge(self, place: Place, case: Case, ask: Ask, last: Ask) -> Findings:
        name = case.name(self._seed)
        messages = await read_thread(place.backends, name)
        asks = [each for each in place.people.asks if each.session == name]
        findings = check_thread(name, asks, messages)
        stopped = case.blow in {"cancel", "abort", "interrupt"}
        for each in asks:
            status = None if each.result is None else each.result.status
            excused = each is ask and stopped and status is AskStatus.INTERRUPTED
            if status is not AskStatus.ANSWERED and not excused:
                findings.others.append(f"{each.message_id}: {each.result}")
        findings += await self._below(place, name, messages, ask if stopped else None)
        self._figures["asks"] += len(asks)
        return findings

    async def _below(
        self, place: Place, name: str, messages: Sequence[Message], stopped: Ask | None
    ) -> Findings:
        """What sub-agents gave the caller stands in their threads; references say how they ended."""
        findings, threads = Findings(), dict[str, list[Message]]()
        excused = _turn_of(messages, stopped)
        for call in called(name, messages):
            if call.session not in threads:
                threads[call.session] = await read_thread(place.backends, call.session)
            self._figures["calls"] += 1
            if not (call.result.is_error and call.result.id in excused):
                findings.lost += check_call(call, threads[call.session])
        for session, found in threads.items():
            findings.malformed += [f"{session}: {what}" for what in malformed(found)]
        return findings + await self._references(place, name, threads)

    async def _references(
        self, place: Place, name: str, threads: Mapping[str, Sequence[Message]]
    ) -> Findings:
        references = await place.backends.sessions.list_sub_session_refs(name)
        ids = [each.sub_session_id for each in references]
        findings = Findings(
            doubled=[f"{name}: two references of {each}" for each in ids if ids.count(each) > 1]
        )
        findings.lost += [f"{name}: no reference of {each}" for each in threads if each not in ids]
        findings.others += [
            f"{name}: {each.sub_session_id} is still {each.status}"
            for each in references
            if each.status in {SessionStatus.ACTIVE, SessionStatus.PAUSED}
        ]
        self._figures["references"] += len(ids)
        return findings

    async def _orphans(self, place: Place) -> list[str]:
        """Sessions of this campaign that still run, once those who were asked to end had their time."""
        began = time.monotonic()
        while True:
            found = [
                each.id
                async for each in place.client.list_workflows(
                    f"ExecutionStatus = 'Running' AND TaskQueue = '{place.settings.task_queue}'"
                )
                if each.id.startswith(f"{_PREFIX}{encode_id(session_id('child ends', self._seed, ''))}")
            ]
            waited = time.monotonic() - began
            if not found or waited > ORPHAN_SECONDS:
                self._figures["seconds_until_no_session_ran"] = round(waited)
                return found
            await asyncio.sleep(1)


def _turn_of(messages: Sequence[Message], ask: Ask | None) -> set[str]:
    """Ids of the messages of the turn that answers an ask."""
    found: set[str] = set()
    if ask is None:
        return found
    inside = False
    for message in messages:
        if message.role == "user":
            inside = message.id == ask.message_id
        if inside:
            found.add(message.id)
    return found
