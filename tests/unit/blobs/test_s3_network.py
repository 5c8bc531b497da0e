"""A real S3 server behind a network that breaks: each break has its error, and nothing is half read."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.devstack import S3Endpoint, seaweedfs
from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import ArchiveAccessError, StoreUnavailableError
from helix_temporal.testing.proxy import CutReply, FaultProxy, HoldRequest, StallReply

SIZE = 100_000
HEADERS = 150  # no reply of the server has fewer bytes before its body


@pytest.fixture
async def direct(s3: S3Endpoint) -> AsyncIterator[S3Blobs]:
    """The server itself, to see what is really there."""
    store = S3Blobs(
        s3.bucket, endpoint=s3.endpoint, region=s3.region, access_key=s3.access_key, secret_key=s3.secret_key
    )
    yield store
    await store.close()


@pytest.fixture
async def proxy(s3: S3Endpoint) -> AsyncIterator[FaultProxy]:
    """The network."""
    async with FaultProxy.start(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
async def store(s3: S3Endpoint, proxy: FaultProxy) -> AsyncIterator[S3Blobs]:
    """The server through that network."""
    async with closing_at_end(through(s3, proxy, read_timeout=30.0)) as store:
        yield store


@pytest.fixture
async def hasty(s3: S3Endpoint, proxy: FaultProxy) -> AsyncIterator[S3Blobs]:
    """The same, for calls that get no answer: of a busy machine it may get none to any other."""
    async with closing_at_end(through(s3, proxy, read_timeout=0.5)) as store:
        yield store


def through(s3: S3Endpoint, proxy: FaultProxy, *, read_timeout: float) -> S3Blobs:
    """A store whose requests go by the proxy."""
    return S3Blobs(
        s3.bucket,
        endpoint=f"http://{proxy.address}",
        region=s3.region,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        read_timeout=read_timeout,
    )


@asynccontextmanager
async def closing_at_end(store: S3Blobs) -> AsyncIterator[S3Blobs]:
    """The store while the block runs."""
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def key(s3_prefix: str) -> str:
    """An object of the test's own."""
    return f"{s3_prefix}/key"


async def stored(direct: S3Blobs, key: str) -> bytes | None:
    """What is really there."""
    found = await direct.get(key)
    return found.data if found else None


async def test_a_lost_reply_to_a_create_is_refused_to_its_own_success(
    store: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """The HTTP client sends again, so 412 never proves that somebody else won."""
    proxy.fail(CutReply())
    with pytest.raises(ConditionFailedError):
        await store.put(key, b"mine", create=True)
    assert await stored(direct, key) == b"mine"


async def test_a_lost_reply_to_a_replace_is_refused_to_its_own_success(
    store: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """The same for the compare-and-swap of a manifest."""
    etag = await direct.put(key, b"before")
    proxy.fail(CutReply())
    with pytest.raises(ConditionFailedError):
        await store.put(key, b"mine", if_match=etag)
    assert await stored(direct, key) == b"mine"


async def test_replies_lost_twice_leave_it_open(
    store: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """No answer at all is retryable, and the write may be there."""
    proxy.fail(CutReply(), times=2)
    with pytest.raises(StoreUnavailableError, match="may have taken effect"):
        await store.put(key, b"mine", create=True)
    assert await stored(direct, key) == b"mine"


async def test_a_put_that_lands_late_is_unavailable_first(
    hasty: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """The caller gave up; the bytes arrive all the same."""
    proxy.fail(HoldRequest())
    with pytest.raises(StoreUnavailableError):
        await hasty.put(key, b"late", create=True)
    assert await stored(direct, key) is None
    proxy.release()
    await proxy.idle()
    assert await stored(direct, key) == b"late"


async def test_a_late_put_against_its_condition_changes_nothing(
    hasty: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """The server judges when it lands, not when it was sent."""
    proxy.fail(HoldRequest())
    with pytest.raises(StoreUnavailableError):
        await hasty.put(key, b"late", create=True)
    await direct.put(key, b"meanwhile", create=True)
    proxy.release()
    await proxy.idle()
    assert await stored(direct, key) == b"meanwhile"


@pytest.mark.parametrize("after", [1, HEADERS, SIZE // 2, SIZE - 1, SIZE])
async def test_a_cut_reply_is_never_short_data(
    store: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str, after: int
) -> None:
    """Cut within the status line, the headers or the body: an error or, sent again, the whole."""
    await direct.put(key, os.urandom(SIZE))
    proxy.fail(CutReply(after), times=2)
    with pytest.raises(StoreUnavailableError, match="no whole answer") as raised:
        await store.get(key)
    assert "effect" not in str(raised.value)  # a read has none


async def test_a_refused_connection_has_no_effect(s3: S3Endpoint, key: str) -> None:
    """Nothing was sent, so nobody has to look whether it was done."""
    store = S3Blobs(
        s3.bucket,
        endpoint=f"http://127.0.0.1:{free_port()}",
        region=s3.region,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
    )
    with pytest.raises(StoreUnavailableError, match="EndpointConnectionError; repeat it later"):
        await store.put(key, b"mine")
    await store.close()


@pytest.mark.parametrize("after", [0, HEADERS, SIZE // 2, SIZE])
async def test_a_stalled_reply_is_unavailable(
    hasty: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str, after: int
) -> None:
    """Nobody waits for the rest for ever."""
    await direct.put(key, os.urandom(SIZE))
    proxy.fail(StallReply(after))
    with pytest.raises(StoreUnavailableError, match="ReadTimeoutError"):
        await hasty.get(key)


async def first_page(store: S3Blobs, key: str) -> None:
    """A listing, to its end."""
    [info async for info in store.list(key)]


Call = Callable[[S3Blobs, str], Awaitable[object]]
CALLS: dict[str, Call] = {
    "get": lambda store, key: store.get(key),
    "put": lambda store, key: store.put(key, b"data"),
    "copy": lambda store, key: store.copy(key, f"{key}2"),
    "list": first_page,
    "delete": lambda store, key: store.delete(key),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("fault", [CutReply(), CutReply(20), StallReply(), StallReply(20)], ids=str)
async def test_every_call_without_an_answer_is_unavailable(
    hasty: S3Blobs, proxy: FaultProxy, key: str, call: Call, fault: CutReply | StallReply
) -> None:
    """Copy, list and delete go another way through the client than get and put."""
    proxy.fail(fault, times=2)
    with pytest.raises(StoreUnavailableError):
        await call(hasty, key)


async def test_a_server_that_comes_back_is_used_again(
    store: S3Blobs, direct: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """The same store object survives a restart of the server."""
    await store.put(key, b"one")
    proxy.refuse()
    with pytest.raises(StoreUnavailableError):
        await store.put(key, b"two")
    proxy.refuse(False)
    await store.put(key, b"three")
    assert await stored(direct, key) == b"three"


async def test_a_connection_closed_while_idle_costs_nothing(
    store: S3Blobs, proxy: FaultProxy, key: str
) -> None:
    """Servers close idle connections; the next call opens another without an error."""
    await store.put(key, b"one", create=True)
    proxy.refuse()
    proxy.refuse(False)
    await proxy.idle()
    await store.put(key, b"two")
    assert proxy.connections == 2


async def test_many_calls_at_once_share_few_connections(s3: S3Endpoint, proxy: FaultProxy, key: str) -> None:
    """Waiting for a connection of our own pool is no failure of the server."""
    store = S3Blobs(
        s3.bucket,
        endpoint=f"http://{proxy.address}",
        region=s3.region,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        max_connections=2,
    )
    await asyncio.gather(*(store.put(f"{key}{number}", b"x") for number in range(20)))
    assert proxy.connections == 2
    await store.close()


async def test_a_missing_bucket_is_named(s3: S3Endpoint) -> None:
    """It is no empty archive, and the operator sees which bucket was meant."""
    store = S3Blobs(
        "no-such-bucket", endpoint=s3.endpoint, access_key=s3.access_key, secret_key=s3.secret_key
    )
    with pytest.raises(ArchiveAccessError, match=r"'no-such-bucket'.*NoSuchBucket"):
        await store.get("key")
    with pytest.raises(ArchiveAccessError, match=r"'no-such-bucket'.*NoSuchBucket"):
        await first_page(store, "key")
    await store.close()


async def test_a_wrong_secret_is_denied_and_not_shown(s3: S3Endpoint, key: str) -> None:
    """403 is permanent; the secret that was tried stays out of the message."""
    store = S3Blobs(s3.bucket, endpoint=s3.endpoint, access_key=s3.access_key, secret_key="WRONG-SECRET")
    with pytest.raises(ArchiveAccessError, match="403 SignatureDoesNotMatch") as caught:
        await store.put(key, b"data")
    assert "WRONG" not in str(caught.value)
    with pytest.raises(ArchiveAccessError, match="403"):
        await store.delete(key)
    await store.close()


async def test_credentials_that_may_only_read_are_denied_writes(
    s3: S3Endpoint, direct: S3Blobs, key: str
) -> None:
    """A worker with too few rights says so with the first write and changes nothing."""
    store = S3Blobs(
        s3.bucket,
        endpoint=s3.endpoint,
        access_key=seaweedfs.READER_ACCESS_KEY,
        secret_key=seaweedfs.READER_SECRET_KEY,
    )
    await direct.put(key, b"before")
    assert await stored(store, key) == b"before"
    with pytest.raises(ArchiveAccessError, match="403 AccessDenied"):
        await store.put(key, b"after")
    with pytest.raises(ArchiveAccessError, match="403 AccessDenied"):
        await store.delete(key)
    assert await stored(direct, key) == b"before"
    await store.close()


async def test_bytes_changed_on_the_way_are_not_stored(
    store: S3Blobs, direct: S3Blobs, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every body has its hash, so the server notices; sending again helps."""
    etag = await store.put(key, b"before")
    connection = await store._get_connection()
    sign = connection._sign_request

    def tamper(*request: Any) -> object:
        prepared = sign(*request)
        prepared.body = b"tampered"  # of the same length
        return prepared

    monkeypatch.setattr(connection, "_sign_request", tamper)
    with pytest.raises(StoreUnavailableError, match="BadDigest"):
        await store.put(key, b"original", if_match=etag)
    assert await stored(direct, key) == b"before"
