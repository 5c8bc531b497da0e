"""Sessions that can't be opened: whoever wants something of one is told why, at once."""

import pytest

from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.stored_messages import EMPTY
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_answer_for_a_session_that_never_was_is_refused(stand: Stand, sid: str) -> None:
    """A permanent failure is an error of its own, not an hour of attempts."""
    with pytest.raises(SessionNotFoundError):
        await stand.sessions.session(sid, agent="people").submit_tool_result("call", "Bonn", timeout=8)


async def test_turns_of_a_session_that_never_was_are_not_taken_back(stand: Stand, sid: str) -> None:
    """As above."""
    with pytest.raises(SessionNotFoundError):
        await stand.sessions.session(sid, agent="people").rewind(EMPTY, timeout=8)
