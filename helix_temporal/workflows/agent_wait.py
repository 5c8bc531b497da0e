"""Opens a session once a worker has its agent, or learns that another worker version is to serve it."""

from collections.abc import Callable
from typing import Any, Final

from temporalio import workflow

from helix_temporal.errors import AgentNotServedError
from helix_temporal.models.base import only_truthy
from helix_temporal.models.sessions import FailingCall, SessionInput, Unopened
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult
from helix_temporal.workflows.calls import RollOuts, TemporalCalls, elsewhere
from helix_temporal.workflows.clock import now_ms
from helix_temporal.workflows.opening import open_session_thread
from helix_temporal.workflows.target_version import find_worker_version

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds between two workers that are asked: so late a session learns, unsignalled, that it is to move."""


class AgentWait:
    """The wait of one session for its agent.

    With Worker Versioning, activities of a pinned run go to workers of its version alone.  If these lack the
    agent, the run asks them in vain, whatever version is current by then.  So with each workflow task it
    looks whether it is to move.

    Args:
        leaves_version: Whether the run was told that another version is to serve it, and may go there.
        moved_in_vain: The run has moved, and was told in its first task to move again.
    """

    def __init__(
        self,
        input: SessionInput,
        roll_outs: RollOuts,
        leaves_version: Callable[[], bool],
        *,
        moved_in_vain: bool,
    ) -> None:
        before = input.unopened
        self._agent, self._roll_outs = input.agent, roll_outs
        self._leaves_version, self._moved_in_vain = leaves_version, moved_in_vain
        self._since = None if before is None else before.since
        self._versions = () if before is None else before.versions
        self._has_moved, self._limit = before is not None, 0

    async def open_session(self, calls: TemporalCalls, request: OpenSessionInput) -> OpenSessionResult | None:
        """The open session; None if the run is to move before.

        Raises:
            AgentNotServedError: No version that was asked has had the agent in the time of a roll-out.
        """
        version, pause, rounds = find_worker_version(), FIRST_PAUSE, 0
        if version is None:
            return await open_session_thread(calls, request)
        request = request.model_copy(update={"waits_for_agent": True})
        with self._roll_outs.remember() as note_missing:
            while True:
                try:
                    return await open_session_thread(calls, request)
                except AgentNotServedError as unserved:
                    self._note_lack(version, unserved)
                    rounds += 1
                    # Whoever was told to ask again at the move must find this run, to be told why it fails.
                    if self._is_over and (rounds > 1 or not self._has_moved):
                        raise self._build_error(unserved) from unserved
                    note_missing(self._describe_lack(unserved, rounds))
                if await self._moves_within(pause) and not (self._moved_in_vain and self._is_over):
                    return None
                version, pause = find_worker_version() or version, min(2 * pause, LONGEST_PAUSE)
                elsewhere.set(True)

    def carry_over(self, **fields: Any) -> Unopened:
        """What the run on the other version needs: also since when its agent is waited for."""
        return Unopened(since=self._since or now_ms(), versions=self._versions, **only_truthy(**fields))

    async def _moves_within(self, seconds: float) -> bool:
        if self._moved_in_vain:
            # What the server says may be wrong for a while: no run after the other in no time.
            await workflow.sleep(LONGEST_PAUSE)
            return self._leaves_version()
        try:
            await workflow.wait_condition(self._leaves_version, timeout=seconds)
        except TimeoutError:
            return False
        return True

    def _note_lack(self, version: str, unserved: AgentNotServedError) -> None:
        # Only a worker's settings say how long others are asked.
        limit = unserved.facts.get("retry_for_ms")
        self._limit = limit if isinstance(limit, int) else 0
        self._since = self._since or now_ms()
        if version not in self._versions:
            self._versions = (*self._versions, version)

    @property
    def _is_over(self) -> bool:
        return now_ms() - (self._since or 0) >= self._limit

    def _build_error(self, unserved: AgentNotServedError) -> AgentNotServedError:
        versions = ", ".join(self._versions)
        return AgentNotServedError(
            f"agent {self._agent!r} is known to no worker version that was asked ({versions}); the last one "
            f"knows: {unserved.facts.get('known')}. Make a version current that serves the agent (temporal "
            "worker deployment set-current-version), or correct its name"
        )

    def _describe_lack(self, unserved: AgentNotServedError, rounds: int) -> FailingCall:
        return FailingCall(
            activity="helix.sessions.open",
            attempt=rounds + 1,
            error=f"{AgentNotServedError.__name__}: {self._build_error(unserved)}",
            worker=getattr(unserved.__cause__, "identity", ""),
            since=self._since or 0,
        )
