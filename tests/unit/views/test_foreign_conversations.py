"""Conversations that a framework wrote, shown as ours are: who says what, and each call with its result."""

import json

import pytest

from helix_temporal.models.base import dump_json
from tests.unit.models._foreign_rows import CONVERSATIONS
from tests.unit.models.test_foreign_rows import messages_of
from tests.unit.views._scene import Scene


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_frameworks_conversation_is_read_by_turns(memory_scene: Scene, name: str) -> None:
    """Its users look at it in the same page; nothing of it is shown as raw rows where it can be read."""
    form, rows = CONVERSATIONS[name]
    writer = await memory_scene.begin()
    await writer.append(*messages_of(form, [each.row for each in rows]))
    page = await memory_scene.views.read_turns("s1")
    assert [turn.number for turn in page.turns] == [1, 2]
    first, second = page.turns
    said = [(each.role, each.text) for turn in page.turns for each in turn.messages if each.text]
    spoken = [each for each in said if each[1] in {"Look", "Done.", "And now?", "Bye."}]
    assert spoken == [
        ("user", "Look"),
        ("assistant", "Done."),
        ("user", "And now?"),
        ("assistant", "Bye."),
    ]
    calls = {call.call_id: call for each in first.messages for call in each.calls}
    expected = {call for each in rows for call in each.calls}
    assert set(calls) == expected
    assert {call.status for call in calls.values()} == {"done"}
    assert {call.name for call in calls.values()} - {""} == {"look"}
    assert all(call.result_position is not None and call.result is not None for call in calls.values())
    assert (first.tool_calls, second.tool_calls) == (len(expected), 0)


@pytest.mark.parametrize(
    ("depth", "as_text"), [(100, True), (300, True), (900, True), (5000, True), (100, False), (900, False)]
)
async def test_deep_arguments_of_a_framework_are_shown(
    memory_scene: Scene, depth: int, *, as_text: bool
) -> None:
    """Nobody checks what a framework stores; one row must not take the whole conversation off the page."""
    deep = '{"a":' * depth + "1" + "}" * depth
    row = {"type": "function_call", "call_id": "a", "name": "look", "arguments": deep, "id": "fc_a"}
    rows = [{"role": "user", "content": "Look"}, row]
    writer = await memory_scene.begin()
    messages = messages_of("openai-agents/1", rows)
    if not as_text:
        text = messages[1].text.replace(json.dumps(deep), deep)
        messages[1] = messages[1].model_copy(update={"content": text})
    await writer.append(*messages)
    (turn,) = (await memory_scene.views.read_turns("s1")).turns
    (call,) = [call for each in turn.messages for call in each.calls]
    assert '{"a":{"a":' in str(call.arguments)


@pytest.mark.parametrize("value", ["123456789012345678901234567890", r'"\ud83d"', "1e999"])
@pytest.mark.parametrize("as_text", [True, False])
async def test_arguments_that_no_store_of_ours_takes_are_shown_as_text(
    memory_scene: Scene, value: str, *, as_text: bool
) -> None:
    """One row ended the list of all calls with a traceback: a long number, or half of a character."""
    arguments = f'{{"order":{value}}}'
    written = json.dumps(arguments) if as_text else arguments
    body = f'{{"type":"function_call","call_id":"a","name":"look","arguments":{written},"id":"fc_a"}}'
    user, row = messages_of("openai-agents/1", [{"role": "user", "content": "Look"}, {"id": "fc_a"}])
    writer = await memory_scene.begin()
    await writer.append(user, row.model_copy(update={"content": body}))
    page = await memory_scene.views.read_turns("s1")
    (call,) = [call for each in page.turns[0].messages for call in each.calls]
    assert call.arguments == (arguments if as_text else body)
    assert dump_json(call.arguments).decode() in page.model_dump_json()
