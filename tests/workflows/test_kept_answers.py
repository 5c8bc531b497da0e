"""A store that is silent just as a model answers: the call is made, and paid for, once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

import pytest

from helix_temporal.agents import ModelRequest
from helix_temporal.settings import Settings
from helix_temporal.testing.proxy import FaultProxy
from tests.workflows._desk import Answer, Desk, first_tools_then
from tests.workflows.conftest import Stand
from tests.workflows.test_states import place, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

__all__ = ["place"]

STORES: Final = {
    "redis alone": ("redis_url", 8.0),
    "redis and postgres": ("redis_url", 8.0),
    "postgres alone": ("postgres_dsn", 12.0),
}
"""The setting that says where threads lie, and seconds: more than one operation of that store may take."""


@asynccontextmanager
async def behind_proxy(place: Settings, setting: str, desk: Desk) -> AsyncIterator[tuple[Stand, FaultProxy]]:
    """A worker whose store of threads can be made silent."""
    url = getattr(place, setting)
    address = urlsplit(url).netloc.rpartition("@")[2]
    async with FaultProxy.start(address) as proxy:
        changed = place.model_copy(update={setting: url.replace(address, proxy.address, 1)})
        async with served(changed, desk) as stand:
            yield stand, proxy
            proxy.freeze(False)


def silent_once(
    proxy: FaultProxy,
    seconds: float,
    answer: Callable[[ModelRequest], Answer],
    *,
    loses: bool,
) -> Callable[[ModelRequest], Answer]:
    """The model's first answer comes as its store falls silent.

    ``loses``: it restarts then, without what it was sent meanwhile; otherwise it does that now.
    """
    asked = 0

    def end_silence() -> None:
        proxy.refuse(loses)
        proxy.freeze(False)
        proxy.refuse(False)

    def script(request: ModelRequest) -> Answer:
        nonlocal asked
        asked += 1
        if asked == 1:
            proxy.freeze()
            asyncio.get_running_loop().call_later(seconds, end_silence)
        return answer(request)

    return script


@pytest.mark.parametrize("loses", [True, False], ids=["it restarts", "it goes on"])
@pytest.mark.parametrize("place", STORES, indirect=True)
async def test_an_answer_outlasts_the_silence_of_its_store(
    place: Settings, sid: str, request: pytest.FixtureRequest, *, loses: bool
) -> None:
    """The user gets it, and it is in the thread; nobody pays for another one."""
    desk = Desk()
    setting, seconds = STORES[request.node.callspec.params["place"]]
    async with behind_proxy(place, setting, desk) as (stand, proxy):
        desk.scripts[sid] = silent_once(
            proxy, seconds, lambda _: f"answer {len(desk.requests[sid])}", loses=loses
        )
        assert (await stand.sessions.ask(sid, "go", agent="main")).text == "answer 1"
        assert len(desk.requests[sid]) == 1
        assert await stand.texts(sid) == ["go", "answer 1"]
        await stand.finish(sid)


async def test_a_call_of_a_tool_outlasts_it_too(place: Settings, sid: str) -> None:
    """A step within a turn is stored without the state, by another way."""
    desk = Desk()
    async with behind_proxy(place, "redis_url", desk) as (stand, proxy):
        desk.scripts[sid] = silent_once(proxy, 8.0, first_tools_then("done", "one"), loses=True)
        assert (await stand.sessions.ask(sid, "go", agent="main")).text == "done"
        assert (len(desk.requests[sid]), len(desk.contexts[sid])) == (2, 1)
        await stand.finish(sid)


async def test_an_answer_outlasts_that_temporal_is_away_as_well(place: Settings, sid: str) -> None:
    """The attempt has missed its heartbeats: it stores its answer all the same, and the next one finds it."""
    desk, loop = Desk(), asyncio.get_running_loop()
    async with FaultProxy.start(place.temporal_address) as temporal:
        beats = {
            name: timedelta(seconds=seconds)
            for name, seconds in (
                ("heartbeat_timeout", 2.0), ("heartbeat_every", 0.5), ("max_heartbeat_throttle_interval", 0.5)
            )
        }  # fmt: skip
        settings = place.model_copy(update={"temporal_address": temporal.address, **beats})
        async with behind_proxy(settings, "redis_url", desk) as (stand, redis):

            def answer(_: ModelRequest) -> Answer:
                if len(desk.requests[sid]) == 1:
                    redis.freeze()
                    temporal.freeze()
                    loop.call_later(5.0, temporal.freeze, False)
                    loop.call_later(14.0, redis.freeze, False)
                return f"answer {len(desk.requests[sid])}"

            desk.scripts[sid] = answer
            assert (await stand.sessions.ask(sid, "go", agent="main")).text == "answer 1"
            assert len(desk.requests[sid]) == 1
            assert await stand.texts(sid) == ["go", "answer 1"]
            await stand.finish(sid)
