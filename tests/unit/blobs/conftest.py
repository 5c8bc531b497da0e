"""An S3 server that answers as a test says, for what no real one can be made to do."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from helix_temporal.blobs.s3 import S3Blobs

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StubS3:
    """Counts requests and hands them to ``handler``."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.handler: Handler = self.refuse(404, "NoSuchKey")
        self.url = ""

    @staticmethod
    def refuse(status: int, code: str = "", body: str | None = None) -> Handler:
        """Answer everything with this error."""

        async def answer(request: web.Request) -> web.Response:
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
            return web.Response(status=status, text=text if body is None else body)

        return answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Entry of all requests."""
        await request.read()
        self.requests.append((request.method, request.raw_path))
        self.headers.append(dict(request.headers))
        return await self.handler(request)

    def blobs(self, **settings: float | str | None) -> S3Blobs:
        """A store that speaks to this server."""
        given = {"endpoint": self.url, "access_key": "AKSTUB", "secret_key": "stub-secret", **settings}
        return S3Blobs("bucket", **given)  # type: ignore[arg-type]


@pytest.fixture
async def stub() -> AsyncIterator[StubS3]:
    """A running stub."""
    server = StubS3()
    app = web.Application(client_max_size=1 << 27)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def stub_blobs(stub: StubS3) -> AsyncIterator[S3Blobs]:
    """A store on the stub."""
    store = stub.blobs()
    yield store
    await store.close()
