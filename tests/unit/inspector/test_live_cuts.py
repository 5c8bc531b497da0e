"""A followed page whose thread was cut and grew again, while its connection was away or open."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from helix_temporal import Backends, Message, Settings
from helix_temporal.models.states import CreateSession
from tests.unit.inspector._live_streams import BEGIN, following, read_until, write


def turn(number: int, asked: str) -> list[Message]:
    """A question and its answer."""
    return [
        Message(id=f"u{number}", role="user", content=asked),
        Message(id=f"a{number}", role="assistant", content=f"answer to {asked}"),
    ]


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """Two sessions of two turns."""
    made = Backends(Settings())
    for name, first in (("s1", 1), ("s2", 5)):
        await made.sessions.create_session(name, CreateSession())
        await made.sessions.append_messages(name, turn(first, "first"))
        await made.sessions.append_messages(name, turn(first + 1, "second"))
    yield made
    await made.close()


async def place_on_page(http: httpx.AsyncClient, session_id: str = "s1") -> str:
    """What the page gives its stream."""
    found = re.search(r"shown=([^&\"]+)", (await http.get(f"/sessions/{session_id}")).text)
    assert found is not None
    return found[1]


async def test_turns_that_were_replaced_while_nobody_was_connected_are_told(
    backends: Backends, http: httpx.AsyncClient
) -> None:
    """Rewind and ask, or regenerate: the thread is as long as before, and the page shows what never was."""
    seen = await place_on_page(http)
    await backends.sessions.cut_messages("s1", 2)
    await backends.sessions.append_messages("s1", turn(3, "another"))
    async with following(http, **{"Last-Event-ID": seen}) as (_, events):
        assert "Load it anew" in await read_until(events, "event: done")


async def test_a_session_that_was_deleted_and_begun_again_is_told(
    backends: Backends, http: httpx.AsyncClient
) -> None:
    """Under its old id, with as many messages, by the same ids."""
    seen = await place_on_page(http)
    await backends.sessions.delete_session("s1")
    await backends.sessions.create_session("s1", CreateSession())
    await backends.sessions.append_messages("s1", turn(1, "other"))
    await backends.sessions.append_messages("s1", turn(2, "words"))
    async with following(http, **{"Last-Event-ID": seen}) as (_, events):
        assert "Load it anew" in await read_until(events, "event: done")


async def test_turns_that_are_replaced_while_it_is_followed_are_told(
    backends: Backends, http: httpx.AsyncClient
) -> None:
    """The next turn's begin is when the stores are looked at."""
    seen = await place_on_page(http)
    async with following(http, **{"Last-Event-ID": seen}) as (_, events):
        await read_until(events, "Following")
        await backends.sessions.cut_messages("s1", 2)
        await backends.sessions.append_messages("s1", turn(3, "another"))
        await write(backends, *BEGIN)
        assert "Load it anew" in await read_until(events, "event: done")


@pytest.mark.parametrize("position", ["4", "2", "0"])
async def test_an_event_of_another_session_is_no_place_in_this_one(
    http: httpx.AsyncClient, position: str
) -> None:
    """One that is lower would have turns on the page twice."""
    name = (await place_on_page(http, "s2")).partition(".")[2]
    async with following(http, **{"Last-Event-ID": f"{position}.{name}"}) as (_, events):
        assert "Load it anew" in await read_until(events, "event: done")


async def test_turns_that_came_meanwhile_are_added(backends: Backends, http: httpx.AsyncClient) -> None:
    """What is on the page still stands in the thread."""
    seen = await place_on_page(http)
    await backends.sessions.append_messages("s1", turn(3, "another"))
    async with following(http, **{"Last-Event-ID": seen}) as (_, events):
        read = await read_until(events, "Following")
    assert "another" in read
    assert "second" not in read
