"""Scenes of what a session's handle asks for: reads, turns that are taken back, usage, the end of it all."""

from typing import Any

from helix_temporal.models.handles import (
    FindTurnInput,
    ListTurnsInput,
    PlanTakeBackInput,
    ShowSessionInput,
    TakeBackRequest,
)
from helix_temporal.models.sessions import ForkFrom
from helix_temporal.models.steps import OpenSessionResult
from helix_temporal.models.store_calls import DeleteSessionInput, ListCheckpointsInput
from helix_temporal.models.usage import (
    RecordUsageInput,
    ToolUsageEntry,
    UsageEntriesInput,
    UsageQuery,
    UsageRollupInput,
)
from tests.chaos._scenes import scene, talked
from tests.chaos._stage import Stage, Task, open_input

LONG = "hello " * 4000


async def _two_turns(stage: Stage, session: str, text: str = "hello") -> OpenSessionResult:
    """`handle` stands between them."""
    opened = await talked(stage, session)
    await stage.turn(session, opened, text, message_id="u2")
    return opened


@scene("helix.sessions.show")
async def a_session_is_shown(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    return stage.task("helix.sessions.show", ShowSessionInput(session_id=session))


@scene("helix.sessions.usage")
async def its_usage_is_shown(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    return stage.task("helix.sessions.usage", ShowSessionInput(session_id=session))


@scene("helix.sessions.turns")
async def its_turns_are_listed(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    return stage.task("helix.sessions.turns", ListTurnsInput(thread_id=session))


@scene("helix.sessions.find_turn")
async def a_turn_is_found(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    return stage.task("helix.sessions.find_turn", FindTurnInput(thread_id=session, message_id="u2"))


@scene("helix.sessions.checkpoints")
async def its_checkpoints_are_listed(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    return stage.task("helix.sessions.checkpoints", ListCheckpointsInput(session_id=session))


def _plan(session: str, **fields: Any) -> PlanTakeBackInput:
    wanted = TakeBackRequest(id="request", **fields)
    return PlanTakeBackInput(session_id=session, thread_id=session, request=wanted)


async def _checkpoint(stage: Stage, session: str) -> str:
    """The one of the first turn."""
    page = await stage.backends.sessions.list_checkpoints(session, order="asc")
    return page.items[0].id


@scene("helix.sessions.plan_take_back")
async def it_is_planned_to_ask_a_long_message_anew(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session, LONG)
    return stage.task("helix.sessions.plan_take_back", _plan(session, turns=-1, again=True))


@scene("helix.sessions.plan_take_back")
async def it_is_planned_to_go_back_to_a_checkpoint(stage: Stage, session: str) -> Task:
    await _two_turns(stage, session)
    checkpoint = await _checkpoint(stage, session)
    return stage.task("helix.sessions.plan_take_back", _plan(session, checkpoint=checkpoint))


async def _taken_back(stage: Stage, session: str, opened: OpenSessionResult, **fields: Any) -> Task:
    """The open that carries out what was planned."""
    task = stage.task("helix.sessions.plan_take_back", _plan(session, **fields))
    plan = await stage.calm.attempt(task)
    request = open_input(
        session,
        "run-1",
        mode="continue",
        rewind_to=plan.to,
        take_back=plan.taken_back,
        checkpoint=fields.get("checkpoint"),
        known_epoch=opened.handle.epoch,
    )
    return stage.task("helix.sessions.open", request)


@scene("helix.sessions.open")
async def a_turn_is_taken_back_and_asked_anew(stage: Stage, session: str) -> Task:
    opened = await _two_turns(stage, session, LONG)
    return await _taken_back(stage, session, opened, turns=-1, again=True)


@scene("helix.sessions.open")
async def a_session_goes_back_to_a_checkpoint(stage: Stage, session: str) -> Task:
    opened = await _two_turns(stage, session)
    checkpoint = await _checkpoint(stage, session)
    return await _taken_back(stage, session, opened, checkpoint=checkpoint)


@scene("helix.sessions.open")
async def a_past_message_is_edited_in_a_fork(stage: Stage, session: str) -> Task:
    opened = await _two_turns(stage, f"{session}-source")
    request = open_input(
        session,
        "run-2",
        mode="fork",
        fork_from=ForkFrom(thread_id=f"{session}-source", at=opened.handle.head.position),
    )
    return stage.task("helix.sessions.open", request, run="run-2")


# -- usage


@scene("helix.usage.record")
async def usage_is_recorded(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    entry = ToolUsageEntry(id="tool/1", session_id=session, timestamp=1, tool_name="touch")
    return stage.task("helix.usage.record", RecordUsageInput(entry=entry))


@scene("helix.usage.entries")
async def entries_of_usage_are_read(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.usage.entries", UsageEntriesInput(session_id=session))


@scene("helix.usage.rollup")
async def usage_is_summed_up(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.usage.rollup", UsageRollupInput(session_id=session, include_sub_agents=True))


@scene("helix.usage.query")
async def usage_is_looked_for(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.usage.query", UsageQuery(session_id=session))


@scene("helix.sessions.delete")
async def a_session_is_deleted_in_its_store(stage: Stage, session: str) -> Task:
    await talked(stage, session)
    return stage.task("helix.sessions.delete", DeleteSessionInput(session_id=session))
