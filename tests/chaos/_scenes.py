"""Scenes: for each activity, and each way that it goes, what stands before and the task to do.

Here those of sessions and tools; `tests.chaos._all_scenes` has them all.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from helix_temporal.models.messages import ToolCall
from helix_temporal.models.sessions import AnswerRef, ForkFrom
from helix_temporal.models.steps import (
    AgentFactsInput,
    EndTurnInput,
    LoadAnswerInput,
    OpenSessionResult,
    PutTextInput,
    ReopenHeads,
    SaveValuesInput,
    StepInput,
    ToolInput,
)
from tests.chaos._agent import AGENT
from tests.chaos._stage import Stage, Task, open_input, run_of, step_input, tool_results

Play = Callable[[Stage, str], Awaitable[Task]]
"""Prepares the thread of a session id and schedules the task."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One way of an activity to go; all tools count as ``helix.tools``, all hooks as ``helix.hooks``."""

    activity: str
    play: Play


SCENES: Final[dict[str, Scene]] = {}


def scene(activity: str) -> Callable[[Play], Play]:
    """Register a scene of an activity under its function's name."""

    def register(play: Play) -> Play:
        SCENES[play.__name__.replace("_", " ")] = Scene(activity, play)
        return play

    return register


def kind_of(activity: str) -> str:
    """Tools are run by one and the same code, whatever they are called; and so are hooks."""
    return (
        ".".join(activity.split(".")[:2])
        if activity.startswith(("helix.tools.", "helix.hooks."))
        else activity
    )


async def talked(stage: Stage, session: str, *, flush: bool = True) -> OpenSessionResult:
    """An open session with one finished turn; `handle` stands behind it."""
    opened = await stage.opened(session)
    step = await stage.turn(session, opened, message_id="u1")
    return opened.model_copy(update={"handle": opened.handle.model_copy(update={"head": step.head})})


async def next_step(stage: Stage, session: str, text: str, *, message_id: str = "u2") -> Task:
    """The step that a message begins after the first turn."""
    handle = (await talked(stage, session)).handle
    request = step_input(session, handle.epoch, handle.head, [(message_id, text)])
    return stage.task("helix.sessions.run_step", request)


# -- sessions


@scene("helix.sessions.open")
async def a_new_session_opens(stage: Stage, session: str) -> Task:
    return stage.task("helix.sessions.open", open_input(session, "run-2"), run="run-2")


@scene("helix.sessions.open")
async def a_cold_session_opens(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    await stage.cold(session, opened.handle.epoch)
    return stage.task("helix.sessions.open", open_input(session, "run-2"), run="run-2")


@scene("helix.sessions.open")
async def a_hot_session_with_half_a_turn_opens(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    await stage.turn(session, opened, "tools=2", message_id="u2", results=False)
    return stage.task("helix.sessions.open", open_input(session, "run-2"), run="run-2")


@scene("helix.sessions.open")
async def a_session_opens_again_in_its_turn(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    step = await stage.turn(session, opened, "tools=2", message_id="u2", results=False)
    heads = ReopenHeads(head=step.head, turn_start=opened.handle.head)
    return stage.task("helix.sessions.open", open_input(session, "run-1", mode="continue", reopen=heads))


@scene("helix.sessions.open")
async def a_session_is_rewound(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    await stage.turn(session, opened, message_id="u2")
    request = open_input(session, "run-1", mode="continue", rewind_to=opened.handle.head)
    return stage.task("helix.sessions.open", request)


@scene("helix.sessions.open")
async def a_session_opens_as_a_fork(stage: Stage, session: str) -> Task:
    await talked(stage, f"{session}-source")
    request = open_input(session, "run-2", mode="fork", fork_from=ForkFrom(thread_id=f"{session}-source"))
    return stage.task("helix.sessions.open", request, run="run-2")


@scene("helix.sessions.run_step")
async def a_plain_step(stage: Stage, session: str) -> Task:
    return await next_step(stage, session, "hello")


@scene("helix.sessions.run_step")
async def a_step_that_asks_for_tools(stage: Stage, session: str) -> Task:
    return await next_step(stage, session, "tools=2")


@scene("helix.sessions.run_step")
async def a_step_with_the_results_of_tools(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    step = await stage.turn(session, opened, "tools=2", message_id="u2", results=False)
    return stage.task("helix.sessions.run_step", tool_results(session, opened.handle.epoch, step))


@scene("helix.sessions.run_step")
async def a_step_on_a_cold_thread(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    await stage.cold(session, handle.epoch)
    return stage.task(
        "helix.sessions.run_step", step_input(session, handle.epoch, handle.head, [("u2", "hello")])
    )


@scene("helix.sessions.run_step")
async def a_step_with_a_message_that_was_put_aside(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    text = PutTextInput(thread_id=session, message_id="u2", text="hello " * 4000)
    put = await stage.calm.attempt(stage.task("helix.sessions.put_text", text))
    request = step_input(session, handle.epoch, handle.head, [])
    inputs = (StepInput(id="u2", ref=put.ref),)
    return stage.task("helix.sessions.run_step", request.model_copy(update={"inputs": inputs}))


@scene("helix.sessions.run_step")
async def a_message_that_was_answered_before(stage: Stage, session: str) -> Task:
    return await next_step(stage, session, "hello", message_id="u1")


@scene("helix.sessions.end_turn")
async def a_turn_that_ends_with_results(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    step = await stage.turn(session, opened, "tools=1", message_id="u2", results=False)
    results = tool_results(session, opened.handle.epoch, step)
    request = EndTurnInput(
        session_id=session,
        epoch=opened.handle.epoch,
        head=step.head,
        inputs=results.inputs,
        run_id=run_of("u2"),
    )
    return stage.task("helix.sessions.end_turn", request)


@scene("helix.sessions.save")
async def values_are_saved(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    request = SaveValuesInput(thread_id=session, epoch=handle.epoch, values={"mood": "good"})
    return stage.task("helix.sessions.save", request)


@scene("helix.sessions.save")
async def values_are_saved_on_a_cold_thread(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    await stage.cold(session, handle.epoch)
    request = SaveValuesInput(thread_id=session, epoch=handle.epoch, values={"mood": "good"})
    return stage.task("helix.sessions.save", request)


@scene("helix.sessions.put_text")
async def a_text_is_put_aside(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task(
        "helix.sessions.put_text", PutTextInput(thread_id=session, message_id="u2", text="hello " * 4000)
    )


@scene("helix.sessions.agent_facts")
async def an_agent_is_looked_at(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.sessions.agent_facts", AgentFactsInput(agent=AGENT))


@scene("helix.sessions.load_answer")
async def an_answer_is_loaded(stage: Stage, session: str) -> Task:
    handle = (await talked(stage, session)).handle
    answer = AnswerRef(position=handle.head.position - 1, id=handle.head.last_id)
    return stage.task("helix.sessions.load_answer", LoadAnswerInput(thread_id=session, answer=answer))


@scene("helix.tools")
async def a_tool_runs(stage: Stage, session: str) -> Task:
    opened = await talked(stage, session)
    step = await stage.turn(session, opened, "tools=1", message_id="u2", results=False)
    call = ToolCall(id="call_0", name="touch", arguments={"__helix_large__": True})
    request = ToolInput(
        session_id=session, thread_id=session, agent=AGENT, tool="touch", call=call, turn=2,
        key=f"{session}/{step.head.last_id}/0", position=step.head.position,
        run_id=run_of("u2"), epoch=opened.handle.epoch,
    )  # fmt: skip
    return stage.task(f"helix.tools.{AGENT}.touch", request)
