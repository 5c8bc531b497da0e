"""Those who watch sessions whose workers die: what they show at each turn's end is what stands."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError
from helix_temporal.models.messages import Message
from helix_temporal.models.stream_view import StreamView
from helix_temporal.models.streams import RunEnded, StepCommitted, StoredChunk, UsageChunk
from tests.chaos._kills import KillCampaign
from tests.chaos._ledger import Ledger
from tests.chaos._oracle import Findings
from tests.chaos._paid import Tree, check_paid, read_tree, unkept
from tests.chaos._people import People
from tests.chaos._report import Report

CAUGHT_UP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page showed when a turn ended: its answers by id, and the calls that had not ended."""

    ended: RunEnded
    texts: Mapping[str, str]
    unfinished: tuple[str, ...]


@dataclass(slots=True)
class Watcher:
    """One page on one session.

    Attributes:
        leaves: How likely it closes the connection after a chunk, and reads on after it.
        shown: At the end of each turn that stays.
        characters: Of each answer, as its commit tells.
        used: Answers whose usage was told.
    """

    session: str
    leaves: float = 0.0
    view: StreamView = field(default_factory=StreamView)
    shown: list[Shown] = field(default_factory=list)
    characters: dict[str, int] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    found: Findings = field(default_factory=Findings)
    lost_words: int = 0
    connections: int = 0
    _before: frozenset[str] = frozenset()

    async def watch(self, sessions: SessionClient) -> None:
        """Follow the stream until nobody wants it any more."""
        while True:
            self.connections += 1
            place = self.view.last_sequence or None
            try:
                async with contextlib.aclosing(
                    sessions.stream(self.session, after=place, until="closed")
                ) as chunks:
                    async for stored in chunks:
                        self.take(stored)
                        if random.random() < self.leaves:
                            break
            except HelixError as error:
                self.found.others.append(
                    f"{self.session}: a watcher was told {type(error).__name__}: {error}"
                )
                await asyncio.sleep(0.2)

    def take(self, stored: StoredChunk) -> None:
        """Take one chunk in."""
        if stored.sequence != self.view.last_sequence + 1:
            place = f"{self.view.last_sequence} then {stored.sequence}"
            (self.found.lost if stored.sequence > self.view.last_sequence else self.found.doubled).append(
                f"{self.session}: a watcher got {place}"
            )
        self.view.feed(stored)
        chunk = stored.chunk
        if isinstance(chunk, StepCommitted) and chunk.message_id and chunk.characters is not None:
            self.characters[chunk.message_id] = chunk.characters
        elif isinstance(chunk, UsageChunk) and chunk.message_id:
            self.used.append(chunk.message_id)
        elif isinstance(chunk, RunEnded):
            messages = [each for each in self.view.messages if each.message_id not in self._before]
            open_calls = tuple(
                name for each in messages for name, call in each.tools.items() if call.success is None
            )
            if chunk.in_thread:
                texts = {each.message_id: each.text for each in messages}
                self.shown.append(Shown(chunk, texts, open_calls))
            self._before = frozenset(each.message_id for each in self.view.messages)

    def check(self, messages: Sequence[Message]) -> Findings:
        """What was shown against the thread."""
        found, who = self.found, self.session
        turns, texts = turns_of(messages), {each.id: each.text for each in messages}
        ended = [each.ended.message_id for each in self.shown]
        expected = [turn[-1] for turn in turns]
        found.lost += [
            f"{who}: the turn that ends with {each} was not shown" for each in expected if each not in ended
        ]
        found.doubled += [
            f"{who}: the end of {each} was shown twice" for each in set(ended) if ended.count(each) > 1
        ]
        if ended != expected and sorted(map(str, ended)) == sorted(expected):
            found.reordered.append(f"{who}: turns ended as {ended}")
        by_end = {turn[-1]: turn for turn in turns}
        for each in self.shown:
            turn = by_end.get(each.ended.message_id or "", [])
            if list(each.texts) != turn:
                found.wrong_answers.append(f"{who}: shown {list(each.texts)}, stands {turn}")
            found.others += [f"{who}: call {call} of {turn} did not end" for call in each.unfinished]
            for name, text in each.texts.items():
                self._check_text(name, text, texts.get(name, ""))
        found.doubled += [
            f"{who}: usage of {each} was told twice" for each in set(self.used) if self.used.count(each) > 1
        ]
        return found

    def _check_text(self, name: str, text: str, stands: str) -> None:
        if len(text) != self.characters.get(name):
            # A page reads such a message from the thread: words were lost on the way.
            self.lost_words += 1
            if not _within(text, stands):
                self.found.wrong_answers.append(f"{self.session}: {name} shows {text!r}, stands {stands!r}")
        elif text != stands:
            self.found.wrong_answers.append(f"{self.session}: {name} shows {text!r}, stands {stands!r}")


def _within(text: str, stands: str) -> bool:
    """Whether nothing is shown but words of the answer, in order."""
    rest = iter(stands)
    return all(character in rest for character in text)


def turns_of(messages: Sequence[Message]) -> list[list[str]]:
    """The ids of the answers of each turn."""
    turns: list[list[str]] = []
    turn: list[str] = []
    for message in messages:
        if message.role == "assistant":
            turn.append(message.id)
            if not message.tool_calls:
                turns.append(turn)
                turn = []
    return turns


class StreamKills(KillCampaign):
    """Models that talk word by word and break off; pages that stay, and pages that come and go."""

    name = "kills under streams"
    _aloud = True
    _manner: Mapping[str, Any] = MappingProxyType(
        {"texts": ("hello", "hello", "tools=2", "people=1 tools=1")}
    )

    def _along(self, client: Client, people: People) -> list[Coroutine[Any, Any, None]]:
        self._people, self._backends = people, Backends(self._settings)
        self._watching = SessionClient(
            client, task_queue=self._settings.task_queue, streams=self._backends.streams
        )
        self._watchers = [Watcher(name, leaves) for name in self.session_ids for leaves in (0.0, 0.03)]
        self._trees = list[Tree]()
        return [each.watch(self._watching) for each in self._watchers]

    async def _judge(self, people: People, seconds: float) -> Report:
        try:
            return await super()._judge(people, seconds)
        finally:
            await self._backends.close()

    async def _further(self, threads: Mapping[str, Sequence[Message]]) -> Findings:
        findings = Findings()
        late = [Watcher(name) for name in self.session_ids]
        tasks = [asyncio.create_task(each.watch(self._watching)) for each in late]
        try:
            for each in (*self._watchers, *late):
                findings += await self._caught_up(each)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for each in (*self._watchers, *late):
            findings += each.check(threads[each.session])
        events = list(Ledger(self.books).read())
        for name in self.session_ids:
            self._trees.append(await read_tree(self._backends, name, {name: threads[name]}))
            findings += check_paid(self._trees[-1], events, self._deaths)
        return findings

    async def _caught_up(self, watcher: Watcher) -> Findings:
        assert self._backends.streams is not None
        info = await self._backends.streams.get_info(watcher.session)
        last = info.last_sequence if info is not None else 0
        for _ in range(int(CAUGHT_UP_SECONDS / 0.05)):
            if watcher.view.last_sequence >= last:
                return Findings()
            await asyncio.sleep(0.05)
        return Findings(lost=[f"{watcher.session}: a watcher is at {watcher.view.last_sequence} of {last}"])

    def _counts(self) -> dict[str, Any]:
        watchers = self._watchers
        return {
            "watchers": len(watchers),
            "connections": sum(each.connections for each in watchers),
            "chunks": sum(each.view.last_sequence for each in watchers),
            "turns_shown": sum(len(each.shown) for each in watchers),
            "answers_read_from_the_thread": sum(each.lost_words for each in watchers),
            "discarded_answers_counted": unkept(self._trees),
        }
