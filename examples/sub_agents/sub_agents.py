"""A lead and two specialists, side by side: ``make example NAME=sub_agents``.

The researcher goes on with one thread over all calls, and needs an approval, which is given at the lead's
session.  The critic begins each time with a copy of what the lead knows.  What they used adds up.
"""

import asyncio
import logging
import os
import textwrap
import uuid
from typing import Final

from magazine import critic, lead, researcher

from helix_temporal import (
    AskResult,
    HelixWorker,
    SessionClient,
    SessionHandle,
    Settings,
    ToolApproval,
    Usage,
    connect,
)
from helix_temporal.models import streams

ARTICLES: Final = ("Lighthouses in Norway", "Lighthouses in Denmark")


def say(who: str, text: str) -> None:
    """One line of the dialogue; what nobody says is in brackets."""
    indent = " " * 16
    print(textwrap.fill(text, 100, initial_indent=f"  {who:<14}", subsequent_indent=indent), flush=True)


async def order(session: SessionHandle, text: str, message_id: str) -> tuple[AskResult, dict[str, str]]:
    """Ask, and watch on the stream who begins; comes back with the answer, or when somebody waits."""
    say("editor:", text)
    working: dict[str, str] = {}
    async with session.stream_ask(text, message_id=message_id) as live:
        async for stored in live:
            if isinstance(stored.chunk, streams.SubAgentStart):
                working[stored.chunk.sub_session_id] = stored.chunk.sub_agent_type
                say("", f"[{stored.chunk.sub_agent_type} begins, in {stored.chunk.sub_session_id}]")
        return await live.result(), working


async def approve(session: SessionHandle, result: AskResult) -> None:
    """Answer at the lead's session; the answer finds its way to the one whose call it is."""
    for call in result.pending:
        given = ", ".join(f"{name}={value!r}" for name, value in (call.arguments or {}).items())
        say("", f"[{call.name}({given}) waits for an approval, in {call.route[-1]}]")
        approval = ToolApproval(approval_id=call.id, approved=True)
        reply = await session.submit_approval(approval)
        say("publisher:", "I approve it.")
        say("", f"[{session.session_id} says: {reply.status}]")


async def article(sessions: SessionClient, session: SessionHandle, text: str, message_id: str) -> None:
    """One turn of the lead, whatever has to be approved for it."""
    result, working = await order(session, text, message_id)
    while result.status == "suspended":
        await approve(session, result)
        result = await session.ask(text, message_id=message_id)  # the same message: its turn's end
    for child, name in working.items():
        (turn,) = (await sessions.session(child).list_turns(newest=1)).items
        say(f"{name}:", turn.answer or "[nothing]")
    say("lead:", result.text or result.error or f"[{result.status}]")


async def bill(session: SessionHandle) -> None:
    """What each session used itself, and what the lead's is told to have used: all of it."""
    print("\nThe bill, in tokens")
    # A tool's result says what the tool used, so that only the answers are the lead's own.
    answers = [each for each in await session.get_messages() if each.role == "assistant"]
    own = [each.usage for each in answers if each.usage is not None]
    line("lead", sum(own, Usage()))
    for child in (await session.list_children()).items:
        line(child.agent, child.usage)
    line("all", (await session.get_usage()).tokens)


def line(who: str, used: Usage) -> None:
    """One line of the bill."""
    say(who, f"{used.input_tokens:>6} in {used.output_tokens:>6} out")


async def main() -> None:
    """Two articles and the bill."""
    settings = Settings.from_env(os.environ)
    client, helix = await connect(settings, [lead, researcher, critic])
    async with HelixWorker(client, helix):
        sessions = SessionClient(client, task_queue=settings.task_queue)
        session = sessions.session(f"magazine-{uuid.uuid4().hex[:6]}", agent="lead")
        for number, text in enumerate(ARTICLES, 1):
            print(f"\nArticle {number}")
            await article(sessions, session, text, f"article-{number}")
        await bill(session)
        await session.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main())
