"""One conversation as each framework writes it: what its rows are to a store, and what is said in them."""

from typing import Any, Final, NamedTuple

from helix_temporal.models.messages import image_part, text_part, thinking_part

PICTURE: Final = [text_part("Look"), image_part(media_type="image/png", data="iVB+")]
"""What the user says first."""


class Given(NamedTuple):
    """A row, and what is to be read of it."""

    row: Any
    kind: str
    role: str | None = None
    said: Any = None
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def _openai_call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}", "id": f"fc_{name}"}


def _openai_message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}


OPENAI: Final = [
    Given({"role": "developer", "content": "Be kind."}, "o", "system", "Be kind."),
    Given(
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVB+", "detail": "auto"},
            ],
        },
        "o",
        "user",
        PICTURE,
    ),
    Given({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x"}, "c"),
    Given(_openai_call("a"), "c", calls=("a",)),
    Given(_openai_call("b"), "c", calls=("b",)),
    Given({"type": "function_call_output", "call_id": "a", "output": "1"}, "t", results=("a",)),
    Given({"type": "function_call_output", "call_id": "b", "output": "2"}, "t", results=("b",)),
    Given(_openai_message("Done."), "o", "assistant", "Done."),
    Given({"role": "user", "content": "And now?"}, "o", "user", "And now?"),
    Given({"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}, "o"),
    Given(_openai_message("Bye."), "o", "assistant", "Bye."),
]


def _claude(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content}
    return {"type": kind, "uuid": "u", "parentUuid": None, "isSidechain": False, "message": message, **more}


def _claude_use(name: str) -> dict[str, Any]:
    return _claude("assistant", [{"type": "tool_use", "id": name, "name": "look", "input": {}}])


def _claude_result(name: str) -> dict[str, Any]:
    return _claude("user", [{"type": "tool_result", "tool_use_id": name, "content": "1"}])


CLAUDE: Final = [
    Given({"type": "summary", "summary": "A talk", "leafUuid": "x"}, "t"),
    Given(
        _claude(
            "user",
            [
                {"type": "text", "text": "Look"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVB+"},
                },
            ],
        ),
        "o",
        "user",
        PICTURE,
    ),
    Given(
        _claude("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        "c",
        "assistant",
        [thinking_part("hm")],
    ),
    Given(_claude_use("a"), "c", "assistant", calls=("a",)),
    Given(_claude_use("b"), "c", "assistant", calls=("b",)),
    Given({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, "t"),
    Given(_claude_result("a"), "t", "user", results=("a",)),
    Given(_claude("user", "Base directory of a skill", isMeta=True), "t"),
    Given({"type": "attachment", "uuid": "x", "attachment": {"type": "hook_success"}}, "t"),
    Given(_claude_result("b"), "t", "user", results=("b",)),
    Given(_claude("assistant", [{"type": "text", "text": "Done."}]), "o", "assistant", "Done."),
    Given({"type": "system", "subtype": "turn_duration", "uuid": "x"}, "t"),
    Given(_claude("user", "And now?"), "o", "user", "And now?"),
    Given(_claude("assistant", [{"type": "text", "text": "Bye."}]), "o", "assistant", "Bye."),
]


def _pydantic(kind: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "parts": list(parts)}


def _pydantic_part(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"part_kind": kind, "content": content, **more}


def _pydantic_call(name: str) -> dict[str, Any]:
    return {"part_kind": "tool-call", "tool_name": "look", "tool_call_id": name, "args": "{}"}


PYDANTIC: Final = [
    Given(
        _pydantic(
            "request",
            _pydantic_part("system-prompt", "Be kind."),
            _pydantic_part(
                "user-prompt", ["Look", {"kind": "binary", "media_type": "image/png", "data": "iVB-"}]
            ),
        ),
        "o",
        "user",
        PICTURE,
    ),
    Given(
        _pydantic(
            "response",
            _pydantic_part("thinking", "hm"),
            _pydantic_part("text", "Let me see."),
            _pydantic_call("a"),
            _pydantic_call("b"),
        ),
        "c",
        "assistant",
        [thinking_part("hm"), text_part("Let me see.")],
        calls=("a", "b"),
    ),
    Given(
        _pydantic(
            "request",
            _pydantic_part("tool-return", "1", tool_name="look", tool_call_id="a"),
            _pydantic_part("retry-prompt", "wrong", tool_name="look", tool_call_id="b"),
        ),
        "t",
        "system",
        results=("a", "b"),
    ),
    Given(_pydantic("response", _pydantic_part("text", "Hm.")), "o", "assistant", "Hm."),
    Given(
        _pydantic(
            "request", _pydantic_part("retry-prompt", "no text", tool_name=None, tool_call_id="pyd_ai_1")
        ),
        "o",
        "system",
    ),
    Given(_pydantic("response", _pydantic_part("text", "Done.")), "o", "assistant", "Done."),
    Given(_pydantic("request", _pydantic_part("user-prompt", "And now?")), "o", "user", "And now?"),
    Given(
        _pydantic(
            "response",
            {"part_kind": "builtin-tool-call", "tool_name": "search", "tool_call_id": "s", "args": {}},
            _pydantic_part("builtin-tool-return", "x", tool_name="search", tool_call_id="s"),
            _pydantic_part("text", "Bye."),
        ),
        "o",
        "assistant",
        "Bye.",
    ),
]


def _adk(author: str, *parts: dict[str, Any], role: str = "model", **more: Any) -> dict[str, Any]:
    content = {"role": role, "parts": list(parts)}
    return {"author": author, "content": content, "id": "e", "invocation_id": "i", "actions": {}, **more}


ADK: Final = [
    Given(
        _adk(
            "user",
            {"text": "Look"},
            {"inline_data": {"mime_type": "image/png", "data": "iVB-"}},
            role="user",
        ),
        "o",
        "user",
        PICTURE,
    ),
    Given(_adk("agent", {"text": "Let"}, partial=True), "o"),
    Given(
        _adk(
            "agent",
            {"text": "hm", "thought": True},
            {"function_call": {"id": "a", "name": "look", "args": {}}},
            {"function_call": {"id": "b", "name": "look", "args": {}}},
            long_running_tool_ids=["b"],
        ),
        "c",
        "assistant",
        [thinking_part("hm")],
        calls=("a", "b"),
    ),
    Given(
        _adk("agent", {"function_response": {"id": "a", "name": "look", "response": {}}}, role="user"),
        "t",
        "assistant",
        results=("a",),
    ),
    Given(
        _adk("user", {"function_response": {"id": "b", "name": "look", "response": {}}}, role="user"),
        "t",
        "user",
        results=("b",),
    ),
    Given(_adk("agent", {"text": "Done."}), "o", "assistant", "Done."),
    Given({"author": "agent", "id": "e", "actions": {"state_delta": {"seen": True}}}, "o"),
    Given(_adk("user", {"text": "And now?"}, role="user"), "o", "user", "And now?"),
    Given(_adk("agent", {"text": "Bye."}), "o", "assistant", "Bye."),
]


def _by_alias(value: Any) -> Any:
    """The row as it is written by alias; ids, names and roles keep their letters."""
    if isinstance(value, list):
        return [_by_alias(each) for each in value]
    if not isinstance(value, dict):
        return value
    camel = {name: name.split("_")[0] + "".join(map(str.title, name.split("_")[1:])) for name in value}
    return {camel[name]: _by_alias(each) for name, each in value.items()}


def _framework(role: str, *contents: dict[str, Any]) -> dict[str, Any]:
    given = [{**each, "additional_properties": {}} for each in contents]
    return {"type": "message", "role": role, "contents": given, "additional_properties": {}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _framework_call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}", "hosted": False}


AGENT_FRAMEWORK: Final = [
    Given(_framework("system", _text("Be kind.")), "o", "system", "Be kind."),
    Given(
        _framework(
            "user",
            _text("Look"),
            {"type": "data", "uri": "data:image/png;base64,iVB+", "media_type": "image/png"},
        ),
        "o",
        "user",
        PICTURE,
    ),
    Given(
        _framework(
            "assistant",
            {"type": "text_reasoning", "text": "hm"},
            _framework_call("a"),
            {"type": "function_approval_request", "id": "p", "function_call": _framework_call("b")},
        ),
        "c",
        "assistant",
        [thinking_part("hm")],
        calls=("a", "p"),
    ),
    Given(
        _framework("tool", {"type": "function_result", "call_id": "a", "result": "1"}), "t", results=("a",)
    ),
    Given(
        _framework(
            "user",
            {
                "type": "function_approval_response",
                "id": "p",
                "approved": True,
                "function_call": _framework_call("b"),
            },
        ),
        "t",
        "user",
        results=("p",),
    ),
    Given(
        _framework("tool", {"type": "function_result", "call_id": "b", "result": "2"}), "t", results=("b",)
    ),
    Given(_framework("assistant", _text("Done.")), "o", "assistant", "Done."),
    Given(_framework("user", _text("And now?")), "o", "user", "And now?"),
    Given(
        _framework("assistant", {**_framework_call("h"), "hosted": True}, _text("Bye.")),
        "o",
        "assistant",
        "Bye.",
    ),
]


def _strands(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def _tool_result(name: str) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": name, "status": "success", "content": [{"text": "1"}]}}


STRANDS: Final = [
    Given(
        _strands(
            "user",
            {"text": "Look"},
            {
                "image": {
                    "format": "png",
                    "source": {"bytes": {"__bytes_encoded__": True, "data": "iVB+"}},
                }
            },
        ),
        "o",
        "user",
        PICTURE,
    ),
    Given(
        _strands(
            "assistant",
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}},
            {"toolUse": {"toolUseId": "b", "name": "look", "input": {}}},
        ),
        "c",
        "assistant",
        [thinking_part("hm")],
        calls=("a", "b"),
    ),
    Given(_strands("user", _tool_result("a"), _tool_result("b")), "t", "user", results=("a", "b")),
    Given(_strands("assistant", {"text": "Done."}), "o", "assistant", "Done."),
    Given(_strands("user", {"text": "And now?"}), "o", "user", "And now?"),
    Given(_strands("assistant", {"text": "Bye."}), "o", "assistant", "Bye."),
]

CONVERSATIONS: Final[dict[str, tuple[str, list[Given]]]] = {
    "openai-agents": ("openai-agents/1", OPENAI),
    "claude-agent-sdk": ("claude-agent-sdk/1", CLAUDE),
    "pydantic-ai": ("pydantic-ai/1", PYDANTIC),
    "google-adk": ("google-adk/1", ADK),
    "google-adk by alias": ("google-adk/1", [each._replace(row=_by_alias(each.row)) for each in ADK]),
    "agent-framework": ("agent-framework/1", AGENT_FRAMEWORK),
    "strands": ("strands/1", STRANDS),
    "strands in a session": (
        "strands/1",
        [each._replace(row={"message": each.row, "message_id": 0}) for each in STRANDS],
    ),
}
"""By name: the format, and the rows.  Each has two turns; the first asks for two tools at once."""
