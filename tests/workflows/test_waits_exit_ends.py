"""Sessions that are about to end while they wait: what comes meanwhile, and stores away, lose nothing."""

import asyncio
from typing import Any

import pytest

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.sessions import ExitReason, Status
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, Gate
from tests.workflows.conftest import Stand
from tests.workflows.test_states import place, served, state_of
from tests.workflows.test_waits import LOCATE, WIPE, asks_once
from tests.workflows.test_waits_exit import left
from tests.workflows.test_waits_store_faults import SHORT

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]


async def test_an_abort_as_the_execution_ends_leaves_nothing_that_looks_as_if_it_waited(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """A list of what people have to answer would name the session for ever."""
    gate = Gate()
    desk.scripts[sid] = asks_once(LOCATE)
    desk.hooks[sid, "session_ended"] = lambda _: gate.passing()
    client = stand.client(suspend="exit")
    await client.ask(sid, "go", agent="hooked")
    await gate.reached.wait()
    assert await client.session(sid).stop(abort=True)
    gate.opened.set()
    await client.session(sid).close()
    ended = await client.session(sid).result()
    assert (ended.exit_reason, ended.status) == (ExitReason.COMPLETED, Status.COMPLETED)
    assert (await state_of(stand, sid)).status is SessionStatus.COMPLETED


async def test_an_answer_that_was_taken_outlasts_a_store_that_is_away(
    place: Settings, sid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are still wanted, and nobody but the execution knows it: it stays until that is saved."""
    desk, away = Desk(), asyncio.Event()
    desk.scripts[sid] = asks_once(LOCATE, WIPE)
    async with served(place.model_copy(update={"timeouts": SHORT}), desk) as stand:
        locate, wipe = await left(stand, sid)
        threads, failed = stand.served.plugin.backends.threads, asyncio.Event()
        save = threads.save_slice

        async def saving(*given: Any) -> Any:
            if away.is_set():
                failed.set()
                raise StoreUnavailableError("away")
            return await save(*given)

        monkeypatch.setattr(threads, "save_slice", saving)
        away.set()
        client = stand.client(suspend="exit")
        assert (await client.session(sid).submit_tool_result(locate, "Bonn")).status == "submitted"
        await failed.wait()
        await asyncio.sleep(SHORT.finaliser_budget.total_seconds() + 1)
        away.clear()
        assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
        assert [call.id for call in await client.session(sid).get_pending_calls()] == [wipe.id]
        approval = ToolApproval(approval_id=wipe.id, approved=True)
        reply = await client.session(sid).submit_approval(approval, wait=True)
        assert reply.result is not None
        assert reply.result.text == "Bonn | wiped disk"
