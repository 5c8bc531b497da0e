"""A user's own workflow with a session inside: function hooks, and state of the application."""

import asyncio
from typing import Any

from temporalio import workflow

from helix_temporal.models.agents import BeforeUserMessage, HookEvent, UserMessageDecision
from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.workflows import AgentSession, SessionHooks

_ODD = {"a tuple": (1, 2), "a set": {1}, "nan": float("nan"), "a huge number": 2**70}


@workflow.defn(name="tests.embedded")
class EmbeddedSession:
    """Counts turns in the session's values; hooks do what the session's metadata says."""

    @workflow.init
    def __init__(self, given: SessionInput) -> None:
        self._fails = given.metadata.get("fails", "").split()
        self._held = given.metadata.get("held") == "yes"
        self._heard: list[str] = []
        self._session = AgentSession(
            given,
            SessionHooks(
                session_started=self._plain("session_started"),
                session_ended=self._plain("session_ended"),
                turn_completed=self._count,
                before_user_message=self._before,
                after_user_message=self._plain("after_user_message"),
            ),
        )

    @workflow.run
    async def run(self, given: SessionInput) -> SessionResult:
        return await self._session.run()

    @workflow.query
    def heard(self) -> list[str]:
        return self._heard

    @workflow.query
    def values(self) -> dict[str, Any]:
        return self._session.values

    @workflow.update
    async def hold(self) -> None:
        """A handler of the application that lasts until it is let go."""
        self._held = True
        await workflow.wait_condition(lambda: not self._held)

    @workflow.signal
    def let_go(self) -> None:
        self._held = False

    @workflow.signal
    def set_value(self, name: str) -> None:
        self._session.values[name] = True

    def _plain(self, name: str) -> Any:
        def hook(event: HookEvent) -> None:
            self._tell(name)

        return hook

    def _tell(self, name: str) -> None:
        self._heard.append(name)
        if name in self._fails:
            raise RuntimeError(f"{name} fails on purpose")

    async def _count(self, event: HookEvent) -> None:
        self._session.values["turns"] = self._session.values.get("turns", 0) + 1
        await asyncio.sleep(0)
        self._tell("turn_completed")

    def _before(self, event: BeforeUserMessage) -> UserMessageDecision | str | None:
        self._tell("before_user_message")
        if event.text in _ODD:
            self._session.values["odd"] = _ODD[event.text]
            self._session.values["even"] = event.text
        if event.text == "surrogate":
            return "\ud800"
        if event.text == "dict":
            return {"refuse": "this is no decision"}  # type: ignore[return-value]
        if event.text.startswith("refuse"):
            return UserMessageDecision(refuse="not this one")
        return event.text.upper() if event.text.startswith("change") else None
