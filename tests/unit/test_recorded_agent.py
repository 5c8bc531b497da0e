"""A recorded conversation is played again, the same in every process."""

import json

from helix_temporal.agents import Agent
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.testing.recorded import parse_conversation, read_conversation, replay_agent
from tests.unit.agents._play import EXAMPLE, a_context, ask, seen


def _rows(*rows: object) -> bytes:
    return json.dumps(rows).encode()


def _user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def _answer(text: str | None, *calls: tuple[str, str, str]) -> dict[str, object]:
    row: dict[str, object] = {"role": "assistant", "content": text}
    if calls:
        row["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return row


def _result(call_id: str, text: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


REPEATED_IDS = _rows(
    _user("status?"),
    _answer(None, ("call_0", "status", "{}")),
    _result("call_0", "packed"),
    _answer("It is packed."),
    _user("status?"),
    _answer(None, ("call_0", "status", "{}"), ("call_0", "status", '{"of": 2}')),
    _result("call_0", "sent"),
    _result("call_0", "lost"),
    _answer("One is sent, one lost."),
    _user("yes"),
    _answer("Good."),
    _user("yes"),
    _answer("Still good."),
)


async def _play(data: bytes, *extra: str) -> list[StoredMessage]:
    def fresh() -> Agent:
        return replay_agent(parse_conversation(data), "replay")

    thread: list[StoredMessage] = []
    for text in (*(turn.text for turn in parse_conversation(data).turns), *extra):
        await ask(fresh, thread, text)
    return thread


async def test_the_example_plays_to_the_very_messages_that_were_recorded() -> None:
    """The demo compares the thread with the file; that must fail for lost messages only."""
    recorded = read_conversation(EXAMPLE)
    thread: list[StoredMessage] = []
    for turn in recorded.turns:
        await ask(lambda: replay_agent(read_conversation(EXAMPLE), "support"), thread, turn.text)
    assert seen(thread) == recorded.expected()


async def test_repeated_call_ids_get_their_own_results() -> None:
    """Some providers number the calls of every answer from 0."""
    thread = await _play(REPEATED_IDS)
    texts = [message.text for message in seen(thread) if message.role == "tool"]
    assert texts == ["packed", "sent", "lost"]


async def test_repeated_questions_get_the_answers_of_their_place() -> None:
    """Yes is said often; the place in the thread decides, not the words."""
    thread = await _play(REPEATED_IDS)
    assert [message.text for message in seen(thread)][-3:] == ["Good.", "yes", "Still good."]


async def test_a_question_outside_the_recording_is_answered_and_changes_nothing() -> None:
    """Users of the demo ask what they like, then go on with the recording."""
    data = _rows(_user("one"), _answer("1"), _user("two"), _answer("2"))
    thread: list[StoredMessage] = []
    for text in ("one", "and then?", "two"):
        await ask(lambda: replay_agent(parse_conversation(data)), thread, text)
    assert [message.text for message in seen(thread) if message.role == "assistant"] == [
        "1",
        "That is not part of the recording. I have 2 messages before it.",
        "2",
    ]


async def test_a_fork_plays_on_from_where_it_was_cut() -> None:
    """The place is in the messages, so whoever holds them knows it."""
    thread = await _play(REPEATED_IDS)
    fork = thread[:4]
    await ask(lambda: replay_agent(parse_conversation(REPEATED_IDS)), fork, "status?")
    assert seen(fork)[-1].text == "One is sent, one lost."


async def test_a_turn_longer_than_the_usual_context_still_finds_its_place() -> None:
    """A conversation with very large results must not make its agent lose the thread."""
    big = "x" * 400_000
    calls = [("c", "read", json.dumps({"page": page})) for page in range(3)]
    steps = [row for call in calls for row in (_answer(None, call), _result("c", big + call[2]))]
    data = _rows(
        _user("go"), _answer("ok"), _user("go"), *steps, _answer("done"), _user("go"), _answer("again")
    )
    assert seen(await _play(data)) == parse_conversation(data).expected()


async def test_a_call_that_was_not_recorded_is_an_error_result() -> None:
    """A changed recording shows in the thread instead of failing the session."""
    tool = replay_agent(parse_conversation(REPEATED_IDS)).find_tool("status")
    assert tool is not None
    assert (await tool.call_handler({"of": 9}, a_context(call_id="call_0"))).is_error
