"""The tools of one step: run side by side or one after the other, results in call order."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

from temporalio.exceptions import ActivityError

from helix_temporal.errors import HelixError
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.messages import ToolCall, Usage, why_not_run
from helix_temporal.models.steps import AgentFactsInput, RunStepResult, StepInput, ToolInput, ToolResult
from helix_temporal.models.suspensions import AnsweredCall, ChildWait
from helix_temporal.workflows._calls import Calls, ToolFailedError, heeding
from helix_temporal.workflows._conversation import Conversation, present
from helix_temporal.workflows._sleepers import Sleepers
from helix_temporal.workflows._waits import Waits

_ADDED: Final = "tools-added-since"
_NOBODY: Final[Mapping[int, AnsweredCall]] = MappingProxyType({})


class Step(Protocol):
    """The calls of a step, as far as they have results."""

    @property
    def sleepers(self) -> Sleepers:
        """Sub-agents among them that wait for people."""
        ...

    def to_run(self) -> list[int]:
        """Those that may run now."""
        ...

    def found(self, at: int, result: ToolResult) -> None:
        """One has its result."""
        ...


class ToolCalls:
    """Runs the tools of one turn's steps.

    Args:
        number: The turn's.
        step: Number of its newest step.

    Attributes:
        usage: What the tools used of models.
    """

    def __init__(
        self, calls: Calls, conversation: Conversation, number: int, step: Callable[[], int]
    ) -> None:
        self._calls, self._talk, self._number, self._step = calls, conversation, number, step
        self.usage = Usage()

    async def answered(self, run_id: str, result: RunStepResult, waits: Waits) -> None:
        """Run those calls of a step that waits which may run by now, and those approved meanwhile."""
        while wanted := waits.to_run():
            for at, outcome in zip(wanted, await self.run(run_id, result, wanted), strict=True):
                waits.sleepers.leave(at)
                waits.found(at, outcome)

    def calls_agents(self, result: RunStepResult) -> bool:
        """Whether a sub-agent is among the calls."""
        facts = (self._talk.facts.tool(call.name) for call in result.calls)
        return any(each is not None and each.kind == "agent" for each in facts)

    async def until_quiet(self, run_id: str, result: RunStepResult, step: Step) -> None:
        """Run calls until each has its result, or waits; one that may go on meanwhile does so at once."""
        news, running = step.sleepers.news, dict[int, asyncio.Task[ToolResult | ChildWait]]()
        try:
            while True:
                news.clear()
                for at in step.to_run():
                    if at in running or (running and not self._talk.facts.parallel_tools):
                        continue
                    task = running[at] = asyncio.create_task(self._tool(run_id, result, at, result.calls[at]))
                    task.add_done_callback(lambda _: news.set())
                if not running:
                    return
                await heeding(news.wait())
                for at in [at for at, task in running.items() if task.done()]:
                    outcome = running.pop(at).result()
                    if isinstance(outcome, ToolResult):
                        step.sleepers.leave(at)
                        step.found(at, outcome)
        finally:
            for task in running.values():
                task.cancel()

    async def run(
        self, run_id: str, result: RunStepResult, wanted: Sequence[int] | None = None
    ) -> list[ToolResult]:
        """Run the tools that a step asks for, or those at ``wanted``; in call order, whoever ends first."""
        calls = [(at, result.calls[at]) for at in (range(len(result.calls)) if wanted is None else wanted)]
        if not self._talk.facts.parallel_tools:
            return [_ended(await heeding(self._tool(run_id, result, at, call))) for at, call in calls]
        # gather would leave the others running when one is cancelled.
        tasks = [asyncio.create_task(self._tool(run_id, result, ordinal, call)) for ordinal, call in calls]
        try:
            return [_ended(await heeding(task)) for task in tasks]
        finally:
            for task in tasks:
                task.cancel()

    async def _tool(
        self, run_id: str, result: RunStepResult, ordinal: int, call: ToolCall
    ) -> ToolResult | ChildWait:
        facts = self._talk.facts.tool(call.name) or await self._added(result, ordinal, call)
        if facts is None:
            known = ", ".join(tool.name for tool in self._talk.facts.tools) or "none"
            return ToolResult(text=f"There is no tool {call.name!r}. Tools: {known}.", is_error=True)
        told = why_not_run(call)
        if told is not None:
            return ToolResult(text=told, is_error=True)
        return await self._run_tool(facts, run_id, result, ordinal, call)

    async def _added(self, result: RunStepResult, ordinal: int, call: ToolCall) -> ToolFacts | None:
        """A tool that the agent has got since the session was opened, or by a worker that is newer.

        The worker that ran the step has offered it to the model; ours did not know of it.
        """
        if ordinal in result.unknown or not self._calls.patched(_ADDED):
            return None
        wanted = AgentFactsInput(agent=self._talk.request.agent, tools=(call.name,))
        try:
            self._talk.facts = await self._calls.agent_facts(wanted)
        except (HelixError, ActivityError):
            return None  # no worker has it any more
        return self._talk.facts.tool(call.name)

    async def _run_tool(
        self, facts: ToolFacts, run_id: str, result: RunStepResult, ordinal: int, call: ToolCall
    ) -> ToolResult | ChildWait:
        request = self._talk.request
        try:
            outcome = await self._calls.run_tool(
                facts,
                ToolInput(
                    session_id=request.session_id,
                    thread_id=request.thread_id,
                    agent=request.agent,
                    tool=call.name,
                    call=call,
                    key=f"{request.session_id}/{result.head.last_id}/{ordinal}",
                    turn=self._number,
                    position=result.head.position,
                    run_id=run_id,
                    epoch=self._talk.handle.epoch,
                    step=self._step(),
                    **present(metadata=request.metadata or None, tracing_context=self._talk.tracing_context),
                ),
            )
        except ToolFailedError as failed:
            return ToolResult(text=f"The tool failed: {failed}", is_error=True)
        if isinstance(outcome, ToolResult) and outcome.usage is not None:
            self.usage = self.usage + outcome.usage
        return outcome


def _ended(outcome: ToolResult | ChildWait) -> ToolResult:
    assert isinstance(outcome, ToolResult), "nobody may sleep here"
    return outcome


def unanswerable(result: RunStepResult) -> dict[int, ToolResult]:
    """Results of calls that somebody would have to answer, where nobody can be waited for."""
    text = "Nobody can answer this call here."
    return {each.at: ToolResult(text=text, is_error=True) for each in result.waiting}


def tool_inputs(
    result: RunStepResult, outcomes: Sequence[ToolResult], answers: Mapping[int, AnsweredCall] = _NOBODY
) -> tuple[StepInput, ...]:
    """The inputs of the next step: one result a call, in call order."""
    return tuple(
        _tool_input(f"{result.head.last_id}.{ordinal}", call, outcome, answers.get(ordinal))
        for ordinal, (call, outcome) in enumerate(zip(result.calls, outcomes, strict=True))
    )


def _tool_input(
    message_id: str, call: ToolCall, outcome: ToolResult, answered: AnsweredCall | None
) -> StepInput:
    fields: dict[str, Any] = {"id": message_id, "call": call.id, "name": call.name}
    for name in ("text", "parts", "ref", "is_error", "usage", "child", "staged"):
        if getattr(outcome, name):
            fields[name] = getattr(outcome, name)
    if answered is not None:
        fields["answered"] = answered
    return StepInput(**fields)
