"""The session store's runs, stop requests and sub-sessions."""

from collections.abc import Collection, Sequence
from typing import Final

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.ids import validate_id
from helix_temporal.models.queries import DEFAULT_LIMIT, Page
from helix_temporal.models.runs import (
    NewRun,
    Run,
    RunChange,
    RunStarted,
    RunStartRefused,
    StopKind,
    StopOutcome,
    StopRecord,
)
from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.stores.protocols.session_records import RecordKind, Wanted
from helix_temporal.stores.sessions import _children, _runs
from helix_temporal.stores.sessions._base import Base
from helix_temporal.stores.sessions._checks import checked, checked_reason, checked_status
from helix_temporal.stores.sessions._decisions import Call
from helix_temporal.stores.sessions._recall import ahead

_TRIES: Final = 20
_MANY: Final = 1_000


class RunsPart(Base):
    """See `RunStore`."""

    async def start_run(
        self,
        session_id: str,
        run: NewRun,
        *,
        expect_current_run: str | None = None,
        expect_status: Collection[SessionStatus] = _runs.STARTABLE,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> RunStarted | RunStartRefused:
        """See `RunStore.start_run`; a session that starts a run becomes active.

        Unless told otherwise it starts in every status but ``failed``.
        """
        run, statuses = checked(run, NewRun), sorted({checked_status(each) for each in expect_status})
        call = Call("start_run", session_id, (run, expect_current_run, statuses), epoch, operation_id)
        wanted = _runs.wanted_for_start(run.run_id)
        if self._loop.recall is not None:
            # The session workflow commits a turn as a step of its run's name.
            wanted = ahead(wanted, run.run_id)
        done = await self._loop.change(
            call,
            wanted,
            lambda seen: _runs.start(seen, run, expect_current_run, statuses),
            RunStarted | RunStartRefused,
            keeps=True,
            new_at=run.start_head,
        )
        return done.answer

    async def update_run(
        self,
        session_id: str,
        run_id: str,
        change: RunChange,
        *,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> Run:
        """See `RunStore.update_run`."""
        run_id, change = validate_id(run_id, "run id"), checked(change, RunChange)
        call = Call("update_run", session_id, (run_id, change), epoch, operation_id)
        wanted = Wanted(keys=_runs.wanted_for_change(run_id))
        return await self._made(call, wanted, lambda seen: _runs.update(seen, run_id, change), Run)

    async def get_run(self, session_id: str, run_id: str) -> Run | None:
        """See `RunStore.get_run`."""
        wanted = Wanted(keys=_runs.wanted_for_change(validate_id(run_id, "run id")))
        return _runs.find(await self._see(session_id, wanted), run_id)

    async def get_current_run(self, session_id: str) -> Run | None:
        """See `RunStore.get_current_run`."""
        seen = await self._see(session_id, Wanted(newest=(RecordKind.RUN,)))
        live = [run for run in map(_runs.run_of, seen.view.all(RecordKind.RUN)) if run.status.live]
        return live[-1] if live else None

    async def list_runs(
        self, session_id: str, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[Run]:
        """See `RunStore.list_runs`."""
        return await self._page(
            session_id, RecordKind.RUN, _runs.run_of, limit=limit, cursor=cursor, descending=True
        )

    async def request_stop(
        self, session_id: str, *, kind: StopKind, run_id: str | None = None, reason: str | None = None
    ) -> StopOutcome:
        """See `RunStore.request_stop`."""
        if kind not in {"interrupt", "abort"}:
            raise InvalidRequestError("kind: interrupt or abort expected")
        reason = checked_reason(reason)
        call = Call("request_stop", session_id, fenced=False)
        for _ in range(_TRIES):
            name = run_id or (await self._see(session_id)).present.current_run_id
            if name is None:
                break
            wanted = _runs.wanted_for_stop(validate_id(name, "run id"))
            outcome = await self._made(
                call,
                wanted,
                lambda seen, name=name: _runs.request_stop(  # type: ignore[misc]
                    seen, name, kind, reason, only_current=run_id is None
                ),
                StopOutcome | None,
            )
            if outcome is not None:
                return outcome
        return StopOutcome(recorded=False)

    async def get_stop_request(self, session_id: str, run_id: str) -> StopRecord | None:
        """See `RunStore.get_stop_request`."""
        wanted = _runs.wanted_for_stop(validate_id(run_id, "run id"))
        return _runs.stop_of(await self._see(session_id, wanted), run_id)

    async def add_sub_session_refs(
        self, session_id: str, refs: Sequence[SubSessionRef], *, epoch: int | None = None
    ) -> None:
        """See `RunStore.add_sub_session_refs`."""
        added = [checked(ref, SubSessionRef) for ref in refs]
        call = Call("add_sub_session_refs", session_id, epoch=epoch)
        wanted = _children.wanted([ref.sub_session_id for ref in added])
        await self._made(call, wanted, lambda seen: _children.add(seen, added), type(None))

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, status: SessionStatus, *, epoch: int | None = None
    ) -> SubSessionRef:
        """See `RunStore.update_sub_session_ref`."""
        name, status = validate_id(sub_session_id, "sub-session id"), checked_status(status)
        call = Call("update_sub_session_ref", session_id, epoch=epoch)
        return await self._made(
            call,
            _children.wanted([name]),
            lambda seen: _children.set_status(seen, name, status),
            SubSessionRef,
        )

    async def remove_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, epoch: int | None = None
    ) -> bool:
        """See `RunStore.remove_sub_session_ref`."""
        name = validate_id(sub_session_id, "sub-session id")
        call = Call("remove_sub_session_ref", session_id, epoch=epoch)
        return await self._made(
            call, _children.wanted([name]), lambda seen: _children.remove(seen, name), bool
        )

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        """See `RunStore.list_sub_session_refs`."""
        session_id, found, after = validate_id(session_id, "session id"), [], None
        while True:
            page = await self._loop.records.page(session_id, RecordKind.REF, limit=_MANY, after=after)
            found += [_children.ref_of(each) for each in page.records]
            if len(page.records) < _MANY:
                return found
            after = (page.records[-1].order, page.records[-1].key)
