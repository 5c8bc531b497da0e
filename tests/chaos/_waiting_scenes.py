"""Scenes of turns that wait for people, of what these answer, and of tools that change the state."""

from typing import Any

from helix_temporal.models.agents import BeforeUserMessage
from helix_temporal.models.messages import ToolCall, ToolResult
from helix_temporal.models.sessions import ExitReason
from helix_temporal.models.states import ClientToolResponse, ToolResultSubmission
from helix_temporal.models.steps import (
    EndTurnInput,
    OpenSessionResult,
    PutTextInput,
    RunStepInput,
    RunStepResult,
    SaveValuesInput,
    ToolInput,
)
from helix_temporal.models.waiting import AnswerReceipt, CallOutcome
from tests.chaos._agent import AGENT
from tests.chaos._scenes import next_step, scene, talked
from tests.chaos._stage import Stage, Task, open_input, run_of, tool_results

ASKED = "waits=1 pays=1"
LONG = "hello " * 4000


async def waiting(
    stage: Stage, session: str, text: str = ASKED, **fields: Any
) -> tuple[OpenSessionResult, RunStepResult]:
    """A session whose second turn waits for people."""
    opened = await talked(stage, session, **fields)
    return opened, await stage.turn(session, opened, text, message_id="u2", results=False)


def answered(session: str, epoch: int, step: RunStepResult, **fields: Any) -> RunStepInput:
    """The step that brings the answers of people."""
    waits = {each.at: each.id for each in step.waiting}
    request = tool_results(session, epoch, step)
    inputs = [
        each.model_copy(update={"answered": AnswerReceipt(id=waits[at], when=1, **fields)})
        for at, each in enumerate(request.inputs)
    ]
    return request.model_copy(update={"inputs": tuple(inputs)})


@scene("helix.sessions.run_step")
async def a_step_that_waits_for_people(stage: Stage, session: str) -> Task:
    return await next_step(stage, session, ASKED)


@scene("helix.sessions.run_step")
async def a_step_with_the_answers_of_people(stage: Stage, session: str) -> Task:
    opened, step = await waiting(stage, session)
    return stage.task("helix.sessions.run_step", answered(session, opened.handle.epoch, step, by="me"))


@scene("helix.sessions.run_step")
async def a_step_whose_calls_nobody_answered_in_time(stage: Stage, session: str) -> Task:
    opened, step = await waiting(stage, session)
    request = answered(session, opened.handle.epoch, step, outcome="expired")
    return stage.task("helix.sessions.run_step", request)


@scene("helix.sessions.run_step")
async def a_step_with_an_answer_that_was_put_aside(stage: Stage, session: str) -> Task:
    opened, step = await waiting(stage, session, "waits=1")
    text = PutTextInput(thread_id=session, message_id=step.waiting[0].id, text=LONG)
    put = await stage.calm.attempt(stage.task("helix.sessions.put_text", text))
    request = answered(session, opened.handle.epoch, step)
    inputs = tuple(each.model_copy(update={"text": "", "ref": put.ref}) for each in request.inputs)
    return stage.task("helix.sessions.run_step", request.model_copy(update={"inputs": inputs}))


@scene("helix.sessions.put_text")
async def an_answer_is_put_aside(stage: Stage, session: str) -> Task:
    _, step = await waiting(stage, session, "waits=1")
    text = PutTextInput(thread_id=session, message_id=step.waiting[0].id, text=LONG)
    return stage.task("helix.sessions.put_text", text)


@scene("helix.sessions.end_turn")
async def a_turn_that_ends_while_it_waits(stage: Stage, session: str) -> Task:
    opened, step = await waiting(stage, session)
    results = answered(session, opened.handle.epoch, step, outcome="error")
    request = EndTurnInput(
        session_id=session,
        epoch=opened.handle.epoch,
        head=step.head,
        inputs=results.inputs,
        run_id=results.run_id,
        reason=ExitReason.INTERRUPTED,
    )
    return stage.task("helix.sessions.end_turn", request)


def _opens(stage: Stage, session: str) -> Task:
    request = open_input(session, "run-2")
    return stage.task("helix.sessions.open", request, run="run-2")


@scene("helix.sessions.open")
async def a_session_that_waits_opens(stage: Stage, session: str) -> Task:
    await waiting(stage, session)
    return _opens(stage, session)


@scene("helix.sessions.open")
async def a_cold_session_that_waits_opens(stage: Stage, session: str) -> Task:
    opened, _ = await waiting(stage, session)
    await stage.cold(session, opened.handle.epoch)
    return _opens(stage, session)


@scene("helix.sessions.open")
async def a_session_whose_store_took_an_answer_opens(stage: Stage, session: str) -> Task:
    _, step = await waiting(stage, session)
    submission = ToolResultSubmission(
        tool_call_id=step.waiting[0].id, response=ClientToolResponse(result="said")
    )
    await stage.backends.sessions.submit_tool_result(session, submission)
    return _opens(stage, session)


@scene("helix.sessions.save")
async def a_session_ends_and_still_waits(stage: Stage, session: str) -> Task:
    opened, step = await waiting(stage, session)
    known = CallOutcome(
        at=0, result=ToolResult(text="said"), answered=AnswerReceipt(id=step.waiting[0].id, when=1)
    )
    request = SaveValuesInput(
        thread_id=session, epoch=opened.handle.epoch, session_id=session, status="paused", outcomes=(known,)
    )
    return stage.task("helix.sessions.save", request)


@scene("helix.sessions.save")
async def a_session_fails_in_its_turn(stage: Stage, session: str) -> Task:
    opened, _ = await waiting(stage, session, "tools=1")
    request = SaveValuesInput(
        thread_id=session,
        epoch=opened.handle.epoch,
        session_id=session,
        status="failed",
        error="broken",
        ends_run=True,
    )
    return stage.task("helix.sessions.save", request)


# -- tools that change the state, and hooks


async def _note(stage: Stage, session: str) -> tuple[OpenSessionResult, RunStepResult, ToolInput]:
    opened, step = await waiting(stage, session, "notes=1")
    call = ToolCall(id="note_0", name="note", arguments={"what": "something"})
    request = ToolInput(
        session_id=session,
        thread_id=session,
        agent=AGENT,
        tool="note",
        call=call,
        turn=2,
        key=f"{session}/{step.head.last_id}/0",
        position=step.head.position,
        run_id=run_of("u2"),
        epoch=opened.handle.epoch,
    )
    return opened, step, request


@scene("helix.tools")
async def a_tool_changes_the_state(stage: Stage, session: str) -> Task:
    _, _, request = await _note(stage, session)
    return stage.task(f"helix.tools.{AGENT}.note", request)


@scene("helix.sessions.run_step")
async def a_step_after_a_tool_that_changed_the_state(stage: Stage, session: str) -> Task:
    opened, step, request = await _note(stage, session)
    await stage.calm.attempt(stage.task(f"helix.tools.{AGENT}.note", request))
    return stage.task("helix.sessions.run_step", tool_results(session, opened.handle.epoch, step))


@scene("helix.hooks")
async def a_hook_changes_a_message_that_was_put_aside(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    text = PutTextInput(thread_id=session, message_id="u2", text=LONG)
    put = await stage.calm.attempt(stage.task("helix.sessions.put_text", text))
    event = BeforeUserMessage(
        session_id=session, thread_id=session, agent=AGENT, message_id="u2", text="", ref=put.ref
    )
    return stage.task(f"helix.hooks.{AGENT}.before_user_message", event)
