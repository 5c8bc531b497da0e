"""Conversations as zeitlich's three adapters write them, and what each sends of them to its provider."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from helix_temporal.models.messages import Message

Json = dict[str, Any]

PNG = "iVBORw0KGgo="
BASE64_PNG = {"type": "base64", "media_type": "image/png", "data": PNG}


def rows(adapter: str, each: Sequence[Json]) -> list[Message]:
    """The rows as an import stores them."""
    form = f"zeitlich-v1/{adapter}"
    return [
        Message(id=f"v{at}", role="foreign", format=form, content=json.dumps(row))
        for at, row in enumerate(each)
    ]


def merged(messages: Sequence[Json], inner: str) -> list[Json]:
    """What ``prepareForInvocation`` does: rows of one role that follow each other are one."""
    found: list[Json] = []
    for each in messages:
        if found and found[-1]["role"] == each["role"]:
            found[-1] = {"role": each["role"], inner: [*found[-1][inner], *each[inner]]}
        else:
            found.append({"role": each["role"], inner: [*each[inner]]})
    return found


# -- Anthropic: blocks of the Messages API, stored as they are

ANTHROPIC_USER: list[Json] = [
    {"type": "text", "text": "See"},
    {"type": "text", "text": "Long", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    {"type": "image", "source": BASE64_PNG},
    {"type": "image", "source": {"type": "url", "url": "https://e.test/a.png"}},
    {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "All of it."},
        "title": "T",
        "citations": {"enabled": True},
    },
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
    {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "One."}]}},
    {"type": "document", "source": {"type": "file", "file_id": "file_2"}, "context": "why"},
    {
        "type": "search_result",
        "source": "https://e.test/s",
        "title": "Found",
        "content": [{"type": "text", "text": "It rains."}],
    },
]
ANTHROPIC_RESULTS: list[Any] = [
    "sun",
    "",
    [{"type": "text", "text": "sun"}, {"type": "image", "source": BASE64_PNG}],
    [ANTHROPIC_USER[5]],
    [ANTHROPIC_USER[9]],
    json.dumps({"a": [1, None]}),
]
ANTHROPIC_ANSWER: list[Json] = [
    {"type": "thinking", "thinking": "Bern, then.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "eHl6"},
    {"type": "text", "text": "Sunny.", "citations": None},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
]


def anthropic_rows(drawn: Sequence[tuple[list[Json], list[Json], list[Any]]]) -> list[Json]:
    """A conversation: the user's blocks, the answer's, and what its calls gave."""
    found = []
    for at, (said, answered, results) in enumerate(drawn):
        found.append({"id": f"u{at}", "message": {"role": "user", "content": said}})
        ids = [f"toolu_{at}_{n}" for n in range(len(results))]
        uses = [{"type": "tool_use", "id": each, "name": "look", "input": {"z": 1, "a": 2}} for each in ids]
        found.append({"id": f"a{at}", "message": {"role": "assistant", "content": [*answered, *uses]}})
        for number, (each, content) in enumerate(zip(ids, results, strict=True)):
            block = {"type": "tool_result", "tool_use_id": each, "content": content}
            found.append({"id": f"r{at}-{number}", "message": {"role": "user", "content": [block]}})
    return found


# -- Google: parts of the Gemini API

GOOGLE_USER: list[Json] = [
    {"text": "See"},
    {"inlineData": {"mimeType": "image/png", "data": PNG}},
    {"fileData": {"fileUri": "https://e.test/a.pdf", "mimeType": "application/pdf"}},
    {"inlineData": {"mimeType": "audio/wav", "data": PNG}},
]
GOOGLE_ANSWER: list[Json] = [
    {"text": "Bern, then.", "thought": True},
    {"text": "Sunny.", "thoughtSignature": "c2ln"},
    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
    {"inlineData": {"mimeType": "image/png", "data": PNG}},
]
GOOGLE_RESULTS: list[Json] = [
    {"response": {"result": "sun"}},
    {"response": {"temperature": 21, "sky": ["clear"]}},
    {
        "response": {"result": "see"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
    },
]


def google_rows(drawn: Sequence[tuple[list[Json], list[Json], list[Json]]]) -> list[Json]:
    """A conversation of the same kind."""
    found = []
    for at, (said, answered, results) in enumerate(drawn):
        found.append({"id": f"u{at}", "content": {"role": "user", "parts": said}})
        ids = [f"{at:08x}{n:08x}" for n in range(len(results))]
        calls = [{"functionCall": {"id": each, "name": "look", "args": {"z": 1, "a": 2}}} for each in ids]
        found.append({"id": f"a{at}", "content": {"role": "model", "parts": [*answered, *calls]}})
        for number, (each, result) in enumerate(zip(ids, results, strict=True)):
            part = {"functionResponse": {"id": each, "name": "look", **result}}
            found.append({"id": f"r{at}-{number}", "content": {"role": "user", "parts": [part]}})
    return found


# -- LangChain: ``toDict()`` of its messages

LANGCHAIN_USER: list[Any] = [
    "See",
    [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    ],
    [{"type": "image", "source": BASE64_PNG}],
    [{"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PNG}],
    [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "All."}}],
]
LANGCHAIN_ANSWER: list[Any] = [
    "Sunny.",
    "",
    [{"type": "thinking", "thinking": "Bern.", "signature": "c2ln"}, {"type": "text", "text": "Sunny."}],
]
LANGCHAIN_RESULTS: list[Any] = [
    "sun",
    [{"type": "text", "text": "sun"}, {"temperature": 21}],
    [{"type": "image", "source": BASE64_PNG}],
    ["a", {"b": 1}],
]


def stored(kind: str, **data: Any) -> Json:
    """One message."""
    return {"type": kind, "data": {**data, "additional_kwargs": {}, "response_metadata": {}}}


def langchain_rows(drawn: Sequence[tuple[Any, Any, list[Any]]]) -> list[Json]:
    """A conversation of the same kind."""
    found = []
    for at, (said, answered, results) in enumerate(drawn):
        found.append(stored("human", id=f"u{at}", content=said))
        ids = [f"call_{at}_{n}" for n in range(len(results))]
        calls = [{"name": "look", "args": {"z": 1, "a": 2}, "id": each, "type": "tool_call"} for each in ids]
        found.append(stored("ai", id=f"a{at}", content=answered, tool_calls=calls, invalid_tool_calls=[]))
        for number, (each, content) in enumerate(zip(ids, results, strict=True)):
            found.append(stored("tool", id=f"r{at}-{number}", content=content, tool_call_id=each))
    return found


def some(pool: Sequence[Any]) -> st.SearchStrategy[list[Any]]:
    """One to three of the pool, in any order."""
    return st.lists(st.sampled_from(pool), min_size=1, max_size=3)


def conversations(
    user: st.SearchStrategy[Any], answer: st.SearchStrategy[Any], results: Sequence[Any]
) -> st.SearchStrategy[list[Any]]:
    """Up to four exchanges."""
    gave = st.lists(st.sampled_from(results), max_size=2)
    return st.lists(st.tuples(user, answer, gave), min_size=1, max_size=4)
