"""A store that ignores write conditions is refused at start-up."""

import asyncio
import hashlib
import random
from collections.abc import Callable

import pytest
from aiohttp import web

from helix_temporal.blobs import ConditionFailedError, probe
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.blobs.probe import prove_conditional_writes
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    StoreUnavailableError,
)
from helix_temporal.testing.faults import BlobFault, FaultyBlobs
from tests.unit.blobs.conftest import Handler, StubS3

KeepsCondition = Callable[[web.Request, bytes | None], bool]


def create_ignored(request: web.Request, found: bytes | None) -> bool:
    """Knows If-Match only."""
    tag = request.headers.get("If-Match")
    return tag is None or (found is not None and tag == hashlib.md5(found).hexdigest())


def if_match_ignored(request: web.Request, found: bytes | None) -> bool:
    """Knows If-None-Match only."""
    return "If-None-Match" not in request.headers or found is None


def stale_if_match_ignored(request: web.Request, found: bytes | None) -> bool:
    """Takes If-Match for "is there"."""
    return if_match_ignored(request, found) and ("If-Match" not in request.headers or found is not None)


def all_ignored(request: web.Request, found: bytes | None) -> bool:
    """An old server."""
    return True


def all_refused(request: web.Request, found: bytes | None) -> bool:
    """A server that compares wrongly, say with the quotes."""
    return "If-Match" not in request.headers and if_match_ignored(request, found)


def all_kept(request: web.Request, found: bytes | None) -> bool:
    """As it should be."""
    tag = request.headers.get("If-Match")
    return if_match_ignored(request, found) and (tag is None or create_ignored(request, found))


def server(keeps: KeepsCondition, *, gap: float = 0.0) -> tuple[Handler, dict[str, bytes]]:
    """A little S3 with the given idea of conditions; with a gap between look and write.  Its objects."""
    objects: dict[str, bytes] = {}

    async def handle(request: web.Request) -> web.Response:
        found = objects.get(request.path)
        if request.method == "PUT" and not keeps(request, found):
            return web.Response(status=412, text="<Error><Code>PreconditionFailed</Code></Error>")
        if request.method == "PUT":
            if gap:
                await asyncio.sleep(gap)
            found = objects[request.path] = await request.read()
            return web.Response(headers={"ETag": f'"{hashlib.md5(found).hexdigest()}"'})
        if request.method == "DELETE":
            objects.pop(request.path, None)
            return web.Response(status=204)
        if found is None:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return web.Response(body=found, headers={"ETag": f'"{hashlib.md5(found).hexdigest()}"'})

    return handle, objects


@pytest.mark.parametrize(
    ("keeps", "named"),
    [
        (create_ignored, "If-None-Match: \\* on an existing object was accepted"),
        (if_match_ignored, "If-Match on a missing object was accepted"),
        (stale_if_match_ignored, "If-Match with a stale etag was accepted"),
        (all_ignored, "was accepted"),
        (all_refused, "If-Match with the current etag was refused"),
    ],
)
async def test_a_server_that_breaks_a_condition_is_refused(
    stub: StubS3, stub_blobs: S3Blobs, keeps: KeepsCondition, named: str
) -> None:
    """On such a bucket acknowledged writes vanish; the message says which condition is broken."""
    stub.handler, objects = server(keeps)
    with pytest.raises(ConditionalWritesUnsupportedError, match=named):
        await stub_blobs.probe("probe")
    assert objects == {}


async def test_a_server_that_knows_no_conditions_is_refused(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """Some answer 501 to the header instead of ignoring it."""
    stub.handler = stub.refuse(501, "NotImplemented")
    with pytest.raises(ConditionalWritesUnsupportedError, match="501 NotImplemented"):
        await stub_blobs.probe("probe")


async def test_a_server_that_does_not_answer_proves_nothing(
    stub: StubS3, stub_blobs: S3Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker tries again instead of calling the server unfit."""
    stub.handler = stub.refuse(503, "SlowDown")
    monkeypatch.setattr(probe, "_SECONDS", 0.5)
    with pytest.raises(StoreUnavailableError):
        await stub_blobs.probe("probe")
    assert len(stub.requests) > 2


async def test_refused_access_is_told_as_such(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """Wrong credentials are not a missing feature."""
    stub.handler = stub.refuse(403, "AccessDenied")
    with pytest.raises(ArchiveAccessError):
        await stub_blobs.probe("probe")


@pytest.mark.parametrize("skip", [1, 3])
async def test_a_refusal_of_its_own_success_does_not_fail_the_probe(skip: int) -> None:
    """An HTTP client that sent a PUT twice gets 412 although it won."""
    store = FaultyBlobs(MemoryBlobs())
    store.fail(BlobFault.FALSE_REFUSAL, method="put", skip=skip)
    await prove_conditional_writes(store, "probe")
    assert [call.fault for call in store.calls].count(BlobFault.FALSE_REFUSAL) == 1


async def test_a_store_that_writes_what_it_refuses_is_refused() -> None:
    """412 and yet the bytes are there: the answer is worth nothing."""

    class Liar(MemoryBlobs):
        async def put(
            self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None
        ) -> str:
            try:
                return await super().put(key, data, create=create, if_match=if_match)
            except ConditionFailedError:
                await super().put(key, data)
                raise

    with pytest.raises(ConditionalWritesUnsupportedError, match="refused but written"):
        await Liar().probe("probe")


@pytest.mark.parametrize("gap", [0.001, 0.02])
@pytest.mark.parametrize("attempt", range(5))
async def test_a_server_that_looks_and_then_writes_is_refused(
    stub: StubS3, stub_blobs: S3Blobs, gap: float, attempt: int
) -> None:
    """One after the other all conditions hold; of writers at once several win, and only one is there."""
    stub.handler, objects = server(all_kept, gap=gap)
    with pytest.raises(ConditionalWritesUnsupportedError, match="of several writers at once was accepted"):
        await stub_blobs.probe("probe")
    assert objects == {}


@pytest.mark.parametrize("fault", ["503", "reset before", "reset after"])
@pytest.mark.parametrize("seed", range(5))
async def test_passing_failures_do_not_fail_the_probe(
    stub: StubS3, stub_blobs: S3Blobs, fault: str, seed: int
) -> None:
    """Three of ten requests fail: the server is busy, not unfit.  A lost answer may have been a success."""
    handle, objects = server(all_kept)
    chance = random.Random(seed)
    refused = stub.refuse(503, "SlowDown")

    async def often_fails(request: web.Request) -> web.StreamResponse:
        if chance.random() >= 0.3:
            return await handle(request)
        if fault == "503":
            return await refused(request)
        if fault == "reset after":
            await handle(request)
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    stub.handler = often_fails
    await stub_blobs.probe("probe")
    assert objects == {}
