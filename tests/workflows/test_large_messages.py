"""A message over the workers' limit is refused; its session and its neighbours know nothing of it."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from helix_temporal.agents import Agent, ModelRequest
from helix_temporal.agents import ScriptedModel as Scripted
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import TooLargeError
from helix_temporal.models.sessions import AskResult, AskStatus, SessionOptions
from helix_temporal.settings import Limits
from helix_temporal.testing.serving import Served, session_worker
from tests.workflows._desk import Gate
from tests.workflows.conftest import make_settings
from tests.workflows.test_inbox import until_waiting

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

GATES: dict[str, Gate] = {}
LARGE = "." * 6 * 1024


async def echo(request: ModelRequest) -> str:
    """Says what came last, once the test lets it."""
    gate = GATES.get(request.session_id)
    if gate is not None:
        gate.reached.set()
        await gate.opened.wait()
    return f"{len(request.messages)}: {request.messages[-1].text[:10]}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Served]:
    """A worker with ``HELIX_LIMIT_MESSAGE_BYTES=4096``."""
    name = f"t{uuid.uuid4().hex[:12]}"
    settings = make_settings(temporal_address, redis_url, s3, name, limits=Limits(message_bytes=4096))
    agents = [Agent(name="echo", model=Scripted(echo))]
    async with session_worker(settings, agents, options=SessionOptions(idle_timeout=60)) as served:
        yield served


async def test_a_message_over_the_limit_is_refused_alone(served: Served, unique: str) -> None:
    """The whole session failed, and with it whoever else waited for an answer."""
    gate = GATES[unique] = Gate()

    async def ask(text: str, name: str) -> AskResult:
        return await served.sessions.ask(unique, text, agent="echo", message_id=name, timeout=40)

    first = asyncio.create_task(ask("first", "m-first"))
    await gate.reached.wait()
    tasks = []
    for number, (name, text) in enumerate([("a", "a"), ("large", LARGE), ("b", "b")], 1):
        tasks.append(asyncio.create_task(ask(text, f"m-{name}")))
        await until_waiting(served.sessions, unique, number)
    gate.opened.set()
    assert (await first).status is AskStatus.ANSWERED
    a, large, b = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(large, TooLargeError)
    assert "message 'm-large'" in str(large)
    assert "> 4096 bytes" in str(large)
    assert isinstance(a, AskResult)
    assert isinstance(b, AskResult)
    assert (a.text, b.text) == ("4: b", "4: b")
    assert (await ask("later", "m-later")).text == "6: later"
    assert (await served.sessions.session(unique).get_status()).turns == 3
