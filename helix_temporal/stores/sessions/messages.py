"""Messages of a session, for those who use the store without the session workflow."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from helix_temporal.errors import (
    ConflictError,
    FencedError,
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    StoreUnavailableError,
    ThreadNotFoundError,
)
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.states import SaveResult
from helix_temporal.models.store_calls import DEFAULT_LIMIT, AppendResult, PageMessagesResult
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
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
from helix_temporal.stores.sessions.life import check_version
from helix_temporal.stores.sessions.loop import pause_before_retry
from helix_temporal.stores.sessions.threads import DEDUP, RecentMessages, Standing


def encode_new_messages(messages: Sequence[Message]) -> tuple[StoredMessage, ...]:
    """The messages as a thread keeps them.

    Raises:
        InvalidRequestError: Two have the same id.
        InvalidMessageError, TooLargeError: One cannot be kept.
    """
    stored = encode_messages([revalidate_model(message, Message) for message in messages])
    if len({each.id for each in stored}) < len(stored):
        raise InvalidRequestError("two messages of one append have the same id")
    return stored


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
) -> AppendPlan:
    """Leave out what is there already.

    ``there`` are the messages at ``places``, by position.

    Raises:
        IdempotencyConflictError: An id stands there with other content.
        HeadMovedError: Between a look at the ids and one at the messages the thread was cut.
    """
    for message in messages:
        stands = there.get(places[message.id]) if message.id in places else message
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


async def append_messages(
    store: SessionStoreBase,
    session_id: str,
    messages: Sequence[Message],
    *,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> AppendResult:
    """See `SessionStore.append_messages`.

    Where threads lie in another store the messages are appended first, and then remembered with the
    operation; a repeat after a crash between the two finds them by their ids.
    """
    stored = encode_new_messages(messages)
    content = [[message.kind, message.id, message.body] for message in stored]
    call = Call("append_messages", session_id, (content,), epoch, operation_id)

    store.loop.check_call(call)
    if stored and epoch is None and operation_id is None:
        async with store.loop.lock_session(session_id):
            result = await _append_where_left(store, session_id, stored)
        if result is not None:
            return result

    async def decide(seen: SeenSession) -> Decision[AppendResult] | None:
        return await _append_messages(store, seen, call, stored)

    for number in range(_TRIES):
        try:
            return await store.make_change(call, store.with_thread, decide, AppendResult)
        except (HeadMovedError, FencedError) as error:
            if "session_id" in error.facts:
                raise
            # Somebody else appended to the thread, or opened it, between look and append.
            await pause_before_retry(number)
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
    total = await get_message_count(store, session_id)
    start, stop = offset, min(offset + limit, total)
    if order == "desc":
        start, stop = max(total - offset - limit, 0), max(total - offset, 0)
    # Not at the same time: an order for the thread, carried out by the count, may make it another one.
    stored = await store.threads.read(session_id, start, stop)
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
    seen = await store.view_session(session_id, store.with_thread)
    while seen.state is not None and await store.threads.carry_out_seen(seen):
        seen = await store.view_session(session_id, store.with_thread)
    if seen.state is None:
        return 0
    there = await store.threads.find_standing(seen)
    return there.visible_end(session_id) if there else 0


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


async def _append_messages(
    store: SessionStoreBase, seen: SeenSession, call: Call, messages: tuple[StoredMessage, ...]
) -> Decision[AppendResult] | None:
    _ = seen.present
    if await store.threads.carry_out_seen(seen):
        return None
    session_id = seen.session_id
    if not messages:
        there = await store.threads.find_standing(seen)
        return Decision(plan_append(session_id, (), there.head if there else EMPTY, {}, {}).result)
    at = await store.threads.join_thread(seen)
    newest = await store.threads.list_newest_ids(session_id, at, DEDUP + len(messages))
    plan = await _plan_append(store, session_id, messages, at, newest)
    if not plan.new:
        return Decision(plan.result)
    step = StepAppend(session_id, at.epoch, at.head, plan.new, commits=True)
    store.threads.recent.keep_thread(
        session_id, RecentMessages(at.epoch, at.head, tuple(newest)).with_appended(plan.new)
    )
    named = call.epoch is not None or call.operation_id is not None
    if store.threads.in_one_unit and named:
        return Decision(plan.result, append=step)
    await store.threads.append(step)
    return Decision(plan.result)


async def _append_where_left(
    store: SessionStoreBase, session_id: str, messages: tuple[StoredMessage, ...]
) -> AppendResult | None:
    """Append where this process left the thread, while the session is looked at; None if it is not so.

    What was appended while the session turns out to have an order for its thread is cut with the
    rest, and appended again by the caller.
    """
    recent = store.threads.recent.pop_thread(session_id)
    if recent is None or not {message.id for message in messages}.isdisjoint(recent.newest):
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
    return AppendResult(first_index=recent.head.position, count=len(messages), head=after.head)


async def _plan_append(
    store: SessionStoreBase,
    session_id: str,
    messages: tuple[StoredMessage, ...],
    at: Standing,
    newest: list[str],
) -> AppendPlan:
    places = known_positions(newest, at.head, messages)
    there: dict[int, StoredMessage] = {}
    if places:
        first, last = min(places.values()), max(places.values())
        found = await store.threads.read(session_id, first, last + 1)
        there = dict(enumerate(found, first))
    return plan_append(session_id, messages, at.head, there, places)
