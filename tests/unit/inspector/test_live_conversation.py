"""What a page that follows a conversation is sent from the stores."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.inspector.live_turn import LiveQuestion
from helix_temporal.models.checkpoints import RunStatus
from tests.unit.inspector._following import Followed, following
from tests.unit.views._scene import answer, user


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    """As it stands when the page was loaded."""
    async with following(user("u1"), answer("a1")) as found:
        yield found


async def test_a_turn_is_added_when_its_end_is_recorded(followed: Followed) -> None:
    """Drawn for good a moment before, it would say "running" until the page is loaded anew."""
    await followed.writer.start()
    await followed.writer.append(user("u2"), answer("a2"))
    before = await followed.read_thread()
    await followed.writer.end()
    after = await followed.read_thread()
    assert 'id="turn-2"' in before
    assert "live-ended" not in before
    assert "running" not in before  # all of it is stored
    assert after.count('id="turn-2"') == 1
    assert "live-ended" in after


async def test_a_turn_whose_run_is_recorded_late_gets_its_number(followed: Followed) -> None:
    """It was called by its first message, beside turns with numbers."""
    await followed.writer.append(user("u2"), answer("a2"))
    assert "live-ended" not in await followed.read_thread()


async def test_an_attempt_that_left_nothing_comes_without_a_reload(followed: Followed) -> None:
    """And goes into its turn when another attempt stands in its place."""
    await followed.writer.start()
    await followed.writer.end(RunStatus.ABORTED)
    assert 'id="attempt-2"' in await followed.read_thread()
    await followed.writer.turn(user("u3"), answer("a3"))
    lost, _, ended = (await followed.read_thread()).partition("live-ended")
    assert 'id="attempt-2"' not in lost.partition("live-lost")[2]
    assert 'id="attempt-2"' in lost + ended


async def test_what_stands_on_the_page_is_not_sent_again(followed: Followed) -> None:
    """It would take away what somebody is typing into a form, and be sent to hundreds of tabs."""
    assert await followed.read_thread() != ""
    assert await followed.read_thread() == ""
    session = await followed.scene.views.get_session("s")
    assert followed.renderer.show_facts(session) != ""
    assert followed.renderer.show_facts(session) == ""


async def test_a_question_is_text(followed: Followed) -> None:
    """Users write what they like."""
    piece = followed.renderer.show_question(LiveQuestion(2, ("<script>alert(1)</script>",)))
    assert "<script>" not in piece
    assert "Turn 2" in piece
