"""A worker as the session worker builds it, over stores that fail."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.activities import Payloads, SessionActivities, StepLimits, Stepper, ToolRunner
from helix_temporal.agents import (
    Agent,
    AgentRegistry,
    ContextPolicy,
    Tool,
    ToolContext,
    ToolOutcome,
    client_tool,
)
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import KeepHot, TieredThreads
from helix_temporal.coldtier.format import Layout
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, ToolInput, ToolResult
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.threads import Progress, no_progress
from tests.simulation._blobs import SimBlobs
from tests.simulation._hot import SimHot
from tests.simulation._log import Log
from tests.simulation._world import World, attempt_of

STEP_SECONDS = 0.5
TOOLS = ("look", "look", "look", "moody", "person", "unknown")
INLINE_RESULT = 60
HOLDING_LITTLE = KeepHot(archived_bytes=300, messages=5)


class Moody:
    """A model that answers differently each time it is asked."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """An answer, or a wish for tools, after a while."""
        world = self._world
        world.note("model called", request.step_key)
        for _ in range(1 + int(world.draw() * 3)):
            await world.boundary()
        text = world.random.randbytes(int(10 + 60 * world.draw())).hex()
        steps = next((n for n, each in enumerate(reversed(request.messages)) if each.role == "user"), 0)
        if world.draw() < 0.35 and steps < 9:
            calls = tuple(
                ToolCall(
                    id=f"call{n}",
                    name=world.random.choice(("look", "look", "look", "moody", "person", "unknown")),
                )
                for n in range(1 + int(world.draw() * 2.5))
            )
            return ModelResponse(content=text[:20], tool_calls=calls)
        return ModelResponse(content=text)


@dataclass(slots=True)
class Shop:
    """The stores that all workers share, and what a look into them tells."""

    world: World
    hot: SimHot
    blobs: SimBlobs
    log: Log
    agents: AgentRegistry
    flush_each_step: bool = True
    _workers: list["Worker"] = field(default_factory=list)

    @staticmethod
    def build(
        world: World, *, flush_each_step: bool = True, strict: bool = True, conditional: bool = True
    ) -> "Shop":
        """Empty stores."""
        memory, blobs, layout = MemoryThreads(clock=world.loop.time), MemoryBlobs(world.loop.time), Layout("")
        log = Log(world, memory, blobs, layout, strict=strict)
        agent = Agent(
            name="a",
            model=Moody(world),
            tools=[_tool(world, "look"), _tool(world, "moody"), client_tool("person")],
            context=ContextPolicy(max_messages=8, max_bytes=2000),
            max_steps=6,
            parallel_tools=world.chance(0.7),
        )
        hot = SimHot(world, memory, log)
        store = SimBlobs(world, blobs, log, conditional=conditional)
        return Shop(world, hot, store, log, AgentRegistry([agent]), flush_each_step)

    def worker(self) -> "Worker":
        """A worker that has just been started."""
        worker = Worker(self)
        self._workers.append(worker)
        return worker

    def is_archive_down(self) -> bool:
        """The object store is, or a worker believes so."""
        believed = any(each.threads._flushing.breaker.is_open for each in self._workers[-6:])
        return self.blobs.down_until > self.world.loop.time() or believed


class Worker:
    """What one worker process holds."""

    def __init__(self, shop: Shop) -> None:
        self.threads = TieredThreads(
            shop.hot,
            shop.blobs,
            keep_hot=HOLDING_LITTLE if shop.world.seed % 2 else None,
            clock=shop.world.loop.time,
            step_seconds=STEP_SECONDS,
        )
        self.payloads = payloads = Payloads(self.threads.payloads)
        self.stepper = Stepper(
            self.threads, shop.agents, payloads, StepLimits(), flush_each_step=shop.flush_each_step
        )
        self.sessions = SessionActivities(self.threads, shop.agents, self.stepper, CallPolicy(), payloads)
        self.tools = ToolRunner(self.threads, payloads, inline_result=INLINE_RESULT)
        self.agent, self._log = shop.agents.get_agent("a"), shop.log

    async def open(self, request: OpenSessionInput) -> OpenSessionResult:
        """The activity ``helix.sessions.open`` with its errors as they are."""
        unwrapped: Any = SessionActivities.open.__wrapped__  # type: ignore[attr-defined]
        before = self._log.manifest(request.thread_id)
        opened: OpenSessionResult = await unwrapped(self.sessions, request)
        if request.reopen is not None:
            self._log.check_reopened(request.reopen, before, scheduled_epoch())
        return opened

    async def run_tool(self, request: ToolInput) -> ToolResult:
        """The activity of a tool."""
        tool = self.agent.find_tool(request.tool)
        assert tool is not None
        return await self.tools.run(tool, request)


def _tool(world: World, name: str) -> Tool:
    async def handler(arguments: object, context: ToolContext) -> ToolOutcome:
        await world.boundary()
        text = world.random.randbytes(int(4 + 60 * world.draw())).hex()
        if name == "look":
            return ToolOutcome(content=text)
        return ToolOutcome(content=text, rewind=world.chance(0.3), wait=world.chance(0.3))

    return Tool(name=name, description="", parameters={"type": "object", "properties": {}}, handler=handler)


def scheduled_epoch() -> int:
    """Stands in for the time at which Temporal scheduled an activity."""
    attempt = attempt_of.get()
    assert attempt is not None
    return attempt.epoch


def current_attempt() -> int:
    """Stands in for the number of an attempt, from 1 on."""
    attempt = attempt_of.get()
    return 1 if attempt is None else attempt.number


def workflow_run() -> str:
    """Stands in for the workflow run whose activity this is."""
    attempt = attempt_of.get()
    return "" if attempt is None else attempt.run


@asynccontextmanager
async def beating(every: float) -> AsyncIterator[Progress]:
    """Stands in for heartbeats."""
    yield no_progress
