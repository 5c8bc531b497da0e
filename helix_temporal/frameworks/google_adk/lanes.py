"""What a workflow knows of the contents that workers keep of its model calls: `Lanes`.

ADK gives a model the whole conversation with each call.  As an activity's input that makes a history that
grows with the square of the turns.  So a worker keeps the contents of a call, in a *lane*: in it each call
goes on from the contents of the one before.  The next call names how many of them are there, and their
digest, and brings what follows.  A worker that does not have just these refuses, and all contents are sent.
"""

import contextvars
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityConfig

from helix_temporal.frameworks.google_adk.keys import UserSessionKey
from helix_temporal.models.base import WireModel

INVOKE_MODEL: Final = "helix.google_adk.invoke_model"
CONTENTS_LOST: Final = "helix.google_adk.ContentsLost"
"""The type of the error by which a worker asks for all contents."""
_LANES: Final = 4
"""So many a workflow goes on with: each agent sees a conversation in its own way, and has its own lane."""

_lanes_of_run: contextvars.ContextVar["Lanes | None"] = contextvars.ContextVar(
    "helix_adk_lanes", default=None
)


class ContentsPlace(WireModel):
    """What a worker has of the contents of a call.

    Attributes:
        app, user, session: The session in which they are.
        lane: Among the session's.
        start: How many of the contents are in the lane; those that come with the call follow them.
        digest: Of these.
    """

    app: str
    user: str
    session: str
    lane: str
    start: int
    digest: str

    @property
    def key(self) -> UserSessionKey:
        """As stores name the session."""
        return UserSessionKey(self.app, self.user, self.session)


class InvokeModelInput(WireModel):
    """A call of a model.

    Attributes:
        place: What a worker has of its contents.
        request: With those that follow.
    """

    place: ContentsPlace
    request: LlmRequest


def digest_contents(contents: Sequence[types.Content]) -> list[str]:
    """A digest for each content, of it and of all before it."""
    digests, before = list[str](), ""
    for content in contents:
        text = content.model_dump_json(exclude_none=True)
        before = hashlib.sha256(f"{before}\0{text}".encode()).hexdigest()[:32]
        digests.append(before)
    return digests


@dataclass(slots=True, eq=False)
class _Lane:
    """Digests of the contents that workers have in it; a call that is under way changes them."""

    name: str
    digests: list[str] = field(default_factory=list)
    is_busy: bool = False

    def count_common(self, digests: Sequence[str]) -> int:
        """How many contents at their beginnings are the same."""
        count = min(len(digests), len(self.digests))
        # Each digest covers all before it.
        return next((at for at in range(count, 0, -1) if digests[at - 1] == self.digests[at - 1]), 0)


class Lanes:
    """The lanes of one session in one workflow."""

    def __init__(self, key: UserSessionKey) -> None:
        self._key, self._lanes = key, list[_Lane]()

    async def invoke_model(self, request: LlmRequest, config: ActivityConfig) -> list[LlmResponse]:
        """The model's answers, by an activity that is given what is new of the contents."""
        digests = digest_contents(request.contents)
        lane = self._choose_lane(digests)
        start = lane.count_common(digests)
        try:
            return await self._invoke_on(lane, start, request, digests, config)
        except ActivityError as error:
            if not start or not _tells_lost_contents(error):
                raise
        self._forget_lane(lane)
        return await self._invoke_on(self._begin_lane(), 0, request, digests, config)

    async def _invoke_on(
        self, lane: _Lane, start: int, request: LlmRequest, digests: list[str], config: ActivityConfig
    ) -> list[LlmResponse]:
        place = ContentsPlace(
            app=self._key.app,
            user=self._key.user,
            session=self._key.session,
            lane=lane.name,
            start=start,
            digest=digests[start - 1] if start else "",
        )
        new = request.model_copy(update={"contents": request.contents[start:]})
        call = InvokeModelInput(place=place, request=new)
        lane.is_busy, lane.digests = True, digests[:start]
        try:
            answers: list[LlmResponse] = await workflow.execute_activity(
                INVOKE_MODEL, call, result_type=list[LlmResponse], **config
            )
        finally:
            lane.is_busy = False
        lane.digests = digests
        return answers

    def _choose_lane(self, digests: Sequence[str]) -> _Lane:
        idle = [lane for lane in self._lanes if not lane.is_busy]
        best = max(idle, key=lambda lane: lane.count_common(digests), default=None)
        # Another agent's has the first contents alone in common: it would have to send the rest again.
        if best is None or best.count_common(digests) * 2 < max(len(best.digests), 1):
            return self._begin_lane()
        self._forget_lane(best)
        self._lanes.append(best)  # the one used last stands last
        return best

    def _begin_lane(self) -> _Lane:
        # By their names the lanes of a session are in the order of their age.
        lane = _Lane(f"{int(workflow.time() * 1000):013}-{workflow.uuid4().hex}")
        idle = [each for each in self._lanes if not each.is_busy]
        if len(self._lanes) >= _LANES and idle:
            self._forget_lane(idle[0])
        self._lanes.append(lane)
        return lane

    def _forget_lane(self, lane: _Lane) -> None:
        self._lanes = [each for each in self._lanes if each is not lane]


def _tells_lost_contents(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type == CONTENTS_LOST


def enter_session(lanes: Lanes) -> None:
    """Model calls of what runs in this context from now on belong to the lanes' session."""
    _lanes_of_run.set(lanes)


def find_lanes() -> Lanes | None:
    """The lanes of the session that this context runs for, if it is in a workflow."""
    return _lanes_of_run.get() if workflow.in_workflow() else None
