"""A conversation that rests in S3 and goes on days later: ``make example NAME=resume_cold``.

Three turns; the session ends, the worker stops, Redis is wiped.  Another worker goes on from S3, a past
message is edited in a fork, and turns are taken back.
"""

import asyncio
import logging
import os
import textwrap
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from travel_agent import travel

from helix_temporal import Backends, HelixWorker, SessionClient, SessionHandle, Settings, connect
from helix_temporal.client import TurnInfo

PLANS = ("I go to Norway.", "I go by train.", "I have five days.")


def say(who: str, text: str) -> None:
    """One line of the dialogue; what nobody says is in brackets."""
    indent = " " * 10
    print(textwrap.fill(text, 100, initial_indent=f"  {who:<8}", subsequent_indent=indent), flush=True)


@asynccontextmanager
async def desk(settings: Settings) -> AsyncIterator[SessionClient]:
    """A worker with connections of its own, and a client that talks to its sessions."""
    client, helix = await connect(settings, [travel])
    async with HelixWorker(client, helix):
        yield SessionClient(client, task_queue=settings.task_queue)


async def talk(session: SessionHandle, text: str, message_id: str) -> None:
    """One turn."""
    say("you:", text)
    result = await session.ask(text, message_id=message_id)
    say("agent:", result.text or result.error or f"[{result.status}]")


async def end(session: SessionHandle) -> None:
    """Close the session; its clean-up archives the thread."""
    await session.close()
    result = await session.result()
    receipts = ", ".join(f"{each.name} {'done' if each.ok else 'FAILED'}" for each in result.receipts)
    say("", f"[{session.session_id} has ended: {receipts}]")


def show(turns: Sequence[TurnInfo]) -> None:
    """The turns of a thread, one a line."""
    for turn in turns:
        say("", f"{turn.number}. {turn.text}  →  {turn.answer}")


async def where(settings: Settings, session_id: str, *, wipe: bool = False) -> None:
    """Where the session is: its thread hot in Redis or not, other keys there, bytes in S3."""
    assert settings.redis_url is not None
    async with Redis.from_url(settings.redis_url, decode_responses=True) as redis:
        keys = [key async for key in redis.scan_iter(match=f"{settings.redis_prefix}*{session_id}*")]
        if wipe and keys:
            await redis.delete(*keys)
    backends = Backends(settings)
    assert backends.blobs is not None
    assert backends.tiered is not None
    try:
        sizes = [
            each.size async for each in backends.blobs.list(backends.tiered.layout.thread_prefix(session_id))
        ]
    finally:
        await backends.close()
    hot = f"{settings.redis_prefix}{{{session_id}}}" in keys
    thread, others = "the thread" if hot else "no thread", len(keys) - hot
    wiped = " (all deleted now)" if wipe else ""
    say("", f"[Redis: {thread}, {others} other keys{wiped}; S3: {sum(sizes)} bytes]")


async def begin(settings: Settings, session_id: str) -> None:
    """Talk, and close."""
    print("\nMonday: three turns")
    async with desk(settings) as sessions:
        session = sessions.session(session_id, agent="travel")
        for number, text in enumerate(PLANS, 1):
            await talk(session, text, f"plan-{number}")
        await where(settings, session_id)
        await end(session)


async def go_on(session: SessionHandle) -> None:
    """Reading wakes nobody; the next message starts the session from S3."""
    found = await session.list_messages()
    say("", f"[read from S3, without a session: {len(found.items)} messages]")
    await talk(session, "What have we planned?", "friday-1")


async def edit(session: SessionHandle, fork: SessionHandle) -> None:
    """The second message anew, in a fork that ends before it."""
    print("\nWhat if you went by ship?  The second message is edited, in a fork")
    say("you:", "I go by ship.")
    result = await session.edit("plan-2", "I go by ship.", fork.session_id)
    say("agent:", result.text or result.error or f"[{result.status}]")
    await talk(fork, "What have we planned?", "ship-1")
    await end(fork)


async def take_back(session: SessionHandle) -> None:
    """The newest two turns of the original go."""
    print("\nYou have four days only: the last two turns of the original are taken back")
    show((await session.list_turns()).items)
    await session.rewind_to_turn(-2)
    say("", "[two turns taken back]")
    await talk(session, "I have four days.", "plan-3b")
    await end(session)


async def main() -> None:
    """A week."""
    settings = Settings.from_env(os.environ)
    if settings.redis_url is None or not settings.has_cold_tier:
        raise SystemExit("This needs Redis and S3 (HELIX_… variables): make example NAME=resume_cold")
    session_id = f"norway-{uuid.uuid4().hex[:6]}"
    await begin(settings, session_id)
    print("\nThe days between: no worker, Redis wiped")
    await where(settings, session_id, wipe=True)
    print("\nFriday, on another worker")
    async with desk(settings) as sessions:
        session, fork = (
            sessions.session(each, agent="travel") for each in (session_id, f"{session_id}-ship")
        )
        await go_on(session)
        await where(settings, session_id)
        await edit(session, fork)
        await take_back(session)
        print("\nThe original in the end")
        show((await session.list_turns()).items)
        print("\nThe fork in the end")
        show((await fork.list_turns()).items)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main())
