"""Messages of a session, for those who use the store without the session workflow."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from helix_temporal.errors import (
    ConflictError,
    FencedError,
    HeadMovedError,
    HelixError,
    IdempotencyConflictError,
    InvalidRequestError,
    StaleStateError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.limits import DEDUP_WINDOW
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.states import SaveResult, SessionState, StateChange
from helix_temporal.models.store_calls import DEFAULT_LIMIT, AppendResult, OnDuplicate, PageMessagesResult
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage, head_after
from helix_temporal.models.turns import encode_messages
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.session_rows import WantedRows
from helix_temporal.stores.sessions import threads as orders
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import (
    checked_count,
    checked_limit,
    checked_version,
    revalidate_model,
)
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession
from helix_temporal.stores.sessions.life import apply_state_change, check_version
from helix_temporal.stores.sessions.loop import encode_state, pause_before_retry
from helix_temporal.stores.sessions.threads import RecentMessages, Standing


def encode_new_messages(
    messages: Sequence[Message], *, keep_first: bool = False
) -> tuple[StoredMessage, ...]:
    """The messages as a thread keeps them; with ``keep_first`` the first one of each id.

    Raises:
        InvalidRequestError: Two have the same id.
        InvalidMessageError, TooLargeError: One cannot be kept.
    """
    stored = encode_messages([revalidate_model(message, Message) for message in messages])
    first = {each.id: each for each in reversed(stored)}
    if len(first) == len(stored):
        return stored
    if not keep_first:
        raise InvalidRequestError("two messages of one append have the same id")
    return tuple(each for each in stored if first[each.id] is each)


def known_positions(newest: Sequence[str], head: Head, messages: Sequence[StoredMessage]) -> dict[str, int]:
    """Positions of those messages whose ids are among the newest ones of the thread."""
    first = head.position - len(newest)
    places = {name: first + at for at, name in enumerate(newest)}
    return {message.id: places[message.id] for message in messages if message.id in places}


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What an append adds, and what it answers."""

    new: tuple[StoredMessage, ...]
    result: AppendResult


def plan_append(
    session_id: str,
    messages: Sequence[StoredMessage],
    head: Head,
    there: Mapping[int, StoredMessage],
    places: Mapping[str, int],
    *,
    keep_first: bool = False,
) -> AppendPlan:
    """Leave out what is there already.

    ``there`` are the messages at ``places``, by position; with ``keep_first`` nobody looks at them.

    Raises:
        IdempotencyConflictError: An id stands there with other content.
        HeadMovedError: Between a look at the ids and one at the messages the thread was cut.
    """
    for message in messages:
        stands = there.get(places[message.id]) if message.id in places and not keep_first else message
        if stands is None or stands.id != message.id:
            raise HeadMovedError(f"session {session_id!r}: its thread was cut meanwhile; look again")
        if stands != message:
            raise IdempotencyConflictError(
                f"session {session_id!r}: message {message.id!r} stands in the thread with other content; "
                "an id stands for one content only",
                session_id=session_id,
                message_id=message.id,
            )
    new = tuple(message for message in messages if message.id not in places)
    at = {**places, **{message.id: head.position + number for number, message in enumerate(new)}}
    if not messages:
        return AppendPlan((), AppendResult(first_index=head.position, count=0, head=head))
    last = messages[-1]
    end = Head(position=at[last.id] + 1, last_id=last.id)
    return AppendPlan(new, AppendResult(first_index=at[messages[0].id], count=len(messages), head=end))


_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What is asked for with messages.

    Attributes:
        touch: The session counts as changed now.
        change: Of the state, with the messages.
        keep_first: What stands in the thread under an id of theirs is not looked at.
        expected: The version that the state must have.
        head: Where the messages must end, or where these begin if they are there already.
    """

    messages: tuple[StoredMessage, ...]
    touch: bool = True
    change: StateChange | None = None
    keep_first: bool = False
    expected: int | None = None
    head: Head | None = None

    @property
    def reads_state(self) -> bool:
        """Whether the state decides."""
        return self.change is not None or self.expected is not None

    def in_unit(self, store: SessionStoreBase) -> bool:
        """Whether messages and state are one commit."""
        return store.threads.in_one_unit and (self.touch or self.reads_state)

    def make_call(self, session_id: str, epoch: int | None, operation_id: str | None) -> Call:
        """The request as a call; only what says something of the content tells one from another."""
        content: list[object] = [[[each.kind, each.id, each.body] for each in self.messages]]
        if self.reads_state:
            content += [self.change, self.expected]
        if self.head is not None:
            content.append(self.head)
        return Call("append_messages", session_id, tuple(content), epoch, operation_id)


def decide_append(
    seen: SeenSession, request: AppendRequest, result: AppendResult, *, adds: bool
) -> Decision[AppendResult]:
    """What becomes of the state; ``adds``: there are messages that were not in the thread before.

    Raises:
        StateBehindThreadError: The state's head is before what the change ``follows``.
        TooLargeError: The state is too large then.
    """
    if request.change is not None:
        state, warnings = apply_state_change(seen, request.change)
        told = {"new_version": state.version, "warnings": warnings}
        return Decision(result.model_copy(update=told), state, encode_state(state))
    touched = decide_touch(seen) if request.touch and adds else Decision(None)
    return Decision(result, touched.state, touched.body)


def decide_touch(seen: SeenSession) -> Decision[None]:
    """The state with the time of now, if it has an earlier one; no new version."""
    stored = seen.present
    if seen.now <= stored.updated_at:
        return Decision(None)
    state = stored.model_copy(update={"updated_at": seen.now})
    return Decision(None, state, encode_state(state))


async def append_messages(
    store: SessionStoreBase,
    session_id: str,
    messages: Sequence[Message],
    *,
    touch: bool = True,
    change: StateChange | None = None,
    on_duplicate: OnDuplicate = "error",
    head: Head | None = None,
    expected_version: int | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> AppendResult:
    """See `SessionStore.append_messages`.

    Where threads lie in another store the messages are appended first.  Then the state is committed, with
    the operation; a repeat after a crash between the two finds the messages by their ids.  Where the archive
    is required it comes last, and a repeat archives what it finds.
    """
    if on_duplicate not in {"error", "keep_first"}:
        raise InvalidRequestError("on_duplicate: error or keep_first expected")
    keep_first = on_duplicate == "keep_first"
    request = AppendRequest(
        encode_new_messages(messages, keep_first=keep_first),
        touch,
        None if change is None else revalidate_model(change, StateChange),
        keep_first,
        checked_version(expected_version),
        None if head is None else revalidate_model(head, Head),
    )
    call = request.make_call(session_id, epoch, operation_id)
    store.loop.check_call(call)
    result = await _append(store, call, request)
    if messages and store.archive_required and store.threads.store.archives:
        await store.threads.archive(session_id, result.head)
    return result


async def _append(store: SessionStoreBase, call: Call, request: AppendRequest) -> AppendResult:
    session_id, messages = call.session_id, request.messages
    if messages and not call.named and request.in_unit(store):
        result = await _commit_where_left(store, call, request)
        if result is not None:
            return result
    elif messages and not call.named and not request.reads_state and request.head is None:
        async with store.loop.lock_session(session_id):
            beside = await _append_where_left(store, session_id, messages)
        if beside is not None:
            seen, result = beside
            if request.touch:
                await _touch_session(store, seen, call)
            return result
    return await _append_at_end(store, call, request)


@dataclass(slots=True)
class _Appending:
    """One append, tried until nobody comes between.

    Attributes:
        appended: Messages of it are in a thread that lies elsewhere.
        outlined: The thread's slice says what the state is then, or need not.
        left: Where it leaves the thread, once it succeeds.
    """

    store: SessionStoreBase
    call: Call
    request: AppendRequest
    appended: bool = False
    outlined: bool = True
    left: RecentMessages | None = None

    async def decide(self, seen: SeenSession) -> Decision[AppendResult] | None:
        plan = await _plan_append(self.store, seen, self.request)
        if plan is None:
            return None
        self.left, threads = plan.left, self.store.threads
        adds = self.appended or plan.step is not None
        decision = decide_append(seen, self.request, plan.result, adds=adds)
        self.outlined = self.request.change is None
        if plan.step is None:
            return decision
        in_unit = self.call.named or self.request.reads_state or decision.state is not None
        if threads.in_one_unit and in_unit:
            return replace(decision, append=plan.step)
        step, self.outlined = self._add_outline(seen, plan.step, plan.at, decision.state), True
        await threads.append(step)
        self.appended = True
        return decision

    def _add_outline(
        self, seen: SeenSession, step: StepAppend, at: Standing | None, state: SessionState | None
    ) -> StepAppend:
        """The step with what it makes of the session, if that is news to the thread's slice."""
        if at is None or (self.request.change is None and at.slice):
            return step
        max_epoch = max(seen.view.max_epoch, self.call.epoch or 0)
        return self.store.threads.add_outline(step, at, state or seen.present, max_epoch)


async def _append_at_end(store: SessionStoreBase, call: Call, request: AppendRequest) -> AppendResult:
    session_id, appending = call.session_id, _Appending(store, call, request)
    # In one unit with the session nobody makes a thread hot that was put away meanwhile.
    passing: tuple[type[HelixError], ...] = (HeadMovedError, FencedError, StaleStateError)
    if store.threads.in_one_unit:
        passing += (ThreadNotFoundError,)
    for number in range(_TRIES):
        try:
            done = await store.loop.make_change(
                call, store.with_thread, appending.decide, AppendResult, keeps=True
            )
        except passing as error:
            if "session_id" in error.facts:
                raise
            # Somebody else appended to the thread, changed its slice, opened it or put it away, between look
            # and append.
            await pause_before_retry(number)
        else:
            if appending.left is not None:
                store.threads.recent.keep_thread(session_id, appending.left)
            if not appending.outlined:
                await store.threads.save_outline(session_id)
            return done.answer
    raise StoreUnavailableError(f"session {session_id!r}: append was overtaken {_TRIES} times")


async def get_messages(
    store: SessionStoreBase,
    session_id: str,
    *,
    offset: int = 0,
    limit: int = DEFAULT_LIMIT,
    order: Literal["asc", "desc"] = "asc",
) -> PageMessagesResult:
    """See `SessionStore.get_messages`."""
    offset, limit = checked_count(offset, "offset"), checked_limit(limit)
    if order not in {"asc", "desc"}:
        raise InvalidRequestError("order: asc or desc expected")
    there = await _find_shown(store, session_id)
    total = there.visible_end(session_id) if there else 0
    start, stop = offset, min(offset + limit, total)
    if order == "desc":
        start, stop = max(total - offset - limit, 0), max(total - offset, 0)
    # Not at the same time: an order for the thread, carried out by that look, may make it another one.
    stored = await store.threads.read(session_id, start, stop, epoch=there.epoch if there else None)
    messages = [decode_message(message) for message in stored]
    return PageMessagesResult(
        messages=tuple(messages if order == "asc" else reversed(messages)),
        offset=offset,
        limit=limit,
        total=total,
        has_more=offset + len(messages) < total and bool(messages),
    )


async def get_message_count(store: SessionStoreBase, session_id: str) -> int:
    """See `SessionStore.get_message_count`."""
    there = await _find_shown(store, session_id)
    return there.visible_end(session_id) if there else 0


async def _find_shown(store: SessionStoreBase, session_id: str) -> Standing | None:
    """Where the thread stands whose messages are shown; None for an unknown session, and one without any.

    A session that the store does not know, and whose thread the archive has, was lost: that thread counts.
    """
    seen = await store.view_session(session_id, store.with_thread)
    while seen.state is not None and await store.threads.carry_out_seen(seen):
        seen = await store.view_session(session_id, store.with_thread)
    lost = store.threads.carries_outlines and not seen.view.revision
    return await store.threads.find_standing(seen) if seen.state is not None or lost else None


async def truncate_messages(
    store: SessionStoreBase,
    session_id: str,
    count: int,
    *,
    expected_version: int | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> SaveResult:
    """See `SessionStore.truncate_messages`.

    The state decides, with an order for the thread, which is then cut; a crash between the two is
    finished by a repeat of this call, or by the next one that comes to the messages.
    """
    expected = checked_version(expected_version)
    call = Call("truncate_messages", session_id, (count, expected), epoch, operation_id)

    async def decide(seen: SeenSession) -> Decision[SaveResult] | None:
        state = seen.present
        kept = checked_count(count, "count")
        if await store.threads.carry_out_seen(seen):
            return None
        check_version(state, expected)
        there = await store.threads.find_standing(seen)
        head = await store.threads.find_head(session_id, kept, there.visible_end(session_id) if there else 0)
        order = orders.order_to_cut(there, head, seen.now) if there else None
        after = seen.next_state(head=head)
        puts = (orders.row_of(order),) if order else ()
        return Decision(SaveResult(new_version=after.version), after, puts=puts)

    result = await store.make_change(call, store.with_thread, decide, SaveResult)
    await store.threads.carry_out_pending(session_id)
    return result


async def _commit_where_left(
    store: SessionStoreBase, call: Call, request: AppendRequest
) -> AppendResult | None:
    """Messages and state in one unit where this process left both, without a look; None if it is not so."""
    session_id, left = call.session_id, None

    async def decide(seen: SeenSession) -> Decision[AppendResult] | None:
        nonlocal left
        left = store.threads.recent.pop_thread(session_id)
        if left is None or not left.lacks(request.messages) or orders.pending_order(seen) is not None:
            return None
        check_version(seen.present, request.expected)
        if request.head is not None and request.head != left.head:
            return None
        step = StepAppend(session_id, left.epoch, left.head, request.messages, commits=True)
        count, end = len(request.messages), head_after(left.head, request.messages)
        result = AppendResult(first_index=left.head.position, count=count, head=end)
        return replace(decide_append(seen, request, result, adds=True), append=step)

    try:
        done = await store.loop.change_recalled(call, WantedRows(keys=orders.KEYS), decide, AppendResult)
    except (ConflictError, ThreadNotFoundError):
        # Somebody else appended to the thread, opened it or put it away.
        return None
    if left is None or done is None:
        return None
    store.threads.recent.keep_thread(session_id, left.with_appended(request.messages))
    return done.answer


async def _append_where_left(
    store: SessionStoreBase, session_id: str, messages: tuple[StoredMessage, ...]
) -> tuple[SeenSession, AppendResult] | None:
    """Append where this process left the thread, while the session is looked at; None if it is not so.

    What was appended while the session turns out to have an order for its thread is cut with the
    rest, and appended again by the caller.
    """
    recent = store.threads.recent.pop_thread(session_id)
    if recent is None or not recent.lacks(messages):
        return None
    step = StepAppend(session_id, recent.epoch, recent.head, messages, commits=True)
    seen, appended = await asyncio.gather(
        store.view_session(session_id, WantedRows(keys=orders.KEYS)),
        store.threads.append(step),
        return_exceptions=True,
    )
    if isinstance(seen, BaseException):
        raise seen
    _ = seen.present
    if isinstance(appended, ConflictError | ThreadNotFoundError) or orders.pending_order(seen) is not None:
        return None
    if isinstance(appended, BaseException):
        raise appended
    after = recent.with_appended(messages)
    store.threads.recent.keep_thread(session_id, after)
    return seen, AppendResult(first_index=recent.head.position, count=len(messages), head=after.head)


async def _touch_session(store: SessionStoreBase, seen: SeenSession, call: Call) -> None:
    """Let the session count as changed now, after messages that lie elsewhere and were appended meanwhile."""
    wanted = WantedRows(keys=orders.KEYS)
    if await store.loop.commit_seen(seen, call, decide_touch(seen), None, wanted) is None:
        await store.loop.make_change(call, wanted, decide_touch, None, keeps=True)


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    """What an append answers, the step of those messages that are new, if any is, and what it leaves.

    ``at`` is where the thread stands before the step.
    """

    result: AppendResult
    step: StepAppend | None = None
    left: RecentMessages | None = None
    at: Standing | None = None


async def _plan_append(
    store: SessionStoreBase, seen: SeenSession, request: AppendRequest
) -> _PlannedStep | None:
    """Look at the thread; None: it had to be told something first, look again."""
    check_version(seen.present, request.expected)
    if await store.threads.carry_out_seen(seen):
        return None
    session_id, messages = seen.session_id, request.messages
    if not messages:
        there = await store.threads.find_standing(seen)
        end = there.head if there else EMPTY
        _check_end(session_id, request.head, end)
        return _PlannedStep(plan_append(session_id, (), end, {}, {}).result)
    at = await store.threads.join_thread(seen)
    recent = store.threads.recent.pop_thread(session_id)
    if recent is not None and (recent.epoch, recent.head) == (at.epoch, at.head) and recent.lacks(messages):
        newest: Sequence[str] = recent.newest
    else:
        newest = await store.threads.list_newest_ids(session_id, at, DEDUP_WINDOW + len(messages))
    places = known_positions(newest, at.head, messages)
    there_already: dict[int, StoredMessage] = {}
    if places and not request.keep_first:
        first, last = min(places.values()), max(places.values())
        found = await store.threads.read(session_id, first, last + 1, epoch=at.epoch)
        there_already = dict(enumerate(found, first))
    plan = plan_append(session_id, messages, at.head, there_already, places, keep_first=request.keep_first)
    if not plan.new:
        if request.head is not None and plan.result.first_index != request.head.position:
            raise _moved_error(session_id, request.head, at.head)
        await store.threads.confirm_standing(session_id, at.epoch, plan.result.head)
        return _PlannedStep(plan.result)
    _check_end(session_id, request.head, at.head)
    step = StepAppend(session_id, at.epoch, at.head, plan.new, commits=True)
    left = RecentMessages(at.epoch, at.head, tuple(newest)).with_appended(plan.new)
    return _PlannedStep(plan.result, step, left, at)


def _check_end(session_id: str, expected: Head | None, found: Head) -> None:
    if expected is not None and expected != found:
        raise _moved_error(session_id, expected, found)


def _moved_error(session_id: str, expected: Head, found: Head) -> HeadMovedError:
    return HeadMovedError(
        f"session {session_id!r}: the messages end at {found.position}, and they were expected to end at "
        f"{expected.position}, or with another message; read them again",
        session_id=session_id,
        position=found.position,
        expected=expected.position,
    )
