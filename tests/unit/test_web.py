"""Server-sent events: each chunk once and in order, whatever becomes of the connection."""

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request

from helix_temporal.models.streams import Custom, RunEnded, RunStarted, StreamLimits, TextChunk
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.web import create_sse_app
from tests.unit._web import Connection, Event, connected, http_client, served, streams_alone, until, write


@pytest.fixture
def store() -> MemoryStreams:
    return MemoryStreams()


def turn(*words: str, run: str = "r1", message: str = "m1") -> list[Any]:
    pieces = [TextChunk(delta=word, message_id=f"a-{run}") for word in words]
    return [RunStarted(turn=1, message_ids=(message,)), *pieces, RunEnded(status="completed")]


def is_read() -> bool:
    """Whether anybody waits for more of the stream."""
    return any(task.get_name() == "stream s1" for task in asyncio.all_tasks())


async def all_of(connection: Connection) -> list[Event]:
    return [event async for event in connection.events()]


async def test_a_finished_turn_is_shown_from_its_start_to_its_end(store: MemoryStreams) -> None:
    """A page that is opened late shows what others saw live."""
    await write(store, *turn("Good ", "day"))
    app = create_sse_app(streams_alone(store))
    async with served(app) as port, connected(port, "/sessions/s1/events?until=turn") as page:
        events = await all_of(page)
    assert [event.name for event in events] == ["run_started", "text_delta", "text_delta", "run_ended", "end"]
    assert [event.id for event in events] == [1, 2, 3, 4, None]
    assert json.loads(events[1].data)["delta"] == "Good "


async def test_what_comes_later_is_pushed(store: MemoryStreams) -> None:
    """The point of it: nobody asks again and again."""
    await write(store, *turn("one"))
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, "/sessions/s1/events?after=3") as page,
    ):
        await write(store, *turn("two", run="r2"), run_id="r2")
        events = page.events()
        assert [(await anext(events)).id for _ in range(3)] == [4, 5, 6]


async def test_a_hundred_lost_connections_lose_and_double_nothing(store: MemoryStreams) -> None:
    """Trains enter tunnels: the browser goes on from the last event it saw."""
    words = [f"w{number} " for number in range(300)]
    app, seen, last, drops = create_sse_app(streams_alone(store)), list[Event](), "0", 0

    async def writes() -> None:
        for chunk in turn(*words):
            await write(store, chunk)
            await asyncio.sleep(0.002)

    async with served(app) as port, asyncio.TaskGroup() as tasks:
        tasks.create_task(writes())
        while not seen or seen[-1].name != "end":
            path = "/sessions/s1/events?until=turn&message_id=m1"
            async with connected(port, path, **{"Last-Event-ID": last}) as page:
                async for event in page.events():
                    seen.append(event)
                    last = str(event.id or last)
                    if drops < 100 and len(seen) % 3 == 0:
                        drops += 1
                        page.drop()
                        break
    assert drops == 100
    assert [event.id for event in seen[:-1]] == list(range(1, 303))
    assert [json.loads(event.data)["delta"] for event in seen[1:-2]] == words


async def test_whoever_connects_again_after_the_end_is_told_to_leave_off(store: MemoryStreams) -> None:
    """A browser connects again by itself, for ever, unless it gets 204."""
    await write(store, *turn("done"))
    path = "/sessions/s1/events?until=turn"
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, path, **{"Last-Event-ID": "3"}) as page,
    ):
        assert page.status == 204


async def test_a_place_that_was_trimmed_is_told_with_the_first_that_is_there() -> None:
    """A gap must not look like a whole answer."""
    store = MemoryStreams(StreamLimits(max_chunks=3))
    await write(store, *turn("a", "b", "c", "d"))
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, "/sessions/s1/events?after=1") as page,
    ):
        [event] = await all_of(page)
    assert event.name == "error"
    told = json.loads(event.data)
    assert (told["error"], told["first_available"]) == ("StreamTruncatedError", 4)


async def test_a_stream_that_was_lost_and_began_anew_is_told(store: MemoryStreams) -> None:
    """Waiting for sequence 501 of a stream that is at 3 would be waiting for ever."""
    await write(store, *turn("new"))
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, "/sessions/s1/events", **{"Last-Event-ID": "500"}) as page,
    ):
        [event] = await all_of(page)
    assert json.loads(event.data)["first_available"] == 1


async def test_a_page_that_saw_what_was_taken_back_begins_with_a_resync(store: MemoryStreams) -> None:
    """Its number is lower than that of all that comes, whatever it was; JavaScript reads it exactly."""
    await write(store, *turn("old"))
    resync = await store.reset_stream("s1", reason="restored")
    await write(store, *turn("new"), run_id="r2")
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, "/sessions/s1/events?until=turn", **{"Last-Event-ID": "500"}) as page,
    ):
        events = await all_of(page)
    assert [event.name for event in events] == [
        "stream_resync",
        "run_started",
        "text_delta",
        "run_ended",
        "end",
    ]
    assert [event.id for event in events[:-1]] == [*range(resync, resync + 4)]
    assert resync < 2**53


async def test_silence_is_filled_with_comments(store: MemoryStreams) -> None:
    """Proxies close connections that say nothing."""
    await write(store, RunStarted(turn=1, message_ids=("m1",)))
    async with (
        served(create_sse_app(streams_alone(store), keep_alive=0.02)) as port,
        connected(port, "/sessions/s1/events?until=turn") as page,
    ):
        events = page.events()
        await anext(events)
        coming = asyncio.ensure_future(anext(events))
        await until(lambda: page.comments >= 3)
        await write(store, RunEnded(status="completed"))
        assert (await coming).name == "run_ended"


async def test_a_line_break_in_an_events_data_breaks_no_frame(store: MemoryStreams) -> None:
    """Else a model's text could forge events."""
    await write(store, *turn("a\n\nevent: forged\ndata: {}\n\n"))
    await write(store, Custom(event_name="x\ny", data={"k": "\r\n"}))
    async with (
        served(create_sse_app(streams_alone(store))) as port,
        connected(port, "/sessions/s1/events") as page,
    ):
        events = page.events()
        names = [(await anext(events)).name for _ in range(4)]
    assert names == ["run_started", "text_delta", "run_ended", "custom"]


@pytest.mark.parametrize("query", ["after=-1", "after=x", "until=never", "after=9999999999999999"])
async def test_what_cannot_be_asked_for_is_a_bad_request(store: MemoryStreams, query: str) -> None:
    """The caller's mistake is told as such, in words."""
    async with served(create_sse_app(streams_alone(store))) as port, http_client(port) as http:
        answer = await http.get(f"/sessions/s1/events?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"] == "InvalidRequestError"


@pytest.mark.parametrize("what", ["/events", "/messages"])
async def test_who_may_not_gets_403(store: MemoryStreams, what: str) -> None:
    """One customer's conversation is none of another's business."""

    async def only_mine(request: Request, session_id: str) -> bool:
        return session_id == request.headers.get("x-user")

    app = create_sse_app(streams_alone(store), authorise=only_mine)
    async with served(app) as port, http_client(port, headers={"x-user": "s2"}) as http:
        answer = await http.get(f"/sessions/s1{what}")
    assert answer.status_code == 403


async def test_a_page_that_is_gone_is_read_for_no_longer(store: MemoryStreams) -> None:
    """A thousand closed tabs must not be a thousand readers."""
    await write(store, RunStarted(turn=1, message_ids=("m1",)))
    async with served(create_sse_app(streams_alone(store))) as port:
        async with connected(port, "/sessions/s1/events") as page:
            await anext(page.events())
            assert is_read()
            page.drop()
        await until(lambda: not is_read())


async def test_a_body_that_does_not_fit_is_refused_by_its_fields(store: MemoryStreams) -> None:
    """Nothing of what was sent is repeated: it may be anything."""
    async with served(create_sse_app(streams_alone(store))) as port, http_client(port) as http:
        answer = await http.post("/sessions/s1/messages", json={"secret": "x"})
    assert answer.status_code == 400
    assert "text" in answer.json()["message"]


async def test_a_body_that_does_not_arrive_is_given_up(store: MemoryStreams) -> None:
    """A few hundred idle connections must not hold a server."""
    app = create_sse_app(streams_alone(store), body_timeout=0.2)
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /sessions/s1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert (await reader.readline()).split()[1] == b"408"
        assert b"did not arrive within 0.2 s" in await reader.read()
        writer.close()


async def test_a_body_over_the_limit_is_refused(store: MemoryStreams) -> None:
    """Whatever its header says of its length."""
    app = create_sse_app(streams_alone(store), max_body=1000)
    async with served(app) as port, http_client(port) as http:
        found = await http.post("/sessions/s1/stop", json={"run_id": "x" * 1000})
    assert (found.status_code, found.json()["error"]) == (413, "TooLargeError")


async def test_streams_over_the_limit_are_refused_until_one_ends(store: MemoryStreams) -> None:
    """Each holds memory and a place at the store; whoever comes too late is told when to come again."""
    await write(store, *turn("one"))
    path = "/sessions/s1/events"
    async with served(create_sse_app(streams_alone(store), max_streams=2)) as port:
        async with connected(port, path) as first, connected(port, path):
            await anext(first.events())
            async with http_client(port) as http:
                refused = await http.get(path)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "5"
            assert "max_streams" in refused.text

        await until(lambda: not is_read())
        async with connected(port, path) as again:
            assert again.status == 200


async def test_who_asks_for_the_head_of_a_stream_takes_no_place_of_a_reader(store: MemoryStreams) -> None:
    """``curl -I`` hung, and nobody else could read."""
    await write(store, *turn("one"))
    async with served(create_sse_app(streams_alone(store), max_streams=1)) as port:
        async with http_client(port) as http:
            head = await http.head("/sessions/s1/events")
        assert (head.status_code, head.headers["content-type"].split(";")[0]) == (200, "text/event-stream")
        async with connected(port, "/sessions/s1/events?until=turn") as page:
            assert page.status == 200


LONG = "x" * 600


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "tool-results", {"call": LONG, "result": "yes"}),
        ("POST", "tool-results", {"call": "", "result": "yes"}),
        ("POST", "tool-results", {"call": "c", "result": "yes", "submission_id": LONG}),
        ("POST", "approvals", {"approval_id": LONG, "approved": True}),
        ("POST", "approvals", {"approval_id": "c", "approved": True, "submission_id": LONG}),
        ("POST", "messages", {"text": "hello", "message_id": LONG}),
        ("GET", "events?after=-1", None),
        ("GET", "messages?cursor=zz", None),
        ("GET", "messages?limit=abc", None),
    ],
)
async def test_what_is_out_of_bounds_is_the_callers_mistake(
    store: MemoryStreams, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """400, with what is wrong: not 500, and nothing of it goes to Temporal."""
    app = create_sse_app(streams_alone(store), agent="main")
    async with served(app) as port, http_client(port) as http:
        found = await http.request(method, f"/sessions/s1/{path}", json=body)
    assert found.status_code == 400
    assert found.json()["error"] in {"InvalidRequestError", "InvalidIdError", "InvalidCursorError"}
    assert LONG not in found.text
