"""One session's own workflow code under seeded callers, over a thread that is a list: no server, no worker.

The simulator beside this plays turns over real stores.  Here the stores are simple, and what is drawn is who
asks, sends, answers, stops, closes and cancels, and when.
"""

import asyncio
import heapq
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from helix_temporal.errors import AgentNotServedError, ColdTierBehindError, FencedError, HeadMovedError
from helix_temporal.models.agents import AgentFacts, ToolFacts
from helix_temporal.models.ids import ASK_AGAIN
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import (
    Answered,
    AnswerRef,
    AskResult,
    AskStatus,
    CallPolicy,
    OpenHandle,
    SessionInput,
    SessionOptions,
    StopRequest,
    SubmitReply,
    SuspendedTurn,
    UserMessage,
)
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionInput,
    OpenSessionResult,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    SaveValuesResult,
    ToolResult,
)
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.threads import EvictThreadResult, FlushThreadInput, FlushThreadResult
from helix_temporal.models.waiting import SubmitInput, WaitingCall
from helix_temporal.session.pending_calls import SubAgentCalls
from helix_temporal.workflows import session as _session
from helix_temporal.workflows.calls import RollOuts
from helix_temporal.workflows.sub_agents import SubAgents
from tests.simulation._loop import SimLoop, StuckError

ASKED = 0.1
"""Virtual seconds after which an ask is let go."""
LAST = 300.0
"""Virtual seconds in which everybody has to be told once nobody disturbs the session any more."""


class WorkflowLoop(SimLoop):
    """As the SDK's: in the order of arrival, and conditions are looked at once nothing is ready."""

    def __init__(self, draws: random.Random) -> None:
        super().__init__(draws)
        self._conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    async def wait_condition(
        self, holds: Callable[[], bool], *, timeout: float | None = None, **_: object
    ) -> None:
        """As `workflow.wait_condition`."""
        future: asyncio.Future[None] = self.create_future()
        self._conditions.append((holds, future))
        await asyncio.wait_for(future, timeout)

    def forget(self) -> None:
        """The run is over: nobody looks at its conditions any more."""
        self._conditions = []

    def _run_one(self) -> None:
        if not self._ready:
            self._look()
        if not self._ready:
            if not self._timers:
                raise StuckError("nothing is left to run")
            self._now = max(self._now, self._timers[0][0])
            while self._timers and self._timers[0][0] <= self._now:
                self._ready.append(heapq.heappop(self._timers)[2])
        handle = self._ready.pop(0)
        if handle.is_cancelled:
            return
        self._left -= 1
        if self._left < 0:
            raise StuckError("the run does not end")
        handle.context.run(handle.callback, *handle.args)

    def _look(self) -> None:
        waiting = [(holds, future) for holds, future in self._conditions if not future.done()]
        for holds, future in waiting:
            if holds():
                future.set_result(None)
        self._conditions = [each for each in waiting if not each[1].done()]


class _MoveError(BaseException):
    """Continue as new."""

    def __init__(self, further: SessionInput) -> None:
        self.further = further


class _ToTheEnd(asyncio.Future[Any]):
    """An activity that ends in its own time, whoever cancels it."""

    def cancel(self, *_: object, **__: object) -> bool:
        return False


@dataclass
class Shelf:
    """The thread, and what the stores say of it.

    Attributes:
        messages: Ids of all messages.
        committed: How many of them belong to turns that are over.
        waits: Messages of the turn whose call it is, by the call's id.
        away: The archive is too far behind for a new turn.
        lacks_agent: The worker version has no such agent: nothing is opened.
        under_way, start: The turn that is not over.
    """

    draws: random.Random
    messages: list[str] = field(default_factory=list)
    committed: int = 0
    epoch: int = 0
    away: bool = False
    lacks_agent: bool = False
    under_way: tuple[str, ...] = ()
    start: Head = field(default_factory=lambda: Head(position=0, last_id=""))
    suspended: SuspendedTurn | None = None
    waits: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def head(self) -> Head:
        """Where it stands."""
        return Head(position=len(self.messages), last_id=self.messages[-1] if self.messages else "")

    async def pause(self, seconds: float = 0.01) -> None:
        """As long as the network takes."""
        await asyncio.sleep(self.draws.random() * seconds)

    def check(self, epoch: int, head: Head) -> None:
        """As the stores do.

        Raises:
            FencedError, HeadMovedError: The caller is late.
        """
        if epoch != self.epoch:
            raise FencedError("another epoch", owner=1)
        if head != self.head:
            raise HeadMovedError("elsewhere")

    def flushed(self) -> FlushThreadResult:
        """What a flush says."""
        counts = dict.fromkeys(("version", "segments", "puts", "gets", "uploaded", "pending_bytes"), 0)
        status = "unavailable" if self.away else "archived"
        return FlushThreadResult.model_validate(
            {"status": status, "head": self.head, "committed": self.committed, **counts}
        )


class ShelfCalls:
    """`TemporalCalls` over a shelf."""

    def __init__(self, shelf: Shelf, parent: None, calls: SubAgentCalls) -> None:
        self._shelf, self.policy, self.roll_outs = shelf, CallPolicy(), RollOuts()
        self.children = SubAgents(parent, calls, MagicMock(), lambda each: each)

    def new_id(self) -> str:
        return f"{next(self._shelf.numbers):032x}"

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        shelf = self._shelf
        await shelf.pause()
        if shelf.lacks_agent and request.reopen is None:
            raise AgentNotServedError("no such agent", retry_for_ms=600_000, known="none")
        shelf.epoch = next(shelf.numbers)
        kept = shelf.suspended
        if kept is None or kept.head != shelf.head or request.reopen is not None:
            del shelf.messages[shelf.committed :]
            kept = shelf.suspended = None
        facts = AgentFacts(name="a", tools=(ToolFacts(name="plain", activity="a"),))
        waits: dict[str, Any] = {} if kept is None else {"suspended": kept}
        return OpenSessionResult(
            handle=OpenHandle(epoch=shelf.epoch, head=shelf.head),
            facts=facts,
            policy=CallPolicy(),
            created=not shelf.messages,
            **waits,
        )

    async def run_step(self, request: RunStepInput) -> RunStepResult:
        shelf = self._shelf
        await shelf.pause()
        shelf.check(request.epoch, request.head)
        users = [each.id for each in request.inputs if each.call is None]
        known = tuple(each for each in users if each in shelf.messages)
        fresh = [each.id for each in request.inputs if each.id not in known]
        at = AnswerRef(position=0, id="x")
        before: dict[str, Any] = {"dropped": known, "answers": tuple(_answered(each, at) for each in known)}
        if not fresh:
            return RunStepResult(head=request.head, answer=at, **before)
        if users and shelf.away:
            raise ColdTierBehindError("the archive must come back first")
        await shelf.pause()
        shelf.check(request.epoch, request.head)
        if users:
            shelf.under_way, shelf.start = tuple(each for each in users if each not in known), request.head
        answer = f"a{next(shelf.numbers)}"
        shelf.messages += [*fresh, answer]
        result: dict[str, Any] = {"head": shelf.head, "archived": not shelf.away, **(before if known else {})}
        kind = shelf.draws.choice(("answer", "answer", "tool", "wait"))
        if kind == "answer":
            shelf.committed, shelf.suspended = len(shelf.messages), None
            return RunStepResult(text=",".join(shelf.under_way), **result)
        calls = tuple(
            ToolCall(id=f"c{at}", name="plain", arguments={}) for at in range(shelf.draws.choice((1, 2)))
        )
        if kind == "tool":
            return RunStepResult(calls=calls, **result)
        wait = WaitingCall(id=f"w-{answer}", since=int(asyncio.get_running_loop().time() * 1000))
        shelf.waits[wait.id] = shelf.under_way
        shelf.suspended = SuspendedTurn(
            head=shelf.head,
            start=shelf.start,
            run_id=request.run_id,
            messages=tuple(UserMessage(id=each, text="x") for each in shelf.under_way),
            calls=calls,
            waiting=(wait,),
        )
        return RunStepResult(calls=calls, waiting=(wait,), **result)

    async def end_turn(self, request: EndTurnInput) -> RunStepResult:
        shelf = self._shelf
        await shelf.pause()
        shelf.check(request.epoch, request.head)
        shelf.messages += [each.id for each in request.inputs]
        shelf.committed, shelf.suspended = len(shelf.messages), None
        return RunStepResult(head=shelf.head)

    async def load_answer(self, *_: object) -> None:
        await self._shelf.pause()

    async def run_tool(self, *_: object) -> ToolResult:
        await self._shelf.pause(0.02)
        return ToolResult(text="ok")

    async def try_flush(self, _: FlushThreadInput) -> FlushThreadResult:
        await self._shelf.pause()
        return self._shelf.flushed()

    def start_open(self, request: OpenSessionInput) -> _ToTheEnd:
        return _started(self.open(request))

    def start_save(self, request: SaveValuesInput) -> _ToTheEnd:
        async def save() -> SaveValuesResult:
            shelf = self._shelf
            await shelf.pause()
            if request.outcomes is not None and shelf.suspended is not None:
                shelf.suspended = shelf.suspended.model_copy(update={"outcomes": request.outcomes})
            return SaveValuesResult(version=1)

        return _started(save())

    def start_flush(self, request: FlushThreadInput) -> _ToTheEnd:
        async def flush() -> FlushThreadResult:
            await self._shelf.pause()
            if request.closes:
                self._shelf.epoch = -1
            return self._shelf.flushed()

        return _started(flush())

    def start_evict(self, _: object) -> _ToTheEnd:
        async def evict() -> EvictThreadResult:
            await self._shelf.pause()
            return EvictThreadResult(outcome="dropped")

        return _started(evict())


def _answered(message_id: str, at: AnswerRef) -> Answered:
    return Answered(message_id=message_id, answer=at)


def _started(work: Coroutine[Any, Any, object]) -> _ToTheEnd:
    done = _ToTheEnd()
    asyncio.ensure_future(work).add_done_callback(lambda task: done.set_result(task.result()))
    return done


class Stage:
    """A session in one execution after the other, and those who call it.

    Attributes:
        seen: What happened, counted.
        wrong: What must not have happened.
    """

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)
        self.loop = WorkflowLoop(self.draws)  # type: ignore[abstract]
        self.shelf = Shelf(self.draws)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._handlers: dict[str, Any] = {}
        self._open = 0
        # Another worker version is to serve the session: the next execution is on that.
        self._is_outdated = False
        # Draws of their own: those of the others stay as they are.
        self._versions = random.Random(f"versions {seed}")
        self._is_versioned = False
        self._run: asyncio.Task[object] | None = None
        self._named: set[str] = set()
        self._asks: dict[str, asyncio.Task[AskResult]] = {}
        self._again: list[tuple[str, asyncio.Task[AskResult]]] = []
        self._sends: dict[str, asyncio.Task[None]] = {}
        self._submits: list[tuple[str, asyncio.Task[SubmitReply]]] = []
        options: dict[str, Any] = {
            "idle_timeout": self.draws.choice((0.02, 0.05, 5.0)),
            "suspend": self.draws.choice(("wait", "exit")),
            "while_suspended": self.draws.choice(("queue", "supersede")),
        }
        if self.draws.random() < 0.4:
            options["max_turns_per_run"] = self.draws.choice((1, 2))
        self._options = SessionOptions(**options)

    # -- the workflow

    @contextmanager
    def set_up(self) -> Iterator[None]:
        """The session's code finds this stage where Temporal is."""
        version = SimpleNamespace(deployment_name="d", build_id="b")
        info = SimpleNamespace(
            first_execution_run_id="r",
            run_id="r",
            continued_run_id=None,
            parent=None,
            workflow_id="w",
            is_continue_as_new_suggested=lambda: False,
            original_execution_run_id="r",
            get_current_deployment_version=lambda: version if self._is_versioned else None,
            is_target_worker_deployment_version_changed=lambda: self._is_outdated,
        )
        temporal: dict[str, Any] = {
            "wait_condition": self.loop.wait_condition,
            "now": lambda: datetime.fromtimestamp(self.loop.time(), UTC),
            "all_handlers_finished": lambda: not self._open,
            "in_workflow": lambda: True,
            "random_seed": lambda: 7,
            "uuid4": lambda: SimpleNamespace(hex=f"{next(self.shelf.numbers):032x}"),
            "info": lambda: info,
            "wait": asyncio.wait,
            "logger": logging.getLogger("tests.handlers"),
            "metric_meter": MagicMock(),
            "continue_as_new": _move,
            "set_query_handler": self._handlers.__setitem__,
            "set_signal_handler": self._handlers.__setitem__,
            "set_update_handler": lambda name, handler, **_: self._handlers.__setitem__(name, handler),
        }
        logging.getLogger("tests.handlers").setLevel(logging.CRITICAL)
        with (
            patch.multiple(workflow, **temporal),
            patch.object(_session, "TemporalCalls", lambda _, *others: ShelfCalls(self.shelf, *others)),
            patch.object(_session, "_FLUSH_AGAIN", 0.05),
            patch.object(_session, "ASK_SECONDS", ASKED),
        ):
            yield

    @property
    def _alive(self) -> bool:
        return self._run is not None and not self._run.done()

    def _start(self, start: SessionInput) -> None:
        self._handlers.clear()
        self._is_outdated = False
        self.loop.forget()
        if start.unopened is not None:
            self.shelf.lacks_agent = False
            self.seen["moved, not open"] += 1
        session = _session.AgentSession(start)
        self._run = asyncio.create_task(self._life(session))
        self.seen["executions"] += 1

    async def _life(self, session: _session.AgentSession) -> None:
        try:
            await session.run()
        except _MoveError as moved:
            self._over()
            self._start(moved.further)
        except asyncio.CancelledError:
            self._over()
            self.seen["cancelled"] += 1
        else:
            self._over()

    def _over(self) -> None:
        if self._open:
            self.wrong.append("the execution ended before a handler")
        for receipt in self._handlers["status"]().receipts:
            if receipt.name == "sent":
                self._named.update(receipt.detail.split(": ", 1)[1].split(", "))

    async def _call(self, name: str, *arguments: object) -> Any:
        """As a client does: again while the execution ends, or moves."""
        while True:
            if not self._alive:
                self._start(SessionInput(session_id="s", agent="a", options=self._options))
            handler = self._handlers[name]
            self._open += 1
            try:
                result = handler(*arguments)
                return await result if asyncio.iscoroutine(result) else result
            except ApplicationError as refused:
                if refused.type != ASK_AGAIN:
                    raise
            finally:
                self._open -= 1
            self.seen["moved"] += 1
            await asyncio.sleep(0.002)

    # -- those who call it

    async def play(self) -> None:
        """Disturb the session for a while, then let everybody be told; judge that."""
        self._is_versioned = self.shelf.lacks_agent = self._versions.random() < 0.25
        version_step = self._versions.randrange(10)
        for step in range(self.draws.choice((6, 12, 20))):
            if self.shelf.lacks_agent and step == version_step:
                self._is_outdated = True
            self._disturb(step, self.draws.random())
            await self.shelf.pause(0.02)
        self.shelf.away = self.shelf.lacks_agent = False
        try:
            async with asyncio.timeout(LAST):
                while self._untold():
                    await self._answer_all()
                    await asyncio.sleep(0.02)
                while self._alive and self._run is not None:
                    self._run.cancel()
                    await asyncio.wait([self._run])
        except TimeoutError:
            self.wrong.append(f"not told, or not done: {self._untold() or 'the execution'}")
        self._judge()

    def _disturb(self, step: int, luck: float) -> None:
        message = UserMessage(id=f"m{step}", text="x")
        if luck < 0.07 and self._asks:
            # Its client lost the connection, or another one has it, too.
            name = self.draws.choice(list(self._asks))
            ask = self._call("ask", UserMessage(id=name, text="x"))
            self._again.append((name, asyncio.create_task(ask)))
        elif luck < 0.35:
            self._asks[message.id] = asyncio.create_task(self._call("ask", message))
        elif luck < 0.5:
            self._sends[message.id] = asyncio.create_task(self._call("send_message", message))
        elif luck < 0.78 and self.shelf.waits:
            call = self.draws.choice(list(self.shelf.waits)[-2:])
            waits: dict[str, Any] = {"wait": True} if self.draws.random() < 0.7 else {}
            request = SubmitInput(call=call, by=f"b{step}", text="r", **waits)
            self._submits.append((call, asyncio.create_task(self._call("submit_tool_result", request))))
        elif luck < 0.84:
            self.shelf.away = not self.shelf.away
        elif self._alive and self._run is not None:
            self._stop(luck)

    def _stop(self, luck: float) -> None:
        if luck < 0.88:
            task = asyncio.create_task(self._call("stop", StopRequest(mode="interrupt")))
        elif luck < 0.91:
            self.seen["aborted"] += 1
            task = asyncio.create_task(self._call("stop", StopRequest(mode="abort")))
        elif luck < 0.94:
            task = asyncio.create_task(self._call("close"))
        elif luck < 0.97 and self._run is not None:
            self._run.cancel()
            return
        else:
            self._is_outdated = True
            self.seen["outdated"] += 1
            return
        task.add_done_callback(lambda done: done.result())

    async def _answer_all(self) -> None:
        for each in self._pending():
            await self._call("submit_tool_result", SubmitInput(call=each, by="end", text="r"))

    def _pending(self) -> list[str]:
        return [each.id for each in self._handlers["status"]().pending] if self._alive else []

    def _untold(self) -> list[str]:
        tasks: dict[str, asyncio.Task[Any]] = {**self._asks, **self._sends}
        untold = [name for name, task in tasks.items() if not task.done()]
        untold += [name for name, task in (*self._submits, *self._again) if not task.done()]
        if self._alive:
            status = self._handlers["status"]()
            untold += [f"{status.waiting} wait"] if status.waiting or status.run_id else []
        return untold + self._pending()

    # -- what is promised

    def _judge(self) -> None:
        thread = self.shelf.messages
        for name, ask in (*self._asks.items(), *self._again):
            if ask.done():
                self._judge_ask(name, ask.result())
        for name in self._sends:
            # Who stops a turn at once takes its messages back.
            if name not in thread and name not in self._named and not self.seen["aborted"]:
                self.wrong.append(f"{name} was sent, and is neither in the thread nor in a receipt")
            self.seen["sent, and named"] += name in self._named
        for call, submit in self._submits:
            if submit.done() and submit.result().result is not None:
                self._judge_reply(call, submit.result())
        self.wrong += [
            f"{name} is in the thread twice" for name, times in Counter(thread).items() if times > 1
        ]

    def _judge_ask(self, name: str, told: AskResult) -> None:
        self.seen[f"ask {told.status}"] += 1
        if told.status is not AskStatus.ANSWERED:
            return
        if name not in self.shelf.messages[: self.shelf.committed]:
            self.wrong.append(f"{name} was answered, and is not in the thread")
        if told.text and name not in told.text.split(","):
            self.wrong.append(f"{name} was told the answer to {told.text}")

    def _judge_reply(self, call: str, reply: SubmitReply) -> None:
        told = reply.result
        assert told is not None
        self.seen[f"submit {told.status}"] += 1
        asked = self.shelf.waits[call]
        if told.status is AskStatus.ANSWERED and told.text and not {*asked} & {*told.text.split(",")}:
            self.wrong.append(f"who answered a call for {asked} was told the answer to {told.text}")


def _move(further: SessionInput, **_: object) -> None:
    raise _MoveError(further)


def simulate_handlers(seed: int) -> Stage:
    """Play one seed."""
    stage = Stage(seed)
    with stage.set_up():
        try:
            stage.loop.run(stage.play())
        except StuckError as stuck:
            stage.wrong.append(str(stuck))
    return stage
