"""Hooks of a session, and what they are told and asked."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import workflow

from helix_temporal.errors import HelixError
from helix_temporal.models.agents import (
    AfterUserMessage,
    AgentFacts,
    BeforeUserMessage,
    HookEvent,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
    UserMessageDecision,
)
from helix_temporal.models.base import only_set, only_truthy
from helix_temporal.models.sessions import AskResult, AskStatus, SessionInput
from helix_temporal.session.inbox import Entry
from helix_temporal.workflows.calls import TemporalCalls
from helix_temporal.workflows.ending import Finaliser
from helix_temporal.workflows.execution import Execution
from helix_temporal.workflows.turn import Turn, TurnResult


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """Functions, async or plain, that run in the workflow: they must be deterministic.

    Each gets one frozen model; see `helix_temporal.models.agents`.  What one raises is logged and never
    wedges the workflow task, except that a message whose ``before_user_message`` fails is refused.
    """

    session_started: Callable[[Any], Any] | None = None
    session_ended: Callable[[Any], Any] | None = None
    turn_completed: Callable[[Any], Any] | None = None
    before_user_message: Callable[[Any], Any] | None = None
    after_user_message: Callable[[Any], Any] | None = None


class HookRunner:
    """Runs whichever hooks there are; the workflow's own first, whose text the agent's then judges."""

    def __init__(self, calls: TemporalCalls, functions: SessionHooks) -> None:
        self._calls, self._functions = calls, functions

    def wants(self, facts: AgentFacts, name: str) -> bool:
        """Whether anybody listens: an event nobody wants is not even built."""
        return getattr(self._functions, name) is not None or getattr(facts.hooks, name) is not None

    async def tell_hook(self, facts: AgentFacts, name: str, event: HookEvent) -> bool:
        """Tell that something happened; a failing hook changes nothing, and the result is false."""
        try:
            await self._run_hook(facts, name, event)
        except Exception as error:  # noqa: BLE001 (a user's code; it must not wedge the task)
            workflow.logger.warning("hook %s failed: %s", name, type(error).__name__)
            return False
        return True

    async def ask_hook(self, facts: AgentFacts, name: str, event: HookEvent) -> UserMessageDecision:
        """Let hooks decide; one that fails refuses."""
        try:
            return await self._run_hook(facts, name, event) or UserMessageDecision()
        except Exception as error:  # noqa: BLE001 (a user's code; it must not wedge the task)
            workflow.logger.warning("hook %s failed: %s", name, type(error).__name__)
            return UserMessageDecision(refuse=f"hook {name} failed: {_failure_text(error)}")

    async def _run_hook(self, facts: AgentFacts, name: str, event: HookEvent) -> UserMessageDecision | None:
        function, activity = getattr(self._functions, name), getattr(facts.hooks, name)
        mine = None if function is None else await _run_function(function, event)
        if not isinstance(event, BeforeUserMessage):
            return None if activity is None else await self._calls.run_hook(activity, event)
        if activity is None or (mine is not None and mine.refuse is not None):
            return mine
        if mine is not None and mine.changes:
            event = event.model_copy(update={"text": mine.text or "", "ref": mine.ref})
        theirs = await self._calls.run_hook(activity, event)
        return mine if theirs is None or theirs == UserMessageDecision() else theirs


async def _run_function(function: Callable[[Any], Any], event: HookEvent) -> UserMessageDecision | None:
    """What a workflow's own hook decides, of a message."""
    found = function(event)
    found = await found if inspect.isawaitable(found) else found
    return UserMessageDecision.of(found) if isinstance(event, BeforeUserMessage) else None


def _failure_text(error: Exception) -> str:
    """Type, and text where it was cut on its way out of an activity."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, HelixError) else kind


class Events:
    """Builds the events of one session, for those hooks that want them."""

    def __init__(self, input: SessionInput, execution: Execution, hooks: HookRunner) -> None:
        self._input, self._execution, self._hooks = input, execution, hooks

    async def tell_started(self, *, created: bool) -> None:
        """Tell that the session is open."""
        mode = self._input.mode
        if mode == "auto":
            mode = "new" if created else "continue"
        await self._tell_hooks("session_started", SessionStarted, mode=mode)

    async def admit_entries(self, entries: list[Entry]) -> list[Entry]:
        """Let the before-hook change or refuse each message."""
        if not self._hooks.wants(self._execution.opened_thread.facts, "before_user_message"):
            return entries
        admitted, refused = [], []
        for entry in entries:
            message = entry.message
            event = BeforeUserMessage(
                **self._common_fields(),
                message_id=message.id,
                text=message.text,
                **only_truthy(ref=message.ref),
            )
            decision = await self._hooks.ask_hook(
                self._execution.opened_thread.facts, "before_user_message", event
            )
            if decision.refuse is not None:
                self._execution.inbox.refuse_message(
                    entry, AskResult(status=AskStatus.REFUSED, error=decision.refuse)
                )
                refused.append(entry)
                continue
            entry.changed = None
            if decision.changes:
                text = {"text": decision.text or "", "ref": decision.ref}
                entry.changed = message.model_copy(update=text)
            admitted.append(entry)
        self._execution.note_refused(refused, "before_user_message")
        return admitted

    async def tell_turn_completed(self, turn: Turn, result: TurnResult, fresh: Sequence[Entry]) -> None:
        """Tell that a turn is committed: first each of its messages, then the turn."""
        for entry in fresh:
            message = entry.for_thread
            await self._tell_hooks(
                "after_user_message", AfterUserMessage, message_id=message.id, text=message.text
            )
        await self._tell_hooks(
            "turn_completed",
            TurnCompleted,
            turn=self._execution.turns,
            steps=turn.steps,
            exit_reason=result.exit_reason.value,
            answer_id=result.answer.id if result.answer else None,
            usage=result.usage,
        )

    async def tell_ended(self, finaliser: Finaliser) -> None:
        """Tell that the execution ends, to completion: a cancel meanwhile is remembered."""
        execution = self._execution
        if not self._hooks.wants(execution.opened_thread.facts, "session_ended"):
            return
        event = SessionEnded(
            **self._common_fields(),
            exit_reason=execution.exit.value,
            turns=execution.turns,
            usage=execution.usage,
            error=execution.error,
        )
        told = await finaliser.await_hooks(
            self._hooks.tell_hook(execution.opened_thread.facts, "session_ended", event)
        )
        execution.receipts = (*execution.receipts, told)

    def _common_fields(self) -> dict[str, Any]:
        return {
            "session_id": self._input.session_id,
            "thread_id": self._execution.opened_thread.request.thread_id,
            "agent": self._input.agent,
            "metadata": self._execution.opened_thread.request.metadata,
        }

    async def _tell_hooks(self, name: str, event: type[HookEvent], **fields: Any) -> None:
        if self._hooks.wants(self._execution.opened_thread.facts, name):
            await self._hooks.tell_hook(
                self._execution.opened_thread.facts, name, event(**self._common_fields(), **fields)
            )


def ask_result(result: TurnResult) -> AskResult:
    """What a turn means to those who asked."""
    if result.answer is None:
        return AskResult(
            status=AskStatus.INTERRUPTED, in_thread=result.in_thread, exit_reason=result.exit_reason
        )
    fields = only_set(text=result.text, finish=result.finish)
    return AskResult(status=AskStatus.ANSWERED, in_thread=True, answer=result.answer, **fields)
