"""Cancel, once and twice, at every event of a session's history."""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import workflow_id
from helix_temporal.models.sessions import (
    AskStatus,
    ExitReason,
    SessionInfo,
    SessionInput,
    SessionOptions,
)
from helix_temporal.settings import Settings
from helix_temporal.workflows import SessionWorkflow
from tests.chaos._agent import AGENT
from tests.chaos._names import session_id
from tests.chaos._oracle import Findings
from tests.chaos._place import Place, open_place
from tests.chaos._report import Progress, Report
from tests.chaos._settings import quick

SCRIPT: Final = ("hello", "tools=2", "hello")
AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel when the history has ``event`` events; again once it has ``again`` more after the request."""

    event: int
    again: int | None = None

    @property
    def name(self) -> str:
        """Part of session ids."""
        return f"e{self.event}" + ("" if self.again is None else f"+{self.again}")


class CancelCampaign:
    """One scripted session a cancel, some side by side."""

    def __init__(self, settings: Settings, directory: Path, *, seed: int) -> None:
        self._settings, self._directory, self._seed = quick(settings), directory, seed

    async def run(self, progress: Progress, *, every: int = 1) -> Report:
        """Cancel at every ``every``-th event: once, and a second time at several places of the clean-up."""
        async with open_place(self._settings, self._directory, f"cancels-{self._seed}") as place:
            length = await self._uncancelled(place)
            cancels = [Cancel(event) for event in range(1, length, every)]
            cancels += [Cancel(event, 1 + event % 9) for event in range(1, length, every)]
            slots, done, findings = asyncio.Semaphore(AT_ONCE), 0, Findings()
            hit: set[int] = set()
            seconds: dict[str, float] = {}

            async def one(cancel: Cancel) -> None:
                nonlocal done, findings
                async with slots:
                    began = time.monotonic()
                    found, event = await _Scripted(
                        place, session_id("cancels", self._seed, cancel.name)
                    ).cancelled(cancel)
                    seconds[cancel.name] = time.monotonic() - began
                findings += found
                hit.add(event)
                done += 1
                progress(f"cancelled {done}/{len(cancels)}, found {len(findings.all)}")

            await asyncio.gather(*(one(cancel) for cancel in cancels))
            slowest = max(seconds, key=lambda name: seconds[name])
            figures = {
                "history_events": length,
                "cancels": len(cancels),
                "events_hit": len(hit),
                "slowest_seconds": round(seconds[slowest], 1),
                "slowest": slowest,
            }
            report = Report("cancels", self._seed, findings, figures)
        progress(report.line(), final=True)
        return report

    async def _uncancelled(self, place: Place) -> int:
        """How long the history of the script is, clean-up included."""
        script = _Scripted(place, session_id("cancels", self._seed, "whole"))
        await script.start()
        for text in SCRIPT:
            await place.people.ask(script.name, text)
        await place.people.close([script.name])
        return (await script.handle.describe()).history_length


class _Scripted:
    """One session that is cancelled."""

    def __init__(self, place: Place, name: str) -> None:
        self._place, self.name, self._cancelled = place, name, False
        self.handle: WorkflowHandle[SessionWorkflow, object]

    async def start(self) -> None:
        """Start the run; nothing waits in it yet."""
        start = SessionInput(session_id=self.name, agent=AGENT, options=SessionOptions(idle_timeout=60))
        self.handle = await self._place.client.start_workflow(
            SessionWorkflow.run,
            start,
            id=workflow_id(self.name),
            task_queue=self._place.settings.task_queue,
        )

    async def cancelled(self, cancel: Cancel) -> tuple[Findings, int]:
        """Play the script until the cancel, look at everything; at which event it really came."""
        await self.start()
        run = self._place.client.get_workflow_handle(self.handle.id, run_id=self.handle.result_run_id)
        asking = asyncio.create_task(self._ask())
        try:
            async with asyncio.timeout(60):
                event = await self._cancel(run, cancel)
                await asking
        except TimeoutError:
            return Findings(unresolved=[f"{self.name}: not over after 60 s"]), cancel.event
        finally:
            asking.cancel()
        findings = await self._look(run)
        return findings, event

    async def _ask(self) -> None:
        for text in SCRIPT:
            if not self._cancelled:
                await self._place.people.ask(self.name, text)
        # The script may end before the event comes: then the end of the session is what is cancelled.
        if not self._cancelled:
            await self._place.people.sessions.session(self.name).close()

    async def _cancel(self, run: WorkflowHandle[object, object], cancel: Cancel) -> int:
        requested, left = 0, cancel.again
        async for event in run.fetch_history_events(wait_new_event=True):
            if event.event_id == cancel.event:
                self._cancelled = True
                await _quietly_cancel(run)
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED and not requested:
                requested = event.event_id
            if requested and left is not None and event.event_id >= requested + left:
                left = None
                await _quietly_cancel(run)
        return requested

    async def _look(self, run: WorkflowHandle[object, object]) -> Findings:
        findings, place, name = Findings(), self._place, self.name
        described = await run.describe()
        status = await run.query("status", result_type=SessionInfo)
        if described.status not in {WorkflowExecutionStatus.CANCELED, WorkflowExecutionStatus.COMPLETED}:
            findings.others.append(f"{name}: run ended as {described.status}")
        if described.status is WorkflowExecutionStatus.CANCELED:
            findings.others += _wrong_status(name, status)
        # An ask that came too late has started the session again.
        latest = await place.client.get_workflow_handle(workflow_id(name)).describe()
        if latest.run_id != described.run_id:
            await place.people.close([name])
        return findings + await self._look_at_stores()

    async def _look_at_stores(self) -> Findings:
        place, name = self._place, self.name
        findings = await place.judge([name])
        header = await place.backends.hot.read_header(name)
        if header is not None:
            findings.others.append(f"{name}: still hot at {header.head.position}, closed {header.closed}")
        for ask in (each for each in place.people.asks if each.session == name):
            if ask.result is not None and ask.result.status not in {
                AskStatus.ANSWERED,
                AskStatus.INTERRUPTED,
            }:
                findings.others.append(f"{ask.message_id}: {ask.result}")
        return findings


async def _quietly_cancel(run: WorkflowHandle[object, object]) -> None:
    """Cancel; a run that has just ended is as good."""
    try:
        await run.cancel()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


def _wrong_status(name: str, status: SessionInfo) -> list[str]:
    found = []
    if status.exit_reason is not ExitReason.CANCELLED:
        found.append(f"{name}: exit reason {status.exit_reason}")
    if status.epoch and not status.receipts:
        found.append(f"{name}: no receipts")
    found += [f"{name}: receipt {receipt}" for receipt in status.receipts if not receipt.ok]
    return found


async def cancelled_while_opening(place: Place, name: str, delay: float) -> list[str]:
    """Cancel during the open, with nobody who would start the session again; what is left hot."""
    script = _Scripted(place, name)
    await script.start()
    run = place.client.get_workflow_handle(script.handle.id, run_id=script.handle.result_run_id)
    async for event in run.fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            break
    await asyncio.sleep(delay)
    await run.cancel()
    with contextlib.suppress(WorkflowFailureError):
        await run.result()
    # A late attempt of the open must not make it hot again.
    await asyncio.sleep(0.3)
    header = await place.backends.hot.read_header(name)
    status = await run.query("status", result_type=SessionInfo)
    return ([f"{name} is left hot"] if header is not None else []) + _wrong_status(name, status)
