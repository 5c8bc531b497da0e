"""Lists over all sessions, and tool calls that a client or a person answers."""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from helix_temporal.errors import HelixError, SessionNotFoundError, StoreUnavailableError, TooLargeError
from helix_temporal.models.base import canonical_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import (
    MAX_CALL_RESULT,
    CompletedClientToolCall,
    OwnedPendingCall,
    PendingClientToolCall,
    SessionState,
    Submission,
    ToolResultSubmission,
    check_not_expired,
    is_past,
    newest_completed,
)
from helix_temporal.models.store_calls import (
    MAX_LIMIT,
    DueSession,
    ExpiredSession,
    Page,
    SessionPage,
    SessionQuery,
)
from helix_temporal.models.waiting import check_outcome
from helix_temporal.session.answers import FirstAnswer, refuse_answer
from helix_temporal.stores.paging import decode_cursor, encode_cursor
from helix_temporal.stores.sessions import runs
from helix_temporal.stores.sessions.base import STATE, SessionStorePart
from helix_temporal.stores.sessions.checks import checked_count, checked_limit, revalidate_model
from helix_temporal.stores.sessions.decisions import Call, Decision, Seen, digest_parts

logger = logging.getLogger(__name__)


def check_submission(submission: ToolResultSubmission) -> None:
    """Refuse a result that is too large.

    Raises:
        TooLargeError: It exceeds 1 MiB as JSON.
    """
    size = len(canonical_json(submission.response.result))
    if size > MAX_CALL_RESULT:
        raise TooLargeError(
            f"result of tool call {submission.tool_call_id!r}: {size} > {MAX_CALL_RESULT} bytes"
        )


def call_owner(state: SessionState, tool_call_id: str) -> str | None:
    """Whose call it is: this session's own, or by its map; None if unknown."""
    known = state.pending_client_tool_calls.keys() | state.completed_client_tool_calls.keys()
    return state.session_id if tool_call_id in known else state.client_tool_call_ownership.get(tool_call_id)


def decide_submission(seen: Seen, submission: ToolResultSubmission) -> Decision[Submission]:
    """See `SessionStore.submit_tool_result`, in the session whose call it is.

    Raises:
        InvalidRequestError: A result for an approval, or an approval for a call that wants a result.
        SessionExpiredError: It has expired.
    """
    state, name = seen.present, submission.tool_call_id
    check_not_expired(state, seen.now)
    call = state.pending_client_tool_calls.get(name)
    refusal = refuse_answer(
        _first_answer(state, name),
        is_known=call is not None,
        deadline=call.deadline_at if call else None,
        now=seen.now,
    )
    if refusal is not None or call is None:
        return Decision(refusal or Submission(status="not_pending"))
    check_outcome(name, call.kind, submission.response.outcome)
    answered = call.model_copy(update={"response": submission.response, "responded_at": seen.now})
    marker = CompletedClientToolCall(
        tool_call_id=name,
        outcome=submission.response.outcome,
        completed_at=seen.now,
        result_hash=digest_parts(submission.response),
    )
    after = seen.bumped(
        pending_client_tool_calls={**state.pending_client_tool_calls, name: answered},
        completed_client_tool_calls=newest_completed({**state.completed_client_tool_calls, name: marker}),
    )
    taken = Submission(status="submitted", completed_at=seen.now, new_version=after.version)
    return Decision(taken, after)


def _first_answer(state: SessionState, tool_call_id: str) -> FirstAnswer | None:
    """How the call was answered; also where the turn has not taken the answer yet."""
    completed = state.completed_client_tool_calls.get(tool_call_id)
    if completed is not None:
        return FirstAnswer(completed.outcome, completed.completed_at)
    call = state.pending_client_tool_calls.get(tool_call_id)
    if call is None or call.response is None:
        return None
    return FirstAnswer(call.response.outcome, call.responded_at)


def expired_calls(state: SessionState, now: int) -> list[OwnedPendingCall]:
    """Calls without an answer whose deadline has passed, the oldest deadline first."""
    late = [call for call in state.pending_client_tool_calls.values() if _is_late(call, now)]
    late.sort(key=lambda call: (call.deadline_at or 0, call.tool_call_id))
    return [OwnedPendingCall(session_id=state.session_id, call=call) for call in late]


def _is_late(call: PendingClientToolCall, now: int) -> bool:
    return call.response is None and is_past(call.deadline_at, now)


def uniquify_tool_call_ids(existing: Iterable[str], new: Sequence[str]) -> list[str]:
    """Ids for new tool calls that are unique in a session.

    A provider may use an id again: it becomes ``<id>_<n>`` with the smallest free ``n`` from 2.
    """
    taken, unique = set(existing), []
    for name in new:
        made, number = name, 2
        while made in taken:
            made, number = f"{name}_{number}", number + 1
        taken.add(made)
        unique.append(made)
    return unique


_EVERYTHING: Final = SessionQuery()
_EXPIRED: Final = "sessions.expired"
_DUE: Final = "sessions.due"
_CLEANUP: Final = "sessions.cleanup"
_LAST: Final = 2**63 - 1
"""The latest time that every backend can compare."""


class ListsPart(SessionStorePart):
    """See `SessionStore`."""

    async def submit_tool_result(
        self, session_id: str, submission: ToolResultSubmission, *, operation_id: str | None = None
    ) -> Submission:
        """See `SessionStore.submit_tool_result`; the operation is remembered with the owner of the call."""
        submission = revalidate_model(submission, ToolResultSubmission)
        check_submission(submission)
        root = (await self._view_session(session_id)).present
        owner = call_owner(root, submission.tool_call_id) or session_id
        if owner != session_id and root.expires_at is not None:
            check_not_expired(root, await self._loop.records.now())
        call = Call("submit_tool_result", owner, (submission,), None, operation_id, fenced=False)
        try:
            return await self._make_change(
                call, STATE, lambda seen: decide_submission(seen, submission), Submission
            )
        except SessionNotFoundError:
            runs.check_here(await self._view_session(session_id, runs.wanted_children([owner])), owner)
            raise

    async def resolve_tool_call_owner(self, root_session_id: str, tool_call_id: str) -> str | None:
        """See `SessionStore.resolve_tool_call_owner`; a call of the root itself is the root's."""
        validate_id(tool_call_id, "tool call id")
        return call_owner((await self._view_session(root_session_id)).present, tool_call_id)

    async def find_expired_pending(self, now: int, *, limit: int = MAX_LIMIT) -> list[OwnedPendingCall]:
        """See `SessionStore.find_expired_pending`; the session with the earliest deadline first."""
        limit, before = checked_limit(limit), _expiry_bound(checked_count(now, "now"))
        found: list[OwnedPendingCall] = []
        after: tuple[int, str] | None = None
        while len(found) < limit:
            due = await self._loop.records.list_due(before, limit=limit, after=after)
            for _, session_id in due:
                found += await self._expired_of(session_id, now)
            if len(due) < limit:
                break
            after = due[-1]
        return found[:limit]

    async def _expired_of(self, session_id: str, now: int) -> list[OwnedPendingCall]:
        """Those of one session; a damaged one is named in the log, and keeps nobody from the others."""
        try:
            state = (await self._view_session(session_id)).state
        except StoreUnavailableError:
            raise
        except HelixError as error:
            logger.warning("session %r: its expired calls are left out: %s", session_id, error)
            return []
        return [] if state is None else expired_calls(state, now)

    async def list_due(
        self, now: int | None = None, *, limit: int = MAX_LIMIT, cursor: str | None = None
    ) -> Page[DueSession]:
        """See `SessionStore.list_due`; the page has no total."""
        limit = checked_limit(limit)
        after = None if cursor is None else decode_cursor(_DUE, cursor)
        before = _expiry_bound(await self._loop.records.now() if now is None else checked_count(now, "now"))
        found = await self._loop.records.list_due(before, limit=limit + 1, after=after)
        shown, more = found[:limit], len(found) > limit
        return Page(
            items=tuple(DueSession(session_id=session_id, due_at=at) for at, session_id in shown),
            next_cursor=encode_cursor(_DUE, *shown[-1]) if more else None,
            has_more=more,
        )

    async def list_sessions(self, query: SessionQuery = _EVERYTHING) -> SessionPage:
        """See `SessionStore.list_sessions`."""
        return await self._loop.records.list_sessions(revalidate_model(query, SessionQuery))

    def iter_session_ids(self) -> AsyncIterator[str]:
        """See `SessionStore.iter_session_ids`."""
        return self._loop.records.scan()

    async def list_expired(
        self, now: int | None = None, *, limit: int = MAX_LIMIT, cursor: str | None = None
    ) -> Page[ExpiredSession]:
        """See `SessionStore.list_expired`; the page has no total."""
        limit = checked_limit(limit)
        after = None if cursor is None else decode_cursor(_EXPIRED, cursor)
        before = _expiry_bound(await self._loop.records.now() if now is None else checked_count(now, "now"))
        found = await self._loop.records.list_expired(before, limit=limit + 1, after=after)
        shown, more = found[:limit], len(found) > limit
        last = shown[-1] if more else None
        return Page(
            items=shown,
            next_cursor=encode_cursor(_EXPIRED, last.expires_at or 0, last.session_id) if last else None,
            has_more=more,
        )

    async def list_cleanup_pending(
        self, *, limit: int = MAX_LIMIT, cursor: str | None = None
    ) -> Page[ExpiredSession]:
        """See `SessionStore.list_cleanup_pending`, by id; without the time, and without a total."""
        limit = checked_limit(limit)
        after = None if cursor is None else decode_cursor(_CLEANUP, cursor)[1]
        found = await self._loop.records.list_cleanup_pending(limit=limit + 1, after=after)
        shown, more = found[:limit], len(found) > limit
        return Page(
            items=tuple(
                ExpiredSession(session_id=each, expires_at=None, cleanup_pending=True) for each in shown
            ),
            next_cursor=encode_cursor(_CLEANUP, 0, shown[-1]) if more else None,
            has_more=more,
        )

    async def purge_operations(self, *, older_than_ms: int, limit: int = 1000) -> int:
        """See `SessionStore.purge_operations`."""
        age, most = checked_count(older_than_ms, "older_than_ms"), checked_count(limit, "limit")
        before = await self._loop.records.now() - age
        return await self._loop.records.purge_operations(before, limit=most) if before > 0 and most else 0


def _expiry_bound(now: int) -> int:
    """The time before which everything has expired by ``now``: at its deadline a call, or a session, has."""
    return min(now + 1, _LAST)
