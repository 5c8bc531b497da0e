"""Those who ask: several at a time, each one message after the other, with books of their own."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from temporalio.client import Client

from helix_temporal.backends import Backends
from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError, SessionInterruptedError, ThreadNotFoundError
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.sessions import AskResult, AskStatus, SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ReadPage
from tests.chaos._agent import AGENT
from tests.chaos._oracle import Ask


class People:
    """Askers of several sessions.

    Attributes:
        client: Theirs.
        asks: Their book: every message they sent, and what they were told.
        answered_at: When (monotonic seconds) answers arrived.
        submissions: What became of their answers to what sessions waited for.
        asked_again: How often they asked under the same id since nobody told them anything for too long.

    Args:
        pause: At most so many seconds pass before an asker's next message.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        options: SessionOptions | None = None,
        seed: int = 0,
        ask_timeout: float = 90.0,
        texts: Sequence[str] = ("hello", "hello", "tools=1", "tools=2", "people=1 tools=1"),
        pause: float = 0.1,
    ) -> None:
        self.client = client
        self.sessions = SessionClient(client, task_queue=settings.task_queue, options=options)
        self.asks: list[Ask] = []
        self.answered_at: list[float] = []
        self.submissions: Counter[str] = Counter()
        self.asked_again = 0
        self._random = random.Random(seed)
        self._ask_timeout, self._texts, self._pause = ask_timeout, tuple(texts), pause
        self._progress = asyncio.Condition()

    async def ask(self, session: str, text: str, *, asker: int = 0, agent: str | None = AGENT) -> Ask:
        """Ask one message and write down what came of it; without ``agent`` no session is started."""
        number = sum(ask.session == session and ask.asker == asker for ask in self.asks)
        ask = Ask(session, asker, number, f"{session}-{asker}-{number}", text)
        self.asks.append(ask)
        try:
            ask.result = await self._until_over(ask, agent)
        except (HelixError, TimeoutError) as error:
            ask.error = f"{type(error).__name__}: {error}"
        else:
            self.answered_at.append(time.monotonic())
        async with self._progress:
            self._progress.notify_all()
        return ask

    async def ask_on(self, ask: Ask, *, times: int = 5) -> None:
        """Ask again, under the same id, what nobody has told the end of."""
        for _ in range(times):
            if ask.result is not None:
                return
            try:
                ask.result = await self._until_over(ask, AGENT)
                ask.error = None
                self.answered_at.append(time.monotonic())
            except (HelixError, TimeoutError) as error:
                ask.error = f"{type(error).__name__}: {error}"
            async with self._progress:
                self._progress.notify_all()

    async def _until_over(self, ask: Ask, agent: str | None) -> AskResult:
        """Ask, and answer what a `person` is asked, until the turn is over; other calls have other people."""
        deadline = time.monotonic() + self._ask_timeout
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            result = await self.sessions.ask(
                ask.session, ask.text, agent=agent, message_id=ask.message_id, timeout=left
            )
            if result.status is not AskStatus.SUSPENDED:
                return result
            if time.monotonic() > deadline:
                raise TimeoutError(f"waits for {[each.id for each in result.pending]}")
            mine = [each for each in result.pending if each.name == "person"]
            for call in mine:
                said = await self.sessions.session(ask.session, agent=agent).submit_tool_result(
                    call, "said", timeout=left
                )
                self.submissions[said.status] += 1
            await asyncio.sleep(0 if mine else 0.2)

    async def keep_asking(self, session: str, asker: int, go_on: Callable[[], bool]) -> None:
        """One message after the other, with short pauses; nobody goes on before he was told of the last."""
        while go_on():
            ask = await self.ask(session, self._random.choice(self._texts), asker=asker)
            if ask.result is None:
                # Whoever is killed again and again gets nowhere for a while: a client asks once more.
                self.asked_again += 1
                await self.ask_on(ask)
            await asyncio.sleep(self._random.uniform(0, self._pause))

    async def next_answer(self, timeout: float) -> bool:
        """Wait until somebody got an answer; whether somebody did in time."""
        before = len(self.answered_at)
        try:
            async with asyncio.timeout(timeout), self._progress:
                await self._progress.wait_for(lambda: len(self.answered_at) > before)
        except TimeoutError:
            return False
        return True

    async def close(self, sessions: Sequence[str]) -> None:
        """Let all sessions archive and end."""
        await asyncio.gather(*(self._close(session) for session in sessions))

    async def _close(self, session: str) -> None:
        await self.sessions.session(session).close()
        # A cancel may come so late that it ends the run that we close: it has archived as well.
        with contextlib.suppress(SessionInterruptedError):
            await self.sessions.session(session).result()

    async def ask_again(self, asks: Sequence[Ask]) -> list[str]:
        """Send messages again under their ids; where the answer is not the first one's."""
        wrong = []
        for ask in asks:
            again = await self.sessions.ask(
                ask.session, ask.text, agent=AGENT, message_id=ask.message_id, timeout=self._ask_timeout
            )
            if ask.result is None or (again.text, again.answer) != (ask.result.text, ask.result.answer):
                wrong.append(f"{ask.message_id}: told {ask.result}, now {again}")
        return wrong


async def read_thread(backends: Backends, thread_id: str, *, committed_only: bool = False) -> list[Message]:
    """A thread as the stores have it, without Temporal; empty if there is none."""
    found: list[Message] = []
    after: int | None = 0
    while after is not None:
        try:
            page = await backends.threads.read(
                ReadPage(thread_id, after, limit=1000, committed_only=committed_only, whole=False)
            )
        except ThreadNotFoundError:
            return []
        found += [decode_message(message) for message in page.messages]
        after = page.after
    return found
