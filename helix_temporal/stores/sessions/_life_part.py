"""The session store's life of a session: create, load, save, status, merge, counters."""

from collections.abc import Collection
from typing import Final

from helix_temporal.models.ids import validate_id
from helix_temporal.models.queries import UNSET, Unset
from helix_temporal.models.states import (
    CasConflict,
    CasOk,
    CountResult,
    CreateSession,
    MergeChanges,
    MergeResult,
    SaveResult,
    SessionState,
    SessionStatus,
)
from helix_temporal.stores.protocols.checkpoints import AnyVersion
from helix_temporal.stores.sessions import _life
from helix_temporal.stores.sessions._base import STATE, Base
from helix_temporal.stores.sessions._checks import (
    checked,
    checked_reason,
    checked_status,
    checked_time,
    checked_version,
)
from helix_temporal.stores.sessions._decisions import Call, Decision, Seen

_NEW: Final = CreateSession()


class LifePart(Base):
    """See `SessionStore`."""

    async def create_session(
        self,
        session_id: str,
        options: CreateSession = _NEW,
        *,
        if_not_exists: bool = False,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """See `SessionStore.create_session`."""
        options = checked(options, CreateSession)
        call = Call("create_session", session_id, (options, if_not_exists), epoch, operation_id)

        async def decide(seen: Seen) -> Decision[SessionState]:
            if seen.state is None and seen.view.revision:
                await self._threads.delete_left(seen)
            return _life.create(seen, options, if_not_exists=if_not_exists)

        return await self._made(call, STATE, decide, SessionState)

    async def load_state(self, session_id: str) -> SessionState | None:
        """See `SessionStore.load_state`."""
        return (await self._see(session_id)).state

    async def session_exists(self, session_id: str) -> bool:
        """See `SessionStore.session_exists`."""
        return (await self._loop.records.view(validate_id(session_id, "session id"))).state is not None

    async def save_state(
        self,
        session_id: str,
        state: SessionState,
        *,
        expected_version: int | AnyVersion | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SaveResult:
        """See `SessionStore.save_state`."""
        state = checked(state, SessionState)
        expected = checked_version(expected_version)
        call = Call("save_state", session_id, (state, _plain(expected)), epoch, operation_id)
        return await self._made(call, STATE, lambda seen: _life.save(seen, state, expected), SaveResult)

    async def update_status(
        self,
        session_id: str,
        status: SessionStatus,
        *,
        failure_reason: str | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SaveResult:
        """See `SessionStore.update_status`."""
        status, reason = checked_status(status), checked_reason(failure_reason)
        call = Call("update_status", session_id, (status, reason), epoch, operation_id)
        return await self._made(call, STATE, lambda seen: _life.set_status(seen, status, reason), SaveResult)

    async def compare_and_set_status(
        self,
        session_id: str,
        expected: Collection[SessionStatus],
        new: SessionStatus,
        *,
        expected_version: int | None = None,
        failure_reason: str | None = None,
        expires_at: int | Unset | None = UNSET,
        cleanup_pending: bool | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> CasOk | CasConflict:
        """See `SessionStore.compare_and_set_status`; a reason that is not given is taken away."""
        expected = sorted({checked_status(each) for each in expected})
        new, version = checked_status(new), checked_version(expected_version)
        changes = _life.with_status(checked_reason(failure_reason), checked_time(expires_at), cleanup_pending)
        call = Call(
            "compare_and_set_status", session_id, (expected, new, version, changes), epoch, operation_id
        )
        return await self._made(
            call,
            STATE,
            lambda seen: _life.compare_and_set(seen, expected, new, expected_version, changes),
            CasOk | CasConflict,
        )

    async def merge_custom_state(
        self,
        session_id: str,
        changes: MergeChanges,
        *,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> MergeResult:
        """See `SessionStore.merge_custom_state`: first removes, then values, then appends."""
        changes = checked(changes, MergeChanges)
        call = Call("merge_custom_state", session_id, (changes,), epoch, operation_id)
        return await self._made(call, STATE, lambda seen: _life.merge(seen, changes), MergeResult)

    async def increment_step_count(
        self, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
    ) -> CountResult:
        """See `SessionStore.increment_step_count`."""
        call = Call("increment_step_count", session_id, (), epoch, operation_id)
        return await self._made(call, STATE, lambda seen: _life.count(seen, "step_count"), CountResult)

    async def increment_resume_count(
        self, session_id: str, *, epoch: int | None = None, operation_id: str | None = None
    ) -> CountResult:
        """See `SessionStore.increment_resume_count`."""
        call = Call("increment_resume_count", session_id, (), epoch, operation_id)
        return await self._made(call, STATE, lambda seen: _life.count(seen, "resume_count"), CountResult)

    async def finish_cleanup(self, session_id: str, *, operation_id: str | None = None) -> SaveResult:
        """See `SessionStore.finish_cleanup`."""
        call = Call("finish_cleanup", session_id, (), None, operation_id, fenced=False)
        return await self._made(call, STATE, _life.finish_cleanup, SaveResult)

    async def now(self) -> int:
        """See `SessionStore.now`."""
        return await self._loop.records.now()


def _plain(expected: int | AnyVersion | None) -> int | str | None:
    return expected.value if isinstance(expected, AnyVersion) else expected
