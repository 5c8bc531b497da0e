"""What customers ask the lamp shop's agents: a failed tool, a discarded turn, a sub-agent, an approval."""

import asyncio
import itertools
from typing import Any, Final

from shop_agents import ASK_DIMMER, ASK_REFUND, ASK_RETURN, ASK_VAT, ASK_WARRANTY

from helix_temporal import SessionClient, SessionProperties

RETURNS: Final = "order-4711/returns"
CHAT: Final = "chat-20940"


async def _ask(sessions: SessionClient, session_id: str, text: str, title: str, **given: Any) -> None:
    agent = given.pop("agent", "support")
    properties = SessionProperties(title=title, **given)
    await sessions.ask(session_id, text, agent=agent, properties=properties, timeout=60)


OTHERS: Final = (
    ("chat-20871", "Send me the price list for 2027", "Wholesale price list for 2027", "acme-gmbh", ()),
    ("chat-20899", "Which one do I need?", "Which firmware stops the flicker?", "ines.r", ("firmware",)),
    ("chat-20904", "متى يصل المبلغ؟", "طلب استرداد المبلغ", "salma", ()),
    ("chat-20911", "My gift card was not accepted", "Gift card refused at checkout", "jonas.b", ()),
    ("chat-20927", "Hello?", "", "o.adeyemi", ()),
    ("chat-20929", "Please cancel my subscription", "Cancel my subscription", "lea_w", ()),
    ("chat-20930", "Can you send it to my office?", "Change an order's address", "t.nakamura", ("address",)),
)


async def fill_shop(sessions: SessionClient) -> None:
    """Let people talk to the agents: turns with tools, a failure, an abort, a sub-agent, an approval."""
    for session_id, text, title, user, tags in OTHERS:
        await _ask(sessions, session_id, text, title, user_id=user, tags=tags)
    billing: dict[str, Any] = {"user_id": "acme-gmbh", "agent": "billing", "tags": ("vat",)}
    await _ask(sessions, "invoice-88", ASK_VAT, "Invoice shows the wrong VAT rate", **billing)
    shop: dict[str, Any] = {
        "title": "Return of order 4711: two of five lamps are broken",
        "user_id": "maria.keller",
        "tags": ("vip", "returns"),
    }
    for text in (ASK_DIMMER, "And when does my parcel arrive?"):
        await _ask(sessions, RETURNS, text, **shop)
    await _abort_turn(sessions)
    for text in (ASK_RETURN, ASK_WARRANTY, ASK_REFUND):
        await _ask(sessions, RETURNS, text, **shop)
    await _ask(sessions, "chat-20931", "Where is my parcel?", "Where is my parcel?", user_id="jonas.b")


async def _abort_turn(sessions: SessionClient) -> None:
    """A turn that somebody stops: it leaves nothing in the thread."""
    handle = sessions.session(RETURNS, agent="support")
    waiting = asyncio.create_task(handle.ask("Wait, I want to ask something else", timeout=60))
    await asyncio.sleep(1)  # or it is stopped before it has begun, and leaves nothing to be seen
    while not await handle.stop(abort=True):  # noqa: ASYNC110 - it begins on the worker
        await asyncio.sleep(0.2)
    await asyncio.wait([waiting])
    waiting.exception()


async def talk_on(sessions: SessionClient) -> None:
    """One chat goes on for ever, a question every few seconds."""
    for question in itertools.cycle((ASK_WARRANTY, ASK_DIMMER)):
        await _ask(sessions, CHAT, question, "Flicker and dimmers", user_id="b.okafor")
        await asyncio.sleep(4)
