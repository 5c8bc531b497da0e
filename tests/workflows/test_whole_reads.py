"""A whole thread is read by few large pages, from the stores or by workflows."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.messages import Message, ToolCall, encode_message
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage, ThreadPage
from tests.workflows._shore import Shore, shore

pytestmark = pytest.mark.asyncio(loop_scope="session")

EPOCH = 1_700_000_000_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sea(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Shore]:
    async with shore(temporal_address, redis_url, s3) as found:
        yield found


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, sea: Shore) -> list[int]:
    """How many messages each page had that was read from the stores."""
    sizes: list[int] = []
    threads = sea.served.plugin.backends.threads
    read = threads.read

    async def counted(request: ReadPage) -> ThreadPage:
        page: ThreadPage = await read(request)
        sizes.append(len(page.messages))
        return page

    monkeypatch.setattr(threads, "read", counted)
    return sizes


@pytest.fixture(params=["direct", "by workflow"])
def client(sea: Shore, request: pytest.FixtureRequest) -> SessionClient:
    """A client that has the stores, or asks the workers."""
    if request.param == "by workflow":
        return sea.sessions
    backends = sea.served.plugin.backends
    return SessionClient(sea.served.client, task_queue="nobody", stores=backends)


def a_chat(count: int, text: str = "word ") -> list[Message]:
    """Users and answers in turn."""
    roles: tuple[Any, Any] = ("user", "assistant")
    return [
        Message(id=uuid.uuid4().hex, role=roles[at % 2], content=f"{at}: {text * (at % 30)}")
        for at in range(count)
    ]


async def stored(sea: Shore, messages: list[Message], *, hot: bool) -> str:
    """A thread of these messages, in Redis or in S3 alone."""
    backends, thread_id = sea.served.plugin.backends, f"whole-{uuid.uuid4().hex[:8]}"
    stored = tuple(encode_message(each) for each in messages)
    await backends.threads.open(OpenThread(thread_id, EPOCH, "test", messages=stored))
    assert backends.tiered is not None
    await backends.hot.drop(thread_id, 2**62)
    if hot:
        await backends.tiered.hydrate_whole(thread_id, EPOCH)
    return thread_id


@pytest.mark.parametrize("hot", [True, False])
async def test_five_thousand_messages_are_a_few_pages(
    sea: Shore, client: SessionClient, pages: list[int], hot: bool
) -> None:
    """Pages of two hundred took as many round trips as the thread had hundreds of messages."""
    messages = a_chat(5_000)
    thread_id = await stored(sea, messages, hot=hot)
    assert await client.session(thread_id).get_messages() == messages
    assert len(pages) <= 6


async def test_large_messages_between_small_ones_come_as_they_are(sea: Shore, client: SessionClient) -> None:
    """Also those that do not fit into one result, and calls beside their results."""
    call = ToolCall(id="c", name="look", arguments={"what": "y" * 300_000})
    messages = [
        *a_chat(40),
        Message(id="asks", role="user", content="look"),
        Message(id="calls", role="assistant", tool_calls=(call,)),
        Message(id="result", role="tool", tool_call_id="c", content=noise(900_000)),
        Message(id="answer", role="assistant", content=noise(700_000)),
        *a_chat(40),
    ]
    thread_id = await stored(sea, messages, hot=False)
    assert await client.session(thread_id).get_messages() == messages


async def test_a_page_that_compresses_badly_is_cut_where_the_result_is_full(
    sea: Shore, client: SessionClient, pages: list[int]
) -> None:
    """What an activity may return is bounded, whatever the texts are."""
    messages = [each.model_copy(update={"content": noise(2_000)}) for each in a_chat(400)]
    thread_id = await stored(sea, messages, hot=True)
    assert await client.session(thread_id).get_messages() == messages


async def test_a_short_thread_and_one_that_is_not_there(sea: Shore, client: SessionClient) -> None:
    """One message is a page; none is an error of its own."""
    messages = a_chat(2)
    assert await client.session(await stored(sea, messages, hot=True)).get_messages() == messages
    with pytest.raises(SessionNotFoundError):
        await client.session("was-never-there").get_messages()


async def test_workers_that_pack_no_pages_are_understood(sea: Shore, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a roll-out the page comes as messages."""
    monkeypatch.setattr("helix_temporal.activities.threads.pack_page", lambda *_: None)
    messages = a_chat(300)
    assert await sea.sessions.session(await stored(sea, messages, hot=True)).get_messages() == messages


def noise(size: int) -> str:
    """Text that no compression makes small."""
    return "".join(uuid.uuid4().hex for _ in range(size // 32 + 1))[:size]
