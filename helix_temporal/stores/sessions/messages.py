"""Messages of a session, for those who use the store without the session workflow."""

import asyncio
import random
from collections import OrderedDict
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
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import EMPTY, Head, Record, head_after
from helix_temporal.models.rows import records_of
from helix_temporal.models.states import SaveResult
from helix_temporal.models.store_calls import DEFAULT_LIMIT, AppendResult, MessagePage
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.session_records import SessionRecords, WantedRecords
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.sessions import threads as orders
from helix_temporal.stores.sessions.base import SessionStorePart
from helix_temporal.stores.sessions.checks import (
    checked_count,
    checked_limit,
    checked_version,
    revalidate_model,
)
from helix_temporal.stores.sessions.decisions import Call, Decision, Seen
from helix_temporal.stores.sessions.life import check_version
from helix_temporal.stores.sessions.threads import Standing


def to_records(messages: Sequence[Message]) -> tuple[Record, ...]:
    """The messages as a thread keeps them.

    Raises:
        InvalidRequestError: Two have the same id.
        InvalidMessageError, TooLargeError: One cannot be kept.
    """
    records = records_of([revalidate_model(message, Message) for message in messages])
    if len({record.id for record in records}) < len(records):
        raise InvalidRequestError("two messages of one append have the same id")
    return records


def known_positions(newest: Sequence[str], head: Head, records: Sequence[Record]) -> dict[str, int]:
    """Positions of those records whose ids are among the newest ones of the thread."""
    first = head.position - len(newest)
    places = {name: first + at for at, name in enumerate(newest)}
    return {record.id: places[record.id] for record in records if record.id in places}


DEDUP: Final = 200
"""Among so many of the newest messages an append looks for its own."""


@dataclass(frozen=True, slots=True)
class RecentMessages:
    """Where a thread stood after an append of this process, and the ids of its newest messages."""

    epoch: int
    head: Head
    newest: tuple[str, ...]

    def after(self, new: Sequence[Record]) -> "RecentMessages":
        """The same once these are appended."""
        newest = (*self.newest, *(record.id for record in new))
        return RecentMessages(self.epoch, head_after(self.head, new), newest[-max(DEDUP, len(new)) :])


class KnownThreads:
    """What this process knows of threads that it appended to; a thread may have moved since.

    An append at a head that is known so is as good as one after a look: it happens there or not at all.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._known: OrderedDict[str, RecentMessages] = OrderedDict()

    def keep(self, session_id: str, known: RecentMessages) -> None:
        """Remember it, and forget what was not used for longest."""
        self._known[session_id] = known
        self._known.move_to_end(session_id)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def take(self, session_id: str) -> RecentMessages | None:
        """What is known, once."""
        return self._known.pop(session_id, None)


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What an append adds, and what it answers."""

    new: tuple[Record, ...]
    result: AppendResult


def plan_append(
    session_id: str,
    records: Sequence[Record],
    head: Head,
    there: Mapping[int, Record],
    places: Mapping[str, int],
) -> AppendPlan:
    """Leave out what is there already.

    ``there`` are the messages at ``places``, by position.

    Raises:
        IdempotencyConflictError: An id stands there with other content.
    """
    for record in records:
        if record.id in places and there.get(places[record.id]) != record:
            raise IdempotencyConflictError(
                f"session {session_id!r}: message {record.id!r} stands in the thread with other content; "
                "an id stands for one content only",
                session_id=session_id,
                message_id=record.id,
            )
    new = tuple(record for record in records if record.id not in places)
    at = {**places, **{record.id: head.position + number for number, record in enumerate(new)}}
    if not records:
        return AppendPlan((), AppendResult(first_index=head.position, count=0, head=head))
    last = records[-1]
    end = Head(position=at[last.id] + 1, last_id=last.id)
    return AppendPlan(new, AppendResult(first_index=at[records[0].id], count=len(records), head=end))


_TRIES: Final = 100


class MessagesPart(SessionStorePart):
    """See `SessionStore`."""

    def __init__(
        self,
        records: SessionRecords,
        threads: ThreadStore | None = None,
        *,
        together: bool | None = None,
        require_epoch: bool = False,
        recalls: bool = False,
    ) -> None:
        super().__init__(records, threads, together=together, require_epoch=require_epoch, recalls=recalls)
        self._known = KnownThreads()

    async def append_messages(
        self,
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
        records = to_records(messages)
        content = [[record.kind, record.id, record.body] for record in records]
        call = Call("append_messages", session_id, (content,), epoch, operation_id)

        self._loop.check(call)
        if records and epoch is None and operation_id is None:
            async with self._loop.turn(session_id):
                result = await self._appended_there(session_id, records)
            if result is not None:
                return result

        async def decide(seen: Seen) -> Decision[AppendResult] | None:
            return await self._append_records(seen, call, records)

        for number in range(_TRIES):
            try:
                return await self._make_change(call, self._whole, decide, AppendResult)
            except (HeadMovedError, FencedError) as error:
                if "session_id" in error.facts:
                    raise
                # Somebody else appended to the thread, or opened it, between look and append.
                await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2 ** min(number, 6))))  # noqa: S311
        raise StoreUnavailableError(f"session {session_id!r}: append was overtaken {_TRIES} times")

    async def get_messages(
        self,
        session_id: str,
        *,
        offset: int = 0,
        limit: int = DEFAULT_LIMIT,
        order: Literal["asc", "desc"] = "asc",
    ) -> MessagePage:
        """See `SessionStore.get_messages`."""
        offset, limit = checked_count(offset, "offset"), checked_limit(limit)
        if order not in {"asc", "desc"}:
            raise InvalidRequestError("order: asc or desc expected")
        total = await self._count_messages(session_id)
        start, stop = offset, min(offset + limit, total)
        if order == "desc":
            start, stop = max(total - offset - limit, 0), max(total - offset, 0)
        records = await self._threads.read(session_id, start, stop)
        messages = [from_record(record) for record in records]
        return MessagePage(
            messages=tuple(messages if order == "asc" else reversed(messages)),
            offset=offset,
            limit=limit,
            total=total,
            has_more=offset + len(messages) < total and bool(messages),
        )

    async def get_message_count(self, session_id: str) -> int:
        """See `SessionStore.get_message_count`."""
        return await self._count_messages(session_id)

    async def truncate_messages(
        self,
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

        async def decide(seen: Seen) -> Decision[SaveResult] | None:
            state = seen.present
            kept = checked_count(count, "count")
            if await self._settle_thread(seen):
                return None
            check_version(state, expected)
            there = await self._threads.standing(seen)
            head = await self._threads.head_at(session_id, kept, there.end(session_id) if there else 0)
            order = orders.order_to_cut(there, head, seen.now) if there else None
            after = seen.bumped(head=head)
            puts = (orders.record_of(order),) if order else ()
            return Decision(SaveResult(new_version=after.version), after, puts=puts)

        result = await self._make_change(call, self._whole, decide, SaveResult)
        await self._threads.settle(session_id)
        return result

    # -- inside

    async def _append_records(
        self, seen: Seen, call: Call, records: tuple[Record, ...]
    ) -> Decision[AppendResult] | None:
        _ = seen.present
        if await self._settle_thread(seen):
            return None
        session_id = seen.session_id
        if not records:
            there = await self._threads.standing(seen)
            return Decision(plan_append(session_id, (), there.head if there else EMPTY, {}, {}).result)
        at = await self._threads.joined(seen)
        newest = await self._threads.newest_ids(session_id, at, DEDUP + len(records))
        plan = await self._plan_append(session_id, records, at, newest)
        if not plan.new:
            return Decision(plan.result)
        step = StepAppend(session_id, at.epoch, at.head, plan.new, commits=True)
        self._known.keep(session_id, RecentMessages(at.epoch, at.head, tuple(newest)).after(plan.new))
        named = call.epoch is not None or call.operation_id is not None
        if self._threads.together and named:
            return Decision(plan.result, append=step)
        await self._threads.store.append(step)
        return Decision(plan.result)

    async def _appended_there(self, session_id: str, records: tuple[Record, ...]) -> AppendResult | None:
        """Append where this process left the thread, while the session is looked at; None if it is not so.

        What was appended while the session turns out to have an order for its thread is cut with the
        rest, and appended again by the caller.
        """
        known = self._known.take(session_id)
        if known is None or not {record.id for record in records}.isdisjoint(known.newest):
            return None
        step = StepAppend(session_id, known.epoch, known.head, records, commits=True)
        seen, appended = await asyncio.gather(
            self._view_session(session_id, WantedRecords(keys=orders.KEYS)),
            self._threads.store.append(step),
            return_exceptions=True,
        )
        if isinstance(seen, BaseException):
            raise seen
        _ = seen.present
        if (
            isinstance(appended, ConflictError | ThreadNotFoundError)
            or orders.pending_order(seen) is not None
        ):
            return None
        if isinstance(appended, BaseException):
            raise appended
        after = known.after(records)
        self._known.keep(session_id, after)
        return AppendResult(first_index=known.head.position, count=len(records), head=after.head)

    async def _settle_thread(self, seen: Seen) -> bool:
        """Whether an order had to be carried out, so that what was seen is no more."""
        order = orders.pending_order(seen)
        if order is None:
            return False
        await self._threads.carry_out(seen.session_id, order)
        return True

    async def _plan_append(
        self, session_id: str, records: tuple[Record, ...], at: Standing, newest: list[str]
    ) -> AppendPlan:
        places = known_positions(newest, at.head, records)
        there: dict[int, Record] = {}
        if places:
            first, last = min(places.values()), max(places.values())
            found = await self._threads.read(session_id, first, last + 1)
            there = dict(enumerate(found, first))
        return plan_append(session_id, records, at.head, there, places)

    async def _count_messages(self, session_id: str) -> int:
        seen = await self._view_session(session_id, self._whole)
        while seen.state is not None and await self._settle_thread(seen):
            seen = await self._view_session(session_id, self._whole)
        if seen.state is None:
            return 0
        there = await self._threads.standing(seen)
        return there.end(session_id) if there else 0
