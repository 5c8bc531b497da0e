"""Several messages as records, so that each tool call stays with its results.

What stores keep together is the kind of a record.  A message of ours says it alone; rows of version 1, which
are kept as they came, say it in their providers' words and together: rows with calls get the kind of calls
if results of theirs follow, and everything up to the last of these the kind of results.  Nothing else of
such a thread is known, and rows that nobody can read are let alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from helix_temporal.models.messages import Message, kind_of, to_record
from helix_temporal.models.records import Kind, Record

V1_FORMAT: Final = "zeitlich-v1"
"""Format of rows of version 1, or what it begins with: ``zeitlich-v1/<adapter>``."""


def records_of(messages: Sequence[Message]) -> tuple[Record, ...]:
    """The messages as stores keep them, in a row.

    Raises:
        InvalidMessageError, TooLargeError: As `to_record`.
    """
    kinds = kinds_of(messages)
    return tuple(
        to_record(message)._replace(kind=kind) for message, kind in zip(messages, kinds, strict=True)
    )


def kinds_of(messages: Sequence[Message]) -> list[str]:
    """How a store treats each of these messages, which follow each other."""
    kinds = [kind_of(message) for message in messages]
    begun, waiting = 0, list[_Named]()
    for at, message in enumerate(messages):
        asked, answered = _tools(message)
        if message.role != "foreign":
            waiting = []
        if [each for each in answered if _take(waiting, each)]:
            # A row that answers and asks again belongs to both steps, and so makes them one.
            kinds[begun] = Kind.RESULT if kinds[begun] == Kind.RESULT else Kind.CALLS
            kinds[begun + 1 : at + 1] = [Kind.RESULT] * (at - begun)
        if asked:
            begun, waiting = at, asked
    return kinds


def shape_of(row: Mapping[str, Any]) -> str:
    """The adapter whose envelope this row of version 1 is, empty if it is none we know."""
    if isinstance(row.get("message"), dict):
        return "anthropic"
    if isinstance(row.get("content"), dict):
        return "googleGenAI"
    return "langChain" if isinstance(row.get("data"), dict) else ""


class _Named(NamedTuple):
    """What a call and its result have in common; not every provider says both."""

    id: str | None
    name: str | None


def _take(waiting: list[_Named], result: _Named) -> bool:
    """Whether a call waits for this result, which is answered then."""
    for at, call in enumerate(waiting):
        by_name = result.name is not None and result.name == call.name
        if result.id == call.id if result.id and call.id else by_name:
            del waiting[at]
            return True
    return False


_Tools = tuple[list[_Named], list[_Named]]


def _tools(message: Message) -> _Tools:
    """The calls and the results in a row of version 1; none in any other message."""
    if message.role != "foreign" or not (message.format or "").startswith(V1_FORMAT):
        return [], []
    try:
        row = json.loads(message.text)
        return _IN[shape_of(row)](row)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [], []


def _anthropic(row: Mapping[str, Any]) -> _Tools:
    message = row["message"]
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    asked = [*_of_type(blocks, "tool_use"), *(message.get("tool_calls") or [])]
    answered = [_Named(each["tool_use_id"], None) for each in _of_type(blocks, "tool_result")]
    if message["role"] == "tool":
        answered.append(_Named(message["tool_call_id"], None))
    return [_Named(each["id"], each["name"]) for each in asked], answered


def _google(row: Mapping[str, Any]) -> _Tools:
    given = row["content"]["parts"]
    asked = [part["functionCall"] for part in given if "functionCall" in part]
    answered = [part["functionResponse"] for part in given if "functionResponse" in part]
    return _named(asked), _named(answered)


def _langchain(row: Mapping[str, Any]) -> _Tools:
    data = row["data"]
    answered = [_Named(data["tool_call_id"], None)] if row["type"] == "tool" else []
    return _named(data.get("tool_calls") or ()) if row["type"] == "ai" else [], answered


_IN: Final = {"anthropic": _anthropic, "googleGenAI": _google, "langChain": _langchain}


def _of_type(blocks: Iterable[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [block for block in blocks if block["type"] == kind]


def _named(found: Iterable[Mapping[str, Any]]) -> list[_Named]:
    return [_Named(each.get("id"), each["name"]) for each in found]
