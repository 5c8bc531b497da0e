"""The workflow's side: `Calls` on simulated Temporal, and what the workflow knows of the thread."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from helix_temporal.activities.payloads import FAR
from helix_temporal.errors import NotServedError
from helix_temporal.models.agents import AgentFacts, ToolFacts
from helix_temporal.models.sessions import OpenHandle
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    ToolInput,
    ToolResult,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.session.inbox import Entry, Inbox
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushThread
from helix_temporal.workflows.opening import CurrentThread
from tests.simulation._temporal import Temporal
from tests.simulation._worker import Worker
from tests.simulation._world import World

THREAD = "s"


@dataclass
class Session:
    """What one execution holds; its variables survive everything.

    Attributes:
        ids: Ids of all messages up to a head, by what was ever appended.
        inbox: Messages that wait for a turn, and those of the turn under way.
        accepted: How many messages users had sent until now.
        told: Ids of the messages that it knows to be in the thread.
        run: The workflow run that it is; a reset and a continue-as-new begin another one.
        is_outdated: Another execution has followed.
        is_undone: It will be reset; what it has under way lives on.
        untold: Ids that it knew once, and that were taken back.
        told_apart: Messages of the turn under way that were answered before, and told so.
        unarchived: Last ids of steps that were acknowledged while the archive did not have them.
    """

    thread: CurrentThread
    ids: Callable[[Head], list[str]]
    inbox: Inbox = field(default_factory=Inbox)
    accepted: int = 0
    told: list[str] = field(default_factory=list)
    run: str = ""
    is_outdated: bool = False
    is_undone: bool = False
    untold: set[str] = field(default_factory=set)
    unarchived: set[str] = field(default_factory=set)
    told_apart: list[Entry] = field(default_factory=list)

    def was_reset(self, run: str) -> None:
        """The server begins another run, with another seed."""
        self.thread.seed_before, self.run = None, run

    def saved(self) -> "Session":
        """As of now, for a later reset."""
        thread = self.thread
        known = CurrentThread(
            thread.request, thread.handle, thread.facts, since=thread.since, seed_before=thread.seed_before
        )
        copy = Session(known, self.ids, Inbox(*self.inbox.carry_over()), self.accepted, list(self.told))
        copy.unarchived, copy.untold, copy.run = set(self.unarchived), set(self.untold), self.run
        return copy

    def learn(self, request: RunStepInput | EndTurnInput, result: RunStepResult) -> None:
        """A step was acknowledged to the workflow."""
        if not result.archived:
            self.unarchived.add(result.head.last_id)
        apart = {*result.dropped, *result.left}
        inputs = [each.id for each in request.inputs if each.id not in apart]
        answer = [result.head.last_id] if inputs and isinstance(request, RunStepInput) else []
        told = [*self.ids(request.head), *inputs, *answer]
        self.untold.update({*self.told} - {*told})
        self.told = told


class SimCalls:
    """`Calls` of one execution."""

    def __init__(
        self, world: World, temporal: Temporal, session: Session | None = None, run: str = ""
    ) -> None:
        self._world, self._temporal, self.session = world, temporal, session
        self.run = run if session is None else session.run

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """One open activity: its epoch is when it was scheduled."""
        epoch = self._world.epoch()
        self._world.say(
            f"open scheduled e{epoch % 10**9} {request.owner} reopen {request.reopen} "
            f"rewind {request.rewind_to}"
        )

        self._world.newest_open = max(self._world.newest_open, epoch)
        if self.session is not None and self.session.is_outdated:
            self._world.reset_epochs.add(epoch)
        if self.session is not None and self.session.is_undone:
            self._world.undone_epochs.add(epoch)

        async def work(worker: Worker) -> OpenSessionResult:
            return await worker.open(request)

        if self._world.chance(self._world.rates.late_double):
            self._temporal.late("open*", work, epoch, self.run)
        return await self._temporal.activity("open", work, epoch, self.run)

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        """One step."""
        inputs = [each.id for each in request.inputs]
        self._world.say(f"step scheduled at {request.head} e{request.epoch % 10**9} {inputs}")

        async def work(worker: Worker) -> RunStepResult:
            return await worker.stepper.run(request)

        return self._told(request, await self._temporal.activity("step", work, run=self.run))

    async def put_text(self, message_id: str, text: str) -> str:
        """What a client does with a message that it sends by reference."""

        async def work(worker: Worker) -> str:
            return await worker.payloads.put(THREAD, FAR, f"text/{message_id}", text)

        return await self._temporal.activity("put_text", work, run=self.run)

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        """The end of a turn without an answer."""

        async def work(worker: Worker) -> RunStepResult:
            return await worker.stepper.end_turn(request)

        return self._told(request, await self._temporal.activity("end_turn", work, run=self.run))

    def _told(self, request: RunStepInput | EndTurnInput, result: RunStepResult) -> RunStepResult:
        if self.session is not None:
            self.session.learn(request, result)
        self._world.say(
            f"step acknowledged {result.head} archived {result.archived} slice {result.slice_version}"
        )
        return result

    async def run_tool(self, facts: ToolFacts, request: ToolInput) -> ToolResult:
        """One tool."""

        async def work(worker: Worker) -> ToolResult:
            return await worker.run_tool(request)

        return await self._temporal.activity("tool", work, run=self.run)

    async def agent_facts(self, request: AgentFactsInput) -> AgentFacts:
        """No worker has the tool: the model made it up, and all workers have the same agents."""
        await self.pause(60)
        raise NotServedError(f"agent {request.agent!r} has no tool {', '.join(request.tools)}")

    async def pause(self, seconds: float) -> None:
        """A timer."""
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        """A message id."""
        return f"m{self._world.unique()}"

    # -- what the session workflow does around its turns

    async def flush(self, thread_id: str, epoch: int, *, closes: bool) -> FlushReceipt:
        """Archive."""

        async def work(worker: Worker) -> FlushReceipt:
            return await worker.threads.flush(FlushThread(thread_id, epoch, closes=closes))

        return await self._temporal.activity("flush", work, run=self.run)

    async def evict(self, thread_id: str, epoch: int) -> str:
        """Drop the hot thread."""

        async def work(worker: Worker) -> str:
            return await worker.threads.evict(thread_id, epoch)

        if self._world.chance(0.2):
            self._temporal.late("evict*", work)
        return await self._temporal.activity("evict", work, run=self.run)


def resumed(session: Session, handle: OpenHandle, run: str) -> Session:
    """The session after continue-as-new: a new run with the same handle."""
    thread = session.thread
    known = CurrentThread(thread.request, handle, thread.facts, since=thread.since, seed_before=None)
    return replace(session, thread=known, run=run, inbox=Inbox(*session.inbox.carry_over()))


def head_of(ids: list[str]) -> Head:
    """The head of a thread of these messages."""
    return Head(position=len(ids), last_id=ids[-1] if ids else "")
