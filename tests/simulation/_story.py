"""The life of one thread under a seed, and the judgement at its end."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from helix_temporal.errors import (
    ConflictError,
    FencedError,
    HelixError,
    InvalidRequestError,
    ThreadNotFoundError,
)
from helix_temporal.models.sessions import (
    AnswerRef,
    AskResult,
    AskStatus,
    ExitReason,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, RunStepResult
from helix_temporal.models.stored_messages import Head, Kind
from helix_temporal.session.inbox import Entry, Inbox
from helix_temporal.session.pending_calls import PendingCalls
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.threads import FlushThread, ForkThread, ReadPage
from helix_temporal.workflows.hooks import ask_result
from helix_temporal.workflows.opening import CurrentThread, build_reopen_request, open_session_thread
from helix_temporal.workflows.turn import Turn, TurnResult
from tests.simulation._loop import settle
from tests.simulation._people import People
from tests.simulation._session import THREAD, Session, SimCalls, head_of, resumed
from tests.simulation._temporal import Temporal
from tests.simulation._worker import Shop, Worker
from tests.simulation._world import World

MOST_WAITING = 3
SENT_AGAIN_WITHIN = 12
"""Messages of the thread: half of the window in which a message that is sent again is known."""
ABANDONED = 60.0
"""Seconds after which what was put aside and not taken is garbage: longer than any step goes on."""


@dataclass(frozen=True)
class Plan:
    """What kind of life it is."""

    turns: int = 8
    wipes: bool = True


class Story:
    """Drives one session, then judges."""

    def __init__(self, world: World, shop: Shop, plan: Plan) -> None:
        self._world, self._shop, self._plan = world, shop, plan
        self.temporal = Temporal(world, shop.worker)
        self._people = People(self, world)
        self._execution = 0
        self._acked: list[str] = []
        self._accepted: list[UserMessage] = []
        self._over: set[str] = set()
        self._aborted: set[str] = set()
        self._final: Head | None = None
        self._session: Session | None = None
        self._at_risk: set[str] = set()
        self._snapshots: list[dict[str, object]] = []
        self._forks: dict[str, list[str]] = {}
        self._older: list[Session] = []
        self._saved: list[Session] = []
        self._uncounted, self._recount = 0, False
        world.excuse = self._is_excused
        if plan.wipes:
            world.mischief.append(self._mischief)

    async def run(self) -> None:
        """From the first open to the judgement."""
        world = self._world
        session, done = await self._begin(), 0
        while done < self._plan.turns:
            self._session = session
            await self.idle()
            try:
                session, finished = await self._next(session)
            except FencedError as fenced:
                session, finished = await self._taken_over(fenced), 0
            except HelixError as error:
                self._world.fail(f"the session gave up: {type(error).__name__}: {error}")
            done += finished
        await asyncio.sleep(25.0)
        session = await self._begin()
        if not session.thread.handle.archived:
            # A suspended turn has gone on since, and the archive was not asked: an open archives.
            session = await self._begin()
        self._judge()
        if world.chance(0.1):
            await self._delete(session)

    # -- what happens next

    async def _next(self, session: Session) -> tuple[Session, int]:
        world = self._world
        what = self._event()
        if what == "reset_older":
            world.spawn(self._reset_of_an_older_execution(world.random.choice(self._older).saved()))
        elif what:
            return await getattr(self, f"_{what}")(session), 0
        elif world.chance(world.rates.beside):
            self._others()
        session = await self._answered(session)
        if world.chance(0.1):
            world.note("continued as new")
            session = resumed(session, session.thread.handle, self._new_run())
        self._saved.append(session.saved())
        return session, 1

    def _event(self) -> str:
        """What happens instead of an undisturbed turn, if anything."""
        luck, rates = self._world.draw(), self._world.rates
        possible = {
            "terminate": True,
            "cancel": True,
            "end": True,
            "reset": len(self._saved) > 1,
            "reset_older": bool(self._older),
            "rewind": bool(self._acked),
        }
        for what, can in possible.items():
            luck -= getattr(rates, what)
            if luck < 0:
                return what if can else ""
        return ""

    async def _taken_over(self, fenced: FencedError) -> Session:
        """A late open of a dead execution, by a clock that was ahead, came after ours: end, start anew."""
        if "owner" not in fenced.facts:
            self._world.fail(f"the session gave up: {fenced}")
        self._world.note("taken over by a dead execution")
        return await self._begin()

    def _is_excused(self) -> str:
        """Why there is no verdict, if more went wrong at once than the protocol promises to survive."""
        log = self._shop.log
        if log.returned:
            # By a clock that was ahead; a later open of the same owner may then cut, or reset it.
            return "an open of a dead execution came late, and another one after it"
        if log.is_overrun:
            # The reset run goes on under the old epoch: a later open of the run before it is not fenced.
            return "a re-open was under way in a run that was reset"
        sessions = [each for each in (*self._older, *self._saved, self._session) if each]
        claimed = set(self._acked).union(
            *(each.told for each in sessions), *(each.untold for each in sessions)
        )
        unarchived = claimed & set().union(*(each.unarchived for each in sessions))
        archived = set(log.ids(log.manifest(THREAD).head))
        seen = self._world.seen
        rolled_back = seen["hot rolled back"] + (self._shop.flush_each_step and seen["an old copy made hot"])
        forgotten = rolled_back > 0 or bool(self._at_risk & (archived | claimed))
        # A hot tier that forgets a step which only its worker knows of, and an archive that can't be
        # asked at that moment: what was acknowledged as not archived may be lost.
        return "both stores failed at once" if forgotten and not unarchived <= archived else ""

    async def idle(self) -> None:
        """Let time pass, perhaps."""
        if self._world.chance(0.5):
            await asyncio.sleep(self._world.between(0.01, 10.0))

    # -- opening

    async def _begin(self) -> Session:
        """A new execution opens the thread."""
        self._execution += 1
        request = OpenSessionInput(
            session_id=THREAD, thread_id=THREAD, agent="a", owner=f"exec{self._execution}"
        )
        calls = SimCalls(self._world, self.temporal, run=self._new_run())
        opened = await self._until_open(calls, request)
        self._adopt(opened.handle.head, opened.suspended)
        # Users send again what they have no answer to.
        unanswered = [each for each in self._accepted if each.id not in self._over]
        session = self._opened(request, opened, Inbox(unanswered), calls.run)
        if opened.suspended is not None:
            session = await self._people.take_up(session, opened.suspended)
        self._saved = [session.saved()]
        return session

    def _new_run(self) -> str:
        return f"run{self._world.unique()}"

    def _opened(
        self, request: OpenSessionInput, opened: OpenSessionResult, inbox: Inbox, run: str
    ) -> Session:
        thread = CurrentThread(request, opened.handle, opened.facts)
        told = self._shop.log.ids(opened.handle.head)
        self._session = Session(thread, self._shop.log.ids, inbox, len(self._accepted), told, run)
        return self._session

    async def _until_open(self, calls: SimCalls, request: OpenSessionInput) -> OpenSessionResult:
        for _ in range(8):
            try:
                return await open_session_thread(calls, request)
            except FencedError as fenced:
                if request.again and "owner" in fenced.facts:
                    raise  # another execution has the thread: this one ends
                self._world.note("open refused")
        raise self._world.fail("cannot open")

    def _adopt(self, head: Head, suspended: SuspendedTurn | None) -> None:
        """After a fresh open the thread is what users were told, and turns that were about to be told."""
        log, ids, acked = self._shop.log, self._shop.log.ids(head), self._acked
        if self._final is not None and head != self._final:
            self._world.fail(f"closed at {self._final}, opened at {head}")
        self._final = None
        if ids[: len(acked)] != acked:
            self._world.fail(f"acknowledged turns lost or changed: {head}, acknowledged {head_of(acked)}")
        more = ids[len(acked) :]
        users = [each for each in more if self._is_user(each)]
        asked = {each.id for each in self._accepted} - self._over
        if len(set(users)) < len(users) or not asked.issuperset(users):
            self._world.fail(f"{users} are in the thread; of those, only {asked} had no answer")
        self._people.check_found(acked, ids, suspended)
        if suspended is not None:
            self._acked = log.ids(suspended.start)
        elif more:
            last = log.link(more[-1])
            if last is None or last.message.kind in {Kind.CALLS, Kind.USER}:
                self._world.fail(f"{more} is no whole turn")
            self._world.note("unanswered turn had been committed")
            self._acked = ids

    def _is_user(self, message_id: str) -> bool:
        link = self._shop.log.link(message_id)
        return link is not None and link.message.kind == Kind.USER

    # -- turns

    async def _send(self, session: Session) -> None:
        """Users send messages, some of them by reference: together they are a turn, or several."""
        world = self._world
        if len(session.inbox) > MOST_WAITING:
            return  # whoever sends again may count on a window of messages, which many new ones would fill
        for _ in range(world.random.choice((1, 1, 2, 3))):
            message_id = f"u{world.unique()}"
            text = world.random.randbytes(int(4 + 40 * world.draw())).hex()
            message = UserMessage(id=message_id, text=text)
            if world.chance(0.25):
                world.note("message by reference")
                ref = await SimCalls(world, self.temporal).put_text(message_id, text)
                message = UserMessage(id=message_id, ref=ref)
            self._accepted.append(message)
            session.inbox.put(message)
        session.accepted = len(self._accepted)

    def _group(self, session: Session) -> list[Entry]:
        """The messages of the next turn: all that wait, or the first of them."""
        waiting = len(session.inbox)
        return session.inbox.begin_turn(
            None, waiting if self._world.chance(0.5) else 1 + int(self._world.draw() * waiting)
        )

    def turn(self, session: Session, waits: PendingCalls | None = None) -> Turn:
        """A turn of this session."""
        calls = SimCalls(self._world, self.temporal, session)
        settles = partial(self._settle, session)
        adopts = session.inbox.adopt_messages
        return Turn(
            calls,
            session.thread,
            number=1,
            max_steps=4,
            pending_calls=waits,
            answer_earlier=settles,
            adopt_messages=adopts,
        )

    def _settle(self, session: Session, result: RunStepResult) -> bool:
        """As the session workflow does."""
        inbox = session.inbox
        if len(inbox.turn_entries) == 1:
            return False
        self._world.note("messages parted")
        answers = {each.message_id: each.answer for each in result.answers}
        for each in result.dropped:
            entry = inbox.find(each)
            inbox.resolve_earlier(each, answers.get(each))
            if entry is not None:
                self._told_apart(session, each, answers.get(each))
                session.told_apart.append(entry)
        inbox.put_back_first(result.left)
        return True

    def _told_apart(self, session: Session, message_id: str, answer: AnswerRef | None) -> None:
        """Its users know how it ended, though another execution may come to the end of this turn."""
        if session.is_undone or message_id not in session.told:
            return
        self._over.add(message_id)
        end = self._end_of_turn(session.told, message_id) if answer is None else answer.position + 1
        told = session.told[:end]
        if told[: len(self._acked)] == self._acked:
            self._acked = told

    def _end_of_turn(self, ids: list[str], message_id: str) -> int:
        """Where the turn of a user's message ends: before the next user's message that comes after others."""
        begins = [
            at for at in range(1, len(ids)) if self._is_user(ids[at]) and not self._is_user(ids[at - 1])
        ]
        return next((at for at in begins if at > ids.index(message_id)), len(ids))

    async def _answered(self, session: Session) -> Session:
        """A turn to its end; its answer is given to the users."""
        await self._send(session)
        again = next((each for each in self._accepted[::-1] if each.id in self._acked), None)
        if again is not None and self._world.chance(0.05) and again.id in self._acked[-SENT_AGAIN_WITHIN:]:
            session.inbox.put_first([again])
        messages = [entry.message for entry in self._group(session)]
        waits = self._people.waits() if self._world.chance(0.8) else None
        turn = self.turn(session, waits)
        if self._world.chance(0.05):
            turn.interrupted = True
        before = session.thread.turns_run_again
        result = await turn.run(messages)
        if waits is not None and result.exit_reason is ExitReason.SUSPENDED:
            return await self._people.until_over(session, waits)
        self._acknowledge(session, result, before)
        if self._plan.wipes and self._world.chance(0.35):
            await SimCalls(self._world, self.temporal).evict(THREAD, session.thread.handle.epoch)
        return session

    def over(self, session: Session, result: TurnResult) -> None:
        """A turn that waited is over."""
        self._acknowledge(session, result, session.thread.turns_run_again)

    def aborted(self, session: Session) -> None:
        """A turn that waited was cut."""
        stopped = {entry.message.id for entry in session.inbox.turn_entries}
        self._over |= stopped
        self._aborted |= stopped
        session.inbox.finish_turn(AskResult(status=AskStatus.INTERRUPTED))
        self._take(session)
        if session.thread.head != head_of(session.told):
            self._world.fail(f"aborted, and at {session.thread.head}; told {head_of(session.told)}")

    def _acknowledge(self, session: Session, result: TurnResult, run_again: int) -> None:
        world = self._world
        if session.thread.losses:
            world.fail(f"acknowledged messages are lost: {session.thread.losses}")
        self._take(session)
        self._tell_users(session, result)
        world.note("turn answered", f"{result.exit_reason} {result.answer}")
        world.seen["opened again"] += session.thread.reopened
        session.thread.reopened = 0
        if session.thread.turns_run_again > run_again and not self._is_excused():
            world.note("TURN RUN AGAIN")
        if session.thread.head != head_of(session.told):
            world.fail(f"told {head_of(session.told)}, head {session.thread.head}")
        if result.answer is not None and self._acked[result.answer.position] != result.answer.id:
            world.fail(f"answer {result.answer} is not what the thread holds")
        self._check_kept(session)

    def _take(self, session: Session) -> None:
        """What the session knows of the thread is acknowledged; after a reset it may know less than was."""
        acked = self._acked
        if session.told[: len(acked)] == acked:
            self._acked = list(session.told)
        elif acked[: len(session.told)] != session.told:
            self._world.fail(f"acknowledged turns lost or changed: {session.told}, acknowledged {acked}")
        else:
            self._world.note("knows less after a reset")
        if len({*self._acked}) < len(self._acked):
            self._world.fail(f"a message is in the thread twice: {self._acked}")

    def _tell_users(self, session: Session, result: TurnResult) -> None:
        """As the session workflow does at the end of a turn; every answer is where it is said to be."""
        inbox, entries = session.inbox, [*session.inbox.turn_entries, *session.told_apart]
        if len(inbox.turn_entries) + len(session.told_apart) > 1:
            inbox.put_back_alone([*result.dropped, *result.left])
        inbox.finish_turn(ask_result(result), answer=result.answer)
        session.told_apart = []
        if not result.dropped and not result.left and not inbox:
            session.thread.since = None
        for entry in entries:
            if isinstance(entry.result, AskResult):
                self._over.add(entry.message.id)
                self._check_answer(entry.message.id, entry.result)

    def _check_answer(self, message_id: str, told: AskResult) -> None:
        """The first answer behind the message, and of its turn."""
        if message_id not in self._acked:
            self._world.fail(f"{message_id} was told {told}, and is not in the thread")
        if told.answer is None:
            return
        at = self._acked.index(message_id)
        log, kinds = self._shop.log, list[str]()
        for each in self._acked[at + 1 : told.answer.position + 1]:
            link = log.link(each)
            kinds.append(link.message.kind if link is not None else "")
        spoken = "".join(kinds).lstrip(Kind.USER)
        if self._acked[told.answer.position] != told.answer.id or spoken.count(Kind.ANSWER) != 1:
            self._world.fail(f"{message_id} was told {told.answer}; the thread has {kinds} up to there")
        if Kind.USER in spoken:
            self._world.fail(f"{message_id} was told the answer of a later turn, {told.answer}")

    def _check_kept(self, session: Session) -> None:
        """What is acknowledged is archived, or the hot tier has it."""
        log, head = self._shop.log, session.thread.head
        archive = log.manifest(THREAD)
        archived = log.leads(head, archive.head) and archive.committed >= head.position
        hot = log.hot(THREAD)
        is_hot = hot is not None and log.leads(head, hot[0].head) and hot[0].committed >= head.position
        if (
            hot is not None
            and hot[0].head == head
            and [each.id for each in hot[1]] != session.told[hot[0].base.position :]
        ):
            self._world.fail(f"the hot thread holds other messages than were told, before {head}")
        if session.thread.handle.archived and self._shop.flush_each_step and not archived:
            self._world.fail(f"{head} was said to be archived; the archive stands at {archive.head}")
        if not archived and not is_hot:
            self._world.fail(f"{head} is neither hot nor archived")
        if not archived:
            self._world.note("turn answered while the archive was behind")
        data, committed = log.slice(archive), archive.committed
        if not archived and hot is not None:
            data, committed = hot[0].slice, hot[0].committed
        if len(session.told) == len(self._acked) == committed:
            self._check_turns(data)

    def _check_turns(self, data: bytes) -> None:
        turns = SessionRecord.model_validate_json(data).turns if data else 0
        if self._recount:
            # What a reset or a rewind takes back stays counted: it was paid for.
            self._uncounted, self._recount = turns - self._turns, False
        if turns != self._turns + self._uncounted:
            self._world.fail(f"the state counts {turns} turns, {self._turns} were answered")

    @property
    def _turns(self) -> int:
        return sum(1 for at in range(len(self._acked)) if self._ends_turn(at))

    async def _interrupted_turn(self, session: Session) -> bool:
        """A turn whose workflow ends at any moment of it; whether it was answered before that."""
        await self._send(session)
        messages = [entry.message for entry in self._group(session)]
        task = self._world.loop.create_task(self.turn(session).run(messages))
        before = session.thread.turns_run_again
        wake = self._world.loop.create_future()
        task.add_done_callback(partial(settle, wake))
        self._world.later(self._world.between(0.001, 1.0), partial(settle, wake))
        await wake
        if task.done():
            self._acknowledge(session, task.result(), before)
            return True
        task.cancel()
        await asyncio.wait([task])
        return False

    # -- ends

    async def _terminate(self, session: Session) -> Session:
        """Terminated in mid-turn: activities go on as zombies, nothing cleans up."""
        self._world.note("terminated")
        if not await self._interrupted_turn(session) and self._world.chance(self._world.rates.late_open):
            await self._late_open(session)
        return await self.next_execution(session)

    async def next_execution(self, session: Session) -> Session:
        """Nothing cleans up; another execution opens the thread."""
        self._older.append(session.saved())
        return await self._begin()

    async def _late_open(self, session: Session) -> None:
        """An open was under way, too."""
        request, epoch = session.thread.request, self._world.epoch()

        async def work(worker: Worker) -> object:
            return await worker.open(request)

        self.temporal.late("open*", work, epoch)

    async def _cancel(self, session: Session) -> Session:
        """Cancelled in mid-turn: the finaliser closes the epoch, late attempts are refused."""
        self._world.note("cancelled in mid-turn")
        if not await self._interrupted_turn(session):
            await self._finalise(session)
        self._older.append(session.saved())
        await self.idle()
        return await self._begin()

    async def _finalise(self, session: Session) -> None:
        calls, thread = SimCalls(self._world, self.temporal, session), session.thread
        try:
            is_behind = False
            if (heads := thread.to_open_first) is not None:
                self._world.note("opened again to end")
                opened = await open_session_thread(calls, build_reopen_request(thread, heads))
                thread.note_opened(opened.handle, thread.seed())
                # The open that was given up had been scheduled by a clock that was ahead: it may still land.
                is_behind = thread.handle.epoch < self._world.newest_open
            epoch = thread.handle.epoch
            await calls.flush(THREAD, epoch, closes=True)
        except ConflictError as error:
            self._world.note(f"final flush refused: {type(error).__name__}")
            return
        if not is_behind:
            archive = self._shop.log.manifest(THREAD)
            ids = self._shop.log.ids(archive.head)[: archive.committed]
            self._final = head_of(ids)
        await calls.evict(THREAD, epoch)

    async def _end(self, session: Session) -> Session:
        """Ended well: flushed and dropped from the hot tier."""
        self._world.note("ended")
        return await self.left(session)

    async def left(self, session: Session) -> Session:
        """Flushed and dropped from the hot tier; another execution opens the thread."""
        calls, epoch = SimCalls(self._world, self.temporal), session.thread.handle.epoch
        try:
            await calls.flush(THREAD, epoch, closes=False)
            await calls.evict(THREAD, epoch)
        except ConflictError as error:
            self._world.note(f"flush at the end refused: {type(error).__name__}")
        self._older.append(session.saved())
        await self.idle()
        return await self._begin()

    # -- resets and rewinds

    async def _reset(self, session: Session) -> Session:
        """Workflow reset: the variables of an earlier moment, the same owner; once or twice.

        The messages since then are applied again, and may meet in other turns than before.
        """
        world = self._world
        world.note("reset")
        if world.chance(0.6):
            # The step under way lives on.
            await self._zombie_turn(session)
        at = int(world.draw() * len(self._saved))
        saved = self._saved[at]
        self._saved = self._saved[: at + 1]
        waiting, *_ = saved.inbox.carry_over()
        inbox = Inbox([*waiting, *self._accepted[saved.accepted :]])
        # A turn that was aborted left nothing in the thread: its messages may be asked anew.
        self._over -= self._aborted & {*inbox.waiting}
        if at == 0 and world.chance(0.5):
            return await self._opened_again(session, inbox)
        self._session = replace(saved.saved(), inbox=inbox, accepted=len(self._accepted))
        # What was acknowledged before stays so.
        self._session.unarchived.update(session.unarchived)
        self._session.was_reset(self._new_run())
        return self._session

    def back_to(self, session: Session) -> Session:
        """The session as it is now, after a reset of the run that goes on from here."""
        self._session = session.saved()
        self._session.was_reset(self._new_run())
        return self._session

    async def _opened_again(self, session: Session, inbox: Inbox) -> Session:
        """The reset went back to before the first open."""
        self._world.note("reset to before the open")
        request = session.thread.request
        again, before = request.model_copy(update={"again": True}), session.unarchived
        calls = SimCalls(self._world, self.temporal, run=self._new_run())
        opened = await self._until_open(calls, again)
        session = self._opened(request, opened, inbox, calls.run)
        session.unarchived.update(before)
        session.thread.note_reset_point(0, 0)
        session.inbox.put_first(opened.under_way)
        if opened.suspended is not None:
            session = await self._people.take_up(session, opened.suspended)
        return session

    async def _zombie_turn(self, session: Session) -> None:
        await self._send(session)
        ghost = session.saved()
        ghost.is_undone = True
        messages = [entry.message for entry in self._group(ghost)]
        await self._world.interrupt(self._world.loop.create_task(self.turn(ghost).run(messages)), 0.1)

    async def _reset_of_an_older_execution(self, session: Session) -> None:
        """Another execution followed: this one must end, having touched nothing."""
        self._world.note("reset of an older execution")
        try:
            session.is_outdated = True
            messages = [UserMessage(id=f"u{self._world.unique()}", text="late")]
            await self.turn(session).run(messages)
        except FencedError:
            return
        except HelixError as error:
            self._world.note(f"older execution ended with {type(error).__name__}")
            return
        if (
            session.unarchived
            and self._world.seen["hot rolled back"] + self._world.seen["an old copy made hot"]
        ):
            return  # it wrote to an old copy, while the archive could not be asked
        self._world.fail("an execution wrote that another one had followed")

    async def _rewind(self, session: Session) -> Session:
        """An open with an earlier cut."""
        world, log = self._world, self._shop.log
        ends = [0, *(at + 1 for at, each in enumerate(self._acked) if self._ends_turn(at))]
        to = head_of(self._acked[: world.random.choice(ends)])
        world.note("rewound", f"to {to}")
        request = session.thread.request.model_copy(update={"mode": "continue", "rewind_to": to})
        self._session = None
        opened = await self._until_open(SimCalls(world, self.temporal, run=session.run), request)
        if opened.handle.head != to:
            world.fail(f"rewound to {to}, opened at {opened.handle.head}")
        self._acked, self._recount = log.ids(to), True
        rewound = self._opened(session.thread.request, opened, self._unknown(session.inbox), session.run)
        self._saved = [rewound.saved()]
        return rewound

    def _unknown(self, inbox: Inbox) -> Inbox:
        """Without messages that were in the thread, as nobody had been told, and are taken back."""
        waiting, *_ = inbox.carry_over()
        self._over.update(each.id for each in self._accepted if self._shop.log.link(each.id) is not None)
        return Inbox([each for each in waiting if self._shop.log.link(each.id) is None])

    def _ends_turn(self, at: int) -> bool:
        """Whether a turn ends with the acknowledged message at this position."""
        link = self._shop.log.link(self._acked[at])
        after = self._shop.log.link(self._acked[at + 1]) if at + 1 < len(self._acked) else None
        if link is None or link.message.kind in {Kind.USER, Kind.CALLS}:
            return False
        return after is None or after.message.kind == Kind.USER

    # -- others

    def _others(self) -> None:
        """Maintenance, readers, forks: beside the session, at any time."""
        what = self._world.random.choice(self._world.rates.beside_kinds)
        self._world.note(f"beside: {what}")
        getattr(self, f"_{what}")()

    def _read(self) -> None:
        self._world.spawn(self._reading())

    def _compact(self) -> None:
        async def work(worker: Worker) -> None:
            made = await worker.threads.upkeep.compact(THREAD)
            if made.segments_after < made.segments_before:
                self._world.note("compacted", made)

        self.temporal.background("compact", work)

    def _collect(self) -> None:
        # A fork's thread is collected from the start, so that it may lose what it copies again and again.
        fork = self._world.random.choice([*self._forks]) if self._forks else ""
        thread_id, age = (fork, -1.0) if fork and self._world.chance(0.4) else (THREAD, ABANDONED)

        async def work(worker: Worker) -> None:
            made = await worker.threads.upkeep.collect_garbage(thread_id, abandoned_after=age)
            if made.objects_deleted:
                self._world.note("garbage collected", made)

        self.temporal.background("collect", work)

    def _sweep(self) -> None:
        """Maintenance flushes with the hot thread's own epoch, and now and then drops what is archived."""
        evicts = self._world.chance(0.5)

        async def work(worker: Worker) -> None:
            header = await worker.threads.hot.read_header(THREAD)
            if header is not None and not header.deleted and not header.closed:
                await worker.threads.flush(FlushThread(THREAD, header.epoch))
                if evicts:
                    await worker.threads.evict(THREAD, header.epoch)

        self.temporal.background("sweep", work, refusals=(ConflictError, ThreadNotFoundError))

    def _fork(self) -> None:
        target, epoch = f"fork{len(self._forks)}", self._world.epoch()
        self._forks[target] = []
        ends = [at + 1 for at in range(len(self._acked)) if self._ends_turn(at)]
        at = self._world.random.choice(ends) if ends and self._world.chance(0.5) else None

        async def work(worker: Worker) -> None:
            facts = await worker.threads.fork(ForkThread(THREAD, target, epoch, "forker", at=at))
            if at is not None and facts.head.position != at:
                self._world.fail(f"fork at {at} stands at {facts.head}")
            self._forks[target] = self._shop.log.ids(facts.head)
            self._check_fork(target)

        self.temporal.background(
            "fork", work, refusals=(ConflictError, ThreadNotFoundError, InvalidRequestError)
        )

    def _check_fork(self, target: str) -> None:
        log, ids = self._shop.log, self._forks[target]
        manifest = log.manifest(target)
        messages = log.archive(manifest)
        if [message.id for message in messages] != ids or manifest.committed != len(ids):
            self._world.fail(f"fork {target} holds {len(messages)} messages, {len(ids)} expected")
        log.check_messages(messages)

    async def _reading(self) -> None:
        """A reader outside sees whole finished turns and nothing else."""
        world, worker = self._world, self.temporal.process().worker
        backward, start, stop = world.chance(0.5), 0, None
        for _ in range(1 + int(world.draw() * 5)):
            limit, size = 1 + int(world.draw() * 12), int(world.between(50, 5000))
            try:
                page = await worker.threads.read(ReadPage(THREAD, start, stop, limit, size, backward))
            except ThreadNotFoundError:
                return
            except HelixError as error:
                if not error.retryable:
                    world.fail(f"a reader got {error!r}")
                continue
            world.note("page read")
            self._shop.log.check_page(page, backward=backward)
            if backward and page.before is not None:
                stop = page.before
            elif not backward and page.after is not None:
                start = page.after
            else:
                return

    # -- memory that fails

    def _mischief(self) -> None:
        luck, rates = self._world.draw(), self._world.rates
        if luck < rates.snapshot:
            self._snapshots = [*self._snapshots, self._shop.hot.inner.backup()][-4:]
        elif luck > 1 - rates.wipe and self._may_forget():
            self._world.note("hot wiped")
            self._shop.hot.inner.wipe()
        elif luck > 1 - 2 * rates.wipe and self._snapshots and self._may_forget():
            self._world.note("hot rolled back")
            self._shop.hot.inner.restore(self._world.random.choice(self._snapshots))

    def _may_forget(self) -> bool:
        """Nothing acknowledged is in the hot tier alone: then its loss must not be noticed.

        A step on its way may still come to be acknowledged as not archived; what of it is lost here
        is remembered, since no promise covers both stores failing at once.
        """
        log, session = self._shop.log, self._session
        archive, hot = log.manifest(THREAD), log.hot(THREAD)
        if session is None or archive.committed < len(self._acked):
            return False
        if not log.leads(head_of(session.told), archive.head):
            return False
        told, base = len(session.told), hot[0].base.position if hot else 0
        beyond = hot[1][max(archive.head.position - base, 0) :] if hot else ()
        if beyond and self._shop.is_archive_down():
            return False
        self._at_risk.update(message.id for message in (hot[1][max(told - base, 0) :] if hot else ()))
        return True

    # -- judgement

    def _judge(self) -> None:
        log = self._shop.log
        archive = log.manifest(THREAD)
        messages = log.archive(archive)
        ids = [message.id for message in messages]
        if ids != self._acked or archive.committed != len(ids):
            self._world.fail(f"archive {ids} committed {archive.committed}, acknowledged {self._acked}")
        log.check_messages(messages)
        self._check_turns(log.slice(archive))
        hot = log.hot(THREAD)
        if hot is not None and hot[0].epoch == archive.epoch and hot[0].head != archive.head:
            self._world.fail(f"hot {hot[0].head} after the open, archive {archive.head}")
        for target, fork in self._forks.items():
            if fork:
                self._check_fork(target)

    async def _delete(self, session: Session) -> None:
        """Deleted for good: nothing late revives it."""
        self._world.note("deleted")
        await self._zombie_turn(session)
        epoch = self._world.epoch() + 1_000_000

        async def work(worker: Worker) -> None:
            await worker.threads.delete(THREAD, epoch)

        await self.temporal.activity("delete", work)
        await asyncio.sleep(25.0)
        if not self._shop.log.manifest(THREAD).deleted:
            self._world.fail("the thread was deleted, and is there")
