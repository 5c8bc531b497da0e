"""Answers as large as people give them: files, images, long texts."""

import json

import pytest

from helix_temporal.errors import TooLargeError
from helix_temporal.models import messages
from helix_temporal.models.base import JsonObject
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import ClientToolResponse, ToolResultSubmission
from helix_temporal.models.waiting import SubmitInput
from helix_temporal.settings import Settings
from tests.workflows._desk import Desk
from tests.workflows.conftest import Stand
from tests.workflows.test_states import place, served
from tests.workflows.test_waits import LOCATE, asks_once, suspended
from tests.workflows.test_waits_exit import left

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["place"]

KIB = 1024
MANY = [("locate", {"what": f"{number}"}) for number in range(10)]


def picture(number: int, size: int = 300 * KIB) -> list[JsonObject]:
    """What somebody photographed, and says of it."""
    data = chr(ord("A") + number) * size
    return [messages.text_part(f"see {number}"), messages.image_part(media_type="image/png", data=data)]


async def test_ten_large_answers_of_parts_to_one_step_are_taken(stand: Stand, desk: Desk, sid: str) -> None:
    """Three megabytes: Temporal takes two at a time, and histories are not for pictures."""
    desk.scripts[sid] = asks_once(*MANY)
    calls = (await suspended(stand, sid)).pending
    for number, call in enumerate(calls):
        reply = await stand.sessions.session(sid).submit_tool_result(call, parts=picture(number))
        assert reply.status == "submitted"
    result = await stand.sessions.ask(sid, "go", agent="people", message_id="m-go")
    assert result.status is AskStatus.ANSWERED
    results = (await stand.messages(sid))[2:12]
    assert [each.content for each in results] == [picture(number) for number in range(10)]
    assert sum(event.ByteSize() for event in await stand.events(sid)) < 64 * KIB


async def test_large_parts_are_kept_while_the_session_has_ended(stand: Stand, desk: Desk, sid: str) -> None:
    """Each answer comes on another day."""
    desk.scripts[sid] = asks_once(*MANY[:2])
    first, second = await left(stand, sid)
    client = stand.client(suspend="exit")
    await client.session(sid).submit_tool_result(first, parts=picture(0))
    await client.session(sid).result()
    await client.session(sid).submit_tool_result(second, parts=picture(1), wait=True)
    assert [each.content for each in (await stand.messages(sid))[2:4]] == [picture(0), picture(1)]


async def test_large_answers_go_to_the_thread_that_the_session_has(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """What is put aside is put beside its thread, whatever that is called."""
    desk.scripts[sid] = asks_once(*MANY[:2])
    asked = await stand.sessions.ask(sid, "go", agent="people", thread_id=f"{sid}-thread")
    first, second = asked.pending
    await stand.sessions.session(sid).submit_tool_result(first, parts=picture(0))
    reply = await stand.sessions.session(sid).submit_tool_result(second, "x" * 100 * KIB, wait=True)
    assert reply.result is not None
    assert reply.result.text == f"see 0 | {'x' * 100 * KIB}"


async def test_who_waits_for_the_end_of_the_turn_gets_the_whole_answer(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """As whoever asks does; a long answer travels by reference."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    reply = await stand.sessions.session(sid).submit_tool_result(call, "y" * 500 * KIB, wait=True)
    assert reply.result is not None
    assert (reply.result.status, reply.result.text) == (AskStatus.ANSWERED, "y" * 500 * KIB)


async def test_parts_have_a_largest_size(stand: Stand, desk: Desk, sid: str) -> None:
    """As any result: one mebibyte as JSON."""
    desk.scripts[sid] = asks_once(LOCATE)
    (call,) = (await suspended(stand, sid)).pending
    with pytest.raises(TooLargeError):
        await stand.sessions.session(sid).submit_tool_result(call, parts=picture(0, 1024 * KIB))
    assert (await stand.sessions.session(sid).get_pending_calls()) == (call,)


async def test_programs_that_put_nothing_aside_are_refused_before_a_step_is_too_large(
    stand: Stand, desk: Desk, sid: str
) -> None:
    """An update may carry 256 KiB; ten of them would end the session at its next step."""
    desk.scripts[sid] = asks_once(*MANY)
    calls = (await suspended(stand, sid)).pending
    handle = stand.handle(sid)
    for call in calls[:4]:
        await handle.execute_update(
            "submit_tool_result", SubmitInput(call=call.id, parts=picture(0, 250 * KIB))
        )
    large = SubmitInput(call=calls[4].id, text="z" * 256 * KIB)
    with pytest.raises(Exception, match="update failed") as caught:
        await handle.execute_update("submit_tool_result", large)
    assert "put aside" in str(caught.value.__cause__)
    assert len(await stand.sessions.session(sid).get_pending_calls()) == 6


@pytest.mark.parametrize("place", ["memory alone"], indirect=True)
async def test_large_answers_that_were_given_to_the_store_are_put_aside_by_the_open(
    place: Settings, sid: str
) -> None:
    """A program without Temporal knows nothing of its limits."""
    desk = Desk()
    desk.scripts[sid] = asks_once(*MANY[:4])
    async with served(place, desk) as stand:
        calls = await left(stand, sid)
        store = stand.served.plugin.backends.sessions
        assert store is not None
        for call in calls[:3]:
            answer = ClientToolResponse(result={"data": "d" * 900 * KIB})
            await store.submit_tool_result(sid, ToolResultSubmission(tool_call_id=call.id, response=answer))
        reply = await stand.client().session(sid).submit_tool_result(calls[3], "Bonn", wait=True)
        assert reply.result is not None
        texts = (await stand.texts(sid))[2:6]
        assert [len(text) for text in texts] == [
            len(json.dumps({"data": ""}, separators=(",", ":"))) + 900 * KIB
        ] * 3 + [4]
        await stand.finish(sid)
