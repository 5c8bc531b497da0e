"""A refund that somebody must approve: ``make example NAME=support_approval``.

Twice the same story.  First the session waits, open, for the supervisor.  Then it ends, its worker too, and
Redis forgets it; the approval starts it again the next morning, from S3.
"""

import asyncio
import logging
import os
import textwrap
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis
from support_desk import PAID, support

from helix_temporal import (
    AskResult,
    HelixWorker,
    PendingCall,
    SessionClient,
    SessionHandle,
    SessionOptions,
    Settings,
    ToolApproval,
    connect,
)

TENT: Final = "My tent leaks. I want my money back."
STOVE: Final = "My stove does not burn. I want my money back."
WAIT: Final = SessionOptions(suspend="wait")
EXIT: Final = SessionOptions(suspend="exit")


def say(who: str, text: str) -> None:
    """One line of the dialogue; what nobody says is in brackets."""
    indent = " " * 13
    print(textwrap.fill(text, 100, initial_indent=f"  {who:<11}", subsequent_indent=indent), flush=True)


def show(call: PendingCall) -> str:
    """A call as one reads it."""
    given = ", ".join(f"{name}={value!r}" for name, value in (call.arguments or {}).items())
    return f"{call.name}({given})"


@asynccontextmanager
async def desk(settings: Settings, options: SessionOptions) -> AsyncIterator[SessionClient]:
    """A worker that serves the agent, and a client that talks to its sessions."""
    client, helix = await connect(settings, [support])
    async with HelixWorker(client, helix):
        yield SessionClient(client, task_queue=settings.task_queue, options=options)


async def supervisor(name: str, settings: Settings, session_id: str, calls: tuple[PendingCall, ...]) -> None:
    """Approve in a program of one's own: all that it needs is the session's name and the calls."""
    client, _ = await connect(settings)
    session = SessionClient(client, task_queue=settings.task_queue).session(session_id)
    for call in calls:
        approval = ToolApproval(approval_id=call.id, approved=True)
        reply = await session.submit_approval(approval)
        say(f"{name}:", f"I approve {show(call)}.")
        say("", f"[the session says: {reply.status}]")


async def customer(session: SessionHandle, text: str, order: str) -> AskResult:
    """Ask, and answer the agent's questions; comes back when somebody else is needed."""
    say("Anna:", text)
    result = await session.ask(text, message_id="anna-1")
    while questions := [call for call in result.pending if call.kind == "client"]:
        asked: dict[str, Any] = questions[0].arguments or {}
        say("agent:", f"{asked.get('question')} {', '.join(asked.get('options', ()))}")
        say("Anna:", order)
        reply = await session.submit_tool_result(questions[0], order, wait=True)
        assert reply.result is not None
        result = reply.result
    for call in result.pending:
        say("", f"[{show(call)} waits for somebody to approve it]")
    return result


def hear(result: AskResult) -> None:
    """What the agent says in the end."""
    say("agent:", result.text or result.error or f"[{result.status}]")


async def wait(settings: Settings, session_id: str) -> None:
    """The workflow stays open; whoever asks again under the same message id waits for the end."""
    print("\nThe session waits (suspend='wait')")
    async with desk(settings, WAIT) as sessions:
        session = sessions.session(session_id, agent="support")
        await customer(session, TENT, "NL-20417")
        page = asyncio.create_task(session.ask(TENT, message_id="anna-1"))  # Anna's page goes on waiting
        await supervisor("Mara", settings, session_id, await session.get_pending_calls())
        hear(await page)
        await session.close()


async def leave(settings: Settings, session_id: str) -> None:
    """The workflow ends while nobody has answered, and the worker with it."""
    print("\nThe session ends meanwhile (suspend='exit')")
    async with desk(settings, EXIT) as sessions:
        session = sessions.session(session_id, agent="support")
        result = await customer(session, STOVE, "NL-20433")
        if not result.pending:
            await session.close()  # a model that has asked for nothing
        ended = await session.result()
        say("", f"[the session has ended: {ended.exit_reason}; nothing runs]")
    say("", "[the worker has stopped, too]")


async def forget(settings: Settings, session_id: str) -> None:
    """Days pass; whatever Redis still has of the session is gone."""
    assert settings.redis_url is not None
    async with Redis.from_url(settings.redis_url) as redis:
        found = [key async for key in redis.scan_iter(match=f"{settings.redis_prefix}*{session_id}*")]
        if found:
            await redis.delete(*found)
    say("", f"[Redis has forgotten the session: {len(found)} keys]")


async def come_back(settings: Settings, session_id: str) -> None:
    """Another worker, with empty stores in front of S3; the approval starts the session again."""
    print("\nThe next morning, on another worker")
    async with desk(settings, EXIT) as sessions:
        session = sessions.session(session_id, agent="support")
        calls = await session.get_pending_calls()
        await supervisor("Mara", settings, session_id, calls)
        await supervisor("Ole", settings, session_id, calls)
        say("Anna:", "[asks for the answer again, under the same message id]")
        hear(await session.ask(STOVE, message_id="anna-1"))
        await session.close()


async def main() -> None:
    """Both, and what the till has paid."""
    settings = Settings.from_env(os.environ)
    if settings.redis_url is None or not settings.has_cold_tier:
        raise SystemExit("This needs Redis and S3 (HELIX_… variables): make example NAME=support_approval")
    number = uuid.uuid4().hex[:6]
    await wait(settings, f"refund-tent-{number}")
    await leave(settings, f"refund-stove-{number}")
    await forget(settings, f"refund-stove-{number}")
    await come_back(settings, f"refund-stove-{number}")
    print("\nThe till has paid")
    for each in PAID.values():
        say("", each)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main())
