"""Workflows in which ADK's runner talks."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.llm_request import LlmRequest
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from temporalio import workflow
from temporalio.google_adk import TemporalModel
from temporalio.workflow import ActivityConfig

from helix_temporal.frameworks.google_adk.model import HelixModel
from helix_temporal.frameworks.google_adk.workflow import HelixWorkflowSessionService

APP = "shop"
USER = "ann"


def remember(fact: str, tool_context: ToolContext) -> str:
    """Remembers a fact."""
    for prefix in ("", "user:", "app:"):
        tool_context.state[f"{prefix}fact"] = fact
    return "remembered"


@dataclass
class Talk:
    """What is said in which session.

    Attributes:
        in_memory: With ADK's session service in the workflow, to compare.
        creates: The session is begun by the workflow.
        newest: So many events are given to a run.
        by_reference: The model is given what is new of the contents.
    """

    session: str
    lines: list[str]
    in_memory: bool = False
    creates: bool = True
    newest: int | None = None
    state: dict[str, Any] = field(default_factory=dict)
    by_reference: bool = False


@workflow.defn
class Conversation:
    """A conversation of some turns; its result is the answers, and the session's state."""

    def __init__(self) -> None:
        self._goes_on = 0

    @workflow.run
    async def run(self, talk: Talk) -> list[Any]:
        """Each line is a turn."""
        service = _make_service(talk)
        names: dict[str, Any] = {"app_name": APP, "user_id": USER, "session_id": talk.session}
        if talk.creates:
            await service.create_session(**names, state=talk.state)
        runner = Runner(app_name=APP, agent=_make_agent(talk), session_service=service)
        answers = []
        for line in talk.lines:
            if line == "wait":
                self._goes_on -= 1
                await workflow.wait_condition(lambda: self._goes_on >= 0)
                continue
            answers.append(await _ask(runner, line, talk))
        session = await service.get_session(**names)
        return [answers, session.state if session else None, len(session.events) if session else None]

    @workflow.signal
    def go_on(self) -> None:
        """A line that waits is over."""
        self._goes_on += 1


@workflow.defn
class EveryCall:
    """All methods of the service."""

    @workflow.run
    async def run(self, session: str) -> dict[str, Any]:
        """What each of them gives."""
        service = HelixWorkflowSessionService(timeout=timedelta(seconds=10))
        names: dict[str, Any] = {"app_name": APP, "user_id": USER}
        missing = await service.get_session(**names, session_id="none")
        made = await service.create_session(**names, session_id=session, state={"user:u": 1, "k": 1})
        unnamed = await service.create_session(**names)
        listed = await service.list_sessions(**names)
        state = await service.get_user_state(**names)
        await service.delete_session(**names, session_id=unnamed.id)
        after = await service.list_sessions(**names)
        found = await service.get_session(**names, session_id=session)
        await service.flush()
        return {
            "missing": missing is None,
            "made": made.state,
            "listed": len(listed.sessions),
            "user": state,
            "after": [each.id for each in after.sessions],
            "same": found == made,
        }


@workflow.defn
class SideBySide:
    """Calls of a model that go on from different contents, at once."""

    @workflow.run
    async def run(self, session: str) -> list[list[str]]:
        """What each said, in three rounds."""
        service = HelixWorkflowSessionService(timeout=timedelta(seconds=10))
        await service.create_session(app_name=APP, user_id=USER, session_id=session)
        model, said = _make_model(by_reference=True), [[f"{name} 0"] for name in "abc"]
        for number in (1, 2, 3):
            answers = await asyncio.gather(*(_answer(model, each) for each in said))
            for each, answer in zip(said, answers, strict=True):
                each += [answer, f"{each[0][0]} {number}"]
        return said


async def _answer(model: TemporalModel, said: list[str]) -> str:
    contents = [types.Content(role="user", parts=[types.Part(text=each)]) for each in said]
    request = LlmRequest(model="answering", contents=contents)
    (answer,) = [each async for each in model.generate_content_async(request)]
    return answer.content.parts[0].text or "" if answer.content and answer.content.parts else ""


def _make_service(talk: Talk) -> BaseSessionService:
    if talk.in_memory:
        return InMemorySessionService()
    return HelixWorkflowSessionService(timeout=timedelta(seconds=5))


def _make_agent(talk: Talk) -> LlmAgent:
    return LlmAgent(name="assistant", model=_make_model(talk.by_reference), tools=[remember])


def _make_model(by_reference: bool) -> TemporalModel:
    config = ActivityConfig(start_to_close_timeout=timedelta(seconds=5))
    return (HelixModel if by_reference else TemporalModel)("answering", activity_config=config)


async def _ask(runner: Runner, line: str, talk: Talk) -> str:
    config = RunConfig()
    if talk.newest is not None:
        config.get_session_config = GetSessionConfig(num_recent_events=talk.newest)
    answer = ""
    async for event in runner.run_async(
        user_id=USER,
        session_id=talk.session,
        new_message=types.Content(role="user", parts=[types.Part(text=line)]),
        run_config=config,
    ):
        for part in event.content.parts if event.content else ():
            answer = part.text or answer
    return answer if len(answer) < 100 else str(len(answer))
