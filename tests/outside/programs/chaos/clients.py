"""People who talk to sessions, and write down what they were told."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from temporalio.service import RPCError

from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError, SessionNotFoundError
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.waiting import ToolApproval

ASK_SECONDS: Final = 30.0
WORDS: Final = (
    "hello", "hello", "hello", "charge", "charge", "charge note", "pay", "slow", "where", "helper", "note",
    "charge charge", "long", "helper charge", "pay where",
)  # fmt: skip


@dataclass
class Ask:
    """One message, and what became of it.

    Attributes:
        told_at: Monotonic ns at which the answer came; 0 if none did.
        given_at: Of the model call that gave the answer; it may have been lost before it was told.
        archived: What `AskResult` says of it; None where it says nothing.
        position: Of the answer in the thread.
        taken_back: A person's rewind removed it afterwards; None: a rewind may have.
        stopped: Its turn was stopped, and the message is in the thread without an answer.
    """

    session: str
    id: str
    words: str
    sent_at: int
    told_at: int = 0
    given_at: int = 0
    text: str = ""
    position: int = -1
    archived: bool | None = None
    taken_back: bool | None = False
    stopped: bool = False
    attempts: int = 0
    last: str = ""


@dataclass
class Session:
    """One session, and who is talking to it.

    Attributes:
        stops: Monotonic ns of every fault that ends a turn on purpose: cancel, terminate, rewind, close.
    """

    id: str
    stops: list[int] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    asking: int = 0
    paused: bool = False

    @contextlib.asynccontextmanager
    async def quiet(self) -> AsyncIterator[bool]:
        """No ask is under way for as long as the block lasts; false if that can't be had in a minute."""
        self.paused = True
        try:
            deadline = time.monotonic() + 60
            while self.asking and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            yield not self.asking
        finally:
            self.paused = False


class People:
    """Askers and answerers of all sessions.

    Attributes:
        errors: Types of all errors that they met, and how often.
        untyped: Those that are neither the pack's own, nor time-outs, nor the Temporal server's: nobody who
            uses it expects them.
    """

    def __init__(self, client: SessionClient, sessions: list[Session], *, seed: int) -> None:
        self.client, self.sessions, self._seed = client, sessions, seed
        self.asks: list[Ask] = []
        self.errors: Counter[str] = Counter()
        self.untyped: list[str] = []
        self.submitted: Counter[str] = Counter()
        self.going = True
        self.answering = [asyncio.create_task(self.keep_answering(session)) for session in sessions]

    async def begin(self, session: Session, words: str) -> None:
        """Take a new session in, and ask it something."""
        self.sessions.append(session)
        self.answering.append(asyncio.create_task(self.keep_answering(session)))
        await self.ask(session, f"{session.id}-first", words, lambda: True)

    async def keep_asking(self, session: Session, asker: int) -> None:
        """One message after the other; each is asked again under its id until it has an end."""
        choose = random.Random(f"{self._seed} {session.id} {asker}")
        number = 0
        while self.going:
            if session.paused:
                await asyncio.sleep(0.1)
                continue
            number += 1
            await self.ask(session, f"{session.id}-{asker}-{number}", choose.choice(WORDS), lambda: True)
            await asyncio.sleep(choose.uniform(0, 1.5))

    async def ask(self, session: Session, message_id: str, words: str, go_on: Callable[[], bool]) -> Ask:
        """Ask until there is an answer, or the turn was stopped."""
        ask = Ask(session.id, message_id, words, time.monotonic_ns())
        self.asks.append(ask)
        session.asking += 1
        try:
            while not ask.told_at and not ask.stopped and go_on():
                ask.attempts += 1
                await self._try(ask)
        finally:
            session.asking -= 1
        return ask

    async def _try(self, ask: Ask) -> None:
        try:
            result = await self.client.ask(
                ask.session, ask.words, agent="desk", message_id=ask.id, timeout=ASK_SECONDS
            )
        except Exception as error:  # noqa: BLE001 (it is reported)
            self._note(error)
            ask.last = f"{type(error).__name__}: {error}"
            await asyncio.sleep(0.5)
            return
        ask.last = f"{result.status} {result.error or ''}"
        if result.status is AskStatus.ANSWERED and result.answer is not None:
            ask.text, ask.position = result.text or "", result.answer.position
            ask.archived = getattr(result, "archived", None)
            ask.told_at = time.monotonic_ns()
        elif result.status is AskStatus.INTERRUPTED and result.in_thread:
            ask.stopped = True
        else:
            await asyncio.sleep(0.3)

    def _note(self, error: Exception) -> None:
        name = type(error).__name__
        self.errors[f"{name} {error.status.name}" if isinstance(error, RPCError) else name] += 1
        if not isinstance(error, (HelixError, TimeoutError, RPCError)):
            self.untyped.append(f"{type(error).__name__}: {error}"[:300])

    async def keep_answering(self, session: Session) -> None:
        """Give the session what it waits for, sooner or later."""
        choose = random.Random(f"{self._seed} {session.id} answers")
        while True:
            await asyncio.sleep(choose.uniform(0.2, 2.0))
            try:
                for call in await self.client.session(session.id).get_pending_calls():
                    if call.kind == "approval":
                        approval = ToolApproval(approval_id=call.id, approved=choose.random() < 0.8)
                        reply = await self.client.session(session.id).submit_approval(
                            approval, timeout=ASK_SECONDS
                        )
                    else:
                        reply = await self.client.session(session.id).submit_tool_result(
                            call, "here", timeout=ASK_SECONDS
                        )
                    self.submitted[reply.status] += 1
            except SessionNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 (it is reported; whoever stopped here would answer nobody)
                self._note(error)

    async def flood(self, session: Session, count: int) -> None:
        """Messages that nobody waits for, all at once."""
        ids = [f"{session.id}-flood-{len(session.sent) + number}" for number in range(count)]
        session.sent += ids
        results = await asyncio.gather(
            *(
                self.client.send(session.id, "hello", agent="desk", message_id=each, timeout=20)
                for each in ids
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, Exception):
                self._note(result)

    async def rewind(self, session: Session, turns: int) -> bool:
        """Take turns back, as a person does; what they held is not expected any more."""
        async with session.quiet() as quiet:
            if not quiet:
                return False
            session.stops.append(time.monotonic_ns())
            name = f"rewind-{len(session.stops)}"
            mine = [ask for ask in self.asks if ask.session == session.id and ask.told_at]
            for _ in range(6):
                try:
                    head = await self.client.session(session.id, agent="desk").rewind_to_turn(
                        -turns,
                        operation_id=name,
                        timeout=20,
                    )
                except (TimeoutError, RPCError) as error:
                    self._note(error)
                    continue
                except Exception as error:  # noqa: BLE001 (it is reported)
                    self._note(error)
                    break
                for ask in mine:
                    if ask.position >= head.position and ask.taken_back is not True:
                        ask.taken_back = True
                return True
            for ask in mine:
                if ask.taken_back is False:
                    ask.taken_back = None
            return False
