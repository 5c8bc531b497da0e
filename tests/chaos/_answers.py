"""Those who answer what sessions wait for: several at a time, some twice, each with an entry in the book."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from temporalio.service import RPCError

from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError, SessionNotFoundError
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SubmitReply
from helix_temporal.models.waiting import DENIED, INTERRUPTED, PendingCall, ToolApproval
from tests.chaos._agent import AGENT
from tests.chaos._ledger import Event
from tests.chaos._oracle import Findings

SUBMITTED: Final = "submitted"
UNKNOWN: Final = "unknown"
"""Nobody said what became of it."""
PATIENCE: Final = 60.0


@dataclass(slots=True)
class Given:
    """One answer to one call.

    Attributes:
        by: Its name; it may be sent several times.
        approved: Of an approval; None for a result.
        told: What its giver was told, each time.
    """

    session: str
    call: PendingCall
    by: str
    approved: bool | None
    told: list[str] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """The session whose call it is."""
        return self.call.route[-1] if self.call.route else self.session

    @property
    def counts(self) -> bool:
        """Whether its giver was told so."""
        return SUBMITTED in self.told

    def fits(self, result: Message) -> bool:
        """Whether the call's result in the thread is this answer."""
        if self.approved is None:
            return result.text == self.by
        return result.text.startswith("paid " if self.approved else DENIED)


class Answerers:
    """People who look what sessions wait for, and answer it; two may answer one call.

    Attributes:
        given: Their book.
        seen: Pending calls that they saw so far.
        counted: Answers that they were told count.
        open: They look for more.
    """

    def __init__(self, sessions: SessionClient, *, seed: int, thinking: float = 0.3) -> None:
        self.sessions, self.given = sessions, list[Given]()
        self.seen, self.counted, self.open = 0, 0, True
        self._random, self._thinking = random.Random(seed), thinking
        self._busy, self._quiet = 0, asyncio.Condition()

    async def keep_answering(self, session: str, who: int) -> None:
        """Answer whatever the session waits for, until it is enough."""
        while self.open:
            self._busy += 1
            try:
                for call in await self.pending(session):
                    await asyncio.sleep(self._random.uniform(0, self._thinking))
                    await self.answer(session, call, who)
            finally:
                self._busy -= 1
                async with self._quiet:
                    self._quiet.notify_all()
            await asyncio.sleep(self._random.uniform(0.05, 0.2))

    async def stop(self) -> None:
        """Let everybody finish the answer that he is about to give."""
        self.open = False
        async with self._quiet:
            await self._quiet.wait_for(lambda: not self._busy)

    async def pending(self, session: str) -> list[PendingCall]:
        """What others than the asker are wanted for; nothing while no worker can say so."""
        try:
            async with asyncio.timeout(5):
                found = await self.sessions.session(session).get_pending_calls()
        except (SessionNotFoundError, RPCError, HelixError, TimeoutError):
            return []
        wanted = [each for each in found if each.name != "person"]
        self.seen += len(wanted)
        return wanted

    async def answer(self, session: str, call: PendingCall, who: int = 0) -> Given:
        """Answer one call: sometimes twice at once, sometimes once more later, always under one name."""
        approved = None if call.kind == "client" else self._random.random() < 0.8
        given = Given(session, call, f"answer {who}-{len(self.given)}", approved)
        self.given.append(given)
        await asyncio.gather(*(self._send(given) for _ in range(1 + (self._random.random() < 0.3))))
        if self._random.random() < 0.2:
            await asyncio.sleep(self._random.uniform(0, 0.5))
            await self._send(given)
        return given

    async def _send(self, given: Given) -> None:
        """Send it until somebody says what became of it."""
        ends = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < ends:
            try:
                reply = await self._submit(given)
            except (HelixError, RPCError, TimeoutError):
                given.told.append(UNKNOWN)
                await asyncio.sleep(0.2)
                continue
            given.told.append(reply.status)
            self.counted += reply.status == SUBMITTED
            return

    async def _submit(self, given: Given) -> SubmitReply:
        if given.approved is None:
            return await self.sessions.session(given.session, agent=AGENT).submit_tool_result(
                given.call, given.by, timeout=20, submission_id=given.by
            )
        approval = ToolApproval(approval_id=given.call.id, approved=given.approved)
        return await self.sessions.session(given.session, agent=AGENT).submit_approval(
            approval, timeout=20, submission_id=given.by
        )

    async def until(self, what: Callable[[], int], timeout: float) -> bool:
        """Wait until this number has gone up; whether it did in time."""
        before, ends = what(), asyncio.get_running_loop().time() + timeout
        while asyncio.get_running_loop().time() < ends:
            if what() > before:
                return True
            await asyncio.sleep(0.005)
        return False


def check_given(
    book: Sequence[Given],
    threads: Mapping[str, Sequence[Message]],
    events: Sequence[Event],
    *,
    forgets: Callable[[str], bool] = lambda _: False,
    stopped: bool = False,
) -> Findings:
    """Each call has one answer, which is one that was told to count; what was denied was not done.

    ``forgets`` tells of sessions whose executions were terminated: what was submitted and in no thread yet
    went with them, and the calls were answered again, when an approved tool may have begun.  Where they
    were ``stopped``, calls ended without an answer, and what was approved may not have run.
    """
    found = Findings()
    calls: defaultdict[tuple[str, str], list[Given]] = defaultdict(list)
    for each in book:
        calls[each.owner, each.call.id].append(each)
    effects: defaultdict[tuple[str, str], int] = defaultdict(int)
    for event in events:
        if event.kind == "tool":
            effects[event.facts["session"], event.facts["what"]] += 1
    for (owner, name), answers in calls.items():
        result = result_of(answers[0].call, threads.get(owner, ()))
        unanswered = answers[0].approved is not None or not any(each.counts for each in answers)
        if not (stopped and unanswered and result is not None and result.text == INTERRUPTED):
            _check_call(f"{owner}: {name}", answers, result, found, forgets=forgets(answers[0].session))
        _check_effect(owner, answers, result, effects, found, forgets=forgets(answers[0].session))
    return found


def _check_call(
    who: str, answers: Sequence[Given], result: Message | None, found: Findings, *, forgets: bool
) -> None:
    counted = [each for each in answers if each.counts]
    if len(counted) > 1 and not forgets:
        told = [(each.by, each.told) for each in counted]
        found.doubled.append(f"{who}: {len(counted)} answers were told to count: {told}")
    for each in counted:
        if not forgets and set(each.told) - {SUBMITTED, UNKNOWN}:
            found.wrong_answers.append(f"{who}: {each.by} was told {each.told}")
    if result is None:
        if counted and not forgets:
            found.lost.append(f"{who}: {counted[0].by} counts, and the call has no result")
        return
    # One whose giver never heard of it may be the one that counts.
    allowed = counted or [each for each in answers if UNKNOWN in each.told]
    if forgets:
        allowed = [each for each in answers if each.counts or UNKNOWN in each.told]
    if not any(each.fits(result) for each in allowed):
        told = [(each.by, each.told) for each in answers]
        found.lost.append(f"{who}: stands {result.text[:60]!r}, told {told}")


def _check_effect(
    owner: str,
    answers: Sequence[Given],
    result: Message | None,
    effects: Mapping[tuple[str, str], int],
    found: Findings,
    *,
    forgets: bool,
) -> None:
    call = answers[0].call
    if call.kind == "client" or call.arguments is None or result is None:
        return
    done = effects.get((owner, str(call.arguments["what"])), 0)
    if result.text.startswith("paid ") and not done:
        found.others.append(f"{owner}: {call.id} says it is paid, and nothing was")
    # Approved, its tool begun, the execution terminated: the next one asks again, and may hear a no.
    begun = forgets and any(each.approved and {SUBMITTED, UNKNOWN} & set(each.told) for each in answers)
    if result.text.startswith(DENIED) and done and not begun:
        found.effects_twice.append(f"{owner}: {call.id} was denied, and took effect {done} times")


def result_of(call: PendingCall, messages: Sequence[Message]) -> Message | None:
    """The result of a call that waited, in its thread; None if that has none, or not this call."""
    place = call.position + 1 + call.at
    if len(messages) <= place or messages[place].role != "tool":
        return None
    # Its id holds that of the message that asks: a turn that was cut has left another one in its place.
    return messages[place] if messages[call.position].id in call.id else None
