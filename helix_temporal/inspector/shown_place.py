"""Up to where finished turns are on a page.

A thread that was cut and has grown again is as long as before: a place has a name beside its position.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.base import dump_json
from helix_temporal.models.states import SessionState
from helix_temporal.views import SessionViews
from helix_temporal.views.models import ConversationPage

_PLACE: Final = re.compile(r"(\d{1,15})(?:\.([0-9a-f]{16}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownPlace:
    """A place in a session's thread: ``12.0123456789abcdef``.

    Attributes:
        position: How many messages stand before it.
        name: Of the session, its begin, and the message before the place; empty where that is not known.
    """

    position: int
    name: str = ""

    def __str__(self) -> str:
        """As it stands in addresses and in ids of events."""
        return f"{self.position}.{self.name}" if self.name else str(self.position)


def parse_place(text: str) -> ShownPlace:
    """The place that a text is.

    Raises:
        InvalidRequestError: It is none.
    """
    found = _PLACE.fullmatch(text)
    if found is None:
        raise InvalidRequestError(
            f"shown: got {text[:40]!r}, expected a position from 0 on and the name of what stands there, as "
            "the page gives it; load the page anew"
        )
    return ShownPlace(int(found[1]), found[2] or "")


async def find_place(views: SessionViews, conversation: ConversationPage, position: int) -> ShownPlace:
    """The place at this position, by a page of turns around it; without a name if its message can't be read.

    Raises:
        SessionNotFoundError: The session is not there any more.
    """
    last_id = _find_id(conversation, position - 1) if position else ""
    if last_id is None:
        last_id = await views.find_message_id(conversation.session_id, position - 1)
    if last_id is None:
        return ShownPlace(position)
    return ShownPlace(position, _make_name(await views.load_state(conversation.session_id), last_id))


def _find_id(conversation: ConversationPage, position: int) -> str | None:
    """Of a message on the page; results of tools stand there with their calls, without their ids."""
    messages = (each for turn in conversation.turns for each in turn.messages)
    return next((each.message_id for each in messages if each.position == position), None)


def _make_name(state: SessionState, last_id: str) -> str:
    facts = [state.session_id, state.created_at, state.messages_thread_id, last_id]
    return hashlib.sha256(dump_json(facts)).hexdigest()[:16]
