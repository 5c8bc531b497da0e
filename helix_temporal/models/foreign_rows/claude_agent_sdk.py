"""Entries of a transcript of the Claude Agent SDK: messages of the Messages API, and notes between them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from helix_temporal.models.foreign_rows.content import anthropic_said
from helix_temporal.models.foreign_rows.row import ForeignRow, NamedCall


def read_claude_entry(entry: Mapping[str, Any]) -> ForeignRow:
    """An entry; an answer may be several, each with one block."""
    if entry["type"] not in {"user", "assistant"}:
        # Titles, snapshots of files, attachments, hooks: some of them stand between calls and results.
        return ForeignRow(joins="previous")
    content = entry["message"]["content"]
    blocks = content if isinstance(content, list) else []
    said = partial(anthropic_said, content)
    if entry["type"] == "assistant":
        calls = [NamedCall(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
        is_begun = bool(blocks) and all(block["type"] in _REASONING for block in blocks)
        return ForeignRow(calls, (), "assistant", said, "next" if is_begun else None)
    results = [NamedCall(block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"]
    if entry.get("isMeta") and not results:
        return ForeignRow(joins="previous")
    if entry.get("isSidechain") or entry.get("isCompactSummary"):
        # Another agent speaks to its sub-agent, and a summary takes the place of what was said.
        return ForeignRow(results=results)
    return ForeignRow(results=results, role="user", read_said=said)


_REASONING = frozenset({"thinking", "redacted_thinking"})
