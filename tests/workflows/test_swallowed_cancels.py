"""A cancel that comes in one workflow task with the end of the activity that it would have cancelled."""

import asyncio
import uuid
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError
from temporalio.worker._workflow_instance import _WorkflowInstanceImpl

from helix_temporal.backends import Backends
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.sessions import AskResult, AskStatus, SessionInput, SessionOptions, UserMessage
from helix_temporal.testing.serving import session_worker
from tests.workflows._desk import Desk
from tests.workflows._stalled import GOES_ON, STALLED, StalledSession
from tests.workflows.conftest import make_settings


class Archive(MemoryBlobs):
    """Takes nothing; later, what it takes waits."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.asked, self.opened = asyncio.Event(), asyncio.Event()

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Or not, or once it may."""
        if self.down:
            raise StoreUnavailableError("down on purpose")
        if "manifest" in key:
            self.asked.set()
            await self.opened.wait()
        return await super().put(key, data, create=create, if_match=if_match)


def _swallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the SDK give the result of an activity, and nothing of a cancel beside it, as older ones do."""
    now = getattr(_WorkflowInstanceImpl, "_await_temporal_operation", None)
    if now is None:
        return

    async def before(self: Any, future: Any, cancel: Any, **options: Any) -> Any:
        return await now(self, future, cancel, **(options | {"completed_cancellation_flag": None}))

    monkeypatch.setattr(_WorkflowInstanceImpl, "_await_temporal_operation", before)


async def cancel_beside(handle: WorkflowHandle[Any, Any], gate: asyncio.Event) -> BaseException | None:
    """Cancel a session in one workflow task with the end of what waits at the gate; why it ended."""
    await handle.signal(StalledSession.stall)
    await asyncio.wait_for(asyncio.to_thread(STALLED.wait), 10)
    gate.set()
    await asyncio.sleep(0.5)
    await handle.cancel()
    GOES_ON.set()
    try:
        with pytest.raises(WorkflowFailureError) as caught:
            await asyncio.wait_for(handle.result(), 20)
    except TimeoutError:
        await handle.terminate()
        raise
    return caught.value.cause


@pytest.mark.parametrize("older", [False, True], ids=["this SDK", "an older SDK"])
async def test_a_cancel_beside_the_end_of_a_late_flush_is_heard(
    temporal_address: str, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """The flush gives its result, and not the cancel: the session would wait for its idle time-out."""
    name, archive, desk = f"t{uuid.uuid4().hex[:12]}", Archive(), Desk()
    settings = make_settings(temporal_address, None, s3, name)
    backends = Backends(settings, blobs=archive)
    archive.opened.set()
    if older:
        _swallow(monkeypatch)
    STALLED.clear()
    GOES_ON.clear()
    async with session_worker(
        settings, desk.agents(), plugin={"backends": backends}, workflows=[StalledSession], drain=1.0
    ) as served:
        handle = await served.client.start_workflow(
            StalledSession.run,
            SessionInput(session_id=name, agent="main", options=SessionOptions(idle_timeout=600)),
            id=name,
            task_queue=name,
        )
        for text in ("one", "two"):
            asked = UserMessage(id=text, text=text)
            result: AskResult = await handle.execute_update("ask", asked, result_type=AskResult)
            assert result.status is AskStatus.ANSWERED
            archive.down = True
        archive.asked.clear()
        archive.opened.clear()
        archive.down = False
        await asyncio.wait_for(archive.asked.wait(), 15)
        ended = await cancel_beside(handle, archive.opened)
    assert isinstance(ended, CancelledError)


@pytest.mark.parametrize("older", [False, True], ids=["this SDK", "an older SDK"])
async def test_a_cancel_beside_the_last_hook_of_a_run_ends_the_session(
    temporal_address: str, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    """Then the run would continue as new, and the next one knows of no cancel."""
    name, desk = f"t{uuid.uuid4().hex[:12]}", Desk()
    settings = make_settings(temporal_address, None, s3, name)
    asked, opened = asyncio.Event(), asyncio.Event()

    async def wait(_: object) -> None:
        asked.set()
        await opened.wait()

    desk.hooks[name, "turn_completed"] = wait
    if older:
        _swallow(monkeypatch)
    STALLED.clear()
    GOES_ON.clear()
    options = SessionOptions(idle_timeout=600, max_turns_per_run=1)
    async with session_worker(settings, desk.agents(), workflows=[StalledSession], drain=1.0) as served:
        handle = await served.client.start_workflow(
            StalledSession.run,
            SessionInput(session_id=name, agent="hooked", options=options),
            id=name,
            task_queue=name,
        )
        result: AskResult = await handle.execute_update(
            "ask", UserMessage(id="one", text="one"), result_type=AskResult
        )
        assert result.status is AskStatus.ANSWERED
        await asyncio.wait_for(asked.wait(), 15)
        ended = await cancel_beside(handle, opened)
    assert isinstance(ended, CancelledError)
