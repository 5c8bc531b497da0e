"""What the parts of the thread store's contract share."""

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.threads import (
    Create,
    FlushThread,
    OpenedThread,
    OpenThread,
    ReadPage,
    Reopen,
    ThreadFacts,
    ThreadStore,
)
from helix_temporal.testing.builders import EPOCH, a_message, an_answer, an_id

LATER = EPOCH + 1_000_000
"""An epoch that fences `EPOCH`."""


@dataclass
class Author:
    """A session's workflow as a store sees it: one epoch, and the head that it knows.

    Attributes:
        turn_start: Head at which the turn under way began.
    """

    threads: ThreadStore
    thread_id: str
    epoch: int = EPOCH
    owner: str = "run-1"
    head: Head = EMPTY
    turn_start: Head = EMPTY

    async def open(
        self,
        *,
        create: Create = Create.AUTO,
        reopen: Reopen | None = None,
        rewind_to: Head | None = None,
        messages: tuple[StoredMessage, ...] = (),
        state: bytes = b"",
        adapter: str = "",
        expected_head: Head | None = None,
    ) -> OpenedThread:
        """Take the epoch."""
        opened = await self.threads.open(
            OpenThread(
                self.thread_id, self.epoch, self.owner, create, reopen, rewind_to, messages, state, adapter,
                expected_head=expected_head,
            )
        )  # fmt: skip
        self.head = self.turn_start = opened.at
        return opened

    def later(self, *, owner: str | None = None, by: int = 1_000_000) -> "Author":
        """The same thread under a higher epoch, not opened yet."""
        return replace(self, epoch=self.epoch + by, owner=self.owner if owner is None else owner)

    def step(self, *inputs: StoredMessage, answer: StoredMessage | None, commits: bool = True) -> StepAppend:
        """A step at the head that this author knows."""
        return StepAppend(self.thread_id, self.epoch, self.head, inputs, answer, commits)

    async def append(self, step: StepAppend) -> Appended:
        """Append, and remember where the thread stands."""
        appended = await self.threads.append(step)
        self.head = appended.head
        if step.commits:
            self.turn_start = appended.head
        return appended

    async def turn(self, text: str = "hello", answer: str = "hi there") -> Appended:
        """One user message and its answer, finished."""
        return await self.append(self.step(a_message(text), answer=an_answer(answer)))

    async def turns(self, count: int) -> None:
        """So many turns, numbered."""
        for number in range(count):
            await self.turn(f"question {number}", f"answer {number}")

    async def asks_for_tools(self, text: str = "look it up") -> Appended:
        """One user message and an answer that asks for tools: the turn goes on."""
        step = self.step(a_message(text), answer=calls(), commits=False)
        return await self.append(step)

    async def tool_turn(self, results: int = 2) -> None:
        """A turn of two steps: tools are asked for, give results, and are spoken about."""
        await self.asks_for_tools()
        await self.append(self.step(*(result(n) for n in range(results)), answer=an_answer("found")))

    async def flush(self, *, closes: bool = False) -> None:
        """Archive what is hot."""
        await self.threads.flush(FlushThread(self.thread_id, self.epoch, closes=closes))

    async def go_cold(self) -> None:
        """Archive the thread and drop it from the hot tier."""
        await self.flush()
        assert await self.threads.evict(self.thread_id, self.epoch) == "dropped"
        assert not (await self.facts()).hot

    async def facts(self) -> ThreadFacts:
        """Where the thread stands."""
        return await self.threads.read_facts(self.thread_id)

    async def everything(self) -> tuple[StoredMessage, ...]:
        """All messages, those of the unfinished turn included."""
        page = await self.threads.read(ReadPage(self.thread_id, limit=10_000, committed_only=False))
        return page.messages

    async def image(self) -> tuple[ThreadFacts, tuple[StoredMessage, ...]]:
        """All that can be seen of the thread, to find that nothing changed."""
        return await self.facts(), await self.everything()

    async def texts(self) -> list[str]:
        """The bodies of all messages."""
        return [message.body.decode() for message in await self.everything()]


def calls(text: str = "let me see") -> StoredMessage:
    """An answer that asks for tools."""
    return a_message(text, kind=Kind.CALLS)


def result(number: int) -> StoredMessage:
    """What a tool gave."""
    return a_message(f"result {number}", kind=Kind.RESULT)


def noise(count: int, *, size: int = 300, prefix: str = "n") -> tuple[StoredMessage, ...]:
    """Messages that no compression makes smaller, the same each time."""
    chance = random.Random(f"{prefix}{count}{size}")
    return tuple(a_message(chance.randbytes(size), message_id=f"{prefix}{n}") for n in range(count))


async def pages(threads: ThreadStore, request: ReadPage) -> list[tuple[StoredMessage, ...]]:
    """All pages from this one on, in the order in which they are read."""
    found = []
    while True:
        page = await threads.read(request)
        found.append(page.messages)
        if request.backward:
            if page.before is None:
                return found
            request = replace(request, stop=page.before)
        elif page.after is None:
            return found
        else:
            request = replace(request, start=page.after)


class ThreadFixtures:
    """Fixtures; a store overrides the first.

    Attributes:
        archives: The store has an archive.
    """

    archives: ClassVar[bool] = False

    @pytest.fixture
    async def threads(self) -> ThreadStore:
        """An empty store of the test's own."""
        raise NotImplementedError("bind the contract: override the fixture `threads`")

    @pytest.fixture
    def thread_id(self) -> str:
        """An id of this test's own."""
        return f"thread-{an_id()}"

    @pytest.fixture
    async def author(self, threads: ThreadStore, thread_id: str) -> Author:
        """The author of a thread that was just made."""
        author = Author(threads, thread_id)
        await author.open()
        return author
