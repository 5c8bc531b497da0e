"""The stream of a conversation over HTTP: what it sends, whom, how many, and its end."""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from helix_temporal.backends import Backends
from helix_temporal.inspector import Viewer, create_inspector, live, live_looks
from helix_temporal.inspector.live import live_frame
from helix_temporal.inspector.shown_place import ShownPlace
from helix_temporal.models.states import CreateSession, ErrorInfo, SessionStatus
from helix_temporal.models.streams import RunEnded, SubAgentStart, TextChunk
from helix_temporal.settings import Settings
from helix_temporal.views.filters import SessionFilter
from tests.unit._web import http_client, served, until
from tests.unit.inspector._live_streams import BEGIN, following, make_app, read_until, write


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """Stores in this process, with a session that nobody has talked to."""
    made = Backends(Settings())
    assert made.sessions is not None
    await made.sessions.create_session("s1", CreateSession(user_id="jo"))
    yield made
    await made.close()


def piece(text: str) -> TextChunk:
    """A piece of the answer."""
    return TextChunk(delta=text, message_id="m1")


async def test_pieces_come_as_they_are_written(backends: Backends, http: httpx.AsyncClient) -> None:
    """Each once, and as text."""
    async with following(http) as (answer, events):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "content-security-policy" in answer.headers
        await read_until(events, "live-turn")
        await write(backends, *BEGIN, piece("one "))
        first = await read_until(events, "one ")
        await write(backends, piece("two <b>"))
        second = await read_until(events, "two ")
    assert 'hx-target="#live-step"' in first
    assert "two &lt;b&gt;" in second
    assert "one" not in second


async def test_a_last_event_that_is_none_is_refused(http: httpx.AsyncClient) -> None:
    """A header of somebody else's making."""
    async with following(http, **{"Last-Event-ID": "1e9"}) as (answer, _):
        assert answer.status_code == 400


async def test_a_page_that_shows_what_is_not_there_is_told_to_load_anew(http: httpx.AsyncClient) -> None:
    """Its turns were taken back meanwhile."""
    async with following(http, **{"Last-Event-ID": "12"}) as (_, events):
        read = await read_until(events, "event: done")
    assert "may show turns that are not there any more" in read


async def test_a_stream_that_begins_anew_is_told(backends: Backends, http: httpx.AsyncClient) -> None:
    """What the page shows may be void."""
    assert backends.streams is not None
    async with following(http) as (_, events):
        await read_until(events, "live-turn")
        await write(backends, *BEGIN, piece("one "))
        await read_until(events, "one ")
        await backends.streams.reset_stream("s1", reason="restored")
        read = await read_until(events, "event: done")
    assert "may show turns that are not there any more" in read


async def test_a_viewer_has_so_many_streams_and_others_have_theirs(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that opens thousands takes nobody else's."""
    monkeypatch.setattr(live, "MAX_STREAMS_OF_VIEWER", 2)
    app = make_app(backends)
    async with served(app) as port, http_client(port) as http:
        async with following(http) as (one, _), following(http) as (two, _), following(http) as (three, _):
            assert [each.status_code for each in (one, two, three)] == [200, 200, 429]
            assert three.headers["retry-after"] == "5"
            page = (await three.aread()).decode()
            assert "Too many pages are followed" in page
            assert "store" not in page.partition("<main")[2].partition("</main>")[0].replace("stored", "")
            async with following(http, **{"X-Viewer": "ann"}) as (other, _):
                assert other.status_code == 200
        await until(lambda: app.state.live.count == 0)
        async with following(http) as (again, _):
            assert again.status_code == 200


async def test_viewers_without_a_name_do_not_share_the_streams_of_one(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that names nobody has many viewers: the twenty-first must not be kept waiting."""
    monkeypatch.setattr(live, "MAX_STREAMS_OF_VIEWER", 1)
    monkeypatch.setattr(live, "MAX_STREAMS", 2)
    app = create_inspector(backends, authorise=lambda request: Viewer())
    async with (
        served(app) as port,
        http_client(port) as http,
        following(http) as (one, _),
        following(http) as (two, _),
        following(http) as (three, _),
    ):
        assert [each.status_code for each in (one, two, three)] == [200, 200, 429]


async def test_all_end_with_the_server(backends: Backends) -> None:
    """A stream has no end of its own, and a server that waits for it never goes."""
    app = make_app(backends)
    async with served(app) as port, http_client(port) as http, following(http) as (_, events):
        await read_until(events, "live-turn")
        app.state.live.close()
        assert [each async for each in events] == []


async def test_a_reader_that_takes_nothing_holds_little(backends: Backends) -> None:
    """A phone in a pocket: the server reads no further ahead than its queue."""
    app = make_app(backends)
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /sessions/s1/live?shown=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"live-turn")
        for _ in range(40):
            await write(backends, *(piece("x" * 1000) for _ in range(100)))
        async with http_client(port) as http:
            assert (await http.get("/sessions/s1")).status_code == 200  # others are served
        writer.close()
        await until(lambda: app.state.live.count == 0)


async def test_a_sub_agent_that_may_not_be_seen_is_not_named(backends: Backends) -> None:
    """Its id is in the stream of its caller; whoever may see it gets a link."""
    assert backends.sessions is not None
    for name, user in (("child-of-jo", "jo"), ("child-of-ann", "ann")):
        await backends.sessions.create_session(name, CreateSession(user_id=user, parent_session_id="s1"))
    app = create_inspector(backends, authorise=lambda request: Viewer(reads=SessionFilter(user_id="jo")))
    async with served(app) as port, http_client(port) as http, following(http) as (_, events):
        await read_until(events, "live-turn")
        for name in ("child-of-ann", "child-of-jo"):
            started = SubAgentStart(sub_session_id=name, sub_agent_type="helper", tool_call_id=name[-3:])
            await write(backends, started)
        read = await read_until(events, "child-of-jo")
    assert "child-of-ann" not in read
    assert read.count("helper") >= 2


async def test_an_ended_turn_is_told_idle(backends: Backends, http: httpx.AsyncClient) -> None:
    """And the form to stop it goes."""
    async with following(http) as (_, events):
        await read_until(events, "live-turn")
        await write(backends, *BEGIN, piece("one "))
        await read_until(events, "a turn runs")
        await write(backends, RunEnded(status="completed", agent_id="r1"))
        await read_until(events, "nothing runs")


@pytest.mark.parametrize(
    ("status", "word"),
    [(each, "waiting" if each is SessionStatus.PAUSED else each.value) for each in SessionStatus],
)
async def test_a_followed_page_has_the_word_of_a_fresh_one(
    backends: Backends, http: httpx.AsyncClient, status: SessionStatus, word: str
) -> None:
    """A session that has failed was called idle as soon as it was followed."""
    await backends.sessions.update_status("s1", status)
    async with following(http) as (_, events):
        read = await read_until(events, "nothing runs")
        shown = word_of(read)
        assert shown == word_of((await http.get("/sessions/s1")).text)
    assert shown == word


def word_of(html: str) -> str:
    """Beside the title."""
    found = re.search(r'session-status".*?class="dot"[^>]*></span>(\w+)<', html)
    assert found is not None
    return found[1]


async def test_a_session_that_fails_while_it_is_followed_says_so(
    backends: Backends, http: httpx.AsyncClient
) -> None:
    """Its last chunk tells that nothing runs; the stores tell why."""
    async with following(http) as (_, events):
        await read_until(events, "live-turn")
        await write(backends, *BEGIN, piece("one "))
        await read_until(events, ">running<")
        error = ErrorInfo(type="ModelError", message="it did not answer")
        state = await backends.sessions.load_state("s1")
        assert state is not None
        failed = state.model_copy(update={"status": SessionStatus.FAILED, "error": error})
        await backends.sessions.save_state("s1", failed)
        await write(backends, RunEnded(status="failed", agent_id="r1"))
        read = await read_until(events, ">failed<")
        assert "ModelError: it did not answer" in read
        await backends.sessions.update_status("s1", SessionStatus.ACTIVE)
        await write(backends, *BEGIN)
        assert "did not answer" not in await read_until(events, ">running<")
    assert "did not answer" not in (await fresh_page(backends))


async def fresh_page(backends: Backends) -> str:
    """As it is loaded now."""
    async with served(make_app(backends)) as port, http_client(port) as http:
        return (await http.get("/sessions/s1")).text


async def test_a_session_that_is_closed_while_it_is_followed_says_so(
    backends: Backends, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No chunk tells it: the page kept the word and the version from before."""
    monkeypatch.setattr(live_looks, "WHILE_IDLE", 0.2)
    async with following(http) as (_, events):
        await read_until(events, "nothing runs")
        await backends.sessions.update_status("s1", SessionStatus.COMPLETED)
        read = await read_until(events, ">completed<")
    assert "<dt>Version</dt><dd>2</dd>" in read


@pytest.mark.parametrize(
    "text", ["a\nb", "a\rb", "a\r\nb", "\n\nevent: done\ndata: x\n\n", "\r\rid: 9\r\r", ""]
)
def test_text_cannot_end_an_event(text: str) -> None:
    """Or begin one of its own: a line break of any kind would."""
    frame = live_frame(text, ShownPlace(7)).decode()
    assert frame.startswith("id: 7\n")
    assert frame.endswith("\n\n")
    lines = frame[:-2].split("\n")[1:]
    assert all(line.startswith("data: ") for line in lines)
    assert re.search("\r", frame) is None
    assert frame.count("\n\n") == 1
