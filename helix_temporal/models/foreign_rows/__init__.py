"""Rows of other systems: a thread keeps them byte for byte, and reads of them what a store must know.

A row is a message of the role ``foreign``, whose ``format`` names its reader.  A reader is a pure function
of one row; it imports nothing of the framework that wrote it.  A row that has no reader, or that its reader
does not understand, is kept as any other: it says nothing, and binds no other row.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from helix_temporal.errors import HelixError
from helix_temporal.models.foreign_rows.agent_framework import read_framework_message
from helix_temporal.models.foreign_rows.claude_agent_sdk import read_claude_entry
from helix_temporal.models.foreign_rows.google_adk import read_adk_event
from helix_temporal.models.foreign_rows.openai_agents import read_openai_item
from helix_temporal.models.foreign_rows.pydantic_ai import read_pydantic_message
from helix_temporal.models.foreign_rows.row import ForeignRow
from helix_temporal.models.foreign_rows.strands import read_strands_message
from helix_temporal.models.foreign_rows.zeitlich import V1_FORMAT, read_zeitlich_row
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.stored_messages import StoredMessage

READERS: Final[Mapping[str, Callable[[Any], ForeignRow]]] = {
    V1_FORMAT: read_zeitlich_row,
    "openai-agents/1": read_openai_item,
    "claude-agent-sdk/1": read_claude_entry,
    "pydantic-ai/1": read_pydantic_message,
    "google-adk/1": read_adk_event,
    "agent-framework/1": read_framework_message,
    "strands/1": read_strands_message,
}
"""By format, or by what stands before its slash where any form behind it is the same reader's."""
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, HelixError)
_MARK: Final = b'"role":"foreign"'
"""Stands in the body of each such row: a body without it is none, and need not be read."""


def is_foreign(stored: StoredMessage) -> bool:
    """Whether a stored message is a row of another system."""
    if _MARK not in stored.body:
        return False
    try:
        # The mark may be an argument of a call as well.
        return bool(json.loads(stored.body)["role"] == "foreign")
    except _UNREADABLE:
        return False


def read_foreign_row(message: Message) -> ForeignRow | None:
    """What a foreign row says; None for any other message, and for a row that cannot be read."""
    if message.role != "foreign":
        return None
    form = message.format or ""
    read = READERS.get(form) or READERS.get(form.partition("/")[0])
    if read is None:
        return None
    try:
        return read(json.loads(message.text))
    except _UNREADABLE:
        return None


def find_foreign_row(stored: StoredMessage) -> ForeignRow | None:
    """As `read_foreign_row`, of a stored message."""
    return read_foreign_row(decode_message(stored)) if _MARK in stored.body else None


def find_said(stored: StoredMessage) -> Message | None:
    """A foreign row as the message of ours that says the same, but for calls and results.

    None where nobody says anything, as in a result, and for whatever is no row that can be read.
    """
    row = find_foreign_row(stored)
    if row is None or row.role is None:
        return None
    try:
        said = row.read_said()
        return None if said is None else Message(id=stored.id, role=row.role, content=said)
    except _UNREADABLE:
        return None
