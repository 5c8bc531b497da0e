"""How a session is written: as lines to import, as a transcript, for OpenAI's and Letta's programs."""
# ruff: noqa: ARG002 (not every format needs all that it is told)

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from helix_temporal.errors import HelixError
from helix_temporal.models.base import JsonObject, canonical_json
from helix_temporal.models.messages import Message, ToolCall, decode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.session_files.contents import SessionContents
from helix_temporal.session_files.file import (
    Header,
    dump_message,
    dump_part,
    encode_header,
    encode_line,
)


class FileFormat(ABC):
    """Makes the bytes of a file, piece by piece.

    Attributes:
        name: By which a user asks for it.
        holds_several: It has a place for the sessions of sub-agents.
        keeps_rows: It has messages as they are stored; the others have rows of frameworks as messages of
            ours, which are then not as many.
    """

    name: ClassVar[str]
    holds_several: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False

    def begin_file(self, header: Header) -> bytes:
        """What comes first; it is known last."""
        return b""

    @abstractmethod
    def begin_session(self, contents: SessionContents, number: int) -> Iterable[bytes]:
        """What comes before a session's messages; ``number`` counts the sessions before it."""

    def list_first_messages(self, contents: SessionContents) -> list[Message]:
        """Messages that come before those that are stored, and are numbered with them."""
        return []

    @abstractmethod
    def encode_message(self, number: int, message: StoredMessage, session: int) -> bytes:
        """One message; ``number`` counts from 0 in each session, ``session`` the sessions before it."""

    def end_session(self, contents: SessionContents, written: int, session: int) -> bytes:
        """What comes behind a session's messages, of which so many were written."""
        return b""

    def end_file(self, header: Header) -> bytes:
        """What comes last."""
        return b""


class JsonLines(FileFormat):
    """``helix-session/1``, the one that can be imported."""

    name = "jsonl"
    keeps_rows = True

    def begin_file(self, header: Header) -> bytes:
        """The header."""
        return encode_header(header)

    def begin_session(self, contents: SessionContents, number: int) -> Iterable[bytes]:
        """The session's line, and those of its children, runs and usage."""
        yield encode_line("session", dump_part(contents.part))
        for child in contents.children:
            yield encode_line("child", child)
        for run in contents.runs:
            yield encode_line("run", run)
        for entry in contents.usage:
            yield encode_line("usage", entry)

    def encode_message(self, number: int, message: StoredMessage, session: int) -> bytes:
        """The message's line."""
        return encode_line("message", dump_message(number, message))


def read_message(message: StoredMessage) -> Message:
    """The message, or one that says that it cannot be read."""
    try:
        return decode_message(message)
    except HelixError:
        text = f"({len(message.body)} bytes that are no message)"
        return Message(id=message.id or "?", role="foreign", content=text)


# ---- a transcript -----------------------------------------------------------------------------------


class Markdown(FileFormat):
    """A transcript to read, with tool calls and results.

    Texts are quoted or stand in blocks of code: none can look like a heading of the transcript's own.
    """

    name = "md"

    def begin_session(self, contents: SessionContents, number: int) -> Iterable[bytes]:
        """A heading, and what the session is."""
        part, state = contents.part, contents.part.read_state()
        title = (state.title if state else "") or f"Session {part.session_id}"
        facts = [("Session", part.session_id), ("Messages", str(part.messages))]
        if part.parent is not None:
            facts.insert(1, ("Sub-agent of", part.parent))
        if state is not None:
            facts += [
                ("Agent", state.agent_type),
                ("User", state.user_id or ""),
                ("Status", state.status.value),
            ]
            facts += [
                ("Created", _format_time(state.created_at)),
                ("Changed", _format_time(state.updated_at)),
            ]
        lines = [f"- {name}: {_one_line(value)}" for name, value in facts if value]
        head = "#" if part.parent is None else "\n#"
        yield f"{head} {_one_line(title)}\n\n{chr(10).join(lines)}\n".encode()

    def encode_message(self, number: int, message: StoredMessage, session: int) -> bytes:
        """A heading with the role, the text, and the calls."""
        read = read_message(message)
        name = f" ({_one_line(read.name)})" if read.name else ""
        blocks = [f"\n## {number + 1}. {_ROLES[read.role]}{name}{' – failed' if read.is_error else ''}\n"]
        text = _text_of(read)
        if read.role == "tool":
            blocks.append(_fence(text))
        elif text:
            blocks.append(_quote(text))
        blocks += [
            f"Calls `{_name_in_code(call.name)}`:\n\n{_fence(_indent(call.arguments))}"
            for call in read.tool_calls
        ]
        return "\n".join(blocks).encode(errors="replace")


_ROLES: Final = {
    "user": "User",
    "assistant": "Assistant",
    "tool": "Tool result",
    "system": "System",
    "foreign": "Other format",
}


def _text_of(message: Message) -> str:
    """All that can be read of a message; images and files by what they are."""
    if isinstance(message.content, str):
        return message.content
    return "\n\n".join(_describe_part(part) for part in message.content)


def _describe_part(part: Mapping[str, Any]) -> str:
    kind, text = str(part.get("type", "part")), part.get("text")
    if isinstance(text, str):
        return text if kind == "text" else f"({kind}) {text}"
    named = [str(part[key]) for key in ("name", "media_type", "url", "file_id") if part.get(key)]
    return f"({', '.join([kind, *named])})"


def _quote(text: str) -> str:
    """A quotation that no line of the text leaves."""
    return "".join(f"> {line}".rstrip() + "\n" for line in _LINE_ENDS.split(text))


_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
"""What Markdown takes for the end of a line."""


def _fence(text: str) -> str:
    """A block of code that no line of the text ends."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text}\n{marks}\n"


def _indent(arguments: JsonObject) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def _name_in_code(name: str) -> str:
    return _one_line(name).replace("`", "'")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at else ""


# ---- messages as OpenAI's chat completions take them ------------------------------------------------


class OpenAIMessages(FileFormat):
    """A JSON array of messages, as Chat Completions and fine-tuning take them; nothing that only we have."""

    name = "openai"
    holds_several = False

    def begin_file(self, header: Header) -> bytes:
        """The array begins."""
        return b"["

    def begin_session(self, contents: SessionContents, number: int) -> Iterable[bytes]:
        """Nothing: an array of messages has no place for what a session is."""
        return ()

    def list_first_messages(self, contents: SessionContents) -> list[Message]:
        """The instructions that a session workflow keeps with the thread, if it does."""
        instructions = _read_instructions(contents)
        return [Message(id="instructions", role="system", content=instructions)] if instructions else []

    def encode_message(self, number: int, message: StoredMessage, session: int) -> bytes:
        """The message, behind a comma unless it is the first."""
        comma = b",\n" if number else b"\n"
        return comma + canonical_json(make_openai_message(read_message(message)))

    def end_file(self, header: Header) -> bytes:
        """The array ends."""
        return b"\n]\n"


def make_openai_message(message: Message) -> JsonObject:
    """A message in the form of Chat Completions; a row that nobody can read is a user's text."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": _text_of(message)}
    if message.role == "assistant":
        calls: list[Any] = [_make_openai_call(call) for call in message.tool_calls]
        content = message.text
        return (
            {"role": "assistant", "content": content or None, "tool_calls": calls}
            if calls
            else {"role": "assistant", "content": content}
        )
    role = "system" if message.role == "system" else "user"
    if isinstance(message.content, str):
        return {"role": role, "content": message.content}
    return {"role": role, "content": [_make_openai_part(part) for part in message.content]}


def _make_openai_call(call: ToolCall) -> JsonObject:
    arguments = canonical_json(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _make_openai_part(part: Mapping[str, Any]) -> JsonObject:
    if part.get("type") == "image":
        url = part.get("url") or f"data:{part.get('media_type') or 'image/png'};base64,{part.get('data', '')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": _describe_part(part)}


# ---- Letta's agent file -----------------------------------------------------------------------------


class LettaAgentFile(FileFormat):
    """An agent file (``.af``) with an agent a session, in the schema with ``agents`` and ``blocks``.

    It has the messages and the instructions.  An agent here is code, so that there are no tools in it, and
    the model must be chosen where it is loaded.
    """

    name = "af"

    def begin_file(self, header: Header) -> bytes:
        """The list of agents begins."""
        return b'{"agents":['

    def begin_session(self, contents: SessionContents, number: int) -> Iterable[bytes]:
        """The agent up to its messages."""
        part, state = contents.part, contents.part.read_state()
        title = _one_line(state.title) if state else ""
        agent = {
            "id": f"agent-{number}",
            "name": _make_letta_name(title or (state.agent_type if state else "")) or f"session-{number}",
            "description": f"{title} (session {part.session_id})" if title else f"Session {part.session_id}",
            "system": _read_instructions(contents),
            "agent_type": "letta_v1_agent",
            "tags": list(state.tags) if state else [],
            "metadata": dict(state.metadata) if state else {},
            "memory_blocks": [],
            "block_ids": [],
            "tool_ids": [],
            "tool_rules": [],
            "source_ids": [],
            "files_agents": [],
            "group_ids": [],
            "include_base_tools": False,
        }
        yield (b"," if number else b"") + canonical_json(agent)[:-1] + b',"messages":['

    def list_first_messages(self, contents: SessionContents) -> list[Message]:
        """The instructions, also where they are not known: Letta writes its own over the first message."""
        return [Message(id="instructions", role="system", content=_read_instructions(contents))]

    def encode_message(self, number: int, message: StoredMessage, session: int) -> bytes:
        """The message, behind a comma unless it is the first."""
        made = canonical_json(make_letta_message(_letta_id(number, session), read_message(message)))
        return (b",\n" if number else b"\n") + made

    def end_session(self, contents: SessionContents, written: int, session: int) -> bytes:
        """The agent ends, with the ids of all its messages."""
        ids = [_letta_id(number, session) for number in range(written)]
        return b"]," + canonical_json({"in_context_message_ids": ids})[1:]

    def end_file(self, header: Header) -> bytes:
        """The lists that an agent file must have; they are empty."""
        rest: dict[str, list[str]] = {
            name: [] for name in ("blocks", "files", "groups", "mcp_servers", "sources", "tools")
        }
        metadata = {"exported_by": "helix-temporal", "session_id": header.session_id}
        return b"]," + canonical_json({**rest, "metadata": metadata})[1:] + b"\n"


_MOST_MESSAGES: Final = 1_000_000_000
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9 _-]+")
"""Letta refuses a file whose agents have other characters in their names."""


def _letta_id(number: int, session: int) -> str:
    """A message's id: a number behind a hyphen, and no other's in the whole file, or Letta refuses it."""
    return f"message-{session * _MOST_MESSAGES + number}"


def _make_letta_name(text: str) -> str:
    return _NOT_IN_NAME.sub("", text).strip()


def _read_instructions(contents: SessionContents) -> str:
    """Those that a session workflow keeps with the thread, if it does."""
    record = contents.part.read_record()
    return (record.instructions if record else None) or ""


def make_letta_message(message_id: str, message: Message) -> JsonObject:
    """A message in the form of an agent file."""
    role = message.role if message.role in {"system", "user", "assistant", "tool"} else "user"
    made: JsonObject = {
        "id": message_id,
        "type": "message",
        "role": role,
        "content": [{"type": "text", "text": _text_of(message)}],
    }
    if message.tool_calls:
        made["tool_calls"] = [_make_openai_call(call) for call in message.tool_calls]
    if message.role == "tool":
        made["tool_call_id"] = message.tool_call_id or ""
        made["name"] = message.name
        status = "error" if message.is_error else "success"
        made["tool_returns"] = [
            {"tool_call_id": message.tool_call_id or "", "status": status, "func_response": _text_of(message)}
        ]
    return made


JSON_LINES: Final = JsonLines()
FORMATS: Final[dict[str, FileFormat]] = {
    each.name: each for each in (JSON_LINES, Markdown(), OpenAIMessages(), LettaAgentFile())
}
"""How a session can be written, by the names that users give; `jsonl` alone can be imported."""
