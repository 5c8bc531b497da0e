"""A workflow's leases and usage, through a real worker and its converter."""

import uuid
from typing import Any

import pytest

from tests.workflows._caller import CallActivity
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def call(stand: Stand, name: str, argument: dict[str, Any]) -> Any:
    """One activity, called by a workflow."""
    served = stand.served
    return await served.client.execute_workflow(
        CallActivity.run,
        args=[name, argument],
        id=f"call-{uuid.uuid4().hex}",
        task_queue=served.plugin.settings.task_queue,
    )


async def test_a_workflow_takes_and_gives_back_a_lease(stand: Stand, sid: str) -> None:
    """The token travels as a whole number; another workflow is told that the lock is held."""
    taken = await call(stand, "helix.locks.acquire", {"key": sid, "operation_id": "op", "ttl_ms": 60_000})
    assert (await call(stand, "helix.locks.acquire", {"key": sid, "operation_id": "op"}))["lock"] is None
    lease = {"key": sid, "fencing_token": taken["lock"]["fencing_token"]}
    assert (await call(stand, "helix.locks.refresh", lease))["held"] is True
    assert (await call(stand, "helix.locks.release", lease))["released"] is True


async def test_a_workflow_records_usage_once(stand: Stand, sid: str) -> None:
    """Money travels as text."""
    entry = {
        "kind": "tokens",
        "id": "1",
        "session_id": sid,
        "timestamp": 1_800_000_000_000,
        "model": "small",
        "tokens": {"prompt": 2, "completion": 3},
        "cost_usd": "0.10",
    }
    assert (await call(stand, "helix.usage.record", {"entry": entry}))["recorded"] is True
    assert (await call(stand, "helix.usage.record", {"entry": entry}))["recorded"] is False
    rollup = (await call(stand, "helix.usage.rollup", {"session_id": sid}))["rollup"]
    assert (rollup["tokens"]["total"], rollup["cost_usd"]) == (5, "0.10")
    page = await call(stand, "helix.usage.query", {"session_id": sid})
    assert (page["total"], page["items"][0]["cost_usd"]) == (1, "0.10")
