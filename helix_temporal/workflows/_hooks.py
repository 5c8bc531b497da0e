"""Hooks of a session: activities of its agent, or functions of the workflow that embeds it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from temporalio import workflow

from helix_temporal.errors import HelixError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.hooks import HookEvent, UserMessageDecision
from helix_temporal.workflows._calls import TemporalCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHooks:
    """Functions, async or plain, that run in the workflow: they must be deterministic.

    Each gets one frozen model; see `helix_temporal.models.hooks`.  What one raises is logged and never
    wedges the workflow task, except that a message whose ``before_user_message`` fails is refused.
    """

    session_started: Callable[[Any], Any] | None = None
    session_ended: Callable[[Any], Any] | None = None
    turn_completed: Callable[[Any], Any] | None = None
    before_user_message: Callable[[Any], Any] | None = None
    after_user_message: Callable[[Any], Any] | None = None


class Hooks:
    """Runs whichever hooks there are; the workflow's own first."""

    def __init__(self, calls: TemporalCalls, functions: SessionHooks) -> None:
        self._calls, self._functions = calls, functions

    def wants(self, facts: AgentFacts, name: str) -> bool:
        """Whether anybody listens: an event nobody wants is not even built."""
        return getattr(self._functions, name) is not None or getattr(facts.hooks, name) is not None

    async def tell(self, facts: AgentFacts, name: str, event: HookEvent) -> bool:
        """Tell that something happened; a failing hook changes nothing, and the result is false."""
        try:
            await self._run(facts, name, event)
        except Exception as error:  # noqa: BLE001 (a user's code; it must not wedge the task)
            workflow.logger.warning("hook %s failed: %s", name, type(error).__name__)
            return False
        return True

    async def ask(self, facts: AgentFacts, name: str, event: HookEvent) -> UserMessageDecision:
        """Let hooks decide; one that fails refuses."""
        try:
            return await self._run(facts, name, event) or UserMessageDecision()
        except Exception as error:  # noqa: BLE001 (a user's code; it must not wedge the task)
            workflow.logger.warning("hook %s failed: %s", name, type(error).__name__)
            return UserMessageDecision(refuse=f"hook {name} failed: {_reason(error)}")

    async def _run(self, facts: AgentFacts, name: str, event: HookEvent) -> UserMessageDecision | None:
        function = getattr(self._functions, name)
        if function is not None:
            found = function(event)
            found = await found if inspect.isawaitable(found) else found
            if isinstance(found, str):
                found = UserMessageDecision(text=found)
            if isinstance(found, UserMessageDecision) and found != UserMessageDecision():
                return found
        activity = getattr(facts.hooks, name)
        return await self._calls.hook(activity, event) if activity is not None else None


def _reason(error: Exception) -> str:
    """Type, and text where it was cut on its way out of an activity."""
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, HelixError) else kind
