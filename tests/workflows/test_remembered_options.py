"""A session remembers how it behaves: whoever goes on with it need not know how it was started."""

from typing import Any

import pytest

from helix_temporal.client import SessionClient
from helix_temporal.models.sessions import ExitReason, SessionOptions, Status
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk, first_tools_then
from tests.workflows.conftest import Stand
from tests.workflows.test_states import PAIRINGS, place, served
from tests.workflows.test_waits import LOCATE, asks, asks_once

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]


def stranger(stand: Stand, **options: Any) -> SessionClient:
    """A client that names these options and no others."""
    return stand.served.create_client(SessionOptions(**options))


async def options_of(stand: Stand, sid: str) -> SessionOptions:
    """How the newest execution behaves."""
    found = (await stand.sessions.session(sid).get_status()).options
    assert found is not None
    return found


async def test_whoever_answers_a_session_that_was_left_need_not_know_its_options(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """The one who approves is another program than the one that asked: the session ends again by itself."""
    desk.scripts[sid] = lambda request: (
        asks(LOCATE) if sum(each.role == "tool" for each in request.messages) < 2 else "done"
    )
    client = stand.client(suspend="exit", idle_timeout=77)
    (first,) = (await client.ask(sid, "go", agent="people")).pending
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await stranger(stand).session(sid).submit_tool_result(first, "1", wait=True)
    assert reply.result is not None
    (second,) = reply.result.pending
    assert (await client.session(sid).result()).exit_reason is ExitReason.SUSPENDED
    reply = await stranger(stand).session(sid).submit_tool_result(second, "2", wait=True)
    assert reply.result is not None
    assert reply.result.text == "done"
    assert await options_of(stand, sid) == SessionOptions(suspend="exit", idle_timeout=77)


async def test_what_a_client_names_wins_and_is_remembered_and_the_rest_stays(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """One option is changed without a thought for the others."""
    desk.scripts[sid] = asks_once(LOCATE)
    client = stand.client(suspend="exit", idle_timeout=77)
    await client.ask(sid, "go", agent="people")
    await client.session(sid).result()
    await stranger(stand, suspend="wait").session(sid).resume()
    assert (await options_of(stand, sid)) == SessionOptions(idle_timeout=77)
    assert (await stand.sessions.session(sid).get_status()).status is Status.SUSPENDED
    await stand.finish(sid)
    await stranger(stand).session(sid).resume()
    assert await options_of(stand, sid) == SessionOptions(idle_timeout=77)


async def test_an_option_is_taken_back_by_naming_its_default(stand: Stand, sid: str) -> None:
    """What equals a default was named all the same."""
    await stand.client(idle_timeout=77, while_suspended="supersede").ask(sid, "one", agent="main")
    await stand.finish(sid)
    await stranger(stand, while_suspended="queue", idle_timeout=300).ask(sid, "two", agent="main")
    await stand.finish(sid)
    await stranger(stand).ask(sid, "three", agent="main")
    assert await options_of(stand, sid) == SessionOptions()


async def test_options_of_a_session_that_runs_stay_until_its_next_execution(stand: Stand, sid: str) -> None:
    """A client that talks to it in passing does not change it."""
    await stand.client(idle_timeout=77).ask(sid, "one", agent="main")
    await stranger(stand, idle_timeout=88).ask(sid, "two", agent="main")
    assert (await options_of(stand, sid)).idle_timeout == 77


async def test_the_number_of_steps_is_remembered(stand: Stand, desk: Desk, sid: str) -> None:
    """It bounds what a turn may cost, whoever asks."""
    desk.scripts[sid] = first_tools_then("done", "x")
    await stand.client(max_steps=1).ask(sid, "one", agent="main")
    await stand.finish(sid)
    result = await stranger(stand).ask(sid, "two", agent="main")
    assert result.exit_reason is ExitReason.MAX_STEPS


async def test_a_session_that_is_not_to_wait_for_messages_is_not_made_to(stand: Stand, sid: str) -> None:
    """Standard mode is the session's, not that of who happens to ask."""
    await stand.client(persistent=False).ask(sid, "one", agent="main")
    await stand.sessions.session(sid).result()
    assert (await stranger(stand).ask(sid, "two", agent="main")).text == "3: two"
    assert (await stand.sessions.session(sid).result()).exit_reason is ExitReason.COMPLETED


async def test_options_go_along_when_a_session_continues_as_new(stand: Stand, sid: str) -> None:
    """The run that follows was not told them by any client."""
    await stand.client(idle_timeout=77, max_turns_per_run=1).ask(sid, "one", agent="main")
    await stand.finish(sid)
    client = stranger(stand)
    for number in range(3):
        await client.ask(sid, f"{number}", agent="main")
    assert await options_of(stand, sid) == SessionOptions(idle_timeout=77, max_turns_per_run=1)


async def test_a_fork_behaves_as_what_it_is_a_copy_of(stand: Stand, sid: str) -> None:
    """It goes on with the same conversation; however it is made."""
    await stand.client(idle_timeout=77).ask(sid, "one", agent="main", message_id="m")
    await stand.finish(sid)
    await stranger(stand).session(sid).fork(f"{sid}-fork")
    await stranger(stand).ask(f"{sid}-fork", "two", agent="main")
    await stranger(stand, max_steps=9).session(sid, agent="main").edit("m", "uno", f"{sid}-edit")
    assert await options_of(stand, f"{sid}-fork") == SessionOptions(idle_timeout=77)
    assert await options_of(stand, f"{sid}-edit") == SessionOptions(idle_timeout=77, max_steps=9)
    await stand.finish(f"{sid}-fork")
    await stand.finish(f"{sid}-edit")


@pytest.mark.parametrize("place", PAIRINGS, indirect=True)
async def test_every_pairing_of_stores_keeps_the_options(place: Settings, sid: str) -> None:
    """They are in the slice, beside what the session waits for; an open that changes them saves them."""
    desk = Desk()
    async with served(place, desk, suspend="exit") as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        await stranger(stand, max_steps=7).ask(sid, "two", agent="main")
        await stand.finish(sid)
        await stranger(stand).ask(sid, "three", agent="main")
        expected = SessionOptions(idle_timeout=60, suspend="exit", max_steps=7)
        assert await options_of(stand, sid) == expected
        await stand.finish(sid)


async def test_options_are_kept_without_a_session_store(place: Settings, sid: str) -> None:
    """The slice is all that there is then."""
    async with served(place.model_copy(update={"session_store": "none"}), Desk(), suspend="exit") as stand:
        await stand.sessions.ask(sid, "one", agent="main")
        await stand.finish(sid)
        await stranger(stand).ask(sid, "two", agent="main")
        assert await options_of(stand, sid) == SessionOptions(idle_timeout=60, suspend="exit")
        await stand.finish(sid)
