"""Rows of frameworks: which are calls and which results, and who says what in them."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.models.foreign_rows import (
    READERS,
    find_foreign_row,
    find_said,
    is_foreign,
    read_foreign_row,
)
from helix_temporal.models.messages import Message, ToolCall, encode_message, image_part, text_part
from helix_temporal.models.stored_messages import Kind
from helix_temporal.models.turns import answer_in, encode_messages, kinds_of, starts_in, user_in
from tests.unit.models._foreign_rows import CONVERSATIONS, Given

FRAMEWORKS = sorted(set(READERS) - {"zeitlich-v1"})


def message_of(form: str, row: Any, name: str = "r") -> Message:
    """The row as an adapter stores it."""
    return Message(id=name, role="foreign", format=form, content=json.dumps(row))


def messages_of(form: str, rows: Sequence[Any]) -> list[Message]:
    """Rows that follow each other."""
    return [message_of(form, row, f"r{at}") for at, row in enumerate(rows)]


def said_in(form: str, row: Any) -> Any:
    """What somebody says in the row."""
    said = find_said(encode_message(message_of(form, row)))
    return None if said is None else (said.role, said.content)


EACH_ROW = [
    pytest.param(form, each, id=f"{name} {at}")
    for name, (form, rows) in CONVERSATIONS.items()
    for at, each in enumerate(rows)
]


@pytest.mark.parametrize(("form", "wanted"), EACH_ROW)
def test_a_row_is_read_as_its_framework_means_it(form: str, wanted: Given) -> None:
    """By itself, whatever stands around it."""
    row = read_foreign_row(message_of(form, wanted.row))
    assert row is not None
    assert (row.kind, row.role) == (wanted.kind, wanted.role)
    assert tuple(each.id for each in row.calls) == wanted.calls
    assert tuple(each.id for each in row.results) == wanted.results
    assert row.read_said() == wanted.said


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_row_has_one_kind_in_any_append(name: str) -> None:
    """Frameworks write row by row or many at once: a repeat of some of them is told from other content."""
    form, given_rows = CONVERSATIONS[name]
    rows = messages_of(form, [each.row for each in given_rows])
    assert kinds_of(rows) == [kind for row in rows for kind in kinds_of([row])]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_each_conversation_has_two_turns(name: str) -> None:
    """The second begins where its user speaks again; results have a user's role in some forms."""
    form, rows = CONVERSATIONS[name]
    stored = encode_messages(messages_of(form, [each.row for each in rows]))
    second = next(at for at, each in enumerate(rows) if each.said == "And now?")
    assert starts_in(stored, from_begin=True) == [second]
    assert user_in(stored[second]) == Message(id=f"r{second}", role="user", content="And now?")
    assert answer_in(stored[-1]) == Message(id=stored[-1].id, role="assistant", content="Bye.")
    assert [each for each in stored if each.kind in {Kind.USER, Kind.ANSWER}] == []


def test_a_call_whose_argument_says_foreign_is_no_foreign_row() -> None:
    """Its bytes have the mark of one: usage, checks and counts of steps would leave the answer out."""
    call = ToolCall(id="c1", name="set_role", arguments={"role": "foreign"})
    answer = encode_message(Message(id="a1", role="assistant", tool_calls=(call,)))
    row = encode_message(message_of("openai-agents/1", {"role": "user", "content": "Hi"}))
    assert (is_foreign(answer), find_foreign_row(answer)) == (False, None)
    assert is_foreign(row)


def test_a_version_that_is_not_known_is_not_read() -> None:
    """Its rows may mean something else; they are kept, and bind nothing."""
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    assert kinds_of([message_of("openai-agents/2", call), message_of("openai-agents", call)]) == ["o", "o"]
    assert read_foreign_row(message_of("openai-agents/2", call)) is None


# ---- nothing is an error --------------------------------------------------------------------------

words = st.sampled_from(
    ["type", "role", "message", "content", "parts", "contents", "kind", "part_kind", "author", "text", "id"]
) | st.sampled_from(
    ["user", "assistant", "function_call", "tool_use", "toolUse", "tool-call", "request", "text", "image"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | words,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("form", [*FRAMEWORKS, "zeitlich-v1/anthropic"])
@given(row=anything)
def test_no_row_is_an_error(form: str, row: Any) -> None:
    """A framework may write what it likes: the thread takes it, and shows it."""
    stored = encode_messages([message_of(form, row), message_of(form, row, "s")])
    starts_in(stored)
    assert all(each.kind in "oct" for each in stored)
    assert {type(user_in(each)) for each in stored} <= {Message, type(None)}
    assert {type(answer_in(each)) for each in stored} <= {Message, type(None)}


@pytest.mark.parametrize("name", CONVERSATIONS)
@given(data=st.data())
def test_no_row_that_is_damaged_somewhere_is_an_error(name: str, data: st.DataObject) -> None:
    """Near to what readers know, where they look into it."""
    form, rows = CONVERSATIONS[name]
    row = json.loads(json.dumps(data.draw(st.sampled_from(rows)).row))
    place = row
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
            place[key] = data.draw(anything)
            break
        place = place[key]
    (stored,) = encode_messages([message_of(form, row)])
    assert stored.kind in "oct"
    assert {type(user_in(stored)), type(answer_in(stored))} <= {Message, type(None)}


@pytest.mark.parametrize("form", FRAMEWORKS)
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "7", '"x"', "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_row_is_kept_as_it_is(form: str, text: str) -> None:
    """It is no call, and nobody speaks in it."""
    (stored,) = encode_messages([Message(id="r", role="foreign", format=form, content=text)])
    assert (stored.kind, user_in(stored), answer_in(stored)) == (Kind.OTHER, None, None)


# ---- forms of single frameworks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("function_call", "function_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
        ("computer_call", "computer_call_output"),
        ("shell_call", "shell_call_output"),
        ("local_shell_call", "local_shell_call_output"),
        ("apply_patch_call", "apply_patch_call_output"),
        ("tool_search_call", "tool_search_output"),
        ("program", "program_output"),
    ],
)
def test_items_of_all_tools_that_run_outside_the_provider_are_known(asked: str, answered: str) -> None:
    """They have one shape, under different names."""
    rows = messages_of("openai-agents/1", [{"type": each, "call_id": "a"} for each in (asked, answered)])
    call, result = (read_foreign_row(row) for row in rows)
    assert kinds_of(rows) == ["c", "t"]
    assert call is not None
    assert result is not None
    assert [each.id for each in (*call.calls, *result.results)] == ["a", "a"]


def test_an_approval_answers_its_request() -> None:
    """A call of a remote tool waits for it, in another item than its result."""
    asked = {"type": "mcp_approval_request", "id": "a", "name": "look", "arguments": "{}"}
    answered = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True, "id": "b"}
    rows = messages_of("openai-agents/1", [asked, answered, {"type": "mcp_call", "id": "c", "output": "1"}])
    result = read_foreign_row(rows[1])
    assert kinds_of(rows) == ["c", "t", "o"]
    assert result is not None
    assert [each.id for each in result.results] == ["a"]


def test_a_file_of_an_item_keeps_its_place() -> None:
    """By its data, its address or its id."""
    content = [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
        {"type": "input_file", "file_url": "https://x.test/a.pdf"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "refusal", "refusal": "No."},
        {"type": "unheard of"},
    ]
    assert said_in("openai-agents/1", {"role": "user", "content": content}) == (
        "user",
        [
            {"type": "file", "media_type": "application/pdf", "data": "JVBE", "name": "a.pdf"},
            {"type": "file", "url": "https://x.test/a.pdf"},
            {"type": "file", "file_id": "file-1"},
            text_part("No."),
        ],
    )


@pytest.mark.parametrize("mark", ["isMeta", "isSidechain", "isCompactSummary"])
def test_no_user_speaks_in_what_the_program_writes_in_its_name(mark: str) -> None:
    """A skill's text, the prompt of a sub-agent, the summary of what was compacted."""
    row = {"type": "user", mark: True, "message": {"role": "user", "content": "Do it."}}
    assert said_in("claude-agent-sdk/1", row) is None


def test_calls_of_a_sub_agent_are_calls_in_its_transcript() -> None:
    """It is a thread of its own, of whose entries each is of a sidechain."""
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    rows = [
        {"type": "assistant", "isSidechain": True, "message": {"role": "assistant", "content": [use]}},
        {"type": "user", "isSidechain": True, "message": {"role": "user", "content": [result]}},
    ]
    assert kinds_of(messages_of("claude-agent-sdk/1", rows)) == ["c", "t"]


def test_a_prompt_of_pydantic_ai_alone_is_the_systems() -> None:
    """With a user's text in the same request, it is not said by the user."""
    prompt = {"part_kind": "system-prompt", "content": "Be kind."}
    assert said_in("pydantic-ai/1", {"kind": "request", "parts": [prompt]}) == ("system", "Be kind.")


def test_all_that_users_of_pydantic_ai_give_is_said() -> None:
    """Texts with metadata, addresses, and files; marks of a cache are none of it."""
    content = [
        {"kind": "text-content", "content": "See", "metadata": {}},
        {"kind": "image-url", "url": "https://x.test/a.png", "media_type": "image/png"},
        {"kind": "document-url", "url": "https://x.test/a.pdf", "media_type": "application/pdf"},
        {"kind": "uploaded-file", "file_id": "f", "media_type": "image/png"},
        {"kind": "cache-point", "ttl": "5m"},
    ]
    prompt = {"part_kind": "user-prompt", "content": content}
    assert said_in("pydantic-ai/1", {"kind": "request", "parts": [prompt]}) == (
        "user",
        [
            text_part("See"),
            image_part(media_type="image/png", url="https://x.test/a.png"),
            {"type": "file", "media_type": "application/pdf", "url": "https://x.test/a.pdf"},
            {"type": "file", "media_type": "image/png", "file_id": "f"},
        ],
    )


def test_what_users_add_to_results_is_said_within_their_step() -> None:
    """Results and a prompt may come in one request: it answers calls, so that no turn begins with it."""
    result = {"part_kind": "tool-return", "tool_name": "look", "tool_call_id": "a", "content": "1"}
    prompt = {"part_kind": "user-prompt", "content": "Stop."}
    row = message_of("pydantic-ai/1", {"kind": "request", "parts": [result, prompt]})
    (stored,) = encode_messages([row])
    assert stored.kind == Kind.RESULT
    assert user_in(stored) == Message(id="r", role="user", content="Stop.")


def test_a_redacted_message_says_what_stands_in_its_place() -> None:
    """What was taken out is not shown in a list of turns."""
    hidden = {"role": "user", "content": [{"text": "secret"}]}
    shown = {"role": "user", "content": [{"text": "(removed)"}]}
    row = {"message": hidden, "message_id": 0, "redact_message": shown}
    assert said_in("strands/1", row) == ("user", "(removed)")


def test_a_part_that_cannot_be_read_does_not_hide_the_calls_beside_it() -> None:
    """Who speaks in it is not known then; that a result follows is."""
    blocks = [{"type": "text", "text": "\ud800"}, {"type": "thinking"}, {"type": "image", "source": 7}]
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    row = {"type": "assistant", "message": {"role": "assistant", "content": [*blocks, use]}}
    assert kinds_of([message_of("claude-agent-sdk/1", row)]) == ["c"]
