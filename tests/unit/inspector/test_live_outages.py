"""A followed page while a store is away, and when it answers again."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from helix_temporal import Backends, Message, Settings
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.inspector import live_looks
from helix_temporal.models.states import CreateSession
from helix_temporal.views.models import ConversationPage
from helix_temporal.views.sessions import SessionViews
from tests.unit.inspector._live_streams import following, read_until


class Outage:
    """Makes the threads' store answer nothing while it lasts."""

    def __init__(self, backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hot, self._patch = backends.hot, monkeypatch

    def begin(self) -> None:
        """From now on."""

        async def refuse(*_: object, **__: object) -> None:
            raise StoreUnavailableError("s3: no answer from the bucket in 5 s")

        for name in (each for each in dir(self._hot) if each.startswith("read")):
            self._patch.setattr(self._hot, name, refuse)

    def end(self) -> None:
        """It is back."""
        self._patch.undo()


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """A session with a turn."""
    made = Backends(Settings())
    await made.sessions.create_session("s1", CreateSession())
    said = [Message(id="u1", role="user", content="first"), Message(id="a1", role="assistant", content="hi")]
    await made.sessions.append_messages("s1", said)
    yield made
    await made.close()


@pytest.fixture
def outage(backends: Backends) -> Iterator[Outage]:
    """Of the store of threads."""
    with pytest.MonkeyPatch.context() as patch:
        yield Outage(backends, patch)


async def link_of_stream(http: httpx.AsyncClient) -> str:
    """What the page follows."""
    found = re.search(r'hx-sse:connect="([^"]+)"', (await http.get("/sessions/s1")).text)
    assert found is not None
    return found[1].replace("&amp;", "&")


async def test_a_store_that_is_away_is_told_and_comes_back(
    backends: Backends, http: httpx.AsyncClient, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as a page that fell behind, and following ended for good."""
    monkeypatch.setattr(live_looks, "WHILE_IDLE", 0.3)
    monkeypatch.setattr(live_looks, "WHILE_UNREAD", 0.3)
    async with following(http, await link_of_stream(http)) as (_, events):
        await read_until(events, "Following")
        outage.begin()
        read = await read_until(events, "no answer from the bucket")
        assert "Load it anew" not in read
        assert 'hx-target="#live-turn"' not in read  # what is shown stays
        outage.end()
        read = await read_until(events, 'hx-target="#live-problem"')
        assert "no answer" not in read
        more = [Message(id="u2", role="user", content="second")]
        await backends.sessions.append_messages("s1", [*more, Message(id="a2", role="assistant")])
        assert "second" in await read_until(events, "live-ended")


async def test_a_page_that_was_loaded_while_a_store_was_away_is_told_when_it_is_back(
    http: httpx.AsyncClient, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no turns, and nothing said that they were there again."""
    monkeypatch.setattr(live_looks, "AFTER_CHANGE", ())
    monkeypatch.setattr(live_looks, "WHILE_UNREAD", 0.3)
    outage.begin()
    async with following(http, await link_of_stream(http)) as (_, events):
        await read_until(events, "no answer from the bucket")
        outage.end()
        assert "can be read now" in await read_until(events, "event: done")


async def test_a_notice_of_the_session_goes_when_its_store_is_back(
    http: httpx.AsyncClient, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the title it said that not all can be shown, until the page was loaded anew."""
    monkeypatch.setattr(live_looks, "WHILE_IDLE", 0.3)
    monkeypatch.setattr(live_looks, "WHILE_UNREAD", 0.3)
    async with following(http, await link_of_stream(http)) as (_, events):
        await read_until(events, "Following")
        outage.begin()
        await read_until(events, "Not all can be shown")
        outage.end()
        assert "Not all" not in await read_until(events, 'hx-target="#session-problem"')


async def test_an_archive_that_tells_no_end_is_not_a_thread_that_was_cut(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hot store is away, and the archive has turns: where the thread ends nobody knows just now."""
    read_turns = SessionViews.read_turns

    async def read_archived(views: SessionViews, session_id: str, **how: Any) -> ConversationPage:
        page = await read_turns(views, session_id, **how)
        return page.model_copy(update={"head": None, "problem": "redis: no answer"})

    link = await link_of_stream(http)
    monkeypatch.setattr(SessionViews, "read_turns", read_archived)
    async with following(http, link) as (_, events):
        assert "Load it anew" not in await read_until(events, "redis: no answer")


async def test_turns_that_cannot_be_read_leave_no_gap_on_the_page(
    backends: Backends, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tab slept, and the archive has what came since: the page went on with the newest turn alone."""
    monkeypatch.setattr(live_looks, "WHILE_UNREAD", 0.3)
    read_turns = SessionViews.read_turns

    async def read_newest(views: SessionViews, session_id: str, **how: Any) -> ConversationPage:
        page = await read_turns(views, session_id, **how)
        hidden = {"turns": page.turns[-1:], "before": None, "problem": "s3: no answer from the bucket"}
        return page.model_copy(update=hidden)

    link = await link_of_stream(http)
    for number in range(2, 5):
        asked = Message(id=f"u{number}", role="user", content=f"question {number}")
        answer = Message(id=f"a{number}", role="assistant", content="answer")
        await backends.sessions.append_messages("s1", [asked, answer])
    monkeypatch.setattr(SessionViews, "read_turns", read_newest)
    async with following(http, link) as (_, events):
        assert "question 4" not in await read_until(events, "no answer from the bucket")
        monkeypatch.setattr(SessionViews, "read_turns", read_turns)
        read = await read_until(events, "question 4")
        assert read.index("question 2") < read.index("question 3") < read.index("question 4")
