"""Scenes of the activities that are one call of the session store: for workflows of one's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.models.base import WireModel
from helix_temporal.models.checkpoints import NewRun, RunChange, StagedChange, StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import SetPropertiesInput
from helix_temporal.models.states import (
    ClientToolResponse,
    CreateSession,
    MergeChanges,
    SessionProperties,
    SessionStatus,
    StateChange,
    SubSessionRef,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import (
    CheckpointKey,
    CommitStepInput,
    CompareAndSetStatusInput,
    CreateSessionInput,
    ForkSessionInput,
    GetStopInput,
    LatestCheckpointInput,
    ListCheckpointsInput,
    ListExpiredInput,
    MergeCustomStateInput,
    PageInput,
    PageMessagesInput,
    PromoteStagingInput,
    PruneCheckpointsInput,
    RequestStopInput,
    SaveSessionInput,
    SessionCall,
    SessionKey,
    SessionMessagesInput,
    SessionQuery,
    StageChangesInput,
    StartRunInput,
    StepKey,
    SubmitToolResultInput,
    SubSessionRefsInput,
    SubSessionStatusInput,
    TruncateMessagesInput,
    UpdateRunInput,
    UpdateStatusInput,
)
from helix_temporal.testing.builders import user_message
from tests.chaos._agent import AGENT
from tests.chaos._scenes import SCENES, Scene
from tests.chaos._stage import Stage, Task, run_of
from tests.chaos._waiting_scenes import ASKED, waiting

STEP: Final = "step"
CHILD: Final = SubSessionRef(sub_session_id="child", agent_type=AGENT)
CHANGE: Final = StagedChange(tool_call_id="call", merge_changes={"noted": "something"})
NEW: Final = (user_message("n1", "new"), Message(id="n2", role="assistant", content="newer"))
MERGE: Final = MergeChanges(values={"mood": "good"}, appends={"list": [1]})


@dataclass(frozen=True, slots=True)
class Given:
    """What a call finds: a session in a run that waits for people, with a sub-agent and a staged change.

    Attributes:
        key: Names the session; ``call`` under its epoch, too.
    """

    session: str
    epoch: int
    checkpoint: str
    pending: str
    state: Any

    @property
    def key(self) -> dict[str, Any]:
        """See the class."""
        return {"session_id": self.session}

    @property
    def call(self) -> dict[str, Any]:
        """See the class."""
        return {**self.key, "epoch": self.epoch}


async def _given(stage: Stage, session: str) -> Given:
    opened, step = await waiting(stage, session, ASKED)
    store, epoch = stage.backends.sessions, opened.handle.epoch
    assert store is not None
    await store.stage_changes(session, STEP, CHANGE, epoch=epoch)
    await store.add_sub_session_refs(session, [CHILD], epoch=epoch)
    checkpoints = await store.list_checkpoints(session)
    state = await store.load_state(session)
    return Given(session, epoch, checkpoints.items[-1].id, step.waiting[0].id, state)


CALLS: Final[dict[str, Callable[[Given], WireModel]]] = {
    "sessions.load": lambda given: SessionKey(**given.key),
    "sessions.save_state": lambda given: SaveSessionInput(
        **given.call, state=given.state.model_copy(update={"custom_state": {"mood": "good"}})
    ),
    "sessions.update_status": lambda given: UpdateStatusInput(**given.call, status=SessionStatus.PAUSED),
    "sessions.compare_and_set_status": lambda given: CompareAndSetStatusInput(
        **given.call, expected=tuple(SessionStatus), new=SessionStatus.FAILED, failure_reason="broken"
    ),
    "sessions.set_properties": lambda given: SetPropertiesInput(
        **given.call, properties=SessionProperties(expires_at=2**50, tags=("a",))
    ),
    "sessions.merge_custom_state": lambda given: MergeCustomStateInput(**given.call, changes=MERGE),
    "sessions.get_messages": lambda given: PageMessagesInput(**given.key),
    "sessions.truncate_messages": lambda given: TruncateMessagesInput(**given.call, count=0),
    "sessions.start_run": lambda given: StartRunInput(
        **given.call, run=NewRun(run_id="new"), expect_current_run=run_of("u2")
    ),
    "sessions.update_run": lambda given: UpdateRunInput(
        **given.call, run_id=run_of("u2"), change=RunChange(step_count=7)
    ),
    "sessions.current_run": lambda given: SessionKey(**given.key),
    "sessions.list_runs": lambda given: PageInput(**given.key),
    "sessions.request_stop": lambda given: RequestStopInput(**given.key, run_id=run_of("u2")),
    "sessions.get_stop_request": lambda given: GetStopInput(**given.key, run_id=run_of("u2")),
    "sessions.add_sub_session_refs": lambda given: SubSessionRefsInput(
        **given.call, refs=(CHILD, CHILD.model_copy(update={"sub_session_id": "other"}))
    ),
    "sessions.update_sub_session_ref": lambda given: SubSessionStatusInput(
        **given.call, sub_session_id="child", status=SessionStatus.COMPLETED
    ),
    "sessions.list_sub_session_refs": lambda given: SessionKey(**given.key),
    "sessions.submit_tool_result": lambda given: SubmitToolResultInput(
        **given.call,
        submission=ToolResultSubmission(
            tool_call_id=given.pending, response=ClientToolResponse(result="said")
        ),
    ),
    "sessions.increment_step_count": lambda given: SessionCall(**given.call),
    "sessions.increment_resume_count": lambda given: SessionCall(**given.call),
    "sessions.find": lambda given: SessionQuery(agent_type=AGENT),
    "sessions.list": lambda given: SessionQuery(agent_type=AGENT),
    "sessions.list_expired": lambda given: ListExpiredInput(),
    "checkpoints.stage": lambda given: StageChangesInput(
        **given.call, step_id=STEP, change=CHANGE.model_copy(update={"tool_call_id": "other"})
    ),
    "checkpoints.list_staged": lambda given: StepKey(**given.call, step_id=STEP),
    "checkpoints.discard": lambda given: StepKey(**given.call, step_id=STEP),
    "checkpoints.promote": lambda given: PromoteStagingInput(**given.call, step_id=STEP),
    "checkpoints.commit": lambda given: CommitStepInput(
        **given.call, change=StateChange(merge=MERGE), step=StepCommit(step_id=STEP)
    ),
    "checkpoints.get": lambda given: CheckpointKey(**given.call, checkpoint_id=given.checkpoint),
    "checkpoints.latest": lambda given: LatestCheckpointInput(**given.key),
    "checkpoints.list": lambda given: ListCheckpointsInput(**given.key),
    "checkpoints.restore": lambda given: CheckpointKey(**given.call, checkpoint_id=given.checkpoint),
    "checkpoints.prune": lambda given: PruneCheckpointsInput(**given.call, keep_last=1),
    "checkpoints.snapshot": lambda given: SessionKey(**given.key),
}
"""The calls on a session as it is given."""


def _scene(name: str, request: Callable[[Given], WireModel]) -> Scene:
    async def play(stage: Stage, session: str) -> Task:
        return stage.task(f"helix.{name}", request(await _given(stage, session)))

    return Scene(f"helix.{name}", play)


SCENES.update({f"a call of {name}": _scene(name, request) for name, request in CALLS.items()})


# -- where there is no session yet, or none that a session workflow runs


async def _alone(stage: Stage, session: str) -> None:
    await stage.backends.sessions.create_session(session, CreateSession(agent_type=AGENT))
    await stage.backends.sessions.append_messages(session, [user_message("u1", "hello")])


async def _create(stage: Stage, session: str) -> Task:
    request = CreateSessionInput(session_id=session, options=CreateSession(agent_type=AGENT))
    return stage.task("helix.sessions.create", request)


async def _append(stage: Stage, session: str) -> Task:
    await _alone(stage, session)
    request = SessionMessagesInput(session_id=session, messages=NEW)
    return stage.task("helix.sessions.append_messages", request)


async def _append_and_change(stage: Stage, session: str) -> Task:
    await _alone(stage, session)
    change = StateChange(title="hello", merge=MERGE)
    request = SessionMessagesInput(session_id=session, messages=NEW, change=change)
    return stage.task("helix.sessions.append_messages", request)


async def _fork(stage: Stage, session: str) -> Task:
    await _alone(stage, f"{session}-source")
    request = ForkSessionInput(session_id=f"{session}-source", new_session_id=session)
    return stage.task("helix.sessions.fork", request)


SCENES.update(
    {
        "a session is created in its store": Scene("helix.sessions.create", _create),
        "messages are appended by the session store": Scene("helix.sessions.append_messages", _append),
        "messages and a title are appended by the session store": Scene(
            "helix.sessions.append_messages", _append_and_change
        ),
        "a session is forked by its store": Scene("helix.sessions.fork", _fork),
    }
)
