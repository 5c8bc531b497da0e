"""A session inside a workflow of one's own, on a server that skips time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from orders import OrderWorkflow, clerk, file_report
from temporalio.client import WorkflowHandle

from helix_temporal import SessionInput, SessionOptions, workflow_id
from helix_temporal.testing import HelixEnv, helix_env

ORDER = SessionInput(session_id="order-7", agent="clerk", options=SessionOptions(idle_timeout=3600))


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[HelixEnv]:
    async with helix_env(
        [clerk], workflows=[OrderWorkflow], activities=[file_report], directory=tmp_path
    ) as env:
        yield env


async def start(env: HelixEnv) -> WorkflowHandle[OrderWorkflow, str]:
    # Under the id that a session's workflow has, `SessionClient` finds it.
    return await env.client.start_workflow(
        OrderWorkflow.run, ORDER, id=workflow_id("order-7"), task_queue=env.task_queue
    )


async def test_a_report_is_filed_when_the_customer_is_idle(env: HelixEnv) -> None:
    order = await start(env)
    session = env.sessions.session("order-7")
    assert (await session.ask("Where is it?")).text == "1: Where is it?"
    assert (await session.ask("And now?")).text == "3: And now?"
    assert await order.query(OrderWorkflow.turns) == 2
    assert await order.result() == "order-7: 2 turns"


async def test_the_same_order_goes_on_a_day_later(env: HelixEnv) -> None:
    order = await start(env)
    await env.sessions.session("order-7").ask("Where is it?")
    await order.result()
    await env.skip(86_400)
    later = await start(env)
    assert (await env.sessions.session("order-7").ask("And now?")).text == "3: And now?"
    assert await later.query(OrderWorkflow.turns) == 2
