"""Version 1 snapshots as zeitlich writes them: ``JSON.stringify``, then Node's gzip with no time in it."""

import json
import re
import zlib
from collections.abc import Sequence
from typing import Any

KEY = "threads/messages/t.json.gz"

STATE = {
    "tasks": [
        ["task-1", {"id": "task-1", "subject": "look", "status": "pending", "blockedBy": [], "blocks": []}]
    ],
    "custom": {"lang": "de", "depth": 2},
}


def text(value: object) -> str:
    """As ``JSON.stringify``: no spaces, nothing escaped that needn't be."""
    found = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", found)


def anthropic(number: int) -> str:
    """A row of its adapter."""
    role = "user" if number % 2 == 0 else "assistant"
    content = [{"type": "text", "text": f"Nachricht {number} \u2028 “ü” 😀\n"}]
    return text({"id": f"m-{number}", "message": {"role": role, "content": content}})


def google(number: int) -> str:
    """A row of its adapter."""
    role = "user" if number % 2 == 0 else "model"
    return text({"id": f"m-{number}", "content": {"role": role, "parts": [{"text": f"part {number}"}]}})


def lang_chain(number: int) -> str:
    """A row of its adapter."""
    kind = "human" if number % 2 == 0 else "ai"
    return text({"type": kind, "data": {"id": f"m-{number}", "content": f"text {number}"}})


def body(rows: Sequence[str], state: Any = None, **changes: Any) -> bytes:
    """The JSON of a snapshot; ``changes`` replace members, ``...`` leaves one away."""
    fields: dict[str, Any] = {
        "v": 1, "messages": list(rows), "state": state, "dedupIds": [f"m-{n}" for n in range(len(rows))],
        **changes,
    }  # fmt: skip
    return text({name: value for name, value in fields.items() if value is not ...}).encode()


def packed(data: bytes) -> bytes:
    """One gzip member, level 6, time 0, made on Unix."""
    member = zlib.compressobj(6, zlib.DEFLATED, 31)
    return member.compress(data) + member.flush()


def snapshot(rows: Sequence[str], state: Any = None, **changes: Any) -> bytes:
    """A snapshot as it lies in the bucket."""
    return packed(body(rows, state, **changes))
