"""Scenes of sessions that call sub-agents, and of sub-agents' sessions."""

from typing import Any

from helix_temporal.models.handles import ListChildrenInput
from helix_temporal.models.sessions import ForkFrom
from helix_temporal.models.steps import (
    ChildEnd,
    EndTurnInput,
    OpenSessionResult,
    ReopenHeads,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
)
from helix_temporal.models.waiting import ParentLink, child_session_id
from tests.chaos._agent import AGENT, HELPERS
from tests.chaos._scenes import next_step, scene, talked
from tests.chaos._stage import Stage, Task, open_input, run_of, step_input, tool_results
from tests.chaos._waiting_scenes import answered

ASKED = "agents=3"


async def calling(stage: Stage, session: str) -> tuple[OpenSessionResult, RunStepResult]:
    """A session that waits for three sub-agents."""
    opened = await talked(stage, session)
    return opened, await stage.turn(session, opened, ASKED, message_id="u2", results=False)


def children(session: str, step: RunStepResult) -> list[str]:
    """The sub-agents' sessions."""
    return [
        child_session_id(session, call.name, HELPERS[call.name], f"{step.head.last_id}.{at}")
        for at, call in enumerate(step.calls)
    ]


def ended(session: str, epoch: int, step: RunStepResult) -> RunStepInput:
    """The step that brings the answers of all three; the last of them was interrupted."""
    request = tool_results(session, epoch, step)
    ends: tuple[Any, ...] = ("completed", "completed", "interrupted")
    inputs = [
        each.model_copy(update={"child": ChildEnd(session_id=child, status=end, agent=AGENT, duration_ms=5)})
        for each, child, end in zip(request.inputs, children(session, step), ends, strict=True)
    ]
    return request.model_copy(update={"inputs": tuple(inputs)})


@scene("helix.sessions.run_step")
async def a_step_that_calls_sub_agents(stage: Stage, session: str) -> Task:
    return await next_step(stage, session, ASKED)


@scene("helix.sessions.run_step")
async def a_step_with_the_answers_of_sub_agents(stage: Stage, session: str) -> Task:
    opened, step = await calling(stage, session)
    return stage.task("helix.sessions.run_step", ended(session, opened.handle.epoch, step))


@scene("helix.sessions.end_turn")
async def a_turn_that_ends_with_the_answers_of_sub_agents(stage: Stage, session: str) -> Task:
    opened, step = await calling(stage, session)
    results = ended(session, opened.handle.epoch, step)
    request = EndTurnInput(
        session_id=session,
        epoch=opened.handle.epoch,
        head=step.head,
        inputs=results.inputs,
        run_id=results.run_id,
    )
    return stage.task("helix.sessions.end_turn", request)


@scene("helix.sessions.open")
async def a_session_is_aborted_while_sub_agents_work(stage: Stage, session: str) -> Task:
    opened, step = await calling(stage, session)
    request = open_input(
        session,
        "run-1",
        mode="continue",
        reopen=ReopenHeads(head=opened.handle.head, turn_start=opened.handle.head),
        abandoned=run_of("u2"),
        cut_children=tuple(children(session, step)),
    )
    return stage.task("helix.sessions.open", request)


@scene("helix.sessions.save")
async def a_session_is_cancelled_while_sub_agents_work(stage: Stage, session: str) -> Task:
    opened, step = await calling(stage, session)
    request = SaveValuesInput(
        thread_id=session,
        epoch=opened.handle.epoch,
        session_id=session,
        status="interrupted",
        ends_run=True,
        cut_children=tuple(children(session, step)),
    )
    return stage.task("helix.sessions.save", request)


@scene("helix.sessions.children")
async def sub_agents_are_listed(stage: Stage, session: str) -> Task:
    await calling(stage, session)
    return stage.task("helix.sessions.children", ListChildrenInput(session_id=session))


# -- below


def link(session: str) -> ParentLink:
    """A sub-agent two levels below its root."""
    return ParentLink(session_id=f"{session}-parent", root_session_id=f"{session}-root", call="call", depth=2)


async def _above(stage: Stage, session: str) -> None:
    """Both sessions above, which are open."""
    await talked(stage, f"{session}-root")
    await calling(stage, f"{session}-parent")


@scene("helix.sessions.open")
async def a_sub_agents_session_opens(stage: Stage, session: str) -> Task:
    await _above(stage, session)
    request = open_input(session, "run-2", parent=link(session))
    return stage.task("helix.sessions.open", request, run="run-2")


@scene("helix.sessions.open")
async def a_sub_agents_session_opens_as_a_fork(stage: Stage, session: str) -> Task:
    await _above(stage, session)
    request = open_input(
        session,
        "run-2",
        mode="fork",
        fork_from=ForkFrom(thread_id=f"{session}-parent"),
        parent=link(session),
    )
    return stage.task("helix.sessions.open", request, run="run-2")


async def _below(stage: Stage, session: str) -> OpenSessionResult:
    await _above(stage, session)
    opened = await stage.opened(session, parent=link(session))
    step = await stage.turn(session, opened, message_id="u1")
    return opened.model_copy(update={"handle": opened.handle.model_copy(update={"head": step.head})})


@scene("helix.sessions.run_step")
async def a_sub_agent_waits_for_people(stage: Stage, session: str) -> Task:
    handle = (await _below(stage, session)).handle
    request = step_input(session, handle.epoch, handle.head, [("u2", "waits=1 pays=1")])
    return stage.task("helix.sessions.run_step", request)


@scene("helix.sessions.run_step")
async def a_sub_agent_goes_on_with_the_answers_of_people(stage: Stage, session: str) -> Task:
    opened = await _below(stage, session)
    step = await stage.turn(session, opened, "waits=1 pays=1", message_id="u2", results=False)
    return stage.task("helix.sessions.run_step", answered(session, opened.handle.epoch, step, by="me"))
