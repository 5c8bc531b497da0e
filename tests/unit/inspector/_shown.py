"""What pages are given, made for a test."""

from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.views.models import (
    ConversationCall,
    ConversationMessage,
    ConversationTurn,
    SessionOverview,
    TurnAttempt,
)


def overview(session_id: str = "s", **given: object) -> SessionOverview:
    """A session in a list."""
    return SessionOverview.model_validate({"session_id": session_id, "status": SessionStatus.ACTIVE, **given})


def turn(number: int, messages: int, calls: int = 0, **given: object) -> ConversationTurn:
    """A turn whose messages each have so many calls; its first one is at 100 × number."""
    start = 100 * number
    said = tuple(
        ConversationMessage(
            message_id=f"m{start + at}",
            position=start + at,
            role="assistant",
            calls=tuple(
                ConversationCall(call_id=f"c{at}-{n}", name="t", position=start + at) for n in range(calls)
            ),
        )
        for at in range(messages)
    )
    return ConversationTurn.model_validate(
        {"number": number, "start": start, "stop": start + messages, "messages": said, **given}
    )


def attempt(**given: object) -> TurnAttempt:
    """A run."""
    return TurnAttempt.model_validate({"run_id": "r", "turn": 1, "status": RunStatus.RUNNING, **given})
