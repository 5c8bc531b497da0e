"""Turns that wait for people: answered, left and taken up again, stopped, wherever the execution ended."""

from typing import TYPE_CHECKING

from helix_temporal.models.sessions import ExitReason, SuspendedTurn
from helix_temporal.models.steps import ReopenHeads
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import INTERRUPTED, SubmitInput
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.workflows.opening import reopen_thread
from helix_temporal.workflows.turn import TurnResult
from tests.simulation._session import Session, SimCalls, head_of
from tests.simulation._world import World

if TYPE_CHECKING:
    from tests.simulation._story import Story


class People:
    """Answers what sessions ask for, sooner or later.

    Attributes:
        asked: Where the thread stands that somebody was told waits; None while nobody was.
    """

    asked: Head | None

    def __init__(self, story: "Story", world: World) -> None:
        self._story, self._world = story, world
        self.asked = None

    def waits(self) -> PendingCalls:
        """What one execution waits for."""
        return PendingCalls(lambda: int(self._world.loop.time() * 1000))

    def check_found(self, acked: list[str], ids: list[str], found: SuspendedTurn | None) -> None:
        """What a fresh open found: a turn that somebody was told of waits still."""
        asked = self.asked
        if asked is not None and (found is None or found.head != asked):
            self._world.fail(f"a turn was said to wait at {asked}; the open found {found and found.head}")
        if found is None:
            return
        start = found.start.position
        if start < len(acked) or found.start != head_of(ids[:start]) or found.head != head_of(ids):
            self._world.fail(
                f"the turn found waiting is at {found.start}–{found.head}, not behind what was told"
            )
        users = [message.id for message in found.messages]
        if ids[start:][: len(users)] != users:
            self._world.fail(f"{users} is not whose turn waits")

    async def take_up(self, session: Session, found: SuspendedTurn) -> Session:
        """The next execution goes on with the turn."""
        self._world.note("suspended turn found")
        waits = self.waits()
        waits.begin_wait(found)
        session.inbox.adopt_messages(found.messages)
        return await self.until_over(session, waits)

    async def until_over(self, session: Session, waits: PendingCalls) -> Session:
        """Until nothing waits; the session, or the one that came after it."""
        story, world = self._story, self._world
        while waits.suspended is not None:
            self.asked = waits.suspended.head
            world.note("turn waits for somebody")
            await story.idle()
            luck = world.draw()
            if luck < 0.2:
                world.note("terminated while suspended")
                return await story.next_execution(session)
            if luck < 0.4:
                world.note("left while suspended")
                return await story.left(session)
            if luck < 0.5:
                session, waits = await self._reset(session, waits)
            elif luck < 0.6:
                await self._abort(session, waits)
            elif luck < 0.7:
                waits.give_up_calls(INTERRUPTED)
                await self._end(session, waits)
            else:
                await self._answer(session, waits)
        return session

    async def _reset(self, session: Session, waits: PendingCalls) -> tuple[Session, PendingCalls]:
        """Back to where the turn waited, after somebody had answered; what went on then lives on."""
        world, turn = self._world, waits.suspended
        assert turn is not None
        world.note("reset while suspended")
        reset, ghost = self._story.back_to(session), session.saved()
        ghost.is_undone = True
        going_on = self._story.turn(ghost, waits).resume(self._answered(waits))
        await world.interrupt(world.loop.create_task(going_on), world.random.choice((0.1, 3.0)))
        self.asked, waits = None, self.waits()
        waits.begin_wait(turn)
        reset.inbox.adopt_messages(turn.messages)
        # As the session does: it looks behind the step that waits before anybody is asked again.
        self._over(reset, await self._story.turn(reset, waits).resume(turn))
        return reset, waits

    def _answered(self, waits: PendingCalls) -> SuspendedTurn:
        """People answer each call, once."""
        world, turn = self._world, waits.suspended
        assert turn is not None
        for call in turn.waiting:
            outcome = world.random.choice(("result", "result", "error", "denied"))
            request = SubmitInput.model_validate({"call": call.id, "outcome": outcome, "text": "said"})
            if waits.submit_answer(request).status != "submitted":
                world.fail(f"the answer to {call.id} was not taken")
            if waits.submit_answer(request).status != "already_completed":
                world.fail(f"{call.id} was answered twice")
        return turn.model_copy(update={"outcomes": waits.list_outcomes()})

    async def _answer(self, session: Session, waits: PendingCalls) -> None:
        known = self._answered(waits)
        self.asked = None
        result = await self._story.turn(session, waits).resume(known)
        self._world.note("suspended turn gone on with")
        self._over(session, result)

    async def _end(self, session: Session, waits: PendingCalls) -> None:
        turn = waits.suspended
        assert turn is not None
        self.asked = None
        self._world.note("suspended turn given up")
        self._over(session, await self._story.turn(session, waits).give_up(turn, ExitReason.INTERRUPTED))

    def _over(self, session: Session, result: TurnResult) -> None:
        if result.exit_reason is not ExitReason.SUSPENDED:
            self._story.over(session, result)

    async def _abort(self, session: Session, waits: PendingCalls) -> None:
        """Cut at the turn's start; no late attempt brings it back."""
        turn = waits.suspended
        assert turn is not None
        self.asked = None
        calls = SimCalls(self._world, self._story.temporal, session)
        heads = ReopenHeads(head=turn.start, turn_start=turn.start)
        await reopen_thread(calls, session.thread, heads, abandoned=turn.run_id, cuts=True)
        self._world.note("suspended turn aborted")
        session.untold.update(session.told[turn.start.position :])
        session.told = session.told[: turn.start.position]
        waits.end_wait()
        self._story.aborted(session)
