"""Signals of somebody who may signal workflows, and knows no more of a session than its name."""

import pytest

from helix_temporal.models.sessions import AskStatus
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("name", ["take_answer", "interrupt", "unknown"])
@pytest.mark.parametrize(
    "arguments", [[], ["text"], [{"odd": 1}, 2], [None]], ids=["none", "text", "two", "null"]
)
async def test_a_signal_with_other_arguments_ends_no_session(
    stand: Stand, sid: str, name: str, arguments: list[object]
) -> None:
    """One ``take_answer`` without an argument had made every later workflow task fail, for good."""
    assert (await stand.sessions.ask(sid, "one", agent="main")).status is AskStatus.ANSWERED
    await stand.handle(sid).signal(name, args=arguments)
    assert (await stand.sessions.ask(sid, "two", agent="main", timeout=20)).status is AskStatus.ANSWERED
