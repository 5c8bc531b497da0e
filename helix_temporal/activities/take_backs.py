"""The activity that plans how turns are taken back; it changes nothing."""

import hashlib
from typing import Any, Final

from temporalio import activity

from helix_temporal.activities._context import beating
from helix_temporal.activities._errors import typed
from helix_temporal.activities._limits import limited_as
from helix_temporal.activities._payloads import FAR, Payloads
from helix_temporal.activities._state_place import holds
from helix_temporal.activities._step_rules import parse_state, short_id
from helix_temporal.activities._tidying import CUT_REMEMBERED
from helix_temporal.activities._turn_list import FoundTurn, head_after, newest_turns, newest_users
from helix_temporal.errors import CheckpointNotFoundError, HeadMovedError, InvalidRequestError
from helix_temporal.models.handles import PlanTakeBackInput, PlanTakeBackResult, TakeBackRequest
from helix_temporal.models.messages import Message
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import UserMessage
from helix_temporal.models.slices import TakenBack
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ThreadStore

INLINE_AGAIN: Final = 1024
"""A message that is asked anew stays in the slice up to so many bytes, a longer one by reference."""


class TakeBacks:
    """Finds where a request to take turns back cuts the thread.

    Args:
        sessions: None where the state is in the thread's slice alone.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(
        self,
        threads: ThreadStore,
        payloads: Payloads,
        sessions: SessionStore | None = None,
        *,
        beat_every: float = 1.0,
    ) -> None:
        self._threads, self._payloads, self._sessions = threads, payloads, sessions
        self._beat_every = beat_every

    @activity.defn(name="helix.sessions.plan_take_back")
    @typed
    @limited_as("heartbeat")
    async def plan_take_back(self, request: PlanTakeBackInput) -> PlanTakeBackResult:
        """Where a request cuts the thread, and which messages it asks anew; or that it was carried out."""
        wanted = request.request
        facts = await self._threads.facts(request.thread_id)
        known = parse_state(facts.slice).taken_back
        done = [each for each in known if each.id == wanted.id]
        if done:
            return PlanTakeBackResult(to=facts.head, done=True, record=done[-1])
        if request.known is not None and facts.head.position < request.known.position:
            raise HeadMovedError(
                f"thread {request.thread_id!r}: the session stood at {request.known.position}, the thread"
                f" is at {facts.head.position}: turns behind that were lost; see what stands, and ask again"
            )
        async with beating(self._beat_every):
            return await self._plan(request, wanted)

    async def _plan(self, request: PlanTakeBackInput, wanted: TakeBackRequest) -> PlanTakeBackResult:
        given = [each for each in (wanted.to, wanted.turns, wanted.checkpoint) if each is not None]
        if len(given) != 1:
            raise InvalidRequestError(f"one of to, turns and checkpoint expected, {len(given)} given")
        if wanted.checkpoint is not None:
            to = await self._checkpoint_head(request, wanted.checkpoint)
        elif wanted.to is not None:
            to = wanted.to
        elif wanted.turns is not None and wanted.turns >= 0:
            to = await head_after(self._threads, request.thread_id, wanted.turns)
        else:
            count = -(wanted.turns or 0)
            turns = await newest_turns(self._threads, request.thread_id, count)
            if len(turns) < count:
                raise InvalidRequestError(
                    f"thread {request.thread_id!r}: {len(turns)} finished turns, {count} cannot go"
                )
            to = turns[0].start
            if wanted.again:
                messages = await self._again(request.thread_id, wanted.id, turns[0])
                cut = tuple(short_id(each.id) for each in turns[0].users)
                record = TakenBack(id=wanted.id, to=to, messages=messages, cut=cut)
                return PlanTakeBackResult(to=to, record=record)
        users = await newest_users(self._threads, request.thread_id, to.position, CUT_REMEMBERED)
        cut = tuple(short_id(each) for each in users)
        return PlanTakeBackResult(to=to, record=TakenBack(id=wanted.id, to=to, cut=cut))

    async def _checkpoint_head(self, request: PlanTakeBackInput, checkpoint_id: str) -> Head:
        session_id = request.session_id
        if self._sessions is None:
            raise InvalidRequestError(
                f"session {session_id!r}: no session store, so there are no checkpoints"
            )
        found = await self._sessions.get_checkpoint(session_id, checkpoint_id)
        if found is None:
            raise CheckpointNotFoundError(f"session {session_id!r} has no checkpoint {checkpoint_id!r}")
        if not await holds(self._threads, request.thread_id, found.head):
            raise HeadMovedError(
                f"checkpoint {checkpoint_id!r} stands at {found.head.position}, and the thread of session "
                f"{session_id!r} no longer holds that: it was taken back; restore an earlier one"
            )
        return found.head

    async def _again(self, thread_id: str, request_id: str, turn: FoundTurn) -> tuple[UserMessage, ...]:
        """The users' messages of a turn under new ids, the same for each attempt."""
        if not turn.users:
            raise InvalidRequestError(
                f"thread {thread_id!r}: in the turn at {turn.start.position} no user said anything that can "
                "be asked anew; it stays as it is"
            )
        return tuple([await self._under(thread_id, _anew(request_id, each.id), each) for each in turn.users])

    async def _under(self, thread_id: str, message_id: str, message: Message) -> UserMessage:
        metadata = {name: value for name, value in message.metadata.items() if isinstance(value, str)}
        fields: dict[str, Any] = {"id": message_id}
        if metadata:
            fields["metadata"] = metadata
        content = message.content
        if isinstance(content, str) and len(content.encode()) <= INLINE_AGAIN:
            return UserMessage(text=content, **fields)
        ref = await self._payloads.put(thread_id, FAR, f"again/{message_id}", content)
        return UserMessage(ref=ref, **fields)


def _anew(request_id: str, message_id: str) -> str:
    """Of both: a request's name may be in use again, in a fork, and what has its id would count as asked."""
    return hashlib.sha256(f"{request_id}\0{message_id}".encode()).hexdigest()[:32]
