"""Runs, stop requests and children: a part of the session store."""

from collections.abc import Collection, Sequence
from typing import Protocol

from helix_temporal.models.queries import (
    Page,
)
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
from helix_temporal.models.states import (
    SessionStatus,
    SubSessionRef,
)


class RunStore(Protocol):
    """What `SessionStore` does with runs and sub-sessions."""

    # -- runs

    async def start_run(
        self,
        session_id: str,
        run: NewRun,
        *,
        expect_current_run: str | None = None,
        expect_status: Collection[SessionStatus] = ...,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> RunStarted | RunStartRefused:
        """Start a run if no run is live and the session is where the caller planned from.

        ``expect_current_run`` may name a run that is over: the one that was last when the caller planned.
        The same ``run_id`` again returns the run.  Without ``expect_status`` a session of every status but
        ``failed`` starts one; it is active from then on.
        """
        ...

    async def update_run(
        self,
        session_id: str,
        run_id: str,
        change: RunChange,
        *,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> Run:
        """Change a run; one that ends is no longer the current one, and its stop request is settled.

        Raises:
            InvalidRequestError: There is no such run, or it is over and the change says otherwise.
        """
        ...

    async def get_run(self, session_id: str, run_id: str) -> Run | None:
        """One run."""
        ...

    async def get_current_run(self, session_id: str) -> Run | None:
        """The run that is live, if any."""
        ...

    async def list_runs(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Runs by turn, newest first."""
        ...

    async def request_stop(
        self, session_id: str, *, kind: StopKind, run_id: str | None = None, reason: str | None = None
    ) -> StopOutcome:
        """Ask the current run (or just this one) to stop; an interrupt may rise to an abort."""
        ...

    async def get_stop_request(self, session_id: str, run_id: str) -> StopRecord | None:
        """What was asked of a run that is live."""
        ...

    # -- sub-sessions

    async def add_sub_session_refs(
        self, session_id: str, refs: Sequence[SubSessionRef], *, epoch: int | None = None
    ) -> None:
        """Insert or replace, by the child's id."""
        ...

    async def update_sub_session_ref(
        self, session_id: str, sub_session_id: str, status: SessionStatus, *, epoch: int | None = None
    ) -> SubSessionRef:
        """Set a child's status.

        Raises:
            SessionNotFoundError: The session has no such child.
        """
        ...

    async def remove_sub_session_ref(
        self, session_id: str, sub_session_id: str, *, epoch: int | None = None
    ) -> bool:
        """Forget a child; False if the session has no such child.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        ...

    async def list_sub_session_refs(self, session_id: str) -> list[SubSessionRef]:
        """Children in the order in which they were added."""
        ...
