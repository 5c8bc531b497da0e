"""A small server in place of a real one: it speaks in rhymes of what it was told, and is busy at first."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Serve on a free port of this machine; gives the URL."""
    app = web.Application()
    app["asked"] = 0
    app.router.add_post("/", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def _answer(request: web.Request) -> web.StreamResponse:
    request.app["asked"] += 1
    if request.app["asked"] == 1:
        print("(the stand-in is busy: come back in a second)")
        return web.Response(status=429, headers={"retry-after": "1"})
    body = await request.json()
    said = [each["text"] for each in body["messages"] if each["role"] == "user"]
    words = f"You said {said[-1]!r}, and {len(said) - 1} things before.".split(" ")
    reply = web.StreamResponse()
    await reply.prepare(request)
    for word in words:
        await reply.write(json.dumps({"text": f"{word} "}).encode() + b"\n")
        await asyncio.sleep(0.02)
    await reply.write(json.dumps({"words": len(words)}).encode() + b"\n")
    return reply
