"""A session's conversation: by turns, one turn, one message, and what the model was given."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from helix_temporal.inspector import bars, labels
from helix_temporal.inspector.actions import find_outcome
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import get_session, read_number, show_session
from helix_temporal.inspector.shown_place import ShownPlace, find_place
from helix_temporal.views.models import ContextPart, ConversationPage

TURNS: Final = 20
MAX_PARTS: Final = 200


async def show_conversation(request: Request, page: PageRequest) -> Response:
    """The newest turns with the one under way; or those before, from or around what the address names."""
    session = await get_session(request, page)
    session_id = session.overview.session_id
    before, after = read_number(request, "before"), read_number(request, "after")
    number, position = read_number(request, "turn"), read_number(request, "at")
    gone = None if number is None else await page.views.find_lost_attempt(session_id, number)
    if number is not None and gone is None:
        after = await page.views.find_turn(session_id, number)
    elif position is not None:
        after = position
    conversation = await page.views.read_turns(session_id, before=before, after=after, limit=TURNS)
    is_newest = conversation.after is None
    under_way = labels.list_open(conversation) if is_newest else ()
    shown = find_shown(conversation) if is_newest else None
    place = None if shown is None else await find_place(page.views, conversation, shown)
    lost = labels.list_lost(conversation, gone)
    return show_session(
        page,
        "conversation.html",
        session,
        conversation=conversation,
        lost=[each for each in lost if shown is None or each.start < shown],
        newest_lost=[each for each in lost if shown is not None and each.start >= shown],
        lost_turn=gone.turn if gone is not None and labels.is_discarded(gone) else None,
        turns=[turn for turn in conversation.turns if turn not in under_way],
        under_way=under_way,
        live=None if place is None else _link_live(page, session_id, place, conversation),
        older=_link_turns(page, session_id, "before", conversation.before),
        newer=_link_turns(page, session_id, "after", conversation.after),
        said=find_outcome(request.query_params.get("said")),
    )


def find_shown(conversation: ConversationPage) -> int:
    """The position up to which finished turns are on the page: what is live goes on from there."""
    under_way = labels.list_open(conversation)
    finished = [turn.stop for turn in conversation.turns if turn not in under_way]
    return max(finished, default=conversation.turns[0].start if conversation.turns else 0)


async def show_turn(request: Request, page: PageRequest) -> Response:
    """One turn with whole texts; of one that is longer than a page the part that the address names."""
    session = await get_session(request, page)
    session_id = session.overview.session_id
    number: int = request.path_params["number"]
    if await page.views.find_lost_attempt(session_id, number) is not None:
        there = page.link("conversation", {"turn": number}, session_id=session_id)
        return RedirectResponse(f"{there}#attempt-{number}", 303)
    before, after = read_number(request, "before"), read_number(request, "after")
    conversation = await page.views.read_turn(session_id, number, before=before, after=after)
    return show_session(
        page,
        "turn.html",
        session,
        tab="conversation",
        number=number,
        conversation=conversation,
        older=_link_part(page, session_id, number, "before", conversation.before),
        newer=_link_part(page, session_id, number, "after", conversation.after),
    )


async def show_message(request: Request, page: PageRequest) -> Response:
    """One message with all its text."""
    session = await get_session(request, page)
    whole = await page.views.read_message(session.overview.session_id, request.path_params["position"])
    return show_session(page, "message.html", session, tab="conversation", whole=whole)


async def show_context(request: Request, page: PageRequest) -> Response:
    """What the model was given that gave the message at this position."""
    session = await get_session(request, page)
    context = await page.views.get_context(session.overview.session_id, request.path_params["position"])
    parts, hidden = cut_parts(context.parts)
    return show_session(
        page,
        "context.html",
        session,
        tab="conversation",
        context=context,
        parts=parts,
        hidden_after=MAX_PARTS // 2,
        hidden_parts=len(hidden),
        hidden_tokens=bars.sum_part_tokens(hidden),
    )


def cut_parts(
    parts: tuple[ContextPart, ...], most: int = MAX_PARTS
) -> tuple[tuple[ContextPart, ...], tuple[ContextPart, ...]]:
    """The parts that a page lists, the first and the last ones, and those between that it leaves out."""
    if len(parts) <= most:
        return parts, ()
    half = most // 2
    return parts[:half] + parts[-half:], parts[half:-half]


def _link_live(page: PageRequest, session_id: str, place: ShownPlace, conversation: ConversationPage) -> str:
    """The stream that goes on behind what the page shows; it is told where the page doesn't show all."""
    is_whole = place.name and conversation.problem is None
    return page.link("live", {"shown": str(place), "unread": None if is_whole else 1}, session_id=session_id)


def _link_turns(page: PageRequest, session_id: str, name: str, position: int | None) -> str | None:
    return None if position is None else page.link("conversation", {name: position}, session_id=session_id)


def _link_part(
    page: PageRequest, session_id: str, number: int, name: str, position: int | None
) -> str | None:
    """To another part of a turn."""
    if position is None:
        return None
    return page.link("turn", {name: position}, session_id=session_id, number=number)
