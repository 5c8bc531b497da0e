"""Rows of zeitlich's threads (version 1), whose adapters wrote them in three envelopes."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from helix_temporal.models.foreign_rows.content import (
    Said,
    anthropic_said,
    google_said,
    langchain_given,
    langchain_said,
)
from helix_temporal.models.foreign_rows.row import ROLES, ForeignRow, NamedCall
from helix_temporal.models.messages import Message

V1_FORMAT: Final = "zeitlich-v1"
"""Format of rows of version 1, or what it begins with: ``zeitlich-v1/<adapter>``."""


def shape_of(row: Mapping[str, Any]) -> str:
    """The adapter whose envelope this row of version 1 is, empty if it is none we know."""
    if isinstance(row.get("message"), dict):
        return "anthropic"
    if isinstance(row.get("content"), dict):
        return "googleGenAI"
    return "langChain" if isinstance(row.get("data"), dict) else ""


EXTRAS: Final = "helix"
"""The member of a row that we wrote, for what its envelope has no place for."""
_EXTRA: Final = frozenset(
    {"content", "name", "usage", "summary_usage", "cost_usd", "finish", "given", "provider", "metadata"}
)


def digest_of(row: Mapping[str, Any]) -> str:
    """Of what a row says beside its extras."""
    said = {name: value for name, value in row.items() if name != EXTRAS}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def extras_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the message of ours that was written as this row; none if the row was changed since."""
    extras = row.get(EXTRAS)
    if not isinstance(extras, dict) or extras.get("of") != digest_of(row):
        return {}
    given = {name: value for name, value in extras.items() if name in _EXTRA}
    checked = Message.model_validate({"id": "x", "role": "user", **given})
    return {name: getattr(checked, name) for name in given}


def read_zeitlich_row(row: Mapping[str, Any]) -> ForeignRow:
    """A row of version 1, in whichever envelope it is."""
    shape = shape_of(row)
    asked, answered = _IN[shape](row)
    role, said = _SPOKEN[shape](row)
    return ForeignRow(asked, answered, ROLES.get(role or ""), said, paired=True)


_Tools = tuple[list[NamedCall], list[NamedCall]]
_Spoken = tuple[str | None, Callable[[], Said]]


def _read_anthropic_calls(row: Mapping[str, Any]) -> _Tools:
    message = row["message"]
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    asked = [*_of_type(blocks, "tool_use"), *(message.get("tool_calls") or [])]
    answered = [NamedCall(each["tool_use_id"], None) for each in _of_type(blocks, "tool_result")]
    if message["role"] == "tool":
        answered.append(NamedCall(message["tool_call_id"], None))
    return [NamedCall(each["id"], each["name"]) for each in asked], answered


def _read_google_calls(row: Mapping[str, Any]) -> _Tools:
    given = row["content"]["parts"]
    asked = [part["functionCall"] for part in given if "functionCall" in part]
    answered = [part["functionResponse"] for part in given if "functionResponse" in part]
    return _ids_and_names(asked), _ids_and_names(answered)


def _read_langchain_calls(row: Mapping[str, Any]) -> _Tools:
    data = row["data"]
    answered = [NamedCall(data["tool_call_id"], None)] if row["type"] == "tool" else []
    return _ids_and_names(data.get("tool_calls") or ()) if row["type"] == "ai" else [], answered


_IN: Final = {
    "anthropic": _read_anthropic_calls,
    "googleGenAI": _read_google_calls,
    "langChain": _read_langchain_calls,
}


def _of_type(blocks: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block["type"] == kind]


def _ids_and_names(found: Iterable[Mapping[str, Any]]) -> list[NamedCall]:
    return [NamedCall(each.get("id"), each["name"]) for each in found]


def _anthropic_spoken(row: Mapping[str, Any]) -> _Spoken:
    message = row["message"]
    role = "system" if row.get("isSystem") else message["role"]
    return role, partial(anthropic_said, message.get("content"))


def _google_spoken(row: Mapping[str, Any]) -> _Spoken:
    return row["content"].get("role"), partial(google_said, row["content"]["parts"])


def _langchain_spoken(row: Mapping[str, Any]) -> _Spoken:
    return row["type"], lambda: langchain_said(langchain_given(row["data"])) or ""


_SPOKEN: Final = {
    "anthropic": _anthropic_spoken,
    "googleGenAI": _google_spoken,
    "langChain": _langchain_spoken,
}
