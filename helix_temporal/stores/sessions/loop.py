"""View, decide, commit, and again if somebody was faster: how every change of a session is made."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from helix_temporal._retries import retry_pause
from helix_temporal.errors import (
    FencedError,
    HelixError,
    IdempotencyConflictError,
    InvalidRequestError,
    StoreUnavailableError,
    TooLargeError,
)
from helix_temporal.models.base import dump_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.limits import MAX_METADATA
from helix_temporal.models.states import SCHEMA_VERSION, SessionState
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.session_rows import (
    STATE_ALONE,
    RowKey,
    RowKind,
    SessionCommit,
    SessionRow,
    SessionRows,
    SessionView,
    StoredState,
    WantedRows,
)
from helix_temporal.stores.sessions.decisions import (
    Call,
    ChangeDone,
    Decision,
    SeenSession,
    answer_adapter,
    decode_model,
    encode_model,
)
from helix_temporal.stores.threads.fences import replaced_error

MAX_BYTES: Final = 64 * 1024
"""Of one session's state and rows; larger ones are looked at."""
_SESSIONS: Final = 256
_NEW_FOR: Final = 60.0
"""Seconds for which what is not known may be taken for new: the store's clock is the one of the last look."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A session as it was written.

    Attributes:
        covers: What was asked for when it was seen; all of that is known.
        unless: Keys and groups that are not known, and taken for not there: the commit must not happen
            where one is.
    """

    seen: SeenSession
    covers: WantedRows
    unless: WantedRows


class Recall:
    """The newest sessions that were written, each until it is wanted once."""

    def __init__(self, limit: int = _SESSIONS) -> None:
        self._limit = limit
        self._known: dict[str, Recalled] = {}

    def keep_session(
        self,
        seen: SeenSession,
        covers: WantedRows,
        decision: Decision[Any],
        stored: StoredState,
        revision: int,
        max_epoch: int,
    ) -> None:
        """Remember a session after a commit that was decided on ``seen``, which ``covers`` was asked for."""
        taken = {name.kind for name in decision.removes} | {kind for kind, _ in decision.clears}
        if decision.deletes or taken & set(covers.newest):
            # Of a kind of which some are gone, nobody here knows the newest one.
            return
        rows = _covered_by(covers, _rows_after(seen, decision))
        if len(stored.body) + sum(len(each.body) for each in rows) > MAX_BYTES:
            return
        view = replace(
            seen.view, revision=revision, max_epoch=max_epoch, state=stored.body, rows=rows, thread=None
        )
        written = replace(seen, view=view, state=stored.state)
        self._known[seen.session_id] = Recalled(written, covers, STATE_ALONE)
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]

    def pop_session(self, session_id: str, wanted: WantedRows, new_at: Head | None = None) -> Recalled | None:
        """The session as it was written, if all that is wanted is known; it is forgotten then.

        With ``new_at`` what is not known may pass for new, where the session was left at that head of its
        thread: whoever comes from there comes after this process's own commit.
        """
        recalled = self._known.pop(session_id, None)
        unknown = None if recalled is None else _unknown_rows(wanted, recalled.covers)
        if recalled is None or unknown is None:
            return None
        seen, covers = recalled.seen, recalled.covers
        passed = time.monotonic() - seen.looked_at
        if unknown != STATE_ALONE:
            if seen.present.head != new_at or passed > _NEW_FOR:
                return None
            covers = wanted
        return Recalled(replace(seen, passed=int(passed * 1000)), covers, unknown)


def _rows_after(seen: SeenSession, decision: Decision[Any]) -> list[SessionRow]:
    removed, cleared = set(decision.removes), set(decision.clears)
    left = [
        each for each in seen.view.rows if each.name not in removed and (each.kind, each.group) not in cleared
    ]
    return list({each.name: each for each in (*left, *decision.puts)}.values())


def _covered_by(covers: WantedRows, rows: list[SessionRow]) -> tuple[SessionRow, ...]:
    keys, groups = set(covers.keys), set(covers.groups)
    found = [each for each in rows if each.name in keys or (each.kind, each.group) in groups]
    for kind in covers.newest:
        of_kind = [each for each in rows if each.kind is kind]
        found += sorted(of_kind, key=lambda each: (each.order, each.key))[-1:]
    return tuple({each.name: each for each in found}.values())


def _unknown_rows(wanted: WantedRows, covers: WantedRows) -> WantedRows | None:
    """Keys and groups that are wanted and not covered; None if something else is."""
    if wanted.thread or wanted.newest_in or not set(covers.newest).issuperset(wanted.newest):
        return None
    keys, groups = set(covers.keys), set(covers.groups)
    return WantedRows(
        keys=tuple(
            name for name in wanted.keys if name not in keys and (name.kind, name.group) not in groups
        ),
        groups=tuple(each for each in wanted.groups if each not in groups),
    )


def with_step_rows(wanted: WantedRows, step_id: str) -> WantedRows:
    """The same with what a commit of the step will want."""
    groups = ((RowKind.STEP, step_id), (RowKind.STAGED, step_id))
    return replace(wanted, groups=(*wanted.groups, *groups), newest=(*wanted.newest, RowKind.CHECKPOINT))


T = TypeVar("T")

TRIES: Final = 200
_REQUEST: Final = b'{"request":"'
_DIGEST: Final = 64
_ANSWER: Final = b'","answer":'


Decide = Callable[[SeenSession], Decision[T] | Awaitable[Decision[T] | None]]
"""What to do about a view; None: look again."""
Restore = Callable[[str, SessionView], Awaitable[bool]]
"""Makes a row again that the store may have lost, and says whether to look again."""


class Loop:
    """Makes changes of sessions in one store.

    Args:
        require_epoch: Refuse writes that name no epoch.
        recalls: Remember sessions that were written; see `Recall`.
        restore: Asked of each session that is not known.
        check_first: Asked before each look at a session.
    """

    def __init__(
        self,
        rows: SessionRows,
        *,
        require_epoch: bool = False,
        recalls: bool = False,
        restore: Restore | None = None,
        check_first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.rows, self._require_epoch = rows, require_epoch
        self._restore, self._check_first = restore, check_first
        self.recall = Recall() if recalls else None
        # Tasks of one event loop queue up instead of outdoing each other; between loops and processes the
        # revision decides.
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
            WeakKeyDictionary()
        )

    async def view_session(self, session_id: str, wanted: WantedRows) -> SeenSession:
        """A session in one instant."""
        view = await self.view_rows(session_id, wanted)
        return SeenSession(session_id, view, decode_state(view.state, session_id), time.monotonic())

    async def view_rows(self, session_id: str, wanted: WantedRows = STATE_ALONE) -> SessionView:
        """A session's rows in one instant; what its store has lost and its archive has comes back first."""
        if self._check_first is not None:
            await self._check_first()
        view = await self.rows.view(session_id, wanted)
        lost = self._restore is not None and view.state is None and not view.revision
        if lost and self._restore is not None and await self._restore(session_id, view):
            return await self.rows.view(session_id, wanted)
        return view

    async def make_change(
        self,
        call: Call,
        wanted: WantedRows,
        decide: Decide[T],
        answer: Any,
        *,
        keeps: bool = False,
        new_at: Head | None = None,
    ) -> ChangeDone[T]:
        """Make a change; ``answer`` is the type of the decision's answer, to keep it for repeats.

        With ``keeps`` the session is remembered as it is then, where this store does so; ``new_at``: see
        `Recall.pop_session`.

        Raises:
            IdempotencyConflictError: The operation id was used for another request.
            FencedError: The epoch is lower than one that was seen, or missing where it is required.
            StoreUnavailableError: Others were faster again and again.
        """
        self.check_call(call)
        wanted = _with_operation(wanted, call)
        async with self.lock_session(call.session_id):
            recalled = (
                None if self.recall is None else self.recall.pop_session(call.session_id, wanted, new_at)
            )
            if recalled is not None:
                first_try = await self._try_recalled(recalled, call, decide, answer, keeps)
                if first_try is not None:
                    return first_try
            for number in range(TRIES):
                seen = await self.view_session(call.session_id, wanted)
                first = _first_answer(seen, call)
                if first is not None:
                    known = answer_adapter(answer).validate_json(first)
                    return ChangeDone(known, repeated=True, revision=seen.view.revision)
                check_fence(seen, call)
                outcome = decide(seen)
                decision = outcome if isinstance(outcome, Decision) else await outcome
                if decision is None:
                    continue
                done = await self.commit_seen(seen, call, decision, answer, wanted if keeps else None)
                if done is not None:
                    return done
                await pause_before_retry(number)
        raise StoreUnavailableError(
            f"session {call.session_id!r}: {call.name} was overtaken {TRIES} times",
            session_id=call.session_id,
        )

    async def change_recalled(
        self, call: Call, wanted: WantedRows, decide: Decide[T], answer: Any
    ) -> ChangeDone[T] | None:
        """Make a change without a look, where this process wrote the session last; None: look.

        The store is asked again once a minute, for its clock.

        Raises:
            HelixError: As `SessionRows.commit`.
        """
        if self.recall is None:
            return None
        async with self.lock_session(call.session_id):
            recalled = self.recall.pop_session(call.session_id, wanted)
            if recalled is None or recalled.seen.passed > _NEW_FOR * 1000:
                return None
            return await self._try_recalled(recalled, call, decide, answer, keeps=True)

    async def _try_recalled(
        self, recalled: Recalled, call: Call, decide: Decide[T], answer: Any, keeps: bool
    ) -> ChangeDone[T] | None:
        """The change without a look; None: look."""
        seen = recalled.seen
        try:
            if _first_answer(seen, call) is not None:
                return None
            check_fence(seen, call)
            outcome = decide(seen)
            decision = outcome if isinstance(outcome, Decision) else await outcome
        except HelixError:
            # A refusal must come from the store, not from memory: look.
            return None
        if decision is None or not decision.writes:
            return None
        kept = recalled.covers if keeps else None
        return await self.commit_seen(seen, call, decision, answer, kept, recalled.unless)

    async def commit_seen(
        self,
        seen: SeenSession,
        call: Call,
        decision: Decision[T],
        answer: Any,
        kept: WantedRows | None,
        unless: WantedRows = STATE_ALONE,
    ) -> ChangeDone[T] | None:
        """Commit what was decided on ``seen``; None if somebody was faster.

        ``kept`` was asked for when it was seen: the session is remembered so, where this store does so.
        """
        there = decision.state is not None or seen.state is not None
        if there and not decision.deletes and call.operation_id is not None:
            remembered = _operation_row(seen, call, decision.answer, answer)
            decision = replace(decision, puts=(*decision.puts, remembered))
        raises = seen.state is not None and (call.epoch or 0) > seen.view.max_epoch
        if not decision.writes and not raises:
            return ChangeDone(decision.answer, revision=seen.view.revision)
        stored, max_epoch = _stored_state(decision), max(seen.view.max_epoch, call.epoch or 0)
        committed = await self.rows.commit(
            SessionCommit(
                session_id=call.session_id,
                revision=seen.view.revision,
                max_epoch=max_epoch,
                state=stored,
                puts=decision.puts,
                removes=decision.removes,
                clears=decision.clears,
                deletes=decision.deletes,
                append=decision.append,
                unless=unless,
                birth=seen.view.birth,
            )
        )
        if committed is None:
            return None
        left = stored or _seen_state(seen)
        if self.recall is not None and kept is not None and left is not None:
            self.recall.keep_session(seen, kept, decision, left, committed.revision, max_epoch)
        return ChangeDone(decision.answer, appended=committed.appended, revision=committed.revision)

    def lock_session(self, session_id: str) -> asyncio.Lock:
        """Whose turn it is among this event loop's writers of a session."""
        loop = asyncio.get_running_loop()
        queues = self._queues.get(loop)
        if queues is None:
            queues = self._queues[loop] = WeakValueDictionary()
        return queues.setdefault(session_id, asyncio.Lock())

    def check_call(self, call: Call) -> None:
        """Refuse a call that names itself badly.

        Raises:
            InvalidIdError, InvalidRequestError: Its ids or its epoch are none.
            FencedError: It has no epoch, and this store requires one.
        """
        validate_id(call.session_id, "session id")
        if call.operation_id is not None:
            validate_id(call.operation_id, "operation id")
        if call.epoch is None:
            if self._require_epoch and call.fenced:
                raise FencedError(
                    f"session {call.session_id!r}: this store takes no writes without an epoch",
                    session_id=call.session_id,
                )
        elif not _is_valid_epoch(call.epoch):
            raise InvalidRequestError("epoch: an integer of 0 or more, and below 2**63, expected")


def _is_valid_epoch(epoch: Any) -> bool:
    return isinstance(epoch, int) and not isinstance(epoch, bool) and 0 <= epoch < 2**63


def decode_state(body: bytes | None, session_id: str) -> SessionState | None:
    """The state of a view.

    Raises:
        StoreCorruptError: The bytes are no state.
        UnsupportedFormatError: A newer version wrote them.
    """
    return None if body is None else decode_model(SessionState, body, f"session {session_id!r}: state")


def encode_state(state: SessionState) -> bytes:
    """The state as it is stored.

    Raises:
        TooLargeError: It exceeds 16 MiB, or its metadata exceed 64 KiB.
        InvalidRequestError: Its schema is a newer version's, so that it could not be read again.
    """
    if state.schema_version > SCHEMA_VERSION:
        raise InvalidRequestError(
            f"session {state.session_id!r}: schema_version {state.schema_version}, {SCHEMA_VERSION} or lower "
            "expected; upgrade helix_temporal"
        )
    size = len(dump_json(state.metadata)) if state.metadata else 0
    if size > MAX_METADATA:
        raise TooLargeError(
            f"session {state.session_id!r}: metadata: {size} > {MAX_METADATA} bytes; lists show them: keep "
            "what is large in the custom state"
        )
    return encode_model(state, f"session {state.session_id!r}: state")


def _stored_state(decision: Decision[Any]) -> StoredState | None:
    if decision.state is None:
        return None
    return StoredState(decision.state, decision.body or encode_state(decision.state))


def _seen_state(seen: SeenSession) -> StoredState | None:
    """The state as it is stored, where a commit left it."""
    if seen.state is None or seen.view.state is None:
        return None
    return StoredState(seen.state, seen.view.state)


def _with_operation(wanted: WantedRows, call: Call) -> WantedRows:
    if call.operation_id is None:
        return wanted
    return replace(wanted, keys=(*wanted.keys, RowKey(RowKind.OPERATION, call.operation_id)))


def _first_answer(seen: SeenSession, call: Call) -> bytes | None:
    if call.operation_id is None:
        return None
    found = seen.view.find_row(RowKind.OPERATION, call.operation_id)
    if found is None:
        return None
    request = len(_REQUEST) + _DIGEST
    if found.body[len(_REQUEST) : request] != call.compute_digest().encode():
        raise IdempotencyConflictError(
            f"session {call.session_id!r}: operation {call.operation_id!r} was another request; "
            "an operation id stands for one request only",
            session_id=call.session_id,
            operation_id=call.operation_id,
        )
    return found.body[request + len(_ANSWER) : -1]


def _operation_row(seen: SeenSession, call: Call, answer: object, kind: Any) -> SessionRow:
    assert call.operation_id is not None
    kept = answer_adapter(kind).dump_json(answer, by_alias=True)
    body = b"".join((_REQUEST, call.compute_digest().encode(), _ANSWER, kept, b"}"))
    return SessionRow(RowKind.OPERATION, call.operation_id, body, order=seen.now)


def check_fence(seen: SeenSession, call: Call) -> None:
    """Refuse a writer that was replaced.

    Raises:
        FencedError: A higher epoch has written.
    """
    current = seen.view.max_epoch
    if call.epoch is not None and call.epoch < current:
        raise replaced_error(f"session {call.session_id!r}", current, call.epoch, session_id=call.session_id)


async def pause_before_retry(number: int) -> None:
    """Somebody else was faster: wait for a short, random time, longer after each try."""
    await asyncio.sleep(retry_pause(number, first=0.001, longest=0.05))
