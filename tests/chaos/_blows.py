"""What operators and users do to a session that works or waits: cancel, abort, terminate, reset."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import SessionClient
from helix_temporal.models.ids import workflow_id
from tests._resets import reset_workflow
from tests.chaos._oracle import Findings
from tests.chaos._report import Progress

Blow = Literal["cancel", "terminate", "reset", "abort", "interrupt"]
BLOWS: Final[tuple[Blow, ...]] = ("cancel", "terminate", "reset", "abort", "interrupt")
_TOO_LATE: Final = {
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.INVALID_ARGUMENT,
}
"""It has ended, or another reset was first."""


@dataclass(frozen=True, slots=True)
class Striker:
    """Strikes sessions."""

    client: Client
    sessions: SessionClient
    random: random.Random

    async def strike(self, session: str, blow: Blow) -> bool:
        """Do it; whether there was something to do it to."""
        handle = self.client.get_workflow_handle(workflow_id(session))
        try:
            if blow == "cancel":
                await handle.cancel()
            elif blow == "terminate":
                await handle.terminate("chaos")
            elif blow == "reset":
                await self._reset(session)
            else:
                return await self.sessions.session(session).stop(abort=blow == "abort")
        except RPCError as error:
            if error.status not in _TOO_LATE:
                raise
            return False
        return True

    async def _reset(self, session: str) -> None:
        """Go on from one of the last workflow tasks of the newest execution, which may have ended."""
        described = await self.client.get_workflow_handle(workflow_id(session)).describe()
        run = self.client.get_workflow_handle(workflow_id(session), run_id=described.run_id)
        ends = [
            event.event_id
            async for event in run.fetch_history_events()
            if event.HasField("workflow_task_completed_event_attributes")
        ]
        chosen = self.random.choice(ends[-8:])
        await reset_workflow(self.client, run.id, chosen, run_id=described.run_id or "")


async def struck(
    cases: Mapping[str, Callable[[], Awaitable[Findings]]],
    progress: Progress,
    *,
    at_once: int,
    seconds: float,
) -> Findings:
    """What all cases found, so many of them side by side; one that is not over in time is unresolved."""
    slots, done, findings = asyncio.Semaphore(at_once), 0, Findings()

    async def one(name: str, case: Callable[[], Awaitable[Findings]]) -> None:
        nonlocal findings, done
        async with slots:
            try:
                async with asyncio.timeout(seconds):
                    found = await case()
            except TimeoutError:
                found = Findings(unresolved=[f"{name}: not over"])
        findings += found
        done += 1
        progress(f"struck {done}/{len(cases)}, found {len(findings.all)}")

    await asyncio.gather(*(one(name, case) for name, case in cases.items()))
    return findings
