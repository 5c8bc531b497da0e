"""Turns of a thread, and plans to take them back.  Nothing here changes a store."""

from typing import Any, Final

from temporalio import activity

from helix_temporal.activities._runtime import heartbeat_with_progress, limited_as, raise_application_errors
from helix_temporal.activities.checkpoints import has_head
from helix_temporal.activities.payloads import FAR, Payloads
from helix_temporal.errors import CheckpointNotFoundError, HeadMovedError, InvalidRequestError
from helix_temporal.models.handles import (
    FindTurnResult,
    ListTurnsResult,
    PlanTakeBackInput,
    PlanTakeBackResult,
    TakeBackRequest,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import UserMessage
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage
from helix_temporal.models.turns import starts_in, user_in
from helix_temporal.session.record import REMEMBERED_CUT_MESSAGES, parse_record
from helix_temporal.session.rewinds import (
    FoundTurn,
    check_nothing_lost,
    check_one_place,
    derive_message_id,
    find_carried_out,
    record_rewind,
    split_after_first,
    split_turns,
)
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage, ThreadStore

_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024


async def first_turns(
    threads: ThreadStore, thread_id: str, start: int, count: int
) -> tuple[list[FoundTurn], int | None]:
    """Up to ``count`` finished turns from ``start`` on, and where the next one begins, None at the end.

    Raises:
        InvalidRequestError: No turn begins at ``start``.
    """
    page = await _read_page(threads, thread_id, max(start - 1, 0), None)
    messages, begun = list(page.messages), len(starts_in(page.messages, from_begin=start == 0))
    while page.after is not None and begun <= count:
        page = await _read_page(threads, thread_id, page.after, None)
        begun += len(starts_in([*messages[-1:], *page.messages]))
        messages += page.messages
    before = EMPTY
    if start:
        begins = starts_in(messages[:2], from_begin=start == 1) == [1]
        if page.committed < start or (page.committed > start and not begins):
            raise InvalidRequestError(f"thread {thread_id!r}: no turn begins at {start}")
        before = Head(position=start, last_id=messages.pop(0).id)
    turns = split_turns(before, messages) if messages else []
    return turns[:count], turns[count - 1].end.position if len(turns) > count else None


async def head_after_turns(threads: ThreadStore, thread_id: str, count: int) -> Head:
    """Where the thread stood after its first ``count`` turns.

    Raises:
        InvalidRequestError: It has fewer.
    """
    if count == 0:
        return EMPTY
    begun, at, last = 0, 0, tuple[StoredMessage, ...]()
    while True:
        page = await _read_page(threads, thread_id, at, None)
        begun += bool(page.messages) and not last
        window = (*last, *page.messages)
        starts = starts_in(window, from_begin=at == 0)
        if begun + len(starts) > count:
            end = starts[count - begun]
            return Head(position=at - len(last) + end, last_id=window[end - 1].id)
        begun, at, last = begun + len(starts), at + len(page.messages), window[-1:]
        if page.after is None:
            break
    if begun < count:
        raise InvalidRequestError(f"thread {thread_id!r}: {begun} finished turns, {count} cannot stay")
    return Head(position=at, last_id=last[0].id)


async def newest_turns(
    threads: ThreadStore, thread_id: str, count: int, *, unfinished: bool = False
) -> list[FoundTurn]:
    """The newest finished turns, oldest first; fewer where the thread has not so many.

    With ``unfinished`` the last one may be a turn that waits.
    """
    messages: list[StoredMessage] = []
    begun = 0
    stop: int | None = None
    while True:
        page = await _read_page(threads, thread_id, 0, stop, backward=True, unfinished=unfinished)
        begun += len(starts_in([*page.messages, *messages[:1]], from_begin=page.first == 0))
        messages = [*page.messages, *messages]
        stop = page.before
        if stop is None or begun >= count:
            break
    if not messages:
        return []
    turns = split_turns(EMPTY, messages) if stop is None else split_after_first(page.first, messages)
    return turns[-count:]


async def newest_users(threads: ThreadStore, thread_id: str, start: int, count: int) -> list[str]:
    """Ids of the newest ``count`` users' messages from ``start`` on, oldest first; a waiting turn's too."""
    found: list[str] = []
    stop: int | None = None
    while True:
        page = await _read_page(threads, thread_id, start, stop, backward=True, unfinished=True)
        found = [*(each.id for each in page.messages if each.kind == Kind.USER), *found]
        stop = page.before
        if stop is None or stop <= start or len(found) >= count:
            return found[-count:]


async def turn_of(threads: ThreadStore, thread_id: str, message_id: str) -> FindTurnResult:
    """The finished turn that a user's message is in; the newest turns are looked at first.

    Raises:
        InvalidRequestError: No finished turn has a message of the user's with that id.
    """
    count = 64
    while True:
        turns = await newest_turns(threads, thread_id, count)
        for turn in reversed(turns):
            if any(message.id == message_id and user_in(message) is not None for message in turn.messages):
                return FindTurnResult(start=turn.start, end=turn.end)
        if not turns or turns[0].start.position == 0:
            raise InvalidRequestError(
                f"thread {thread_id!r}: no finished turn has a message {message_id!r} of the user's"
            )
        count *= 4


async def list_turns(
    threads: ThreadStore, thread_id: str, start: int, number: int, limit: int, newest: int | None
) -> ListTurnsResult:
    """A page of turns; see `ListTurnsInput`."""
    if newest is not None:
        last = await newest_turns(threads, thread_id, newest)
        return ListTurnsResult(turns=tuple(turn.build_info(at - len(last)) for at, turn in enumerate(last)))
    turns, after = await first_turns(threads, thread_id, start, limit)
    return ListTurnsResult(
        turns=tuple(turn.build_info(number + at) for at, turn in enumerate(turns)), after=after
    )


async def _read_page(
    threads: ThreadStore,
    thread_id: str,
    start: int,
    stop: int | None,
    *,
    backward: bool = False,
    unfinished: bool = False,
) -> ThreadPage:
    return await threads.read(
        ReadPage(
            thread_id,
            start,
            stop,
            limit=_PAGE,
            max_bytes=_PAGE_BYTES,
            backward=backward,
            committed_only=not unfinished,
            whole=False,
        )
    )


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
    @raise_application_errors
    @limited_as("heartbeat")
    async def plan_take_back(self, request: PlanTakeBackInput) -> PlanTakeBackResult:
        """Where a request cuts the thread, and which messages it asks anew; or that it was carried out."""
        wanted = request.request
        facts = await self._threads.read_facts(request.thread_id)
        earlier = find_carried_out(parse_record(facts.slice), wanted.id)
        if earlier is not None:
            return PlanTakeBackResult(to=facts.head, done=True, taken_back=earlier)
        check_nothing_lost(request.thread_id, request.head, facts.head)
        async with heartbeat_with_progress(self._beat_every):
            return await self._plan_cut(request, wanted)

    async def _plan_cut(self, request: PlanTakeBackInput, wanted: TakeBackRequest) -> PlanTakeBackResult:
        check_one_place(wanted)
        if wanted.checkpoint is not None:
            to = await self._checkpoint_head(request, wanted.checkpoint)
        elif wanted.to is not None:
            to = wanted.to
        elif wanted.turns is not None and wanted.turns >= 0:
            to = await head_after_turns(self._threads, request.thread_id, wanted.turns)
        else:
            turn = await self._last_turn_to_go(request.thread_id, -(wanted.turns or 0))
            to = turn.start
            if wanted.again:
                messages = await self._copy_user_messages(request.thread_id, wanted.id, turn)
                taken_back = record_rewind(wanted.id, to, [each.id for each in turn.users], messages)
                return PlanTakeBackResult(to=to, taken_back=taken_back)
        users = await newest_users(self._threads, request.thread_id, to.position, REMEMBERED_CUT_MESSAGES)
        return PlanTakeBackResult(to=to, taken_back=record_rewind(wanted.id, to, users))

    async def _last_turn_to_go(self, thread_id: str, count: int) -> FoundTurn:
        """The oldest of the newest ``count`` turns, of which one that waits is the newest.

        Raises:
            InvalidRequestError: There are fewer.
        """
        turns = await newest_turns(self._threads, thread_id, count, unfinished=True)
        if len(turns) < count:
            raise InvalidRequestError(f"thread {thread_id!r}: it has {len(turns)} turns, {count} cannot go")
        return turns[0]

    async def _checkpoint_head(self, request: PlanTakeBackInput, checkpoint_id: str) -> Head:
        session_id = request.session_id
        if self._sessions is None:
            raise InvalidRequestError(
                f"session {session_id!r}: no session store, so there are no checkpoints"
            )
        found = await self._sessions.get_checkpoint(session_id, checkpoint_id)
        if found is None:
            raise CheckpointNotFoundError(f"session {session_id!r} has no checkpoint {checkpoint_id!r}")
        if not await has_head(self._threads, request.thread_id, found.head):
            raise HeadMovedError(
                f"checkpoint {checkpoint_id!r} stands at {found.head.position}, and the thread of session "
                f"{session_id!r} no longer holds that: it was taken back; restore an earlier one"
            )
        return found.head

    async def _copy_user_messages(
        self, thread_id: str, request_id: str, turn: FoundTurn
    ) -> tuple[UserMessage, ...]:
        """The users' messages of a turn under new ids, the same for each attempt."""
        if not turn.users:
            raise InvalidRequestError(
                f"thread {thread_id!r}: in the turn at {turn.start.position} no user said anything that can "
                "be asked anew; it stays as it is"
            )
        return tuple(
            [
                await self._copy_under_id(thread_id, derive_message_id(request_id, each.id), each)
                for each in turn.users
            ]
        )

    async def _copy_under_id(self, thread_id: str, message_id: str, message: Message) -> UserMessage:
        metadata = {name: value for name, value in message.metadata.items() if isinstance(value, str)}
        fields: dict[str, Any] = {"id": message_id}
        if metadata:
            fields["metadata"] = metadata
        content = message.content
        if isinstance(content, str) and len(content.encode()) <= INLINE_AGAIN:
            return UserMessage(text=content, **fields)
        ref = await self._payloads.put(thread_id, FAR, f"again/{message_id}", content)
        return UserMessage(ref=ref, **fields)
